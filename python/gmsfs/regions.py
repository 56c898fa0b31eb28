# SPDX-License-Identifier: Apache-2.0
"""Named regions of shared memory, as clients of Triton register them.

    import gmsfs.regions

    with gmsfs.regions.open("/mnt/gms/gpu0") as regions:
        regions.register("input0", key="/input0_data", byte_size=64)
        with regions.open("input0") as region:
            data = region.read(0, 64)

A region belongs to its user: only the user and root see it. See gmsfs-python(7).
"""

import contextlib
import ctypes
import errno
import functools
import mmap
import operator
import os
import threading
from typing import Any, Optional, Sequence

from . import abi, library, memory
from .arguments import whole_number
from .errors import Error
from .handle import interruptible, nothing
from .metadata import encode_text

# By their numbers in gmsfs_abi.h: a name for programs, and words for people.
REASONS = (
    ("fine", ""),
    ("bad_name", "a name is 1 to 255 bytes of UTF-8, without NUL, also as a file is called by it"),
    ("exists", "you have a region of this name, perhaps one that is still in use"),
    ("bad_key", "a key is 1 to 511 bytes of UTF-8, and more than slashes"),
    ("reserved_key", "a key may not begin with triton_python_backend_shm_region_"),
    ("no_object", "the object of the key cannot be opened"),
    ("bad_object", "the descriptor is of no file in memory that can be read, or one is missing"),
    ("bad_range", "offset and byte_size are not within the object"),
    ("no_size", "a region has at least one byte"),
    ("bad_handle", "a handle of CUDA memory has 64 bytes"),
    ("uncommitted", "the store has nothing committed, or it has a writer or a waiting one"),
    ("not_owner", "it is another user's: only root acts for others"),
    ("bound", "a bound is reached; the mount's file 'events' tells which"),
    ("drained", "the mount is drained and takes no more regions"),
    ("unknown", "you have no such region"),
    ("bad_offset", "it begins at or behind the region's end"),
    ("overflow", "offset and size are more than 64 bits can say"),
    ("bad_end", "it ends behind the region's end"),
    ("shrunk", "the client has made its memory smaller"),
)

_KINDS = {None: 0, "system": 1, "cuda": 2}
_KIND_NAMES = {1: "system", 2: "cuda"}

# A cancelled call ends within a tenth of a second, unless the kernel waits for the mount's daemon.
_PATIENCE_SECONDS = 0.5

_INT_MAX = 2**31 - 1
_ID_MAX = 2**32 - 2  # the next number is no uid


class RegionError(Error):
    """A call on regions failed. reason: one of the names in REASONS; "fine" where errno says all."""

    def __init__(self, code: int, mount: Any, call: str, reason: str = "fine") -> None:
        super().__init__(code, mount, call, dict(REASONS)[reason])
        self.reason = reason

    def __reduce__(self) -> Any:
        return type(self), (self.errno, self.filename, self.call, self.reason)


class Info:
    """A region: name, kind ("system", "cuda"), key, offset, byte_size, uid (its owner's),
    references, draining, writable, is_allocation (it lies on memory of a store), device_id and
    raw_handle (CUDA; else 0 and None), memory (of its descriptor: "host", "cuda", or None),
    registered (seconds since 1970)."""

    __slots__ = (
        "name",
        "kind",
        "key",
        "offset",
        "byte_size",
        "uid",
        "references",
        "draining",
        "writable",
        "is_allocation",
        "device_id",
        "raw_handle",
        "memory",
        "registered",
    )

    def __init__(self, facts: Any) -> None:
        self.name = facts.name.decode()
        self.kind = _KIND_NAMES[facts.kind]
        self.key = facts.key.decode()
        self.offset = facts.offset
        self.byte_size = facts.byte_size
        self.uid = facts.uid
        self.references = facts.references
        self.draining = bool(facts.flags & abi.REGION_DRAINING)
        self.writable = bool(facts.flags & abi.REGION_WRITABLE)
        self.is_allocation = bool(facts.flags & abi.REGION_ALLOCATION)
        self.device_id = facts.device_id
        self.raw_handle = bytes(facts.raw_handle) if self.kind == "cuda" else None
        has_descriptor = facts.flags & abi.REGION_DESCRIPTOR
        self.memory = memory.name_of(facts.memory) if has_descriptor else None
        self.registered = facts.registered_ms / 1000

    def __repr__(self) -> str:
        return f"<gmsfs.regions.Info {self.name!r}: {self.kind}, {self.byte_size} bytes>"


