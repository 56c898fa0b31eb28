# SPDX-License-Identifier: Apache-2.0
"""The names of vLLM that this package uses: a row for each, and the versions."""

from __future__ import annotations

from ..hooks import Hook

OLDEST = "0.21"
NEWEST = "0.33"
SLEEP = "0.27"  # the oldest with the interface of a sleep backend
KV = "0.32"  # the oldest with KV caches in order of blocks, and with equal block hashes in all engines

_LOADER = "vllm.model_executor.model_loader."
_BASE = _LOADER + "base_loader.BaseModelLoader"
_DEFAULT = _LOADER + "default_loader.DefaultModelLoader"
_FACTORY = "vllm.device_allocator.sleep_mode_backend.SleepModeBackendFactory"
_CUMEM = "vllm.device_allocator.sleep_mode_backend.CuMemBackend"
_GPU = "vllm.v1.worker.gpu_worker.Worker."
_KV = "vllm.distributed.kv_transfer.kv_connector.v1.base.KVConnector"
_CONNECTOR = _KV + "Base_V1."
_SPECS = "vllm.v1.kv_cache_interface."
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

# Of gmsfs.vllm.kv: checked where the connector is used, which a command line names.
KV_HOOKS = (
    Hook(_CONNECTOR + "__init__", ("self", "vllm_config", "role", "kv_cache_config")),
    Hook(_CONNECTOR + "requires_kv_delivery"),
    Hook(_CONNECTOR + "register_kv_caches", ("self", "kv_caches")),
    Hook(_CONNECTOR + "get_handshake_metadata", ("self",)),
    Hook(_CONNECTOR + "start_load_kv", ("self", "forward_context", "kwargs")),
    Hook(_CONNECTOR + "wait_for_layer_load", ("self", "layer_name")),
    Hook(_CONNECTOR + "save_kv_layer", ("self", "layer_name", "kv_layer", "attn_metadata", "kwargs")),
    Hook(_CONNECTOR + "wait_for_save", ("self",)),
    Hook(_CONNECTOR + "get_block_ids_with_load_errors", ("self",)),
    Hook(_CONNECTOR + "shutdown", ("self",)),
    Hook(_CONNECTOR + "_get_connector_metadata", ("self",)),
    Hook(_CONNECTOR + "set_xfer_handshake_metadata", ("self", "metadata")),
    Hook(_CONNECTOR + "set_xfer_handshake_metadata_pp_aware", ("self", "metadata")),
    Hook(_CONNECTOR + "get_num_new_matched_tokens", ("self", "request", "num_computed_tokens")),
    Hook(_CONNECTOR + "update_state_after_alloc", ("self", "request", "blocks", "num_external_tokens")),
    Hook(_CONNECTOR + "build_connector_meta", ("self", "scheduler_output")),
    Hook(_CONNECTOR + "update_connector_output", ("self", "connector_output")),
    Hook(_CONNECTOR + "request_finished", ("self", "request", "block_ids")),
    Hook(_CONNECTOR + "reset_cache", ("self",)),
    Hook(_CONNECTOR + "has_pending_push_work", ("self",)),
    Hook(_KV + "Metadata"),
    Hook(_KV + "HandshakeMetadata"),
    Hook(_SPECS + "KVCacheConfig.hash_block_size"),
    Hook(_SPECS + "FullAttentionSpec"),
    Hook(_SPECS + "MLAAttentionSpec"),
    Hook(_SPECS + "UniformTypeKVCacheSpecs"),
    Hook("vllm.config.model.ModelConfig.compute_hash", ("self",)),
    Hook("vllm.v1.core.kv_cache_manager.KVCacheBlocks.get_block_ids", ("self",)),
    Hook("vllm.v1.request.Request.__init__", ("self", "request_id", "block_hasher")),
    Hook("vllm.v1.request.Request.num_tokens"),
)
