# SPDX-License-Identifier: Apache-2.0
"""A worker for --worker-cls gmsfs.vllm.worker.Worker: chooses the sleep backend where vLLM has no option for
it, sleeps on processors too, and refuses to write to weights before anything has changed."""

from __future__ import annotations

from typing import Any, List, Optional

from . import SLEEP_BACKEND, check, hooks

check(hooks.HOOKS, hooks.SLEEP)  # before the imports that need these names

from vllm.platforms import current_platform

_MODULE = f"vllm.v1.worker.{'cpu' if current_platform.is_cpu() else 'gpu'}_worker."
check([hook for hook in hooks.WORKER_HOOKS if hook.target.startswith(_MODULE)], hooks.SLEEP)

from . import loader, refusals
from .sleep import SleepBackend

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Base
else:
    from vllm.v1.worker.gpu_worker import Worker as Base


class Worker(Base):  # type: ignore[misc] # vLLM need not be here
    def __init__(self, vllm_config: Any, *arguments: Any, **options: Any) -> None:
        vllm_config.model_config.sleep_mode_backend = SLEEP_BACKEND
        super().__init__(vllm_config, *arguments, **options)
        self._on_processor = SleepBackend() if current_platform.is_cpu() else None

    def sleep(self, level: int = 1) -> None:
        if self._on_processor is None:
            super().sleep(level)
        else:
            self._on_processor.suspend(level)

    def wake_up(self, tags: Optional[List[str]] = None) -> None:
        if self._on_processor is None:
            super().wake_up(tags)
        else:
            self._on_processor.resume(tags)

    def reload_weights(self, *arguments: Any, **options: Any) -> None:
        self._refuse("reload_weights")
        super().reload_weights(*arguments, **options)

    def reset_weights(self) -> None:
        self._refuse("reset_weights")
        super().reset_weights()

    def _refuse(self, call: str) -> None:
        for shared in loader.alive:
            raise RuntimeError(f"{shared.store.path}: {call}: {refusals.RELOAD}")