def _once(undo: Any) -> Any:
    """For two threads, of which one does it."""
    left = [undo]

    def run() -> None:
        with contextlib.suppress(IndexError):
            left.pop()()

    return run


def open(mount: Any) -> "Regions":
    """The regions of the mount at this path. The caller closes it, or uses it in a `with`. In the main
    thread Ctrl-C ends a wait for the mount's daemon, which may still carry out the request."""
    return Regions(mount)


class _Owner:
    """A handle of the library. Each use enters it; after close() the last use that ends frees it, so no
    call runs on memory that another thread has freed. No call waits here, also not behind fork(): other
    threads see each step whole."""

    def __init__(self, pointer: Any, free: Any, closed: Any) -> None:
        self._pointer, self._free, self._closed_message = pointer, free, closed
        self._users: Any = []
        self._is_closed = False
        self._ended = threading.Lock()  # taken once

    def __enter__(self) -> Any:
        self._users.append(None)
        if self._is_closed:
            self.__exit__()
            self.check()
        return self._pointer

    def __exit__(self, *exception: Any) -> None:
        self._users.pop()
        self._end_if_last()

    def check(self) -> None:
        if self._is_closed:
            raise ValueError(self._closed_message)

    def close(self) -> None:
        self._is_closed = True
        self._end_if_last()

    def _end_if_last(self) -> None:
        if self._is_closed and not self._users and self._ended.acquire(blocking=False):
            self._free(self._pointer)


