# SPDX-License-Identifier: Apache-2.0
"""A store, opened: its memory as tensors, sleeping and waking, commit and abort."""

from __future__ import annotations

import ctypes
import errno
import importlib
import io
import json
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from . import abi, info as infos, layout, library, memory
from .buffers import Buffer
from .drain import DrainWatch
from .errors import make
from .handle import Handle
from .info import Info, MemoryInfo
from .metadata import Metadata, encode_tag


class Store:
    """An open store; made by gmsfs.open. To be used in one `with`, or closed by close().

    Its calls may come from any thread, one after the other. In a child of fork() it is dead (ECHILD),
    and so are its tensors; a child opens the store itself.
    """

    def __init__(self, path: Any) -> None:
        self._handle: Any = Handle(path)  # None: closed
        self._path = self._handle.path
        self._buffers: Dict[int, Buffer] = {}  # by slot: what is mapped
        self._in_part = False  # mapped as a writer: others of the session may have allocated more
        self._entries = None  # of the layout that changes no more, as it was attached
        self._wake_mode = abi.MODE_RO  # to ask for when it wakes up
        self._kind: Any = None  # this and the device once something was mapped
        self._device: Optional[int] = None
        self._said: Any = None  # the store's last answer
        self._sleeping: Dict[str, Set[int]] = {}  # slots, by the tag that sleeps
        self._watches: List[DrainWatch] = []

    def __repr__(self) -> str:
        if self._handle is None:
            what = "closed"
        elif self._handle.lost:
            what = "lost"
        else:
            what = infos.mode_name(self._granted()) or "no lock"
        return f"<gmsfs.Store {self._path}: {what}>"

    def __enter__(self) -> Store:
        self._live()
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self._path}: a Store is neither copied nor sent to another process, for it is a lock; "
            "open the store again, or join the session by its token"
        )

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    def _live(self) -> Any:
        if self._handle is None:
            raise ValueError(f"{self._path} is closed")
        return self._handle

    def _ask(self) -> abi.Info:
        """What the store says, once: Stale where this Store had a lock that was taken from it."""
        handle = self._live()
        self._said = raw = infos.ask(handle)
        if handle.lost or (raw.mode == abi.MODE_NONE and self._granted()):
            handle.lost = True
            raise make(errno.ESTALE, self._path, "gmsfs_get_info")
        return raw

    def _touch(self) -> Any:
        """The Handle. Stale where it had a lock that was taken from it."""
        handle = self._live()
        if handle.lost or self._granted():
            self._ask()
        return handle

    def cancel(self) -> None:
        """Ends what another thread waits for in a call of this Store: Canceled there."""
        self._live().cancel()

    def close(self) -> None:
        """Gives the lock back; a writer that has not committed aborts.

        Tensors stay valid: the memory is unmapped when the last of them is gone. But then nothing
        keeps a writer from changing it in place; who uses tensors keeps the store open.
        """
        handle, self._handle = self._handle, None
        self._buffers, self._entries = {}, None
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.close()
        if handle is not None:
            handle.release()

    # ---- looking ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path

    @property
    def info(self) -> Info:
        """What the store says about itself at this moment."""
        return infos.understand(self._ask())

    @property
    def memory_info(self) -> MemoryInfo:
        """What of the device this process has by this Store, for who sizes caches."""
        return infos.ask_memory(self._touch())

    @property
    def state(self) -> str:
        """The word that the file `state` says, such as COMMITTED; gmsfs(5) has them all."""
        return self.info.state

    @property
    def layout_hash(self) -> str:
        """32 hex digits: the structure of what is committed or sealed; "" for nothing, or while a writer
        may change it."""
        return self.info.layout_hash

    @property
    def generation(self) -> int:
        """The number of the commit, or seal, whose layout this Store has."""
        handle = self._touch()
        return int(handle.lib.gmsfs_generation(handle.pointer))

    @property
    def mode(self) -> str:
        """The lock that this Store has: "ro", "rw", "rw_data", or "" for none. Stale where it had one
        that was taken from it: revoked, its store removed, or its mount dead."""
        return infos.mode_name(self._touch().lib.gmsfs_granted_lock(self._handle.pointer))

    def _granted(self) -> int:
        """As the library remembers it, without asking the mount."""
        handle = self._live()
        return int(handle.lib.gmsfs_granted_lock(handle.pointer))

    @property
    def writable(self) -> bool:
        """Whether this Store is the writer: with "rw" of everything, with "rw_data" of bytes."""
        return self.mode in ("rw", "rw_data")

    @property
    def asleep(self) -> bool:
        handle = self._live()
        return bool(handle.lib.gmsfs_is_unmapped(handle.pointer))

    @property
    def token(self) -> str:
        """What lets another process join this session: open(path, token=...). A secret."""
        raw = abi.TOKEN()
        self._touch().call("gmsfs_session_token", raw)
        return bytes(raw).hex()

    def _join(self, token: Any) -> None:
        raw = _hex(token, abi.TOKEN_BYTES, "a token")
        self._live().call("gmsfs_join", abi.TOKEN(*raw))
        self._live().lost = False

    def on_drain(self, callback: Callable[[Optional[float]], Any]) -> DrainWatch:
        """Calls callback(deadline) when somebody drains the store, and so asks its holders to leave: now,
        if that is so already, and again for another deadline. deadline: as time.time() counts, or None
        where none was said. It is called in a thread of its own, which must not use this Store while
        another thread does. What is returned has close(); the end of the Store ends it too. Raises
        OSError where the store's files cannot be opened.
        """
        self._touch()
        watch = DrainWatch(self, self._path, callback)
        self._watches.append(watch)
        return watch

    @property
    def metadata(self) -> Metadata:
        """The entries as a mapping of str to bytes; changing it is the writer's."""
        return Metadata(self)

    # ---- memory -------------------------------------------------------------------------------

    def tensors(
        self, framework: Optional[str] = None, names: Optional[Iterable[str]] = None
    ) -> Dict[str, Any]:
        """All tensors by name, over the memory itself.

        framework: "torch" or "numpy"; None is torch where this program has imported it, and for GPU
        memory, else NumPy.
        names: only these.
        A reader's NumPy arrays are marked read-only. torch knows no such mark: writing to a reader's
        tensor faults. Types that NumPy lacks are ml_dtypes' where that is installed, else unsigned
        integers with the same bits.
        """
        wrapper = self._choose(framework)
        buffers, specs = self._attach(names)
        return dict(wrapper.tensors(self._path, buffers, specs))

    def _choose(self, framework: Optional[str]) -> Any:
        if framework is None:
            framework = "torch"
            if "torch" not in sys.modules:
                framework = memory.find(self._path, self.info.memory).framework
        return _wrapper(framework)

    def views(self, names: Optional[Iterable[str]] = None) -> Dict[str, memoryview]:
        """The bytes of all tensors by name, as memoryviews of host memory; needs no other package."""
        buffers, specs = self._attach(names)
        whole = [buffer.view() for buffer in buffers]
        return {
            spec.name: whole[spec.rank][spec.offset : spec.offset + spec.nbytes] for spec in specs
        }

    def specs(self, names: Optional[Iterable[str]] = None) -> Dict[str, layout.TensorSpec]:
        """What each tensor is and where: TensorSpecs by name."""
        return {spec.name: spec for spec in self._attach(names)[1]}

    def buffers(self) -> List[Buffer]:
        """The allocations' memory, mapped, by rank."""
        return self._attach_buffers(self.mode)

    def copy_private(
        self, names: Optional[Iterable[str]] = None, framework: Optional[str] = None
    ) -> Dict[str, Any]:
        """Copies of tensors in memory of this process alone, which can be written to; by name, as tensors()
        gives them. What is tied stays tied.

        They are no part of the store, stay where they are while it sleeps, and go when the last that uses
        them does. On a GPU each takes whole granules of memory: name those that are written to.
        """
        from . import private

        wrapper = self._choose(framework)
        buffers, specs = self._attach(names)
        return dict(wrapper.tensors(self._path, *private.copy(self._live(), buffers, specs)))

    def _attach(self, names: Optional[Iterable[str]]) -> Tuple[List[Buffer], List[layout.TensorSpec]]:
        mode = self.mode
        buffers = self._attach_buffers(mode)
        if mode == "rw":
            entries = self._working_entries(buffers)
        else:
            if self._entries is None:
                self._entries = layout.read(self._live())
            entries = self._entries
        sizes = [buffer.nbytes for buffer in buffers]
        specs = layout.specs(self._path, entries, sizes, names)
        self._need_awake(buffers, specs)
        return buffers, specs

    def _attach_buffers(self, mode: str) -> List[Buffer]:
        handle = self._live()
        if mode == "rw_data" and not self._buffers:
            self._attach_all(handle, abi.ACCESS_WRITE)
        elif mode in ("rw", "rw_data"):
            self._attach_missing(handle, abi.ACCESS_WRITE)
        else:
            self._need_lock(mode)
            if self._in_part:
                self._attach_missing(handle, abi.ACCESS_READ)
                self._in_part = False
            elif not self._buffers:
                self._attach_all(handle, abi.ACCESS_READ)
        return sorted(self._buffers.values(), key=lambda buffer: buffer.rank)

    def _need_lock(self, mode: str) -> None:
        if mode:
            return
        why = "it gave its lock back; open it again, or commit(stay=True) to go on as a reader"
        if self.asleep:
            why = "it sleeps; wake() it first"
        raise make(errno.ENOLCK, self._path, "gmsfs_attach_all", why)

    def _need_awake(self, buffers: Any, specs: Any) -> None:
        """Nothing is given out that would fault."""
        for tag, slots in self._sleeping.items():
            for spec in specs:
                if buffers[spec.rank].slot in slots:
                    why = f"tensor {spec.name!r} sleeps with tag {tag!r}; wake(tag={tag!r}) first"
                    raise make(errno.ENOLCK, self._path, "gmsfs_attach_all", why)

    def _attach_all(self, handle: Any, access: Any) -> None:
        mappings, count = ctypes.POINTER(abi.Mapping)(), ctypes.c_size_t()
        readonly = access == abi.ACCESS_READ
        size = ctypes.sizeof(abi.Mapping)
        handle.call("gmsfs_attach_all", access, ctypes.byref(mappings), ctypes.byref(count), size)
        try:  # all or none: another thread, or a call after a Ctrl-C, must not find half of them
            self._buffers = {
                one.slot: self._buffer(one.ptr, one.aligned_bytes, one.rank, one.slot, readonly)
                for one in mappings[: count.value]
            }
        finally:
            library.libc.free(ctypes.cast(mappings, ctypes.c_void_p))

    def _attach_missing(self, handle: Any, access: Any) -> None:
        """The writer's, and of who stays as a reader then: allocations come and go."""
        present = {}
        for info in self._list(handle):
            mapped = self._buffers.get(info.slot)
            address = mapped.address if mapped else self._map(info.slot, access)
            present[info.slot] = self._buffer(
                address, info.aligned_bytes, info.rank, info.slot, access == abi.ACCESS_READ
            )
        self._buffers = present

    def _list(self, handle: Any, tag: Any = None) -> Any:
        rows, count = ctypes.POINTER(abi.HandleInfo)(), ctypes.c_size_t()
        size = ctypes.sizeof(abi.HandleInfo)
        handle.call("gmsfs_list_handles", tag, ctypes.byref(rows), ctypes.byref(count), size)
        try:
            return [abi.HandleInfo.from_buffer_copy(rows[i]) for i in range(count.value)]
        finally:
            library.libc.free(ctypes.cast(rows, ctypes.c_void_p))

    def _map(self, slot: Any, access: Any) -> Any:
        address = ctypes.c_void_p()
        self._live().call("gmsfs_attach_mapping", slot, access, ctypes.byref(address))
        return address.value

    def _buffer(self, address: int, nbytes: int, rank: int, slot: int, readonly: bool) -> Buffer:
        if self._kind is None:
            raw = self._said or self._ask()  # a store stays on its device
            kind = memory.find(self._path, memory.name_of(raw.memory))
            if kind.find_ordinal:
                self._device = kind.find_ordinal(self._path, bytes(raw.device_uuid))
            self._kind = kind
        return Buffer(
            self._live(), address, nbytes, rank, slot, readonly, self._kind, self._device
        )

    def _working_entries(self, buffers: Any) -> Any:
        ranks = {buffer.slot: buffer.rank for buffer in buffers}
        entries = []
        handle, metadata = self._live(), self.metadata
        for key in metadata:
            value, slot, offset = metadata.find(handle, key)
            entries.append(layout.Entry(key, ranks.get(slot, abi.SLOT_NONE), offset, value))
        return entries

    # ---- sleeping -----------------------------------------------------------------------------

    def sleep(self, keep_lock: bool = False, *, tag: Optional[str] = None) -> None:
        """Gives the memory back, and the lock unless keep_lock; keeps every address.

        Tensors stay as they are, and touching one faults until wake(). Waits for the GPU's work first.
        tag: only what was allocated with this tag ("" for none), and the lock is kept: the KV cache apart
        from the weights, say.
        """
        if tag is not None:
            self._sleep_tag(tag)
            return
        handle = self._live()
        mode = infos.mode_name(self._granted())
        handle.call("gmsfs_unmap_all_vas", int(keep_lock))
        handle.lost = False
        self._sleeping.clear()
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
        that changed (strict: any commit) is Stale, and the store sleeps on. A store that was demoted
        meanwhile comes back to its device first. tag: only what sleeps with it; without, all.
        Returns Info.moves: where it is another number than before, the physical memory is other, and
        whoever registered it (NCCL's user buffers, NIXL, GPUDirect) has to do so again.
        """
        if tag is not None or not self.asleep:
            self._wake_tags(tag)
            return int(self._ask().moves)
        handle, took = self._live(), not self.mode
        if took and self._wake_mode == abi.MODE_RO:  # the lock and its memory, in one request
            result = handle.lib.gmsfs_remap_all_vas(handle.pointer, 0, int(strict))
            if result != -errno.EAGAIN:
                handle.check("gmsfs_remap_all_vas", result)
                handle.lost = False
                return int(self._ask().moves)
        if took:
            handle.connect(self._wake_mode, timeout)
        return self._remap(handle, took, strict)

    async def wake_async(self, timeout: Optional[float] = None, strict: bool = False) -> int:
        """As wake, for a coroutine: the event loop goes on while it waits for the lock, and when the task
        is cancelled it has left the queue, and sleeps on."""
        handle = self._live()
        if not self.asleep:
            return self.wake()
        took = not self.mode
        if took:
            await handle.connect_async(self._wake_mode, timeout)
        return self._remap(handle, took, strict)

    def _remap(self, handle: Any, took: bool, strict: bool) -> int:
        try:
            handle.call("gmsfs_remap_all_vas", 0, int(strict))
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
        at the same addresses. For what is not worth keeping asleep, such as a KV cache.

        Takes the writer's lock where it has none. What the store held is dropped, its metadata too: put
        that anew before a commit. timeout: for the lock; seconds, None without end.
        """
        handle = self._touch()
        if not self.asleep:
            raise make(errno.EINVAL, self._path, "gmsfs_reallocate_all_handles")
        took = not self.mode
        if took:
            handle.connect(abi.MODE_RW, timeout)
        try:
            handle.call("gmsfs_clear_all_handles")
            handle.call("gmsfs_reallocate_all_handles")
        except BaseException:
            if took:
                handle.release()
            raise
        self._entries = None
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
        unless the other is at hand (WouldBlock otherwise). Whoever waited in vain has
        its own store again, or sleeps on it if that has left its device meanwhile: see `asleep`.
        A watch of on_drain stays with the store that it was made for. Returns Info.moves.
        """
        handle = self._touch()
        handle.retarget(path, timeout)
        self._path = handle.path
        self._wake_mode = abi.MODE_RO
        self._entries = None
        self._in_part = False
        mapped = {buffer.rank: buffer for buffer in self._buffers.values()}
        if mapped:
            self._buffers = {
                info.slot: self._buffer(
                    mapped[info.rank].address, info.aligned_bytes, info.rank, info.slot, True
                )
                for info in self._list(handle)
                if info.rank in mapped
            }
        return self.info.moves

    def set_streams(self, streams: Iterable[Any]) -> None:
        """The non-blocking CUDA streams that this program captures (torch.cuda.Stream, or a pointer):
        while one does, what maps or unmaps raises Busy, so no capture is disturbed."""
        pointers = [getattr(stream, "cuda_stream", stream) for stream in streams]
        self._touch().call(
            "gmsfs_set_streams", (ctypes.c_void_p * len(pointers))(*pointers), len(pointers)
        )

    # ---- the writer ---------------------------------------------------------------------------

    def publish(
        self,
        tensors: Dict[str, Any],
        metadata: Optional[Dict[str, str]] = None,
        *,
        tag: str = "weights",
        chunk_bytes: Optional[int] = None,
        stay: bool = False,
        seal: bool = False,
    ) -> None:
        """Replaces what is in the store by these tensors, and commits, or seals instead (commit_layout).
        See gmsfs.publish."""
        if stay and seal:
            raise ValueError("who seals stays a writer: stay and seal exclude each other")
        end = self.commit_layout if seal else lambda: self.commit(stay)
        self._write(tensors, metadata, tag, chunk_bytes, end)

    def write(
        self,
        tensors: Dict[str, Any],
        metadata: Optional[Dict[str, str]] = None,
        *,
        tag: str = "weights",
        chunk_bytes: Optional[int] = None,
    ) -> None:
        """As publish, without the commit: that is Group.commit's, of several stores together."""
        self._write(tensors, metadata, tag, chunk_bytes, lambda: None)

    def _write(self, tensors: Any, metadata: Any, tag: Any, chunk_bytes: Optional[int], end: Any) -> None:
        from .publish import Plan, write

        write(self, Plan(self._path, tensors, metadata, tag), chunk_bytes, end)

    def commit(self, stay: bool = False, *, group: Optional[str] = None) -> None:
        """Publishes the writer's layout. stay: goes on as a reader, with nobody writing in between;
        else the lock is given back. A writer's tensors become read-only. group: 32 hex digits, for who
        repairs a Group.commit that failed half-way."""
        handle = self._touch()
        flags, raw = abi.COMMIT_STAY if stay else 0, None
        if group is not None:
            flags |= abi.COMMIT_GROUP
            raw = (ctypes.c_uint8 * abi.GROUP_BYTES)(*_hex(group, abi.GROUP_BYTES, "a group's id"))
        result = handle.lib.gmsfs_commit(handle.pointer, flags, raw)
        if result == -errno.EINVAL:
            raise handle.error("gmsfs_commit", errno.EINVAL, self._last_error())
        handle.check("gmsfs_commit", result)
        self._note_commit()

    def _note_commit(self) -> None:
        self._in_part = bool(self._buffers)

    def commit_layout(self) -> None:
        """Seals the writer's layout: what tensors there are is final, their bytes go on changing.
        Store.mode is "rw_data" then. However this ends, layout and bytes stay for who opens the store
        with "rw_data_or_rw" next: for a KV cache that survives its process."""
        handle = self._touch()
        result = handle.lib.gmsfs_commit_layout(handle.pointer)
        if result == -errno.EINVAL:
            raise handle.error("gmsfs_commit_layout", errno.EINVAL, self._last_error())
        handle.check("gmsfs_commit_layout", result)

    def _last_error(self) -> str:
        try:
            with io.open(os.path.join(self._path, "info"), encoding="utf-8") as file:
                return str(json.load(file).get("last_error") or "")
        except (OSError, ValueError):
            return ""

    def abort(self) -> bool:
        """Discards the writer's layout and gives the lock back. True: what was committed before is
        there again; False: the store is EMPTY, for its bytes may have been changed. With "rw_data" it
        only gives the lock back (False): what is sealed stays as it is."""
        rolled_back = ctypes.c_int()
        self._touch().call("gmsfs_abort", ctypes.byref(rolled_back))
        return bool(rolled_back.value)


def _hex(text: str, nbytes: int, what: Any) -> Any:
    try:
        raw = bytes.fromhex(text)
    except (TypeError, ValueError):
        raw = b""
    if len(raw) != nbytes:
        raise ValueError(f"{what} is a string of {2 * nbytes} hex digits")
    return raw


def _wrapper(framework: Optional[str]) -> Any:
    if framework not in ("torch", "numpy"):
        raise ValueError(f'framework is "torch" or "numpy", not {framework!r}')
    try:
        if framework == "torch":
            wrapper = importlib.import_module(".with_torch", __package__)
        else:
            wrapper = importlib.import_module(".with_numpy", __package__)
    except ImportError as error:
        raise ImportError(
            f"{framework} cannot be imported ({error}); install it, choose the other framework, or take "
            "the bytes by views(), which needs neither",
            name=framework,
        ) from error
    return wrapper
