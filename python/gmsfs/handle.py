# SPDX-License-Identifier: Apache-2.0
"""One gmsfs_t, and the objects that keep it alive.

A Store and everything that points into its mappings hold a reference to the Handle; the last of them
to go closes it. So no tensor ever outlives its memory, and a deleter is Python's own reference count:
each user of its memory (torch, NumPy) holds a Python object. (A DLPack capsule with a deleter that
is a ctypes callback would run Python code wherever a tensor dies, also while an exception is unwinding
the stack: CPython 3.11 crashes there.)
"""

import atexit
import ctypes
import errno
import math
import numbers
import os
import threading
import time
from typing import Any, Optional

from . import abi, errors, library

# Calls that come to the GPU's driver, and the errnos that it has a part in.
_ON_DEVICE = frozenset(
    "gmsfs_" + name
    for name in (
        "attach_all",
        "attach_mapping",
        "commit",
        "copy_private",
        "destroy_mapping",
        "reallocate_all_handles",
        "remap_all_vas",
        "remap_tag",
        "retarget",
        "unmap_all_vas",
        "unmap_tag",
        "graph_alloc",
        "graph_enter",
        "graph_grow",
        "graph_leave",
        "graph_shrink",
        "graph_sleep",
        "graph_space_alloc",
        "graph_space_free",
        "graph_space_new",
        "graph_wake",
    )
)
_OF_DEVICE = frozenset((errno.EIO, errno.ENODEV, errno.ENOMEM, errno.EBUSY, errno.EOPNOTSUPP))

# Calls with an ESTALE that does not mean the session.
_OF_LAYOUT = frozenset(("gmsfs_join", "gmsfs_remap_all_vas", "gmsfs_remap_tag", "gmsfs_retarget"))

# Not now, perhaps later; with memory to be set aside, ENOMEM is one of them.
_NOT_NOW = (-errno.EAGAIN, -errno.ENOMEM)
_AGAIN_SECONDS = 0.01
_INTERRUPTS = 100
_FOREVER = float("inf")

_NO_MOUNT = (
    "no such store, and its directory is no gmsfs mount; stores are directly below a mount, and "
    "'gmsfs status' lists the mounts"
)
_exiting = False  # also None, once the interpreter has taken this module apart


def _note_exit() -> None:
    global _exiting
    _exiting = True


# Handles that still live then end with the process: the kernel unmaps and releases the lock.
atexit.register(_note_exit)