class Regions:
    """The regions of one mount. uid, in each call: the owner; None is the caller, only root may name another.
    kind: "system", "cuda", or None for either. Any thread may call; not a child of fork()."""

    def __init__(self, mount: Any) -> None:
        self.mount = os.fsdecode(mount)
        encoded, pointer = os.fsencode(mount), ctypes.c_void_p()
        if b"\0" in encoded:
            raise ValueError(f"{self.mount!r}: a path holds no NUL")
        close = library.get().gmsfs_regions_close
        call = functools.partial(library.get().gmsfs_regions_open, encoded, ctypes.byref(pointer))
        undo = _once(lambda: close(pointer))
        result = interruptible(call, undo, nothing, _PATIENCE_SECONDS)
        _check(self.mount, "gmsfs_regions_open", result)
        self._owner = _Owner(pointer, close, f"{self.mount}: it is closed")

    def cancel(self) -> None:
        """Ends the wait of another thread's call, with an Error (ECANCELED): if the mount's daemon does not
        run, a call waits for an answer up to half a minute."""
        with self._owner as pointer:
            library.get().gmsfs_regions_cancel(pointer)

    def close(self) -> None:
        """Closes it; regions stay registered, and open ones stay open. Waiting calls of other threads are
        cancelled, and later calls raise ValueError."""
        with contextlib.suppress(ValueError):
            self.cancel()
        self._owner.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_owner"):
            self._owner.close()

    def register(
        self,
        name: str,
        key: str,
        byte_size: int,
        offset: int = 0,
        fd: Optional[int] = None,
        uid: Optional[int] = None,
        gid: int = 0,
        groups: Sequence[int] = (),
    ) -> None:
        """Registers `byte_size` bytes from `offset` on of a shared-memory object.

        fd: of the object, which stays the caller's; None: key names it in /dev/shm, or as
        STORE/ALLOCATION committed memory of a store. gid, groups: of another uid, by which he reads
        that store."""
        request = self._request(1, name, byte_size, uid)
        request.key = self._text(key, abi.REGION_KEY_MAX, "bad_key", "gmsfs_region_register")
        request.offset = self._number(offset, "bad_range")
        request.fd = -1 if fd is None else whole_number("fd", fd, 0, _INT_MAX)
        gids = [whole_number("a group", group, 0, _ID_MAX) for group in groups]
        numbers = (ctypes.c_uint32 * len(gids))(*gids)
        request.gid = whole_number("gid", gid, 0, _ID_MAX)
        request.groups, request.group_count = numbers, len(gids)
        self._register(request)

    def register_cuda(
        self,
        name: str,
        raw_handle: bytes,
        byte_size: int,
        device_id: int = 0,
        uid: Optional[int] = None,
    ) -> None:
        """Registers memory of a GPU by the 64 bytes of its cudaIpcMemHandle_t."""
        request = self._request(2, name, byte_size, uid)
        handle = _bytes(raw_handle)
        request.raw_handle, request.raw_handle_bytes = handle, len(handle)
        request.device_id = whole_number("device_id", device_id, -(2**63), 2**63 - 1)
        request.fd = -1
        self._register(request)

    def unregister(self, name: str, kind: Optional[str] = None, uid: Optional[int] = None) -> None:
        """The region goes, at once or with its last reference. KeyError: there is none, or it is of the
        other kind, which the error says."""
        try:
            self._of_name("gmsfs_region_unregister", name, uid, _kind(kind))
        except KeyError:
            other = self.get(name, uid=uid) if kind else None
            if other and other.kind != kind:
                raise KeyError(f"{name}: a region of kind {other.kind}, not {kind}") from None
            raise

    def unregister_all(self, kind: Optional[str] = None, uid: Optional[int] = None) -> int:
        """How many there were."""
        count = ctypes.c_uint64()
        self._call("gmsfs_region_unregister_all", _uid(uid), _kind(kind), ctypes.byref(count))
        return count.value

    def get(self, name: str, kind: Optional[str] = None, uid: Optional[int] = None) -> Any:
        """One region's Info, or None."""
        facts = abi.RegionInfo()
        try:
            self._of_name("gmsfs_region_get", name, uid, _kind(kind), ctypes.byref(facts))
        except KeyError:
            return None
        return Info(facts)

    def list(self, kind: Optional[str] = None, uid: Optional[int] = None) -> Any:
        """The Info of each, in order of names."""
        found, count = ctypes.POINTER(abi.RegionInfo)(), ctypes.c_size_t()
        free = library.get().gmsfs_region_list_free
        self._call(
            "gmsfs_region_list",
            _uid(uid),
            _kind(kind),
            ctypes.byref(found),
            ctypes.byref(count),
            ctypes.sizeof(abi.RegionInfo),
            undo=_once(lambda: free(found)),
        )
        try:
            return [Info(found[i]) for i in range(count.value)]
        finally:
            free(found)

    def __iter__(self) -> Any:
        return iter(self.list())

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def open(self, name: str, uid: Optional[int] = None) -> "Region":
        """A reference to a region, of either kind, which keeps it until it is closed. KeyError."""
        handle, reason = ctypes.c_void_p(), ctypes.c_uint()
        call = "gmsfs_region_open"
        text = self._text(name, abi.REGION_NAME_MAX, "bad_name", call)
        close = library.get().gmsfs_region_close
        try:
            self._call(
                call,
                _uid(uid),
                text,
                ctypes.byref(handle),
                ctypes.byref(reason),
                reason=reason,
                undo=_once(lambda: close(handle)),
            )
        except RegionError as error:
            if error.errno == errno.ENOENT:
                raise KeyError(name) from None
            raise
        return Region(self.mount, handle)

    # -- the library -----------------------------------------------------------------------------

    def _call(self, call: str, *arguments: Any, reason: Any = None, undo: Any = nothing) -> None:
        function, owner = getattr(library.get(), call), self._owner

        def attempt() -> Any:
            with owner as handle:
                return function(handle, *arguments)

        def cancel() -> None:
            with contextlib.suppress(ValueError):  # closed
                self.cancel()

        _check(self.mount, call, interruptible(attempt, undo, cancel, _PATIENCE_SECONDS), reason)

    def _of_name(self, call: str, name: str, uid: Optional[int], *arguments: Any) -> None:
        text = self._text(name, abi.REGION_NAME_MAX, "bad_name", call)
        try:
            if call == "gmsfs_region_get":
                kind, facts = arguments
                size = ctypes.sizeof(abi.RegionInfo)
                self._call(call, _uid(uid), kind, text, facts, size)
            else:
                self._call(call, _uid(uid), *arguments, text)
        except RegionError as error:
            if error.errno == errno.ENOENT:
                raise KeyError(name) from None
            raise

    def _text(self, text: str, most: Any, reason: Any, call: str) -> Any:
        if not isinstance(text, str):
            raise TypeError(f"{self.mount}: a region's name or key is a string, not {text!r}")
        encoded = encode_text(text, most)
        if encoded is None:
            raise RegionError(errno.EINVAL, self.mount, call, reason)
        return encoded

    def _number(self, number: int, reason: Any) -> Any:
        number = operator.index(number)
        if not 0 <= number < 1 << 64:
            raise RegionError(errno.EINVAL, self.mount, "gmsfs_region_register", reason)
        return number

    def _request(self, kind: Any, name: str, byte_size: int, uid: Optional[int]) -> Any:
        call = "gmsfs_region_register"
        return abi.RegionRequest(
            kind=kind,
            uid=_uid(uid),
            name=self._text(name, abi.REGION_NAME_MAX, "bad_name", call),
            byte_size=self._number(byte_size, "bad_range"),
        )

    def _register(self, request: Any) -> None:
        reason = ctypes.c_uint()
        self._call(
            "gmsfs_region_register",
            ctypes.byref(request),
            ctypes.byref(reason),
            reason=reason,
        )


