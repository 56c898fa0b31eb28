# SPDX-License-Identifier: Apache-2.0
"""Opening a store together with its lock."""

from __future__ import annotations

from typing import Any, Optional

from . import abi
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

    mode: "ro" waits until something is committed and no writer is there; "rw" waits until nobody has
    the lock; "rw_or_ro" becomes the writer if nothing is committed when the grant comes, else a reader
    (see Store.writable). "rw_data_or_rw" adopts a sealed layout (Store.commit_layout) where one is
    there when the grant comes, and every other process that could write it has exited: Store.mode is
    "rw_data" then, else "rw". timeout: seconds; None waits without end, 0 does not wait.
    reserve_bytes: of a writer's lock of whatever kind, set aside together with it.
    token: of a session to join (Store.token there), in place of taking a lock.
    """
    check_request(mode, reserve_bytes)
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
    store = Store(path)
    try:
        await store._handle.connect_async(abi.MODES[mode], timeout, reserve_bytes)
    except BaseException:
        store.close()
        raise
    return store


def check_request(mode: str, reserve_bytes: int) -> None:
    """ValueError, or TypeError, for what open cannot ask for."""
    if not isinstance(mode, str) or mode not in abi.MODES:
        raise ValueError(f'mode is "ro", "rw", "rw_or_ro" or "rw_data_or_rw", not {mode!r}')
    if not isinstance(reserve_bytes, int):
        raise TypeError(f"reserve_bytes is a whole number, not {reserve_bytes!r}")
    if reserve_bytes and (mode == "ro" or not 0 < reserve_bytes < 2**63):
        raise ValueError(f"reserve_bytes is of a writer and below 2**63, not {reserve_bytes} of {mode!r}")
