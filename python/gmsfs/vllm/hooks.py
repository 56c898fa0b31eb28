# SPDX-License-Identifier: Apache-2.0
"""What this package uses of vLLM: one row for each name, and a check of them all as vLLM starts."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from .versions import Version


class Hook(NamedTuple):
    """A name of vLLM. A class or a value, which is not called, has no arguments."""

    name: str  # dotted: module, then class and member
    arguments: Tuple[str, ...]  # names that are passed or overridden; vLLM's may have more, with defaults
    since: Version  # the oldest version that was read and has it; (0, 21) for all that are supported


LOADER = "vllm.model_executor.model_loader"
SLEEP = "vllm.device_allocator.sleep_mode_backend"

HOOKS = [
    Hook(f"{LOADER}.register_model_loader", ("load_format",), (0, 21)),
    Hook(f"{LOADER}.get_model_loader", ("load_config",), (0, 21)),
    Hook(f"{LOADER}.base_loader.BaseModelLoader", (), (0, 21)),
    Hook(f"{LOADER}.base_loader.BaseModelLoader.__init__", ("self", "load_config"), (0, 21)),
    Hook(f"{LOADER}.base_loader.BaseModelLoader.download_model", ("self", "model_config"), (0, 21)),
    Hook(f"{LOADER}.base_loader.BaseModelLoader.load_weights", ("self", "model", "model_config"), (0, 21)),
    Hook(
        f"{LOADER}.base_loader.BaseModelLoader.load_model",
        ("self", "vllm_config", "model_config", "prefix"),
        (0, 21),
    ),
    Hook(
        f"{LOADER}.base_loader.BaseModelLoader.get_external_weight_memory",
        ("self", "vllm_config"),
        (0, 32),
    ),
    Hook(f"{LOADER}.default_loader.DefaultModelLoader.__init__", ("self", "load_config"), (0, 21)),
    Hook(
        f"{LOADER}.default_loader.DefaultModelLoader.load_weights", ("self", "model", "model_config"), (0, 21)
    ),
    Hook(f"{LOADER}.utils.initialize_model", ("vllm_config", "prefix", "model_config"), (0, 21)),
    Hook(
        f"{LOADER}.utils.process_weights_after_loading",
        ("model", "model_config", "target_device"),
        (0, 21),
    ),
    Hook("vllm.distributed.parallel_state.get_world_group", (), (0, 21)),
    Hook("vllm.utils.torch_utils.set_default_torch_dtype", ("dtype",), (0, 21)),
    Hook("vllm.logger.init_logger", ("name",), (0, 21)),
    Hook(
        f"{SLEEP}.SleepModeBackendFactory.register_backend", ("name", "module_path", "class_name"), (0, 27)
    ),
    Hook(f"{SLEEP}.SleepModeBackendFactory.get_backend_class", ("name",), (0, 27)),
    Hook(f"{SLEEP}.CuMemBackend.suspend", ("self", "level"), (0, 27)),
    Hook(f"{SLEEP}.CuMemBackend.resume", ("self", "tags"), (0, 27)),
]

# Of gmsfs.vllm.worker: checked where that is used, because these modules are large.
WORKER_HOOKS = [
    Hook("vllm.v1.worker.gpu_worker.Worker.__init__", ("self", "vllm_config"), (0, 27)),
    Hook("vllm.v1.worker.gpu_worker.Worker.sleep", ("self", "level"), (0, 27)),
    Hook("vllm.v1.worker.gpu_worker.Worker.wake_up", ("self", "tags"), (0, 27)),
    Hook("vllm.v1.worker.gpu_worker.Worker.reload_weights", ("self",), (0, 27)),
    Hook("vllm.v1.worker.cpu_worker.CPUWorker.__init__", ("self", "vllm_config"), (0, 27)),
    Hook("vllm.v1.worker.cpu_worker.CPUWorker.sleep", ("self", "level"), (0, 27)),
    Hook("vllm.v1.worker.cpu_worker.CPUWorker.wake_up", ("self", "tags"), (0, 27)),
]


def missing(hook: Hook) -> Optional[str]:
    """What is wrong with a hook in the vLLM of this process, or None."""
    try:
        found = _find(hook.name)
    except (ImportError, AttributeError) as error:
        return f"{hook.name}: {error}"
    if not hook.arguments:
        return None
    try:
        has = inspect.signature(found).parameters
    except (TypeError, ValueError) as error:
        return f"{hook.name}: {error}"
    lacks = [argument for argument in hook.arguments if argument not in has and argument != "self"]
    return f"{hook.name} has no argument {', '.join(lacks)}" if lacks else None


def check(version: Version, hooks: Sequence[Hook]) -> None:
    """Raises ImportError with the name of every hook that this version of vLLM should have and lacks."""
    words: List[str] = []
    for hook in hooks:
        if version >= hook.since:
            word = missing(hook)
            if word is not None:
                words.append(word)
    if words:
        raise ImportError(
            f"gmsfs: vLLM {'.'.join(map(str, version))} lacks what the load format gmsfs uses: "
            f"{'; '.join(words)}. Use another version of vLLM or of gmsfs (gmsfs-vllm(7)), or another load "
            "format"
        )


def _find(name: str) -> Any:
    """The object of a dotted name: the longest part that is a module, and members of it."""
    words = name.split(".")
    found, at = importlib.import_module(words[0]), 1
    while at < len(words):
        if not hasattr(found, words[at]):
            found = importlib.import_module(".".join(words[: at + 1]))
        else:
            found = getattr(found, words[at])
        at += 1
    return found
