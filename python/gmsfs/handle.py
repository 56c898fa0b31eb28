# SPDX-License-Identifier: Apache-2.0
"""One gmsfs_t, and who keeps it alive.

A Store and everything that points into its mappings hold a reference to the Handle; the last of them
to go closes it. So no tensor ever outlives its memory, and a deleter is Python's own reference count:
whoever takes memory from here (torch, NumPy) holds a Python object. (A DLPack capsule whose deleter
is a ctypes callback would run Python code wherever a tensor dies, also while an exception is unwinding
the stack: CPython 3.11 crashes there.)
"""

import atexit
import ctypes
import errno
import math
import os
import threading

from . import abi, errors, library

# Calls that come to the GPU's driver, and the errnos that it has a part in.
_ON_DEVICE = frozenset(
    "gmsfs_" + name
    for name in (
        "attach_all",
        "attach_mapping",
        "commit",
        "destroy_mapping",
        "remap_all_vas",
        "retarget",
        "unmap_all_vas",
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

_exiting = False  # also None, once the interpreter has taken this module apart


def _note_exit():
    global _exiting
    _exiting = True


# What still lives then goes with the process: the kernel unmaps and gives the lock back.
atexit.register(_note_exit)


def _milliseconds(timeout):
    """Of seconds, or None. Rounded up: only 0 does not wait."""
    if timeout is None:
        return abi.TIMEOUT_FOREVER
    if not timeout >= 0:
        raise ValueError(f"timeout is seconds from 0 up, or None, not {timeout!r}")
    if timeout * 1000 >= abi.TIMEOUT_FOREVER:
        return abi.TIMEOUT_FOREVER
    return math.ceil(timeout * 1000)


class Handle:
    __slots__ = ("pointer", "path", "lib", "abandoned", "__weakref__")

    def __init__(self, path):
        self._open(path, "gmsfs_open")

    def _open(self, path, function, *arguments):
        self.pointer = None
        self.path = os.fsdecode(path)
        self.lib = library.get()
        self.abandoned = False
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ValueError(f"{self.path!r}: a path holds no NUL")
        pointer = ctypes.c_void_p()
        self.check(
            function, getattr(self.lib, function)(encoded, *arguments, ctypes.byref(pointer))
        )
        self.pointer = pointer

    def _close(self):
        self.lib.gmsfs_close(self.pointer)

    def __del__(self):
        if _exiting is False and getattr(self, "pointer", None):
            self._close()
            self.pointer = None

    def is_exiting(self):
        """Whether the process ends, and all is left to the kernel."""
        return _exiting is not False

    def device_pointer(self):
        """The gmsfs_t that the driver's complaints are asked of."""
        return self.pointer

    def call(self, name, *arguments):
        """Calls `name` on the handle. Raises gmsfs.Error; passes on what is not negative."""
        return self.check(name, getattr(self.lib, name)(self.pointer, *arguments))

    def check(self, name, result, why=""):
        if result is not None and result < 0:
            raise self.error(name, -result, why)
        return result

    def error(self, name, code, why=""):
        return errors.make(code, self.path, name, why, self._device_error(name, code))

    def _device_error(self, name, code):
        """What the driver said, where it was asked: the library keeps the last of its complaints."""
        if name not in _ON_DEVICE or code not in _OF_DEVICE or self.pointer is None:
            return ""
        text = ctypes.create_string_buffer(abi.DEVICE_ERROR_BYTES)
        self.lib.gmsfs_device_error(self.device_pointer(), text)
        return text.value.decode(errors="replace")

    # ---- waiting for locks --------------------------------------------------------------------

    def connect(self, mode, timeout, reserve_bytes=0):
        """Takes the lock."""

        def attempt(ms):
            if reserve_bytes:
                return self.lib.gmsfs_connect_reserve(self.pointer, mode, ms, reserve_bytes)
            return self.lib.gmsfs_connect(self.pointer, mode, ms)

        self.check(
            "gmsfs_connect",
            self.wait(attempt, timeout, lambda: self.lib.gmsfs_disconnect(self.pointer)),
        )

    def retarget(self, path, timeout):
        """Maps the store at `path` in place of the one that is mapped. Interrupted, it sleeps."""
        encoded = os.fsencode(path)
        if b"\0" in encoded:
            raise ValueError(f"{os.fsdecode(path)!r}: a path holds no NUL")
        result = self.wait(
            lambda ms: self.lib.gmsfs_retarget(self.pointer, encoded, ms),
            timeout,
            lambda: self.lib.gmsfs_unmap_all_vas(self.pointer, 0),
        )
        if result < 0:
            raise errors.make(
                -result,
                os.fsdecode(path),
                "gmsfs_retarget",
                "",
                self._device_error("gmsfs_retarget", -result),
            )
        self.path = os.fsdecode(path)

    def wait(self, attempt, timeout, undo):
        """What attempt(milliseconds) answers. A wait in the main thread can be ended by Ctrl-C, and undo()
        then gives back what still comes of it."""
        timeout_ms = _milliseconds(timeout)
        result = attempt(0)
        # With memory to be set aside, ENOMEM may also mean: not now.
        if timeout_ms and result in (-errno.EAGAIN, -errno.ENOMEM):
            if threading.current_thread() is threading.main_thread():
                return self._wait(attempt, timeout_ms, undo)
            return attempt(timeout_ms)
        return result

    def _wait(self, attempt, timeout_ms, undo):
        """The library waits on through signals, and Python acts on them between two calls only. So a
        thread waits, and if the main one is interrupted, the grant that may come goes back. Until then
        the handle is abandoned: its calls would wait for that one."""
        results = []
        done = threading.Event()
        lock = threading.Lock()  # between "it was granted" and "nobody wants it"

        def give_back():
            if results[0] == 0:
                undo()
            self.abandoned = False

        def wait():
            result = attempt(timeout_ms)
            with lock:
                results.append(result)
                if self.abandoned:
                    give_back()
            done.set()

        threading.Thread(target=wait, name="gmsfs-wait", daemon=True).start()
        try:
            done.wait()
        except BaseException:
            with lock:
                self.abandoned = True
                if results:
                    give_back()
            raise
        return results[0]

    def release(self):
        """Gives the lock back; the mappings stay. A dead mount or session has taken it already."""
        if not self.abandoned:
            self.lib.gmsfs_disconnect(self.pointer)
