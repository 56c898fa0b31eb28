# SPDX-License-Identifier: Apache-2.0
"""A store, opened: its lock, its memory as tensors, sleeping and waking, commit and abort."""

from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional

from . import abi, layout, library, memory
from .buffers import Buffer
from .drain import DrainWatch
from .errors import make
from .handle import Handle
from .metadata import Metadata


class Info(NamedTuple):
    """What the store says about itself at one moment; ids as hex digits, "" for none."""

    store_id: str
    device_uuid: str
    group: str
    layout_hash: str
    state: str
    mode: str  # of this Store's lock: "ro", "rw", "rw_data", "" for none
    memory: str  # the name of one of memory.KINDS: "host" or "cuda"
    committed: bool
    generation: int
    session: int
    allocations: int
    entries: int
    total_bytes: int
    granularity_bytes: int
    readers: int
    writers_waiting: int
    sealed: bool
    residency: tuple[str, ...]  # where the committed bytes are: of "device", "host", "disk"; () for nowhere
    moves: int  # how often their place has changed: other physical memory each time


def open(
    path: Any,
    mode: str = "ro",
    timeout: Optional[float] = None,
    *,
    reserve_bytes: int = 0,
    token: Optional[str] = None,
) -> Store:
    """Opens the store at `path` and takes its lock.

    mode: "ro" waits until something is committed and no writer is there; "rw" waits until nobody has
    the lock; "rw_or_ro" becomes the writer if nothing is committed when the grant comes, else a reader
    (see Store.writable). "rw_data_or_rw" adopts a sealed layout (Store.commit_layout) where one is
    there when the grant comes, and every other process that could write it has exited: Store.mode is
    "rw_data" then, else "rw". timeout: seconds; None waits without end, 0 does not wait.
    reserve_bytes: of a writer's lock of whatever kind, set aside together with it.
    token: of a session to join (Store.token there), in place of taking a lock.
    """
    if not isinstance(mode, str) or mode not in abi.MODES:
        raise ValueError(f'mode is "ro", "rw", "rw_or_ro" or "rw_data_or_rw", not {mode!r}')
    if reserve_bytes and (mode == "ro" or not 0 < reserve_bytes < 2**63):
        raise ValueError(f"reserve_bytes is of a writer and below 2**63, not {reserve_bytes} of {mode!r}")
    store = Store(path)
    try:
        if token is not None:
            store._join(token)
        else:
            store._handle.connect(abi.MODES[mode], timeout, reserve_bytes)
    except BaseException:
        store.close()
        raise
    return store


