# SPDX-License-Identifier: Apache-2.0
"""SGLang's memory saver, with the store as one more thing that it pauses and resumes."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, List

from sglang.srt.constants import GPU_MEMORY_TYPE_WEIGHTS
from sglang.srt.utils.torch_memory_saver_adapter import TorchMemorySaverAdapter

from .sglang import is_chosen
from .torch import Shared

_attached: "weakref.WeakKeyDictionary[Shared, float]" = weakref.WeakKeyDictionary()


def add(shared: Shared, timeout: float) -> None:
    """From now on pausing the weights gives this store's memory and lock back; resuming waits `timeout`
    seconds for the lock."""
    _attached[shared] = timeout


def attached() -> List[Shared]:
    return list(_attached)


class Adapter(TorchMemorySaverAdapter):  # type: ignore[misc] # SGLang need not be here
    """Another adapter, and sleep and wake of the stores with tag "weights".

    Weights that load into a store are not put into a region of torch_memory_saver: a region keeps the memory
    that the loader frees after each slab.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def configure_subprocess(self) -> Any:
        return self.inner.configure_subprocess()

    def region(self, tag: str, enable_cpu_backup: bool = False) -> Any:
        if tag == GPU_MEMORY_TYPE_WEIGHTS and is_chosen():
            return contextlib.nullcontext()
        return self.inner.region(tag, enable_cpu_backup=enable_cpu_backup)

    def cuda_graph(self, **kwargs: Any) -> Any:
        return self.inner.cuda_graph(**kwargs)

    def disable(self) -> Any:
        return self.inner.disable()

    def pause(self, tag: str) -> None:
        self.inner.pause(tag)
        if tag == GPU_MEMORY_TYPE_WEIGHTS:
            for shared in attached():
                shared.sleep()

    def resume(self, tag: str) -> None:
        if tag == GPU_MEMORY_TYPE_WEIGHTS:
            for shared, timeout in list(_attached.items()):
                shared.wake(timeout)
        self.inner.resume(tag)

    @property
    def enabled(self) -> bool:
        return bool(self.inner.enabled)
