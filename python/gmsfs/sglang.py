# SPDX-License-Identifier: Apache-2.0
"""A load format for SGLang.

    python -m sglang.launch_server --model-path MODEL --load-format gmsfs \\
        --model-loader-extra-config '{"store": PATH}'

SGLang finds register() by the entry point `sglang.srt.plugins` of this package, in each of its processes.
Of all engines that name one store, the first loads the model as SGLang does and publishes it; the others
attach. This module imports neither SGLang nor torch before register() is called.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any, Dict, Optional, Tuple

from .hooks import LOAD_FORMAT, Hook, HookMissing, check, check_version, numbers, resolve

_SRT = "sglang.srt."
_REGISTRY = _SRT + "plugins.hook_registry.HookRegistry"
_CHOICES = _SRT + "server_args.add_load_format_choices"
_FORMAT = _SRT + "configs.load_config.LoadConfig._verify_load_format"
_SAVER = _SRT + "utils.torch_memory_saver_adapter.TorchMemorySaverAdapter"
_UPDATER = _SRT + "model_executor.model_runner_components.weight_updater.WeightUpdater"
_WRITES = _UPDATER + "._assert_weight_cache_inactive"
_POOL = _SRT + "model_executor.model_runner.ModelRunner.alloc_memory_pool"
_LOADER = _SRT + "model_loader.loader."
OLDEST = "0.5.17"
NEWEST = "0.5.23"
COUNTS_WEIGHTS = "0.5.23"  # the first version that asks a loader for preloaded_weights_bytes

# The hooks of register(), in every process.
PLUGIN_HOOKS: Tuple[Hook, ...] = (
    Hook(_REGISTRY + ".register", ("target", "hook", "hook_type")),
    Hook(_SRT + "plugins.hook_registry.HookType.BEFORE"),
    Hook(_SRT + "plugins.hook_registry.HookType.AROUND"),
    Hook(_CHOICES),
    Hook(_FORMAT, ("self",)),
    Hook(_SAVER + ".create", ("enable",)),
)
# The hooks of the loader, in the process that loads.
LOADER_HOOKS: Tuple[Hook, ...] = (
    Hook(_SAVER + ".region", ("self", "tag", "enable_cpu_backup")),
    Hook(_SAVER + ".pause", ("self", "tag")),
    Hook(_SAVER + ".resume", ("self", "tag")),
    Hook(_SAVER + ".cuda_graph", ("self", "kwargs")),
    Hook(_SAVER + ".disable", ("self",)),
    Hook(_SAVER + ".configure_subprocess", ("self",)),
    Hook(_SAVER + ".enabled"),
    Hook(_SRT + "constants.GPU_MEMORY_TYPE_WEIGHTS"),
    Hook(_WRITES, ("self", "op")),
    Hook(_POOL, ("self", "memory_pool_config"), until=COUNTS_WEIGHTS),
    Hook(_LOADER + "BaseModelLoader.preloaded_weights_bytes", since=COUNTS_WEIGHTS),
    Hook(_LOADER + "BaseModelLoader.download_model", ("self", "model_config")),
    Hook(_LOADER + "BaseModelLoader.load_model", ("self", "model_config", "device_config")),
    Hook(_LOADER + "DefaultModelLoader.load_model", ("self", "model_config", "device_config")),
    Hook(_LOADER + "DefaultModelLoader._get_all_weights", ("self", "model_config", "model")),
    Hook(
        _LOADER + "DefaultModelLoader.load_weights_and_postprocess", ("model", "weights", "target_device")
    ),
    Hook(_LOADER + "get_model_loader", ("load_config", "model_config")),
    Hook(_SRT + "distributed.parallel_state.get_tensor_model_parallel_world_size"),
    Hook(_SRT + "distributed.parallel_state.get_pipeline_model_parallel_world_size"),
    Hook(_SRT + "runtime_context.get_server_args"),
)


class _Probe:
    """Passed to a hooked function, which the hook refuses by _Took, and SGLang's own by any other error."""


