# SPDX-License-Identifier: Apache-2.0
"""The stores of an engine: one for each rank, taken by all ranks or by none, and committed with one group id.

Rank 0 takes the locks of all stores at once, so all ranks write or all read. While they write, the other
ranks are members of rank 0's sessions. While they read, rank 0 has all locks until each rank has its own, so
no other load can come between two ranks. This file knows neither vLLM nor torch.distributed.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..errors import make
from ..group import Group, open_group
from ..opening import check_for_weights, open as open_store, open_weights
from ..store import Store
from ..torch import Shared, attach, move_in, plan_module, publish

RANK = "{rank}"  # in a path: the number of the rank
Gather = Callable[[Any], List[Any]]  # the values of all ranks, by rank; each rank calls it


class Alone:
    """An engine of one rank."""

    def __init__(self, path: str, timeout: float) -> None:
        self.store = open_weights(path, timeout)
        self.writable = self.store.writable

    def publish(self, module: Any, fingerprint: Dict[str, Any]) -> Shared:
        return publish(module, self.store, fingerprint=fingerprint)

    def attach(self, module: Any, fingerprint: Dict[str, Any]) -> Shared:
        return attach(module, self.store, fingerprint=fingerprint)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        self.store.close()


class OtherRank(RuntimeError):
    """Another rank failed; this one stops for that reason alone."""


class Rank:
    """One rank of an engine of several. Every rank makes the same calls, and a call that fails on one of them
    fails on all."""

    def __init__(self, paths: List[str], rank: int, gather: Gather, timeout: float) -> None:
        self.path = paths[rank]
        self._rank = rank
        self._gather = gather
        self._timeout = timeout
        self._group: Optional[Group] = None
        self._store: Optional[Store] = None
        try:
            with self.together():
                self._open(paths)
        except BaseException:
            self.close()
            raise

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """A context that ends well on all ranks, or on none."""
        try:
            yield
        except OtherRank:
            raise
        except BaseException as error:
            self._gather({"error": f"rank {self._rank}: {error}"})
            raise
        self._agree()

    def _agree(self, value: Any = None) -> List[Any]:
        """The value of each rank. Raises OtherRank if one of them failed."""
        said = self._gather({"value": value})
        errors = [one["error"] for one in said if "error" in one]
        if errors:
            raise OtherRank(f"{self.path}: all ranks load together, and one failed: {'; '.join(errors)}")
        return [one["value"] for one in said]

    def _open(self, paths: List[str]) -> None:
        offer = None
        if self._rank == 0:
            for path in paths:
                check_for_weights(path)
            self._group = group = open_group(paths, "rw_or_ro", self._timeout)
            self._store = group[0]
            tokens = [store.token for store in group] if group.writable else []
            offer = {"tokens": tokens, "load": group[0].info.group}
        offered = self._agree(offer)[0]
        self.writable = bool(offered["tokens"])
        if self._rank and self.writable:
            self._store = open_store(self.path, token=offered["tokens"][self._rank])
        elif self._rank:
            self._store = self._read(offered["load"])

    def _read(self, load: str) -> Store:
        """Opens a reader of the load that was committed with a group id."""
        store = open_store(self.path, "ro", self._timeout)
        if store.info.group == load:
            return store
        store.close()
        why = "it was committed by another load than rank 0's; start the engine again"
        raise make(errno.ESTALE, self.path, "open", why)

    def publish(self, module: Any, fingerprint: Dict[str, Any]) -> Shared:
        plan = plan_module(self.store, module, fingerprint, "weights")
        load = ""

        def commit() -> None:
            nonlocal load
            self._agree()  # every rank has written
            if self._group is not None:
                self._group.commit(stay=True)
            load = self._agree(self._group.id if self._group is not None else None)[0]

        shared = move_in(self.store, module, plan, None, commit)
        if self._group is None:  # its store was rank 0's session
            self.store.close()
            self._store = self._read(load)
            shared = attach(module, self.store, fingerprint=fingerprint)
        self._leave_to_ranks()
        return shared

    def attach(self, module: Any, fingerprint: Dict[str, Any]) -> Shared:
        shared = attach(module, self.store, fingerprint=fingerprint)
        self._leave_to_ranks()
        return shared

    def _leave_to_ranks(self) -> None:
        """Rank 0 gives the locks of the others' stores back, once each of them has its own."""
        self._agree()
        for store in (self._group.stores[1:] if self._group is not None else ()):
            store.close()

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        if self._store is not None:
            self._store.close()
