# SPDX-License-Identifier: Apache-2.0
"""A Store's memory: giving it back and taking it again, at the same addresses."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Set, Tuple

from . import abi, info as infos
from .errors import Busy, make
from .handle import milliseconds
from .metadata import encode_tag

if TYPE_CHECKING:
    from .buffers import Buffer


class Sleeper:
    """The part of a Store that sleeps and wakes; only for Store, which defines the names used here."""

    _path: str
    _buffers: Dict[int, Buffer]
    _sleeping: Dict[str, Set[int]]
    _wake_mode: int
    _entries: Any
    _in_part: bool

    _live: Any
    _touch: Any
    _ask: Any
    _granted: Any
    _list: Any
    _buffer: Any
    mode: Any
    asleep: Any

    def sleep(self, keep_lock: bool = False, *, tag: Optional[str] = None) -> None:
        """Gives the memory back, and the lock unless keep_lock; keeps every address.

        Tensors stay as they are, and touching one faults until wake(). Waits for the GPU's work first.
        tag: only allocations with this tag ("" for none), and the lock is kept: for the KV cache without the
        weights, for example.
        """
        if tag is not None:
            self._sleep_tag(tag)
            return
        handle = self._live()
        mode = infos.mode_name(self._granted())
        slept = self.asleep  # asked after the lock, which another thread gives back when it sleeps
        handle.call("gmsfs_unmap_all_vas", int(keep_lock))
        handle.lost = False
        self._sleeping.clear()
        if mode or not slept:
            self._wake_mode = abi.MODE_RW_DATA_OR_RW if mode == "rw_data" else abi.MODE_RO

    def _sleep_tag(self, tag: Any) -> None:
        handle, encoded = self._touch(), encode_tag(self._path, tag)
        slots = {info.slot for info in self._list(handle, encoded)}
        handle.call("gmsfs_unmap_tag", encoded)
        self._sleeping[tag] = slots.intersection(self._buffers)

    def wake(
        self, timeout: Optional[float] = None, strict: bool = False, *, tag: Optional[str] = None
    ) -> int:
        """Takes the reader's lock again ("rw_data": that one), and maps the same layout at the same
        addresses. Nothing where it is awake.

        Without strict a writer may have published new bytes in the same layout meanwhile. A layout
        that changed (strict: any commit) is Stale, and the store sleeps on; where no memory was given out
        before, nothing is compared. A store that was demoted meanwhile comes back to its device first.
        tag: only allocations that sleep with it; without, all.
        Returns Info.moves: if the number has changed, the physical memory is another, and a program that
        registered it (NCCL's user buffers, NIXL, GPUDirect) has to do so again.
        """
        if tag is not None or not self.asleep:
            self._wake_tags(tag)
            return int(self._ask().moves)
        milliseconds(timeout)  # TypeError, ValueError: also where nothing is waited for
        handle, took = self._live(), not self.mode
        if took and self._wake_mode == abi.MODE_RO:  # the lock and its memory, in one request
            result = handle.lib.gmsfs_remap_all_vas(handle.pointer, 0, int(strict))
            if result != -errno.EAGAIN:
                self._check_remap(handle, result)
                handle.lost = False
                return int(self._ask().moves)
        if took:
            try:
                handle.connect(self._wake_mode, timeout)
            except Busy:
                self._check_taken()
                took = False
        return self._remap(handle, took, strict)

    async def wake_async(
        self, timeout: Optional[float] = None, strict: bool = False, *, tag: Optional[str] = None
    ) -> int:
        """As wake, for a coroutine: the event loop goes on while it waits for the lock, and when the task
        is cancelled it has left the queue, and sleeps on."""
        if tag is not None or not self.asleep:
            return self.wake(tag=tag)  # which never waits
        handle = self._live()
        took = not self.mode
        if took:
            try:
                await handle.connect_async(self._wake_mode, timeout)
            except Busy:
                self._check_taken()
                took = False
        return self._remap(handle, took, strict)

    def _check_taken(self) -> None:
        """That the lock is busy is fine: another thread that wakes it has taken it meanwhile."""
        if not self.mode:
            raise

    def _check_remap(self, handle: Any, result: int) -> None:
        """That it does not sleep is fine: another thread has woken it meanwhile."""
        if result != -errno.EINVAL or self.asleep:
            handle.check("gmsfs_remap_all_vas", result)

    def _remap(self, handle: Any, took: bool, strict: bool) -> int:
        try:
            result = handle.lib.gmsfs_remap_all_vas(handle.pointer, 0, int(strict))
            self._check_remap(handle, result)
        except BaseException:
            if took:
                handle.release()
            raise
        return int(self._ask().moves)

    def _wake_tags(self, tag: Any) -> None:
        handle = self._touch()
        for one in [tag] if tag is not None else list(self._sleeping):
            handle.call("gmsfs_remap_tag", encode_tag(self._path, one))
            self._sleeping.pop(one, None)

    def reallocate(self, timeout: Optional[float] = None) -> None:
        """Wakes a Store that sleeps, as the writer and with new memory: of the same sizes and tags, zeroed,
        at the same addresses. For contents that are not worth keeping, such as a KV cache.

        Takes the writer's lock if it has none. Drops the contents of the store, its metadata too: put
        that again before a commit. timeout: for the lock; seconds, None without end.
        """
        handle, took = self._need_asleep()
        if took:
            handle.connect(abi.MODE_RW, timeout)
        try:
            handle.call("gmsfs_clear_all_handles")
            handle.call_long("gmsfs_reallocate_all_handles", undo=self._fall_asleep)
        except BaseException:
            if took:
                handle.release()
            raise
        self._reallocated(handle)

    async def reallocate_async(self, timeout: Optional[float] = None) -> None:
        """As reallocate, for a coroutine: the event loop goes on while it waits for lock and memory. When
        the task is cancelled it waits no more, and sleeps on."""
        handle, took = self._need_asleep()
        if took:
            await handle.connect_async(abi.MODE_RW, timeout)
        try:
            handle.call("gmsfs_clear_all_handles")
            await handle.call_long_async("gmsfs_reallocate_all_handles", undo=self._fall_asleep)
        except BaseException:
            if took:
                handle.release()
            raise
        self._reallocated(handle)

    def _need_asleep(self) -> Tuple[Any, bool]:
        """The Handle, and whether it has no lock."""
        handle = self._touch()
        if not self.asleep:
            raise make(errno.EINVAL, self._path, "gmsfs_reallocate_all_handles")
        return handle, not self.mode

    def _fall_asleep(self) -> None:
        """Again, and with its lock."""
        handle = self._live()
        handle.lib.gmsfs_unmap_all_vas(handle.pointer, 1)

    def _reallocated(self, handle: Any) -> None:
        self._entries = None
        self._sleeping.clear()
        self._find_buffers(handle)

    def _find_buffers(self, handle: Any) -> None:
        """The Buffers at the addresses that there were, by their new slots."""
        infos_by_slot = {info.slot: info for info in self._list(handle)}
        found = {}
        for buffer in self._buffers.values():
            slot = ctypes.c_uint64()
            handle.call("gmsfs_resolve", buffer.address, ctypes.byref(slot), None)
            info = infos_by_slot[slot.value]
            found[info.slot] = self._buffer(
                buffer.address, info.aligned_bytes, info.rank, info.slot, False
            )
        self._buffers = found

    def retarget(self, path: Any, timeout: Optional[float] = None) -> int:
        """Maps the store at `path` at the addresses of this one, which is given back: a slot for one
        adapter after the other. Every tensor stays, and shows the other store's bytes.

        Both are on one device and have one shape: the same allocations, and the same tensors in them;
        else Stale, and nothing has changed. The metadata that belongs to no tensor may differ. A Store
        that slept is awake afterwards. timeout: seconds; None waits without end, 0 changes nothing
        unless the other is at hand (WouldBlock otherwise). After a wait without
        success it has its own store again, or sleeps on it if that has left its device: see `asleep`.
        A watch of on_drain stays with the store that it was made for. Returns Info.moves.
        """
        handle = self._touch()
        handle.retarget(path, timeout)
        return self._retargeted(handle)

    async def retarget_async(self, path: Any, timeout: Optional[float] = None) -> int:
        """As retarget, for a coroutine: the event loop goes on while it waits. When the task is cancelled
        it waits no more; see `asleep`."""
        handle = self._touch()
        await handle.retarget_async(path, timeout)
        return self._retargeted(handle)

    def _retargeted(self, handle: Any) -> int:
        self._path = handle.path
        self._wake_mode = abi.MODE_RO
        self._entries = None
        self._in_part = False
        self._sleeping.clear()
        mapped = {buffer.rank: buffer for buffer in self._buffers.values()}
        if mapped:
            self._buffers = {
                info.slot: self._buffer(
                    mapped[info.rank].address, info.aligned_bytes, info.rank, info.slot, True
                )
                for info in self._list(handle)
                if info.rank in mapped
            }
        return int(self._ask().moves)

    def set_streams(self, streams: Iterable[Any]) -> None:
        """The non-blocking CUDA streams that this program captures (torch.cuda.Stream, or a pointer):
        during a capture, calls that map or unmap raise Busy, so no capture is disturbed."""
        pointers = [getattr(stream, "cuda_stream", stream) for stream in streams]
        self._touch().call(
            "gmsfs_set_streams", (ctypes.c_void_p * len(pointers))(*pointers), len(pointers)
        )