class Region:
    """A reference to a region. info: as it was when this was opened. Any thread may call."""

    def __init__(self, mount: Any, handle: Any) -> None:
        self.mount = mount
        closed = f"{mount}: the region is closed"
        self._owner = _Owner(handle, library.get().gmsfs_region_close, closed)
        self.info = Info(library.get().gmsfs_region_info(handle).contents)

    def close(self) -> None:
        """Gives the reference back, once running calls of other threads have ended. Views of view() stay
        readable."""
        self._owner.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_owner"):
            self._owner.close()

    def read(self, offset: int = 0, size: Optional[int] = None) -> bytes:
        """Bytes from `offset` on, all of them or an error; size None: to the region's end. If the
        client has made its memory smaller, that is an error (reason "shrunk"), never a signal."""
        offset = operator.index(offset)
        size = max(self.info.byte_size - offset, 0) if size is None else operator.index(size)
        self._check(offset, size)
        room = ctypes.create_string_buffer(max(size, 1))
        self._move("gmsfs_region_read", offset, room, size)
        return room.raw[:size]

    def write(self, offset: int, data: Any) -> None:
        """All of `data`, or an error."""
        offset, data = operator.index(offset), _bytes(data)
        self._check(offset, len(data))
        self._move("gmsfs_region_write", offset, data, len(data))

    def fileno(self) -> int:
        """Its descriptor, which stays the region's; the region begins at info.offset in it."""
        with self._owner as handle:
            return self._descriptor(handle)

    def _descriptor(self, handle: Any) -> int:
        fd = library.get().gmsfs_region_descriptor(handle)
        if fd < 0:
            raise RegionError(-fd, self.mount, "gmsfs_region_descriptor")
        return int(fd)

    def view(self, writable: bool = False) -> memoryview:
        """A memoryview of the region's bytes, mapped. Only of host memory. If the client makes its
        memory smaller, touching a page behind the end is SIGBUS: a server that must not die uses
        read() and write()."""
        info = self.info
        if info.memory != "host":
            raise RegionError(errno.EOPNOTSUPP, self.mount, "view")
        if writable and not info.writable:
            raise RegionError(errno.EACCES, self.mount, "view")
        before = info.offset % mmap.ALLOCATIONGRANULARITY
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            with self._owner as handle:
                mapped = mmap.mmap(
                    self._descriptor(handle),
                    before + info.byte_size,
                    mmap.MAP_SHARED,
                    protection,
                    offset=info.offset - before,
                )
        except ValueError:
            self._owner.check()
            # its end is behind the object's
            raise RegionError(errno.ENODATA, self.mount, "view", "shrunk") from None
        return memoryview(mapped)[before : before + info.byte_size]

    def _check(self, offset: int, size: int) -> None:
        """Checks the range before a buffer is allocated for it."""
        self._owner.check()
        end = self.info.byte_size
        if offset < 0 or offset >= end:
            raise RegionError(errno.ERANGE, self.mount, "access", "bad_offset")
        if offset + size > end:
            raise RegionError(errno.ERANGE, self.mount, "access", "bad_end")

    def _move(self, call: str, offset: int, data: Any, size: int) -> None:
        reason = ctypes.c_uint()
        function = getattr(library.get(), call)
        with self._owner as handle:
            result = function(handle, offset, data, size, ctypes.byref(reason))
        _check(self.mount, call, result, reason)


def _kind(kind: Any) -> Any:
    if kind not in _KINDS:
        raise ValueError(f'kind is "system", "cuda", or None for either, not {kind!r}')
    return _KINDS[kind]


def _uid(uid: Optional[int]) -> Any:
    return abi.REGION_SELF if uid is None else whole_number("uid", uid, 0, _ID_MAX)


def _bytes(data: Any) -> bytes:
    """Of a number, bytes() would make as many zeros."""
    return bytes(memoryview(data))


def _check(mount: Any, call: str, result: int, reason: Any = None) -> None:
    if result < 0:
        number = reason.value if reason is not None else 0
        raise RegionError(-result, mount, call, REASONS[number][0])
