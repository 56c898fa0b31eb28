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
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Set, Tuple, Union

from . import abi, info as infos, layout, library, memory
from .buffers import Buffer
from .drain import DrainWatch
from .errors import make
from .handle import Handle
from .info import Info, MemoryInfo
from .metadata import Metadata
from .sleep import Sleeper


class Store(Sleeper):
    """An open store; made by gmsfs.open. To be used in one `with`, or closed by close().

    Its calls may come from any thread, one after the other. In a child of fork() it is dead (ECHILD),
    and so are its tensors; a child opens the store itself.
    """

    def __init__(self, path: Any) -> None:
        self._handle: Any = Handle(path)  # None: closed
        self._path = self._handle.path
        self._buffers: Dict[int, Buffer] = {}  # by slot: the mapped allocations
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
        """Asks the store for its info. Raises Stale if this Store's lock was revoked."""
        handle = self._live()
        self._said = raw = infos.ask(handle)
        if handle.lost or (raw.mode == abi.MODE_NONE and self._granted()):
            handle.lost = True
            raise make(errno.ESTALE, self._path, "gmsfs_get_info")
        return raw

    def _touch(self) -> Any:
        """The Handle. Stale where it had a lock that was taken from it."""
        handle = self._live()
        handle.check_process("gmsfs_granted_lock")
        if handle.lost or self._granted():
            self._ask()
        return handle

    def cancel(self) -> None:
        """Ends the wait of another thread's call of this Store: Canceled there."""
        self._live().cancel()

    def close(self) -> None:
        """Gives the lock back; a writer that has not committed aborts.

        Tensors stay valid: the memory is unmapped when the last of them is gone. But then nothing
        keeps a writer from changing it in place: keep the store open while you use its tensors.
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
        """Facts about the store at this moment."""
        return infos.understand(self._ask())

    @property
    def memory_info(self) -> MemoryInfo:
        """Device memory that this process uses by this Store, for programs that size caches."""
        return infos.ask_memory(self._touch())

    @property
    def state(self) -> str:
        """The word that the file `state` says, such as COMMITTED; gmsfs(5) has them all."""
        return self.info.state

    @property
    def layout_hash(self) -> str:
        """32 hex digits: the structure of the committed or sealed layout; "" for none, or while a writer
        may change it."""
        return self.info.layout_hash

    @property
    def generation(self) -> int:
        """The number of the commit, or seal, that made this Store's layout."""
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
        """The token with which another process joins this session: open(path, token=...). A secret."""
        raw = abi.TOKEN()
        self._touch().call("gmsfs_session_token", raw)
        return bytes(raw).hex()

    def _join(self, token: Any) -> None:
        raw = _hex(token, abi.TOKEN_BYTES, "a token")
        self._live().call("gmsfs_join", abi.TOKEN(*raw))
        self._live().lost = False

    def on_drain(self, callback: Callable[[Optional[float]], Any]) -> DrainWatch:
        """Calls callback(deadline) when the store is drained, which asks its holders to leave: now, if it
        is drained already, and again for another deadline. deadline: as time.time() counts, or None if
        there is none. It is called in a thread of its own, which must not use this Store while another
        thread does. The result has close(); the end of the Store ends it too. Raises OSError if the
        store's files cannot be opened.
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
        """The types, shapes and places of tensors: TensorSpecs by name."""
        return {spec.name: spec for spec in self._attach(names)[1]}

    def buffers(self) -> List[Buffer]:
        """The allocations' memory, mapped, by rank."""
        buffers = self._attach_buffers(self.mode)
        self._need_awake((f"allocation {buffer.rank}", buffer) for buffer in buffers)
        return buffers

    def copy_private(
        self, names: Optional[Iterable[str]] = None, framework: Optional[str] = None
    ) -> Dict[str, Any]:
        """Copies of tensors in memory of this process alone, which can be written to; by name, as tensors()
        gives them. Tied tensors stay tied.

        They are no part of the store, stay where they are while it sleeps, and go when the last that uses
        them does. On a GPU each takes whole granules of memory: name only tensors that are written to.
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
        self._need_awake((f"tensor {spec.name!r}", buffers[spec.rank]) for spec in specs)
        return buffers, specs

    def _attach_buffers(self, mode: str) -> List[Buffer]:
        handle = self._live()
        if self.asleep:
            raise make(errno.ENOLCK, self._path, "gmsfs_attach_all", "it sleeps; wake() it first")
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
        self._ask()  # of fork()'s parent, or a dead mount: that is said
        why = "it gave its lock back; open it again, or commit(stay=True) to go on as a reader"
        raise make(errno.ENOLCK, self._path, "gmsfs_attach_all", why)

    def _need_awake(self, given: Iterable[Tuple[str, Buffer]]) -> None:
        """Nothing is given out that would fault."""
        if not self._sleeping:
            return
        for what, buffer in given:
            for tag, slots in self._sleeping.items():
                if buffer.slot in slots:
                    why = f"{what} sleeps with tag {tag!r}; wake(tag={tag!r}) first"
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
        """For a writer, also one that stays as a reader: its allocations change."""
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

    # ---- the writer ---------------------------------------------------------------------------

    def publish(
        self,
        tensors: Dict[str, Any],
        metadata: Optional[Dict[str, str]] = None,
        *,
        tag: Union[str, Mapping[str, str]] = "weights",
        chunk_bytes: Optional[int] = None,
        stay: bool = False,
        seal: bool = False,
        immutable: bool = False,
    ) -> None:
        """Replaces the contents of the store by these tensors, and commits, or seals instead (commit_layout).
        See gmsfs.publish."""
        if stay and seal:
            raise ValueError("a seal leaves the Store a writer: stay and seal exclude each other")
        if seal and immutable:
            raise ValueError("a sealed layout's bytes may change: seal and immutable exclude each other")
        end = self.commit_layout if seal else lambda: self.commit(stay, immutable=immutable)
        self._write(tensors, metadata, tag, chunk_bytes, end)

    def write(
        self,
        tensors: Dict[str, Any],
        metadata: Optional[Dict[str, str]] = None,
        *,
        tag: Union[str, Mapping[str, str]] = "weights",
        chunk_bytes: Optional[int] = None,
    ) -> None:
        """As publish, without the commit: that is Group.commit's, of several stores together. Called again
        it replaces its own writes."""
        self._write(tensors, metadata, tag, chunk_bytes, lambda: None)

    def _write(self, tensors: Any, metadata: Any, tag: Any, chunk_bytes: Optional[int], end: Any) -> None:
        from .publish import Plan, write

        write(self, Plan(self._path, tensors, metadata, tag, chunk_bytes), chunk_bytes, end)

    def commit(self, stay: bool = False, *, group: Optional[str] = None, immutable: bool = False) -> None:
        """Publishes the writer's layout. stay: continues as a reader, and no writer gets in between; else
        the lock is released. A writer's tensors become read-only. group: 32 hex digits, to repair a
        Group.commit that failed half-way. immutable: the layout never changes again, and no process can
        write its memory; Busy if another process has it mapped for writing."""
        handle = self._touch()
        flags, raw = abi.COMMIT_STAY if stay else 0, None
        if immutable:
            flags |= abi.COMMIT_IMMUTABLE
        if group is not None:
            flags |= abi.COMMIT_GROUP
            raw = (ctypes.c_uint8 * abi.GROUP_BYTES)(*_hex(group, abi.GROUP_BYTES, "a group's id"))
        result = handle.lib.gmsfs_commit(handle.pointer, flags, raw)
        if result == -errno.EINVAL or (immutable and result == -errno.EBUSY):
            raise handle.error("gmsfs_commit", -result, self._last_error())
        handle.check("gmsfs_commit", result)
        self._note_commit()

    def _note_commit(self) -> None:
        self._in_part = bool(self._buffers)

    def commit_layout(self) -> None:
        """Seals the writer's layout: its tensors are final, their bytes may still change. Store.mode is
        "rw_data" then. However this process ends, layout and bytes stay for the next process that opens
        the store with "rw_data_or_rw": for a KV cache that survives its process."""
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
        """Discards the writer's layout and releases the lock. True: the layout committed before is back;
        False: the store is EMPTY, because its bytes may have been changed. With "rw_data" it only
        releases the lock (False): the sealed layout stays as it is."""
        rolled_back = ctypes.c_int()
        self._touch().call("gmsfs_abort", ctypes.byref(rolled_back))
        return bool(rolled_back.value)


def _hex(text: str, nbytes: int, what: Any) -> Any:
    if not isinstance(text, str):
        raise TypeError(f"{what} is a string of {2 * nbytes} hex digits, not a {type(text).__name__}")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
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
