# SPDX-License-Identifier: Apache-2.0
"""The exceptions: all are gmsfs.Error, an OSError with the library's errno."""

import errno
import os
from typing import Any, Dict, Type


class Error(OSError):
    """A call of the library failed.

    errno: as libgmsfs(3) says for that call. filename: the store. call: the function. device_error: the
    text of the GPU's driver, or "".
    """

    def __init__(self, code: int, store: str, call: str, why: str = "", device_error: str = "") -> None:
        super().__init__(code, os.strerror(code), store)
        self.call = call
        self.device_error = device_error
        self.why = why

    def __reduce__(self) -> Any:
        return type(self), (self.errno, self.filename, self.call, self.why, self.device_error)

    def __str__(self) -> str:
        text = f"{self.filename}: {self.call}: {self.strerror}"
        if self.device_error:
            text += f" ({self.device_error})"
        return f"{text}: {self.why}" if self.why else text


class WouldBlock(Error, BlockingIOError):
    """EAGAIN: another session has the lock, and the call must not wait."""


class NotFound(Error, FileNotFoundError):
    """ENOENT: there is no such store, or no such thing in it. Also a FileNotFoundError, as of a file."""


class Timeout(Error, TimeoutError):
    """ETIMEDOUT: the lock, or memory, did not come in time."""


class Canceled(Error):
    """ECANCELED: an administrator ended the wait, or Store.cancel did."""


class Stale(Error):
    """ESTALE: the session is over, or the layout changed while the store slept."""


class Busy(Error):
    """EBUSY: not now, e.g. while a stream is capturing."""


class NoLock(Error):
    """ENOLCK: this needs a lock that the store does not hold."""


class NoMemory(Error):
    """ENOMEM: the device is full."""


class DeviceError(Error):
    """EIO, ENODEV: the device, or the mount's view of it, failed."""


class BadMetadata(Error, ValueError):
    """EPROTO: the store's description of a tensor is invalid, or no tensor of this framework."""

    def __init__(self, store: str, key: str, why: str) -> None:
        super().__init__(errno.EPROTO, store, f"tensor {key!r}", why)
        self.key = key

    def __reduce__(self) -> Any:
        return type(self), (self.filename, self.key, self.why)

    def __str__(self) -> str:
        return f"{self.filename}: {self.call}: {self.why}"


class BadArgument(Error, ValueError):
    """EINVAL: a name, key, tag, value or tensor that no store can hold."""

    def __init__(self, store: str, argument: str, why: str) -> None:
        super().__init__(errno.EINVAL, store, argument, why)

    def __reduce__(self) -> Any:
        return type(self), (self.filename, self.call, self.why)


class Mismatch(BadArgument):
    """EINVAL: a store holds other tensors, or another fingerprint, than a module is made for."""


class ReadOnly(Error):
    """EACCES: a call is about to write to memory that a store shares with other processes."""


class Leak(Error):
    """EINVAL: a capture left blocks allocated in its space that were not declared outputs.

    shape: of the capture. blocks: the blocks left, as gmsfs.graphs.Block.
    """

    def __init__(self, store: str, shape: Any, blocks: Any) -> None:
        some = "; ".join(map(str, blocks[:8]))
        if len(blocks) > 8:
            some += f"; and {len(blocks) - 8} more"
        super().__init__(
            errno.EINVAL,
            store,
            f"capture of shape {shape!r}",
            f"it left allocated: {some}. The replays of other shapes overwrite that: make lasting "
            "tensors before the capture, give outputs to keep(), and drop the rest before the capture ends",
        )
        self.shape = shape
        self.blocks = list(blocks)

    def __reduce__(self) -> Any:
        return type(self), (self.filename, self.shape, self.blocks)

    def __str__(self) -> str:
        return f"{self.filename}: {self.call}: {self.why}"


class LibraryError(ImportError):
    """libgmsfs is missing, or of a version that this package is not made for."""


_CLASSES: Dict[int, Type[Error]] = {
    errno.EAGAIN: WouldBlock,
    errno.ENOENT: NotFound,
    errno.ETIMEDOUT: Timeout,
    errno.ECANCELED: Canceled,
    errno.ESTALE: Stale,
    errno.EBUSY: Busy,
    errno.ENOLCK: NoLock,
    errno.ENOMEM: NoMemory,
    errno.EIO: DeviceError,
    errno.ENODEV: DeviceError,
}

