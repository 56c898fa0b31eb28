# SPDX-License-Identifier: Apache-2.0
"""Numbers of a store, and of this process's memory by the library."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, Tuple

from . import abi, memory

if TYPE_CHECKING:
    from .handle import Handle


class Info(NamedTuple):
    """Facts about the store at one moment; ids as hex digits, "" for none."""

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
    residency: Tuple[str, ...]  # where the committed bytes are: of "device", "host", "disk"; () for nowhere
    moves: int  # how often their place has changed: other physical memory each time


class MemoryInfo(NamedTuple):
    """Device memory that this process uses by one Store, in bytes."""

    shared_bytes: int  # of the store, mapped now
    preserved_bytes: int  # asleep: addresses without memory
    private_bytes: int  # of Store.copy_private


def ask(handle: Handle) -> abi.Info:
    raw = abi.Info()
    handle.call("gmsfs_get_info", ctypes.byref(raw), ctypes.sizeof(raw))
    return raw


def understand(raw: abi.Info) -> Info:
    group = bytes(raw.group)
    return Info(
        store_id=bytes(raw.store_id).hex(),
        device_uuid=bytes(raw.device_uuid).hex(),
        group=group.hex() if any(group) else "",
        layout_hash=raw.layout_hash.decode(),
        state=abi.STATES[raw.state] if raw.state < len(abi.STATES) else str(raw.state),
        mode=mode_name(raw.mode),
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


def ask_memory(handle: Handle) -> MemoryInfo:
    raw = abi.MemoryInfo()
    handle.call("gmsfs_memory_info", ctypes.byref(raw), ctypes.sizeof(raw))
    return MemoryInfo(raw.shared_bytes, raw.preserved_bytes, raw.private_bytes)


def mode_name(mode: int) -> str:
    return abi.GRANTED.get(mode, "")