def milliseconds(timeout: Optional[float]) -> Any:
    """Of seconds, or None. Rounded up: only 0 does not wait."""
    if timeout is None:
        return abi.TIMEOUT_FOREVER
    if not isinstance(timeout, numbers.Real) or isinstance(timeout, bool):
        raise TypeError(f"timeout is a number of seconds, or None, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"timeout is seconds from 0 up, or None, not {timeout!r}")
    if timeout * 1000 >= abi.TIMEOUT_FOREVER:
        return abi.TIMEOUT_FOREVER
    return math.ceil(timeout * 1000)


def has_mount(path: str) -> bool:
    """Whether the directory of this store is a gmsfs mount."""
    return os.path.exists(os.path.join(os.path.dirname(path.rstrip("/")) or ".", "device"))


def nothing() -> None:
    pass


class Handle:
    __slots__ = ("pointer", "path", "lib", "lost", "process", "__weakref__")

    def __init__(self, path: Any) -> None:
        self._open(path, "gmsfs_open")

    def _open(self, path: Any, function: str, *arguments: Any) -> None:
        self.pointer = None
        self.process = os.getpid()  # where it is not dead
        self.path = os.fsdecode(path)
        self.lib = library.get()
        self.lost = False  # a lock that it had was taken from it, and the library has forgotten it since
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ValueError(f"{self.path!r}: a path holds no NUL")
        pointer = ctypes.c_void_p()
        result = getattr(self.lib, function)(encoded, *arguments, ctypes.byref(pointer))
        is_outside = result == -errno.ENOENT and not has_mount(self.path)
        self.check(function, result, _NO_MOUNT if is_outside else "")
        self.pointer = pointer

    def _close(self) -> None:
        self.lib.gmsfs_close(self.pointer)

    def __del__(self) -> None:
        if _exiting is False and getattr(self, "pointer", None):
            self._close()
            self.pointer = None

    def is_exiting(self) -> Any:
        """Whether the process ends, and all is left to the kernel."""
        return _exiting is not False

    def device_pointer(self) -> Any:
        """The gmsfs_t that the driver's complaints are asked of."""
        return self.pointer

    def call(self, name: str, *arguments: Any) -> Any:
        """Calls `name` on the handle. Raises gmsfs.Error; returns results that are not negative."""
        return self.check(name, getattr(self.lib, name)(self.pointer, *arguments))

    def check(self, name: str, result: Any, why: str = "") -> Any:
        if result is not None and result < 0:
            if result == -errno.ESTALE and name not in _OF_LAYOUT:
                self.lost = True
            raise self.error(name, -result, why)
        return result

    def check_process(self, name: str) -> None:
        """For calls that cannot say ECHILD themselves."""
        if self.process != os.getpid():
            raise self.error(name, errno.ECHILD)

    def error(self, name: str, code: int, why: str = "") -> Any:
        return errors.make(code, self.path, name, why, self._device_error(name, code))

    def _device_error(self, name: str, code: int) -> Any:
        """The driver's text, if the call used the driver: the library keeps the last one."""
        if name not in _ON_DEVICE or code not in _OF_DEVICE or self.pointer is None:
            return ""
        text = ctypes.create_string_buffer(abi.DEVICE_ERROR_BYTES)
        self.lib.gmsfs_device_error(self.device_pointer(), text)
        return text.value.decode(errors="replace")

    # ---- waiting for locks --------------------------------------------------------------------

    def connect(self, mode: int, timeout: Optional[float], reserve_bytes: int = 0) -> None:
        """Takes the lock."""

        def attempt(ms: Any) -> Any:
            if reserve_bytes:
                return self.lib.gmsfs_connect_reserve(self.pointer, mode, ms, reserve_bytes)
            return self.lib.gmsfs_connect(self.pointer, mode, ms)

        self._connected(mode, self.wait(attempt, timeout, self.release))

    async def connect_async(self, mode: int, timeout: Optional[float], reserve_bytes: int = 0) -> None:
        """Takes the lock as connect() does; while it waits the event loop goes on. Cancelled, it has
        left the queue."""
        timeout_ms, fd = milliseconds(timeout), ctypes.c_int(-1)
        result = self.lib.gmsfs_connect_start(
            self.pointer, mode, timeout_ms, reserve_bytes, ctypes.byref(fd)
        )
        try:
            while result == -errno.EINPROGRESS:
                await _readable(fd.value)
                result = self.lib.gmsfs_connect_continue(self.pointer)
        except BaseException:
            self.lib.gmsfs_disconnect(self.pointer)
            raise
        self._connected(mode, result)

    def _connected(self, mode: int, result: int) -> None:
        why = self._why_not(mode) if result in (-errno.EAGAIN, -errno.ETIMEDOUT) else ""
        self.check("gmsfs_connect", result, why)
        self.lost = False

    def _why_not(self, mode: int) -> str:
        """Why a free lock was not granted; "" if it is not free, or the cause is not known."""
        raw = abi.Info()
        if self.lib.gmsfs_get_info(self.pointer, ctypes.byref(raw), ctypes.sizeof(raw)) < 0:
            return ""
        state = abi.STATES[raw.state] if raw.state < len(abi.STATES) else ""
        if mode == abi.MODE_RO and state in ("EMPTY", "LAYOUT_COMMITTED"):
            return "nothing is committed in it; load or publish something, or give more time to wait for it"
        if state == "COMMITTED" and not raw.residency & abi.RESIDENCY["device"]:
            return "its bytes did not come to the device; 'gmsfs promote' brings them, or says why not"
        return ""

    def retarget(self, path: Any, timeout: Optional[float]) -> None:
        """Maps the store at `path` in place of the present one. If interrupted, it still has the present
        store, or sleeps on it."""
        attempt = self._retarget_attempt(path)
        self._retargeted(path, self.wait(attempt, timeout, self._fall_asleep))

    async def retarget_async(self, path: Any, timeout: Optional[float]) -> None:
        """The same; while it waits the event loop goes on. Cancelled, it is as if interrupted."""
        attempt = self._retarget_attempt(path)
        result = await wait_async(attempt, timeout, self._fall_asleep, self.cancel)
        self._retargeted(path, result)

    def _retarget_attempt(self, path: Any) -> Any:
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ValueError(f"{os.fsdecode(path)!r}: a path holds no NUL")
        return lambda ms: self.lib.gmsfs_retarget(self.pointer, encoded, ms)

    def _fall_asleep(self) -> None:
        self.lib.gmsfs_unmap_all_vas(self.pointer, 0)

    def _retargeted(self, path: Any, result: int) -> None:
        if result < 0:
            raise errors.make(
                -result,
                os.fsdecode(path),
                "gmsfs_retarget",
                "",
                self._device_error("gmsfs_retarget", -result),
            )
        self.path = os.fsdecode(path)

    def wait(self, attempt: Any, timeout: Optional[float], undo: Any) -> Any:
        """Returns the answer of attempt(milliseconds). Ctrl-C ends a wait in the main thread; undo()
        releases a grant of that moment."""
        return wait(attempt, timeout, undo, self.cancel)

    def call_long(self, name: str, *arguments: Any, undo: Any = nothing) -> Any:
        """As call(), for calls that may wait for memory: in the main thread Ctrl-C ends the wait."""
        function = getattr(self.lib, name)
        return self.check(name, interruptible(lambda: function(self.pointer, *arguments), undo, self.cancel))

    async def call_long_async(self, name: str, *arguments: Any, undo: Any = nothing) -> Any:
        """The same, while the event loop goes on."""
        function = getattr(self.lib, name)
        attempt = _Attempt(lambda: function(self.pointer, *arguments))
        return self.check(name, await attempt.answer_async(undo, self.cancel))

    def cancel(self) -> None:
        """Ends the wait of another thread's call on this handle."""
        self.lib.gmsfs_cancel(self.device_pointer())

    def release(self) -> None:
        """Gives the lock back, or ends the wait for it; the mappings stay. A dead mount or session has
        taken it already."""
        self.lib.gmsfs_disconnect(self.pointer)


def wait(attempt: Any, timeout: Optional[float], undo: Any, cancel: Any) -> Any:
    """See Handle.wait."""
    timeout_ms = milliseconds(timeout)
    result = attempt(0)
    if timeout_ms and result in _NOT_NOW:
        return interruptible(lambda: attempt(timeout_ms), undo, cancel)
    return result


async def wait_async(attempt: Any, timeout: Optional[float], undo: Any, cancel: Any) -> Any:
    """The same for a coroutine, while the event loop goes on. Cancelled, it waits no more."""
    timeout_ms = milliseconds(timeout)
    result = attempt(0)
    if timeout_ms and result in _NOT_NOW:
        return await _Attempt(lambda: attempt(timeout_ms)).answer_async(undo, cancel)
    return result


def interruptible(call: Any, undo: Any, cancel: Any, patience: float = _FOREVER) -> Any:
    """Returns the answer of call(). In the main thread Ctrl-C ends its wait by cancel(); undo() is for a 0
    that came all the same, perhaps twice. patience: longest wait for the call's end then, in seconds;
    after that the call is abandoned, and undone when it ends."""
    if threading.current_thread() is threading.main_thread() and _exiting is False:
        return _Attempt(call, patience).answer(undo, cancel)
    return call()


class _Attempt:
    """A call that may wait, in a thread: the library waits on through signals, and Python acts on them
    between two calls only. The interrupted thread ends the wait, and sees it end. An interrupt may come
    at any step, also before the thread has begun, and others while the wait is being ended."""

    def __init__(self, call: Any, patience: float = _FOREVER) -> None:
        self._call = call
        self._patience = patience
        self._begun = self._given_up = False
        self._left: Any = None  # the undo of a result that no thread waits for any more
        self._done = threading.Event()
        self._tell: Any = None
        self._result: Any = None
        self._error: Any = None

    def _run(self) -> None:
        self._begun = True
        try:
            if not self._given_up:
                self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self._error = error
        finally:
            self._done.set()
            if self._left and self._result == 0:
                self._left()
            if self._tell:
                self._tell()

    def _start(self) -> None:
        threading.Thread(target=self._run, name="gmsfs-wait", daemon=True).start()

    def answer(self, undo: Any, cancel: Any) -> Any:
        """Returns the answer of the call."""
        try:
            try:
                self._start()
            except RuntimeError:
                self._result = self._call()  # no thread is to be had
                self._done.set()
            self._done.wait()
        except BaseException:
            self._give_up(undo, cancel)
            raise
        return self._answered()

    async def answer_async(self, undo: Any, cancel: Any) -> Any:
        import asyncio

        loop, ready = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:
                pass  # the loop is closed, and with it every waiter

        self._tell = tell
        try:
            self._start()
            await ready.wait()
        except BaseException:
            self._give_up(undo, cancel)
            raise
        return self._answered()

    def _answered(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def _give_up(self, undo: Any, cancel: Any) -> None:
        end = time.monotonic() + self._patience
        for _ in range(_INTERRUPTS):
            try:
                self._given_up = True  # and then look: the thread does it the other way round
                while self._begun and not self._done.wait(0) and time.monotonic() < end:
                    cancel()  # again, for the thread may not have come to the call before
                    self._done.wait(_AGAIN_SECONDS)
                if not self._done.is_set():  # out of patience: the undo has to be done once
                    self._left = undo  # and then look, again
                if self._result == 0:
                    undo()
                return
            except BaseException:  # noqa: BLE001 - another interrupt; the first is on its way
                continue


async def _readable(fd: int) -> None:
    """Returns once the descriptor can be read."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
