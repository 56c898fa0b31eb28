# SPDX-License-Identifier: Apache-2.0
"""Hearing that a store is drained: a thread that polls `state` and reads `info`.

It holds open files of the mount and nothing of the Store, so it keeps no lock and no memory.
"""

import json
import os
import select
import sys
import threading
import weakref
from typing import Any

_READ_BYTES = 65536


class DrainWatch:
    """Made by Store.on_drain. close() ends it, as does the end of its Store."""

    def __init__(self, store: Any, path: Any, callback: Any) -> None:
        if not callable(callback):
            raise TypeError(f"on_drain needs a callable, not {callback!r}")
        self._wake, waker = os.pipe2(os.O_CLOEXEC)
        self._state = self._info = -1
        try:
            self._state = os.open(os.path.join(path, "state"), os.O_RDONLY | os.O_CLOEXEC)
            self._info = os.open(os.path.join(path, "info"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(waker)
            self._drop()
            raise
        self._callback = callback
        # The thread ends, and closes its files, when the pipe hangs up.
        self.close = weakref.finalize(store, os.close, waker)
        self.close.atexit = False
        threading.Thread(target=self._run, name="gmsfs-drain", daemon=True).start()

    def _drop(self) -> None:
        for fd in (self._wake, self._state, self._info):
            if fd >= 0:
                os.close(fd)

    def _read_info(self) -> bytes:
        """All of it: its text is made at offset 0 and stays until the next read there."""
        text = os.pread(self._info, _READ_BYTES, 0)
        while more := os.pread(self._info, _READ_BYTES, len(text)):
            text += more
        return text

    def _read(self) -> Any:
        """Reads the drain in `info`: None, or (its deadline,)."""
        os.pread(self._state, 64, 0)  # later changes end the next poll
        info = json.loads(self._read_info())
        if not info["draining"]:
            return None
        deadline_ms = info["drain_deadline_ms"]
        return (None if deadline_ms is None else deadline_ms / 1000,)

    def _call(self, deadline: Any) -> None:
        try:
            self._callback(deadline)
        except Exception:  # noqa: BLE001 - said as any thread's, and the next drain is heard of too
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )

    def _watch(self) -> None:
        known = None
        poll = select.poll()
        poll.register(self._wake, 0)
        poll.register(self._state, select.POLLPRI)
        while True:
            drain = self._read()
            if drain is not None and drain != known:
                self._call(*drain)
            known = drain
            if any(fd == self._wake for fd, _ in poll.poll()):
                return

    def _run(self) -> None:
        try:
            self._watch()
        except (OSError, ValueError, KeyError):
            pass  # the store is removed, or the mount is gone: the drain is over
        finally:
            self._drop()
