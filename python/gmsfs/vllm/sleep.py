# SPDX-License-Identifier: Apache-2.0
"""A backend of vLLM's sleep mode: shared weights go back to their store, and everything else goes as vLLM's
own backend has it."""

from __future__ import annotations

from typing import List, Optional

from vllm.device_allocator.sleep_mode_backend import CuMemBackend
from vllm.platforms import current_platform

from . import loader

WEIGHTS = "weights"  # vLLM's tag of them


class SleepBackend(CuMemBackend):  # type: ignore[misc] # vLLM need not be here
    """Levels 1 and 2 are one: the store keeps the weights, so nothing is copied away or discarded, and none
    have to be loaded again. On a processor weights alone sleep."""

    def suspend(self, level: int = 1) -> None:
        for shared in list(loader.alive):
            shared.sleep()
        if not current_platform.is_cpu():
            super().suspend(1)
        self._state = "SUSPENDED"

    def resume(self, tags: Optional[List[str]] = None) -> None:
        """Wakes the weights first, so that after another commit in its store the engine sleeps on as a whole
        (Stale)."""
        if tags is None or WEIGHTS in tags:
            for shared, timeout in list(loader.alive.items()):
                shared.wake(timeout)
        if not current_platform.is_cpu():
            super().resume(tags)
        self._state = "RUNNING"
