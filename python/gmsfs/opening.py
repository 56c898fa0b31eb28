# SPDX-License-Identifier: Apache-2.0
"""Opening a store together with its lock."""

from __future__ import annotations

import errno
import io
import os
import select
import time
from typing import Any, Optional

from . import abi
from .errors import Error, Mismatch, make
from .handle import has_mount, milliseconds
from .info import Info
from .store import Store


def open(
    path: Any,
    mode: str = "ro",
    timeout: Optional[float] = None,
    *,
    reserve_bytes: int = 0,
    token: Optional[str] = None,
) -> Store:
    """Opens the store at `path` and takes its lock.

    mode: "ro" waits until something is committed and no writer is there; "rw" waits until the lock is
    free; "rw_or_ro" becomes the writer if nothing is committed when the grant comes, else a reader
    (see Store.writable). "rw_data_or_rw" adopts a sealed layout (Store.commit_layout) where one is
    there when the grant comes, and every other process that could write it has exited: Store.mode is
    "rw_data" then, else "rw". A writer makes a store that is not there.
    timeout: seconds; None waits without end, 0 does not wait.
    reserve_bytes: of any writer's lock: memory to reserve together with it.
    token: of a session to join (Store.token there), in place of taking a lock.
    """
    check_request(mode, reserve_bytes)
    store = Store(path) if mode == "ro" or token is not None else find_or_make(path)
    try:
        if token is not None:
            store._join(token)
        else:
            store._handle.connect(abi.MODES[mode], timeout, reserve_bytes)
    except BaseException:
        store.close()
        raise
    return store


async def open_async(
    path: Any,
    mode: str = "ro",
    timeout: Optional[float] = None,
    *,
    reserve_bytes: int = 0,
) -> Store:
    """As open, for a coroutine: the event loop goes on while it waits, and when the task is cancelled it
    has left the queue. (asyncio does not tell the thread of a to_thread(open) that it was cancelled.)"""
    check_request(mode, reserve_bytes)
    store = Store(path) if mode == "ro" else find_or_make(path)
    try:
        await store._handle.connect_async(abi.MODES[mode], timeout, reserve_bytes)
    except BaseException:
        store.close()
        raise
    return store


def wait_committed(path: Any, timeout: Optional[float] = None) -> Info:
    """Waits, without a place in the queue and without a lock, until the store at `path` has something
    committed, and returns its Info: total_bytes is the size of the layout. timeout: seconds; None waits
    without end. Raises Timeout, and ENOENT if there is no such store."""
    milliseconds(timeout)  # TypeError, ValueError
    end = None if timeout is None else time.monotonic() + timeout
    store = Store(path)
    try:
        with io.open(os.path.join(path, "state"), "rb", buffering=0) as file:
            poll = select.poll()
            poll.register(file, select.POLLPRI)
            while True:
                os.pread(file.fileno(), 64, 0)  # a change after this read ends the next poll
                found = store.info
                if found.committed:
                    return found
                left = None if end is None else max(0, end - time.monotonic())
                if left == 0:
                    raise make(errno.ETIMEDOUT, store.path, "wait_committed", f"it is {found.state}")
                poll.poll(left if left is None else left * 1000 + 1)
    finally:
        store.close()


def find_or_make(path: Any) -> Store:
    """The Store at `path`, without a lock; made by mkdir if it is not there and its parent is a mount."""
    try:
        return Store(path)
    except Error as error:
        if error.errno != errno.ENOENT or not has_mount(os.fsdecode(path)):
            raise
    try:
        os.mkdir(path)
    except FileExistsError:
        pass  # another process has just made it
    return Store(path)


def open_weights(path: Any, timeout: Optional[float]) -> Store:
    """The writer of a store without weights, or else a reader. Raises Mismatch for a sealed layout."""
    check_for_weights(path)
    return open(path, "rw_or_ro", timeout)


def check_for_weights(path: Any) -> None:
    """Makes the store at `path` if it is not there. Raises Mismatch if its layout is sealed: the grant of the
    writer's lock would drop it, as where the path is that of a KV cache by mistake."""
    store = find_or_make(path)
    try:
        if store.info.sealed:
            raise Mismatch(
                store.path,
                "open",
                "its layout is sealed, as that of a KV cache is, and weights would replace it; name an empty "
                "store, or one that is not there",
            )
    finally:
        store.close()


def check_request(mode: str, reserve_bytes: int) -> None:
    """Raises ValueError, or TypeError, for arguments that open cannot use."""
    if not isinstance(mode, str) or mode not in abi.MODES:
        raise ValueError(f'mode is "ro", "rw", "rw_or_ro" or "rw_data_or_rw", not {mode!r}')
    if not isinstance(reserve_bytes, int):
        raise TypeError(f"reserve_bytes is a whole number, not {reserve_bytes!r}")
    if reserve_bytes and (mode == "ro" or not 0 < reserve_bytes < 2**63):
        raise ValueError(f"reserve_bytes is of a writer and below 2**63, not {reserve_bytes} of {mode!r}")
