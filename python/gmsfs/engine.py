# SPDX-License-Identifier: Apache-2.0
"""Decisions that the loaders of all engines share: the store, the process that loads, the messages."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple

from .module_parts import some
from .opening import find_or_make, open_weights
from .store import Store
from .torch import Shared

TIMEOUT_SECONDS = 600.0  # for the lock, and for an engine that is loading
QUIET_SECONDS = 3.0  # of a wait, before the log has a line about it


class Settings(NamedTuple):
    """The engine's --model-loader-extra-config."""

    path: str  # of the store; of vLLM, with {rank} for the number of the rank
    timeout: float  # seconds
    rest: Dict[str, Any]  # keys of the engine's own loader


def read_settings(extra: Any) -> Settings:
    """Raises ValueError, which names the key."""
    rest = dict(extra or {})
    path, timeout = rest.pop("store", None), rest.pop("timeout", TIMEOUT_SECONDS)
    if not isinstance(path, str) or not path:
        raise ValueError(
            "load format gmsfs: no store is named; give --model-loader-extra-config "
            '\'{"store": "/mnt/gms/gpu0/NAME"}\''
        )
    return Settings(path, check_timeout(path, timeout), rest)


@contextlib.contextmanager
def keys_of(settings: Settings) -> Iterator[None]:
    """Around the making of the engine's own loader, which names no store where it refuses a key."""
    try:
        yield
    except ValueError as error:
        raise ValueError(
            f'{settings.path}: --model-loader-extra-config: {error}; gmsfs takes "store" and "timeout"'
        ) from None


def check_timeout(path: str, timeout: Any) -> float:
    """Raises ValueError if it is no number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise ValueError(f'{path}: "timeout" is a number of seconds, not {timeout!r}')
    return float(timeout)


def committed_bytes(path: str) -> int:
    """Bytes of the layout if the store is committed: an engine that starts now attaches to them. Else 0."""
    store = find_or_make(path)
    try:
        info = store.info
        return info.total_bytes if info.committed else 0
    finally:
        store.close()


@contextlib.contextmanager
def wait_told(logger: logging.Logger, paths: List[str], timeout: float) -> Iterator[None]:
    """Around the call that takes the locks: logs the holders if it has to wait for them."""

    def tell() -> None:
        held = [f"{path}, which {holders(path)}" for path in paths if holders(path)]
        logger.info("gmsfs: waits up to %g seconds for the lock of %s", timeout, "; ".join(held or paths))

    timer = threading.Timer(QUIET_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def holders(path: str) -> str:
    """The other processes that have the lock of a store: "process 4711 (python3) has as RW", or ""."""
    try:
        with open(os.path.join(path, "sessions"), encoding="ascii") as file:
            rows = [line.split() for line in file]
    except OSError:  # the store is not there yet, or has just gone
        return ""
    return ", ".join(
        f"process {pid} ({command}) has as {mode}"
        for _, mode, state, pid, _, command, *_ in rows
        if state == "held" and int(pid) != os.getpid()
    )


@contextlib.contextmanager
def first_or_reader(logger: logging.Logger, settings: Settings) -> Iterator[Store]:
    """The store with its lock: the writer's in the first engine, a reader's in all others, which wait for
    the first one. If the block raises, the lock is given back at once, and the next engine is the first."""
    with wait_told(logger, [settings.path], settings.timeout):
        store = open_weights(settings.path, settings.timeout)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def fingerprint(engine: str, version: str, fields: Mapping[str, Any]) -> Dict[str, str]:
    """The settings that decide the names, shapes and values of an engine's weights, without None fields."""
    found = {"engine": engine, "version": version, **fields}
    return {field: str(value) for field, value in found.items() if value is not None}


def tell(logger: logging.Logger, engine: str, shared: Shared, is_first: bool) -> None:
    """Logs the shared bytes, and the names of tensors that the engine has taken out of the store."""
    report = shared.report()
    logger.info(
        "gmsfs: %s %s: %d bytes shared, %d bytes private",
        "loaded and published" if is_first else "attached",
        shared.store.path,
        report.shared_bytes,
        report.private_bytes,
    )
    if report.left:
        logger.warning(
            "gmsfs: %s has rewritten %d parameters for this processor or device, so their %d bytes are "
            "private to this engine: %s; the store saves loading them, not their memory",
            engine,
            len(report.left),
            sum(report.left.values()),
            some(list(report.left)),
        )