# Of a lock that is taken to read: by itself, or with the memory in one request as wake() does.
_LOCK_WAYS_OUT: Dict[int, str] = {
    errno.ENODEV: "the mount grants no locks: it is drained, fenced for a checkpoint, "
    "or the device is lost; see 'gmsfs status'",
    errno.EIO: "its memory is suspect and takes no readers; load it anew, or see "
    "gmsfs-clear-suspect in gmsfs(1)",
    errno.ENODATA: "its bytes were given up; load or publish them anew",
}

# The ways out. By call and errno, then by errno alone.
_WAYS_OUT: Dict[Any, str] = {
    **{
        (call, code): words
        for call in ("gmsfs_connect", "gmsfs_remap_all_vas")
        for code, words in _LOCK_WAYS_OUT.items()
    },
    ("gmsfs_open", errno.ENOTTY): "no store of a gmsfs mount; give a directory directly below one",
    ("gmsfs_open", errno.ENOTDIR): "no store of a gmsfs mount; give a directory directly below one",
    ("gmsfs_open", errno.ENOENT): "no such store; 'gmsfs status' lists them, and mkdir makes one",
    ("gmsfs_connect", errno.EACCES): "no permission to write the store; ask its owner, or open it "
    'with mode="ro"',
    ("gmsfs_connect", errno.ENOMEM): "the device is smaller, or (timeout 0) has not as much free now; see "
    "'gmsfs status' for its holders",
    (
        "gmsfs_remap_all_vas",
        errno.ESTALE,
    ): "the layout (strict: the generation) is not the one that was "
    "unmapped; close the store and open it again",
    ("gmsfs_remap_all_vas", errno.EINVAL): "it does not sleep",
    ("gmsfs_reallocate_all_handles", errno.EINVAL): "it does not sleep; sleep() it first",
    ("gmsfs_unmap_tag", errno.EINVAL): "all of it sleeps",
    ("gmsfs_remap_tag", errno.EINVAL): "all of it sleeps; wake() it",
    ("gmsfs_connect_group", errno.ESTALE): "they are committed, but not together: a mix of two loads, or "
    "one was removed or revoked meanwhile; load them anew",
    ("gmsfs_connect_group", errno.EINVAL): "a store is named twice",
    ("gmsfs_connect_group", errno.ENODATA): "one of them has given up its bytes; load them anew",
    ("gmsfs_copy_private", errno.ENOENT): "it is not mapped now; wake() it first",
    ("gmsfs_retarget", errno.ESTALE): "its layout has another shape than the mapped one: other "
    "allocations or tensors; open it by itself",
    ("gmsfs_retarget", errno.EXDEV): "it is on another device; open it by itself",
    ("gmsfs_retarget", errno.EBUSY): "a writer cannot change its store; commit(stay=True) first",
    ("gmsfs_retarget", errno.ENOLCK): "it is mapped without the lock; sleep() first",
    ("gmsfs_retarget", errno.ENOTTY): "no store of a gmsfs mount; give a directory directly below "
    "one",
    (
        "gmsfs_commit",
        errno.EINVAL,
    ): "the layout is not valid; last_error in the store's info says why",
    (
        "gmsfs_commit_layout",
        errno.EINVAL,
    ): "the layout is not valid; last_error in the store's info says why",
    (
        "gmsfs_commit_layout",
        errno.EOPNOTSUPP,
    ): "a process that the mount cannot see (of another PID namespace) may write the memory",
    ("gmsfs_metadata_put_many", errno.EINVAL): "a key or value that the store does not take",
    ("gmsfs_join", errno.ESTALE): "no session has this token; it is over, or of another store",
    ("gmsfs_read_layout", errno.ENODATA): "nothing is committed; load or publish something",
    ("gmsfs_graph_open", errno.ENOTTY): "no store of a gmsfs mount; give a directory directly below one",
    (
        "gmsfs_graph_wake",
        errno.EINVAL,
    ): "the store has allocations that are no chunks of this pool's size; use a store of the pool's own, or "
    "open it with their chunk_bytes",
    ("gmsfs_graph_wake", errno.EBUSY): "it is awake",
    ("gmsfs_graph_wake", errno.ENOTCONN): "the mount is dead; mount it again, then wake() the pool again",
    ("gmsfs_graph_wake", errno.ENOTTY): "the mount is gone; mount it again, then wake() the pool again",
    ("gmsfs_graph_wake", errno.EXDEV): "its mount is another device's now; open a pool there",
    ("gmsfs_graph_space_free", errno.EBUSY): "tensors live in it, or a capture is under way",
    ("gmsfs_graph_select", errno.EBUSY): "the stream allocates from another space already",
    ("gmsfs_graph_enter", errno.EBUSY): "another graph of the pool is launched or runs; wait for it",
    ("gmsfs_graph_sleep", errno.EBUSY): "a capture is under way; sleep after it",
    ("gmsfs_graph_shrink", errno.EBUSY): "a capture is under way; shrink after it",
    ("gmsfs_graph_alloc", errno.ENOENT): "memory was wanted on a stream that has no space of the pool "
    "selected; work of a capture belongs on the streams of its own thread",
    ("gmsfs_graph_alloc", errno.ENOSPC): "the addresses of the space are used up; give it more "
    "reserve_bytes, which cost no memory",
    ("gmsfs_graph_space_alloc", errno.ENOSPC): "the addresses of the space are used up; give the pool "
    "more reserve_bytes, which cost no memory",
    **{
        ("gmsfs_graph_" + call, errno.ENOLCK): "the pool sleeps; wake() it first"
        for call in ("alloc", "enter", "shrink", "space_alloc")
    },
    **{
        ("gmsfs_graph_" + call, errno.ESTALE): "an administrator ended the session; sleep(), then wake()"
        for call in ("alloc", "shrink", "space_alloc")
    },
    ("gmsfs_graph_sleep", errno.ESTALE): "an administrator ended the session: it sleeps, and nothing was "
    "kept; wake() it",
    **{
        ("gmsfs_graph_" + call, errno.ENOTCONN): "the mount is dead; sleep(), mount it again, then wake()"
        for call in ("alloc", "shrink", "space_alloc")
    },
    ("gmsfs_graph_sleep", errno.ENOTCONN): "the mount is dead: it sleeps, and nothing was kept; mount it "
    "again, then wake()",
    **{
        ("gmsfs_graph_" + call, errno.EDEADLK): "this thread is inside of launch(); leave it first"
        for call in ("enter", "shrink", "sleep", "space_free")
    },
    errno.EAGAIN: "another session has the lock, or another process can write the sealed layout; give a "
    "timeout to wait, and see 'gmsfs status' for the holders",
    errno.ETIMEDOUT: "other sessions have the lock or the memory; see 'gmsfs status' for the holders",
    errno.ECANCELED: "an administrator ended the wait, or cancel() in another thread",
    errno.ECHILD: "it was opened before fork(); a child opens the store itself",
    errno.ENOTCONN: "the mount is dead; mount it again, then open the store again",
    errno.ESTALE: "the session was revoked or the store removed; open it again",
    errno.EBUSY: "a CUDA stream is capturing, or the store is in use by this handle; try again after it",
    errno.ENOLCK: "it needs the writer's lock (or any, to map); open the store with the mode for it",
    errno.ENOMEM: "the device is full; see 'gmsfs status' for the holders of its memory",
    errno.EDQUOT: "its pool has no room for it ('pools' in the mount has the budgets), or your share of a "
    "bound is used up ('events' names which)",
    errno.ENOSPC: "a bound of the store is reached (gmsfs(5) lists them)",
    errno.EFBIG: "a metadata value has at most 1 MiB, and all values of one call 1 GiB",
    errno.EHOSTUNREACH: "the store alone was bind-mounted; bind the whole mount instead",
    errno.ENODEV: "the device is lost, or this process may not see it (CUDA_VISIBLE_DEVICES)",
}


def make(code: int, store: str, call: str, why: str = "", device_error: str = "") -> Error:
    """The exception for a positive errno. `why` replaces the text for the errno."""
    if not why:
        why = _WAYS_OUT.get((call, code)) or _WAYS_OUT.get(code, "")
    return _CLASSES.get(code, Error)(code, store, call, why, device_error)