class Store:
    """An open store; made by gmsfs.open. To be used in one `with`, or closed by close().

    Its calls may come from any thread, one after the other. In a child of fork() it is dead (ECHILD),
    and so are its tensors; a child opens the store itself.
    """

    def __init__(self, path):
        self._handle = Handle(path)
        self._path = self._handle.path
        self._buffers = {}  # by slot: what is mapped
        self._in_part = False  # mapped as a writer: others of the session may have allocated more
        self._entries = None  # of the layout that changes no more, as it was attached
        self._wake_mode = abi.MODE_RO  # to ask for when it wakes up
        self._kind = self._device = None  # once something was mapped
        self._watches = []

    def __repr__(self):
        if self._handle is None:
            what = "closed"
        elif self._handle.abandoned:
            what = "interrupted"
        else:
            what = _mode_name(self._granted()) or "no lock"
        return f"<gmsfs.Store {self._path}: {what}>"

    def __enter__(self) -> Store:
        self._live()
        return self

    def __reduce_ex__(self, protocol):
        raise TypeError(
            f"{self._path}: a Store is neither copied nor sent to another process, for it is a lock; "
            "open the store again, or join the session by its token"
        )

    def __exit__(self, kind, error, traceback):
        self.close()

    def _live(self):
        if self._handle is None:
            raise ValueError(f"{self._path} is closed")
        if self._handle.abandoned:
            raise make(
                errno.EBUSY,
                self._path,
                "gmsfs_connect",
                "its wait for the lock was interrupted, and gives back what it gets when its turn comes; "
                "try again after that, or open the store anew",
            )
        return self._handle

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
        raw = abi.Info()
        self._live().call("gmsfs_get_info", ctypes.byref(raw), ctypes.sizeof(raw))
        group = bytes(raw.group)
        return Info(
            store_id=bytes(raw.store_id).hex(),
            device_uuid=bytes(raw.device_uuid).hex(),
            group=group.hex() if any(group) else "",
            layout_hash=raw.layout_hash.decode(),
            state=abi.STATES[raw.state] if raw.state < len(abi.STATES) else str(raw.state),
            mode=_mode_name(raw.mode),
            memory=memory.name_of(raw.memory),
            committed=bool(raw.committed),
            generation=raw.generation,
            session=raw.session,
            allocations=raw.allocations,
            entries=raw.entries,
            total_bytes=raw.total_bytes,
            granularity_bytes=raw.granularity_bytes,
            readers=raw.readers,
            writers_waiting=raw.writers_waiting,
            sealed=bool(raw.sealed),
            residency=tuple(tier for tier, bit in abi.RESIDENCY.items() if raw.residency & bit),
            moves=raw.moves,
        )

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
        handle = self._live()
        return handle.lib.gmsfs_generation(handle.pointer)

    @property
    def mode(self) -> str:
        """The lock that this Store has: "ro", "rw", "rw_data", or "" for none. Stale where it had one
        that was taken from it: revoked, its store removed, or its mount dead."""
        granted = self._granted()
        if granted:
            raw = abi.Info()
            self._live().call("gmsfs_get_info", ctypes.byref(raw), ctypes.sizeof(raw))
            if raw.mode == abi.MODE_NONE:
                raise make(errno.ESTALE, self._path, "gmsfs_get_info")
        return _mode_name(granted)

    def _granted(self):
        """As the library remembers it, without asking the mount."""
        handle = self._live()
        return handle.lib.gmsfs_granted_lock(handle.pointer)

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
        self._live().call("gmsfs_session_token", raw)
        return bytes(raw).hex()

    def _join(self, token):
        try:
            raw = bytes.fromhex(token)
        except (TypeError, ValueError):
            raw = b""
        if len(raw) != abi.TOKEN_BYTES:
            raise ValueError(f"a token is a string of {2 * abi.TOKEN_BYTES} hex digits")
        self._live().call("gmsfs_join", abi.TOKEN(*raw))

    def on_drain(self, callback: Callable[[Optional[float]], Any]) -> DrainWatch:
        """Calls callback(deadline) when somebody drains the store, and so asks its holders to leave: now,
        if that is so already, and again for another deadline. deadline: as time.time() counts, or None
        where none was said. It is called in a thread of its own, which must not use this Store while
        another thread does. What is returned has close(); the end of the Store ends it too. Raises
        OSError where the store's files cannot be opened.
        """
        self._live()
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
        if framework is None:
            kind = memory.find(self._path, self.info.memory)
            framework = "torch" if "torch" in sys.modules else kind.framework
        wrapper = _wrapper(framework)
        buffers, specs = self._attach(names)
        return wrapper.tensors(self._path, buffers, specs)

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
        return self._attach_buffers()

    def _attach(self, names):
        buffers = self._attach_buffers()
        if self.mode == "rw":
            entries = self._working_entries(buffers)
        else:
            if self._entries is None:
                self._entries = layout.read(self._live())
            entries = self._entries
        sizes = [buffer.nbytes for buffer in buffers]
        return buffers, layout.specs(self._path, entries, sizes, names)

    def _attach_buffers(self):
        handle = self._live()
        mode = self.mode
        if mode == "rw_data" and not self._buffers:
            self._attach_all(handle, abi.ACCESS_WRITE)
        elif self.writable:
            self._attach_missing(handle, abi.ACCESS_WRITE)
        else:
            self._need_lock()
            if self._in_part:
                self._attach_missing(handle, abi.ACCESS_READ)
                self._in_part = False
            elif not self._buffers:
                self._attach_all(handle, abi.ACCESS_READ)
        return sorted(self._buffers.values(), key=lambda buffer: buffer.rank)

    def _need_lock(self):
        if self.mode:
            return
        why = "it gave its lock back; open it again, or commit(stay=True) to go on as a reader"
        if self.asleep:
            why = "it sleeps; wake() it first"
        raise make(errno.ENOLCK, self._path, "gmsfs_attach_all", why)

    def _attach_all(self, handle, access):
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

    def _attach_missing(self, handle, access):
        """The writer's, and of who stays as a reader then: allocations come and go."""
        present = {}
        for info in self._list(handle):
            mapped = self._buffers.get(info.slot)
            address = mapped.address if mapped else self._map(info.slot, access)
            present[info.slot] = self._buffer(
                address, info.aligned_bytes, info.rank, info.slot, access == abi.ACCESS_READ
            )
        self._buffers = present

    def _list(self, handle):
        rows, count = ctypes.POINTER(abi.HandleInfo)(), ctypes.c_size_t()
        size = ctypes.sizeof(abi.HandleInfo)
        handle.call("gmsfs_list_handles", None, ctypes.byref(rows), ctypes.byref(count), size)
        try:
            return [abi.HandleInfo.from_buffer_copy(rows[i]) for i in range(count.value)]
        finally:
            library.libc.free(ctypes.cast(rows, ctypes.c_void_p))

    def _map(self, slot, access):
        address = ctypes.c_void_p()
        self._live().call("gmsfs_attach_mapping", slot, access, ctypes.byref(address))
        return address.value

    def _buffer(self, address, nbytes, rank, slot, readonly):
        if self._kind is None:
            info = self.info
            kind = memory.find(self._path, info.memory)
            if kind.find_ordinal:
                self._device = kind.find_ordinal(self._path, bytes.fromhex(info.device_uuid))
            self._kind = kind
        return Buffer(
            self._live(), address, nbytes, rank, slot, readonly, self._kind, self._device
        )

    def _working_entries(self, buffers):
        ranks = {buffer.slot: buffer.rank for buffer in buffers}
        entries = []
        metadata = self.metadata
        for key in metadata:
            value, slot, offset = metadata.get_entry(key)
            entries.append(layout.Entry(key, ranks.get(slot, abi.SLOT_NONE), offset, value))
        return entries

    # ---- sleeping -----------------------------------------------------------------------------

    def sleep(self, keep_lock: bool = False) -> None:
        """Gives the memory back, and the lock unless keep_lock; keeps every address.

        Tensors stay as they are, and touching one faults until wake(). Waits for the GPU's work first.
        """
        mode = self.mode
        self._live().call("gmsfs_unmap_all_vas", int(keep_lock))
        self._wake_mode = abi.MODE_RW_DATA_OR_RW if mode == "rw_data" else abi.MODE_RO

    def wake(self, timeout: Optional[float] = None, strict: bool = False) -> int:
        """Takes the reader's lock again ("rw_data": that one), and maps the same layout at the same
        addresses.

        Without strict a writer may have published new bytes in the same layout meanwhile. A layout
        that changed (strict: any commit) is Stale, and the store sleeps on. A store that was demoted
        meanwhile comes back to its device first.
        Returns Info.moves: where it is another number than before, the physical memory is other, and
        whoever registered it (NCCL's user buffers, NIXL, GPUDirect) has to do so again.
        """
        handle = self._live()
        took = not self.mode and self.asleep
        if took:
            handle.connect(self._wake_mode, timeout)
        try:
            handle.call("gmsfs_remap_all_vas", 0, int(strict))
        except BaseException:
            if took:
                handle.release()
            raise
        return self.info.moves

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
        handle = self._live()
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
        self._live().call(
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
        from .publish import Plan, write

        if stay and seal:
            raise ValueError("who seals stays a writer: stay and seal exclude each other")
        end = self.commit_layout if seal else lambda: self.commit(stay)
        write(self, Plan(self._path, tensors, metadata, tag), chunk_bytes, end)

    def commit(self, stay: bool = False) -> None:
        """Publishes the writer's layout. stay: goes on as a reader, with nobody writing in between;
        else the lock is given back. A writer's tensors become read-only."""
        handle = self._live()
        result = handle.lib.gmsfs_commit(handle.pointer, abi.COMMIT_STAY if stay else 0, None)
        if result == -errno.EINVAL:
            raise handle.error("gmsfs_commit", errno.EINVAL, self._last_error())
        handle.check("gmsfs_commit", result)
        self._in_part = bool(self._buffers)

    def commit_layout(self) -> None:
        """Seals the writer's layout: what tensors there are is final, their bytes go on changing.
        Store.mode is "rw_data" then. However this ends, layout and bytes stay for who opens the store
        with "rw_data_or_rw" next: for a KV cache that survives its process."""
        handle = self._live()
        result = handle.lib.gmsfs_commit_layout(handle.pointer)
        if result == -errno.EINVAL:
            raise handle.error("gmsfs_commit_layout", errno.EINVAL, self._last_error())
        handle.check("gmsfs_commit_layout", result)

    def _last_error(self):
        try:
            with io.open(os.path.join(self._path, "info"), encoding="utf-8") as file:
                return json.load(file).get("last_error") or ""
        except (OSError, ValueError):
            return ""

    def abort(self) -> bool:
        """Discards the writer's layout and gives the lock back. True: what was committed before is
        there again; False: the store is EMPTY, for its bytes may have been changed. With "rw_data" it
        only gives the lock back (False): what is sealed stays as it is."""
        rolled_back = ctypes.c_int()
        self._live().call("gmsfs_abort", ctypes.byref(rolled_back))
        return bool(rolled_back.value)


def _wrapper(framework):
    if framework not in ("torch", "numpy"):
        raise ValueError(f'framework is "torch" or "numpy", not {framework!r}')
    try:
        if framework == "torch":
            from . import with_torch as wrapper
        else:
            from . import with_numpy as wrapper
    except ImportError as error:
        raise ImportError(
            f"{framework} cannot be imported ({error}); install it, choose the other framework, or take "
            "the bytes by views(), which needs neither",
            name=framework,
        ) from error
    return wrapper


def _mode_name(mode):
    return abi.GRANTED.get(mode, "")
