# SPDX-License-Identifier: Apache-2.0
"""Stores of gmsfs, the file system of GPU memory, as dicts of tensors.

    import gmsfs

    with gmsfs.open("/mnt/gms/gpu0/weights") as store:
        tensors = store.tensors()

The tensors lie over the shared memory: nothing is copied, and nothing is read from a disk. They stay
valid after the block, which only gives the lock back; the memory goes when the last of them does.
gmsfs-python(7) tells all.
"""

from .buffers import Buffer
from .errors import (
    BadArgument,
    BadMetadata,
    Busy,
    Canceled,
    DeviceError,
    Error,
    LibraryError,
    Mismatch,
    NoMemory,
    NoLock,
    NotFound,
    ReadOnly,
    Stale,
    Timeout,
    WouldBlock,
)
from .group import Group, open_group, open_group_async
from .info import Info, MemoryInfo
from .layout import TensorSpec
from .opening import open, open_async, wait_committed
from .publish import publish
from .safe import Slice, safe_open
from .store import Store

__version__ = "0.1.0"

__all__ = [
    "BadArgument",
    "BadMetadata",
    "Buffer",
    "Busy",
    "Canceled",
    "DeviceError",
    "Error",
    "Group",
    "Info",
    "LibraryError",
    "MemoryInfo",
    "Mismatch",
    "NoMemory",
    "NoLock",
    "NotFound",
    "ReadOnly",
    "Slice",
    "Stale",
    "Store",
    "TensorSpec",
    "Timeout",
    "WouldBlock",
    "open",
    "open_async",
    "open_group",
    "open_group_async",
    "publish",
    "safe_open",
    "wait_committed",
]
