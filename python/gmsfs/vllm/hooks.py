# SPDX-License-Identifier: Apache-2.0
"""What this package uses of vLLM: its versions, and a row for each name."""

from __future__ import annotations

from ..hooks import Hook

OLDEST = "0.21"
NEWEST = "0.33"
SLEEP = "0.27"  # the oldest whose interface of a sleep backend is used

_LOADER = "vllm.model_executor.model_loader."
_BASE = _LOADER + "base_loader.BaseModelLoader"
_DEFAULT = _LOADER + "default_loader.DefaultModelLoader"
_FACTORY = "vllm.device_allocator.sleep_mode_backend.SleepModeBackendFactory"
_CUMEM = "vllm.device_allocator.sleep_mode_backend.CuMemBackend"
_GPU = "vllm.v1.worker.gpu_worker.Worker."
_CPU = "vllm.v1.worker.cpu_worker.CPUWorker."

HOOKS = (
    Hook("vllm.config.load.LoadConfig"),
    Hook(_LOADER + "register_model_loader", ("load_format",)),
    Hook(_LOADER + "get_model_loader", ("load_config",)),
    Hook(_BASE + ".__init__", ("self", "load_config")),
    Hook(_BASE + ".download_model", ("self", "model_config")),
    Hook(_BASE + ".load_weights", ("self", "model", "model_config")),
    Hook(_BASE + ".load_model", ("self", "vllm_config", "model_config", "prefix")),
    Hook(_BASE + ".get_external_weight_memory", ("self", "vllm_config"), since="0.32"),
    Hook(_DEFAULT + ".__init__", ("self", "load_config")),
    Hook(_DEFAULT + ".load_weights", ("self", "model", "model_config")),
    Hook(_DEFAULT + ".get_all_weights", ("self", "model_config", "model")),
    Hook(_LOADER + "utils.initialize_model", ("vllm_config", "prefix", "model_config")),
    Hook(_LOADER + "utils.process_weights_after_loading", ("model", "model_config", "target_device")),
    Hook("vllm.distributed.parallel_state.get_world_group"),
    Hook("vllm.utils.torch_utils.set_default_torch_dtype", ("dtype",)),
    Hook("vllm.platforms.current_platform", since=SLEEP),
    Hook("vllm.platforms.interface.Platform.is_cpu", ("self",), since=SLEEP),
    Hook(_FACTORY + ".register_backend", ("name", "module_path", "class_name"), since=SLEEP),
    Hook(_FACTORY + ".get_backend_class", ("name",), since=SLEEP),
    Hook(_CUMEM + ".suspend", ("self", "level"), since=SLEEP),
    Hook(_CUMEM + ".resume", ("self", "tags"), since=SLEEP),
)

# Of gmsfs.vllm.worker: checked where that is used, because these modules are large.
WORKER_HOOKS = (
    Hook(_GPU + "__init__", ("self", "vllm_config"), since=SLEEP),
    Hook(_GPU + "sleep", ("self", "level"), since=SLEEP),
    Hook(_GPU + "wake_up", ("self", "tags"), since=SLEEP),
    Hook(_GPU + "reload_weights", ("self",), since=SLEEP),
    Hook(_GPU + "reset_weights", ("self",), since="0.32"),
    Hook(_CPU + "__init__", ("self", "vllm_config"), since=SLEEP),
    Hook(_CPU + "sleep", ("self", "level"), since=SLEEP),
    Hook(_CPU + "wake_up", ("self", "tags"), since=SLEEP),
    Hook(_CPU + "reload_weights", ("self",), since=SLEEP),
    Hook(_CPU + "reset_weights", ("self",), since="0.32"),
)