class _Took(Exception):
    pass


_PROBE = _Probe()
_chosen = False  # a LoadConfig of this process has our format


def _probed(given: Any) -> None:
    if given is _PROBE:
        raise _Took


def version() -> str:
    return importlib.metadata.version("sglang")


def register() -> None:
    """Makes --load-format gmsfs known. Raises HookMissing, which SGLang logs, and then the format stays
    unknown, if this SGLang lacks a hook."""
    found = version()
    check_version("SGLang", found, OLDEST, NEWEST)
    check("SGLang", found, PLUGIN_HOOKS)
    hook = resolve(_REGISTRY + ".register")
    kinds = resolve(_SRT + "plugins.hook_registry.HookType")
    hook(_FORMAT, choose_loader, kinds.BEFORE)
    hook(_SAVER + ".create", wrap_adapter, kinds.AROUND)
    hook(_WRITES, refuse_writes, kinds.BEFORE)
    if _counts_by_hook(found):
        hook(_POOL, count_weights, kinds.BEFORE)
    resolve(_CHOICES)([LOAD_FORMAT])


def _counts_by_hook(found: str) -> bool:
    return numbers(found) < numbers(COUNTS_WEIGHTS)


def check_hooks() -> None:
    """Raises HookMissing unless every hook is there and has taken, as far as the running SGLang goes."""
    found = version()
    check("SGLang", found, LOADER_HOOKS)
    targets = [_FORMAT, _SAVER + ".create", _WRITES] + ([_POOL] if _counts_by_hook(found) else [])
    lost = []
    for target in targets:
        try:
            resolve(target)(_PROBE)
        except _Took:
            continue
        except Exception:  # SGLang's own, which cannot use the probe
            pass
        lost.append(target)
    if lost:
        raise HookMissing(
            f"SGLang {found}: load format gmsfs: the hook on {', '.join(lost)} has not taken; look in the "
            "log for the plugin that fails or replaces it (SGLANG_PLUGINS=gmsfs runs this one alone)"
        )


def choose_loader(config: Any) -> Optional[Tuple[Tuple[Any, ...], Dict[str, Any]]]:
    """Before LoadConfig._verify_load_format: the class in place of its name."""
    global _chosen
    _probed(config)
    if config.load_format == LOAD_FORMAT:
        if getattr(config, "weight_cache_mode", "off") != "off":
            raise ValueError(
                f"load format gmsfs: --weight-cache-mode {config.weight_cache_mode} loads weights from "
                "SGLang's own daemon; leave one of both out"
            )
        from .sglang_loader import Loader

        config.load_format = Loader
        _chosen = True
    return None


def wrap_adapter(create: Any, enable: Any) -> Any:
    """Around TorchMemorySaverAdapter.create: the adapter that SGLang makes, and the stores' sleep."""
    _probed(enable)
    from .sglang_saver import Adapter

    return Adapter(create(enable))


def refuse_writes(updater: Any, op: str = "") -> None:
    """Before WeightUpdater._assert_weight_cache_inactive, which every update of weights calls first."""
    _probed(updater)
    from .sglang_saver import attached

    for shared in attached():
        raise RuntimeError(
            f"{shared.store.path}: {op}: weights that a store shares cannot be written; publish another "
            "store, and start the engine on it"
        )


def count_weights(runner: Any, *args: Any, **kwargs: Any) -> None:
    """Before ModelRunner.alloc_memory_pool, where SGLang does not ask the loader: weights that were in the
    store when SGLang measured free memory are part of the model's share. In GiB."""
    _probed(runner)
    from .sglang_loader import Loader

    if isinstance(runner.loader, Loader):
        runner.pre_model_load_memory += runner.loader.take_preloaded_bytes() / (1 << 30)


def is_chosen() -> bool:
    """Whether this process loads by this format."""
    return _chosen
