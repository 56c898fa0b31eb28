# SPDX-License-Identifier: Apache-2.0
"""Several stores as one: the ranks of a model, locked and committed together."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any, Iterable, Iterator, List, Optional, Sequence

from . import abi, errors
from .handle import wait, wait_async
from .opening import check_request
from .store import Store


def open_group(
    paths: Iterable[Any],
    mode: str = "ro",
    timeout: Optional[float] = None,
    *,
    reserve_bytes: Optional[Sequence[int]] = None,
) -> Group:
    """Takes the locks of the stores at `paths`, of one mount or of several: all or none, all with the
    same grant.

    mode: "ro" waits until all are committed, and wants them committed together (else Stale: a mix of two
    loads); "rw" is the writer of all; "rw_or_ro" is a reader where they are committed together, else the
    writer, so that a group that a dead loader committed in part is loaded again.
    timeout: seconds for all together; None waits without end, 0 does not wait.
    reserve_bytes: of a writer, for each path: memory to reserve together with the locks.
    """
    group = Group(_open_each(paths))
    try:
        group._connected(wait(*group._request(mode, timeout, reserve_bytes)))
    except BaseException:
        group.close()
        raise
    return group


async def open_group_async(
    paths: Iterable[Any],
    mode: str = "ro",
    timeout: Optional[float] = None,
    *,
    reserve_bytes: Optional[Sequence[int]] = None,
) -> Group:
    """As open_group, for a coroutine: the event loop goes on while it waits, and when the task is
    cancelled it has left the queues."""
    group = Group(_open_each(paths))
    try:
        group._connected(await wait_async(*group._request(mode, timeout, reserve_bytes)))
    except BaseException:
        group.close()
        raise
    return group


def _open_each(paths: Iterable[Any]) -> List[Store]:
    if isinstance(paths, (str, bytes, os.PathLike)):
        raise TypeError(f"paths are several, as in a list, not {paths!r}")
    return [Store(path) for path in paths]


class Group:
    """Stores that were opened together, in the order of their paths; made by gmsfs.open_group. To be
    used in one `with`, or closed by close()."""

    def __init__(self, stores: List[Store]) -> None:
        if not 1 <= len(stores) <= abi.GROUP_MAX:
            raise ValueError(f"a group has 1 to {abi.GROUP_MAX} stores, not {len(stores)}")
        self.stores = stores
        self.id = ""  # of the last commit, also of one that failed half-way; 32 hex digits

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Store]:
        return iter(self.stores)

    def __len__(self) -> int:
        return len(self.stores)

    def __getitem__(self, index: int) -> Store:
        return self.stores[index]

    def close(self) -> None:
        """Closes every store of it: writers that have not committed abort."""
        for store in self.stores:
            store.close()

    @property
    def writable(self) -> bool:
        """Whether it is the writer of its stores."""
        return self.stores[0].writable

    def commit(self, stay: bool = False) -> None:
        """Publishes the writer's layouts, with one new group id. stay: goes on as readers.

        A failure before the first is published has changed nothing. After a failure half-way (a mount
        that dies) some are committed, and the others still have their lock and work: repair the cause and
        commit(group=Group.id) each, or close them; a group that is not whole is loaded anew.
        """
        handles, raw = self._handles(), (ctypes.c_uint8 * abi.GROUP_BYTES)()
        first = self.stores[0]._live()
        flags = abi.COMMIT_STAY if stay else 0
        result = first.lib.gmsfs_commit_group(handles, len(handles), flags, raw)
        self.id = bytes(raw).hex() if any(raw) else ""
        for store in self.stores:
            store._note_commit()
        if result < 0:
            raise self._error("gmsfs_commit_group", -result)

    def _handles(self) -> Any:
        return (ctypes.c_void_p * len(self.stores))(*(store._live().pointer for store in self.stores))

    def _error(self, call: str, code: int) -> errors.Error:
        why = ""
        if call == "gmsfs_commit_group" and code == errno.EINVAL:
            said = ((store.path, store._last_error()) for store in self.stores)
            why = "; ".join(f"{path}: {text}" for path, text in said if text)
        return errors.make(code, " ".join(store.path for store in self.stores), call, why)

    def _check_reserve(self, reserve_bytes: Any) -> None:
        count = len(self.stores)
        if not isinstance(reserve_bytes, Sequence) or isinstance(reserve_bytes, (str, bytes)):
            raise TypeError(
                f"reserve_bytes is a list, a number for each of {count} paths, not {reserve_bytes!r}"
            )
        if len(reserve_bytes) != count:
            raise ValueError(
                f"reserve_bytes has a number for each of {count} paths, not {len(reserve_bytes)}"
            )

    def _request(
        self, mode: str, timeout: Optional[float], reserve_bytes: Optional[Sequence[int]]
    ) -> Any:
        """Returns the attempt for wait()."""
        if mode not in ("ro", "rw", "rw_or_ro"):
            raise ValueError(f'mode of a group is "ro", "rw" or "rw_or_ro", not {mode!r}')
        if reserve_bytes is not None:
            self._check_reserve(reserve_bytes)
        for nbytes in reserve_bytes or ():
            check_request(mode, nbytes)
        handles, count, number = self._handles(), len(self.stores), abi.MODES[mode]
        lib = self.stores[0]._live().lib
        reserved = (ctypes.c_uint64 * count)(*reserve_bytes) if reserve_bytes else None

        def attempt(ms: int) -> int:
            if reserved is not None:
                return int(lib.gmsfs_connect_group_reserve(handles, count, number, ms, reserved))
            return int(lib.gmsfs_connect_group(handles, count, number, ms))

        def undo() -> None:
            for store in self.stores:
                store._live().release()

        return attempt, timeout, undo, self.stores[0]._live().cancel

    def _connected(self, result: int) -> None:
        if result < 0:
            raise self._error("gmsfs_connect_group", -result)
