# SPDX-License-Identifier: Apache-2.0
"""One gmsfs_graph_pool_t, its spaces, and segments of them; used by graphs.py. No torch."""

import ctypes
import errno
from typing import Any, NamedTuple, Optional

from . import abi, buffers, library, memory
from .handle import Handle


class Stats(NamedTuple):
    """Numbers of a pool, in bytes if the name says so. Only physical_bytes is memory."""

    awake: bool
    chunk_bytes: int
    physical_bytes: int
    needed_bytes: int
    eager_bytes: int
    high_bytes: int
    mapped_bytes: int
    address_bytes: int
    spaces: int
    live: int
    live_bytes: int
    selected: int
    waiters: int


class SpaceStats(NamedTuple):
    """Numbers of a space."""

    base: int
    eager: bool
    address_bytes: int
    reached_bytes: int
    live: int
    live_bytes: int


class PoolHandle(Handle):
    """As Handle keeps a gmsfs_t: the last reference to go closes the pool."""

    __slots__ = ("kind", "device")

    def __init__(self, path: Any, chunk_bytes: Optional[int]) -> None:
        self._open(path, "gmsfs_graph_open", chunk_bytes)
        raw = abi.Info()
        pointer, size = self.device_pointer(), ctypes.sizeof(raw)
        self.check("gmsfs_get_info", self.lib.gmsfs_get_info(pointer, ctypes.byref(raw), size))
        self.kind = memory.find(self.path, memory.name_of(raw.memory))
        self.device = None
        if self.kind.find_ordinal:
            self.device = self.kind.find_ordinal(self.path, bytes(raw.device_uuid))

    def _close(self) -> None:
        self.lib.gmsfs_graph_close(self.pointer)

    def device_pointer(self) -> Any:
        return self.lib.gmsfs_graph_handle(self.pointer)

    def wake(self, timeout: Optional[float]) -> None:
        result = self.wait(
            lambda ms: self.lib.gmsfs_graph_wake(self.pointer, ms), timeout, self.fall_asleep
        )
        self.check("gmsfs_graph_wake", result)

    def fall_asleep(self) -> None:
        """Sleeps without an error, for callers that end the pool next."""
        self.lib.gmsfs_graph_sleep(self.pointer, 0)

    def stats(self) -> Any:
        raw = abi.GraphStats()
        self.call("gmsfs_graph_get_stats", ctypes.byref(raw), ctypes.sizeof(raw))
        return Stats(bool(raw.awake), *(getattr(raw, name) for name in Stats._fields[1:]))

    def alloc_error(self) -> Any:
        """Why this thread's last gmsfs_graph_alloc gave nothing, as an exception; None: it is the device
        that is full, or it was not asked."""
        code = -self.lib.gmsfs_graph_alloc_error()
        if code in (0, errno.ENOMEM):
            return None
        return self.error("gmsfs_graph_alloc", code)


class SpaceHandle:
    """A gmsfs_graph_space_t. It belongs to the pool: keep the PoolHandle while you have one."""

    __slots__ = ("pool", "pointer")

    def __init__(self, pool: Any, reserve_bytes: int, eager: bool = False) -> None:
        pointer: Any = ctypes.c_void_p()
        flags = abi.GRAPH_EAGER if eager else 0
        pool.call("gmsfs_graph_space_new", reserve_bytes, flags, ctypes.byref(pointer))
        self.pool, self.pointer = pool, pointer

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.pool.check(name, getattr(self.pool.lib, name)(self.pointer, *arguments))

    def free(self) -> None:
        self._call("gmsfs_graph_space_free")
        self.pointer = None

    def stats(self) -> Any:
        raw = abi.GraphSpaceStats()
        self._call("gmsfs_graph_space_get_stats", ctypes.byref(raw), ctypes.sizeof(raw))
        return SpaceStats(
            raw.base or 0,
            bool(raw.eager),
            raw.address_bytes,
            raw.reached_bytes,
            raw.live,
            raw.live_bytes,
        )

    def select(self, stream: Any) -> None:
        self._call("gmsfs_graph_select", stream)

    def deselect(self, stream: Any) -> None:
        self.pool.call("gmsfs_graph_deselect", stream)

    def alloc(self, nbytes: int) -> Any:
        address = ctypes.c_void_p()
        self._call("gmsfs_graph_space_alloc", nbytes, ctypes.byref(address))
        return Segment(self, address.value or 0, nbytes)


class Segment(buffers.Buffer):
    """A segment of a space, as other libraries ask for memory; given back when the last of them lets it
    go."""

    __slots__ = ("_space",)

    def __init__(self, space: Any, address: int, nbytes: int) -> None:
        pool = space.pool
        super().__init__(
            pool, address, nbytes, 0, abi.SLOT_NONE, False, pool.kind, pool.device
        )
        self._space = space

    @property
    def path(self) -> Any:
        return self._handle.path

    def raw(self) -> Any:
        array = super().raw()
        array.owner = self
        return array

    def __del__(self) -> None:
        # In a reference cycle the pool may end first.
        handle = self._handle
        if not handle.is_exiting() and handle.pointer and self._space.pointer:
            handle.lib.gmsfs_graph_space_dealloc(self._space.pointer, self.address)


def library_name() -> Any:
    """The name that the library is opened by; opening it again gives the same library."""
    return library.get()._name
