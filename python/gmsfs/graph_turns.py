# SPDX-License-Identifier: Apache-2.0
"""Turns: one capture at a time in a process, one launch at a time in a pool. No torch."""

import contextlib
import errno
import os
import threading
import weakref
from typing import Any, Iterator, Optional

from . import abi, errors


class Turn:
    """A lock that knows its thread: to want it twice is an error and no standstill."""

    def __init__(self, code: int, call: str, why: str) -> None:
        self._refusal = (code, call, why)
        self.renew()

    def renew(self) -> None:
        """In a child of fork(), where the thread that had it may not be."""
        self._lock = threading.Lock()
        self._owner: Optional[int] = None

    def check(self, path: Any) -> None:
        """Refuses the thread that has the turn."""
        if self._owner == threading.get_ident():
            code, call, why = self._refusal
            raise errors.make(code, path, call, why)

    def take(self, path: Any, wait: bool = True) -> Any:
        """Whether it was had."""
        self.check(path)
        if not self._lock.acquire(wait):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        self._owner = None
        self._lock.release()

    @contextlib.contextmanager
    def taken(self, path: Any) -> Iterator[Any]:
        """The turn, for a `with`."""
        self.take(path)
        try:
            yield
        finally:
            self.give_back()


# torch allows one capture at a time in a process, and calls that free or synchronise spoil it.
captures = Turn(
    errno.EBUSY, "capture", "this thread is inside of capture(); do it when the capture has ended"
)


class Ordered:
    """Launches of a pool, one thread at a time; the graphs order themselves on the device."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._turn = Turn(
            errno.EDEADLK, "launch", "this thread is inside of launch(); leave it first"
        )
        self.asleep = True

    def renew(self) -> None:
        self._turn.renew()
        self.asleep = True

    def __enter__(self) -> None:
        self._turn.take(self._pool.path)
        try:
            self._pool._check_awake("launch")
        except BaseException:
            self._turn.give_back()
            raise

    def __exit__(self, *_: Any) -> None:
        self._turn.give_back()

    def check(self) -> None:
        """Refuses a thread that launches."""
        self._turn.check(self._pool.path)

    def held_off(self) -> Any:
        """Excludes launches for a `with`: waits for running ones."""
        return self._turn.taken(self._pool.path)


class Refused(Ordered):
    """Launches of a pool, refused (Busy) while another graph of it is launched or, by the library's guard,
    runs."""

    def __init__(self, pool: Any) -> None:
        super().__init__(pool)
        self._inside: Any = None  # (handle, stream) of the thread that has the turn
        self._threads = threading.local()

    def __enter__(self) -> None:
        handle, torch = self._pool._live(), self._pool._load()
        if not getattr(self._threads, "ready", False):
            torch.ready_thread()
            self._threads.ready = True
        stream = torch.pointer(torch.current_stream())
        if not self._turn.take(self._pool.path, wait=False):
            raise handle.error("gmsfs_graph_enter", errno.EBUSY)
        try:
            handle.call("gmsfs_graph_enter", stream, abi.GRAPH_REFUSE)
        except BaseException:
            self._turn.give_back()
            raise
        self._inside = handle, stream

    def __exit__(self, *_: Any) -> None:
        (handle, stream), self._inside = self._inside, None
        try:
            handle.call("gmsfs_graph_leave", stream)
        finally:
            self._turn.give_back()


LAUNCHING = {"order": Ordered, "refuse": Refused}

# For fork().
pools: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork() -> None:
    captures.renew()
    for pool in list(pools):
        pool._renew()


os.register_at_fork(after_in_child=_after_fork)
