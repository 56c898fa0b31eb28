# SPDX-License-Identifier: Apache-2.0
"""A KV connector for vLLM, for --kv-transfer-config: keeps full blocks of the KV cache in a store, where the
next engine finds them, however this one ends. gmsfs-vllm(7) is its manual."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Set

from . import check, hooks

check(hooks.KV_HOOKS, hooks.KV, "KV connector")  # before the imports that need them

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, UniformTypeKVCacheSpecs

from . import kv_options
from .kv_copies import Copies, Pool, logger
from .kv_plan import Plan, Step, Tier
from .loader import fingerprint
from .ranks import RANK


@dataclasses.dataclass
class Found(KVConnectorHandshakeMetadata):  # type: ignore[misc] # vLLM need not be here
    """From a worker to the scheduler, as the engine starts."""

    tier: Tier


@dataclasses.dataclass
class Orders(KVConnectorMetadata):  # type: ignore[misc]
    """From the scheduler to the workers, for each step."""

    step: Step


class KVConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """vLLM makes one in the scheduler, which has the plan, and one in each worker, which has the copies."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._settings = kv_options.read(vllm_config)
        kv_options.check_groups(self._settings.path, specs_by_group(kv_cache_config), FULL)
        self._plan = Plan(kv_cache_config.hash_block_size)  # the scheduler's
        self._misses_tiers = True  # which the workers tell as the engine starts
        self._copies: Optional[Copies] = None  # a worker's
        self._failed: Set[int] = set()

    @property
    def requires_kv_delivery(self) -> bool:
        """A block that is not saved is a hit less."""
        return False

    # ---- worker ----------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: Dict[str, Any]) -> None:
        fields = fingerprint(self._vllm_config, self._vllm_config.model_config)
        path = self._settings.path.replace(RANK, fields.get("rank", ""))
        fields.update(kv_options.fingerprint(self._vllm_config, self._kv_cache_config.hash_block_size))
        pool = Pool(kv_caches, self._kv_cache_config.num_blocks)
        self._copies = Copies(pool, path, self._settings.nbytes, self._settings.timeout, fields)

    def get_handshake_metadata(self) -> Any:
        return Found(self._copies.found) if self._copies is not None else None

    def start_load_kv(self, forward_context: Any, **options: Any) -> None:
        if self._copies is not None:
            self._failed |= self._copies.load(self._get_connector_metadata().step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """All layers were loaded before the model runs."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **options: Any) -> None:
        """All layers are saved once the model has run."""

    def wait_for_save(self) -> None:
        if self._copies is not None:
            self._copies.save(self._get_connector_metadata().step)

    def get_block_ids_with_load_errors(self) -> Set[int]:
        failed, self._failed = self._failed, set()
        return failed

    def shutdown(self) -> None:
        if self._copies is not None:
            self._copies.close()

    # ---- scheduler -------------------------------------------------------------------------------

    def set_xfer_handshake_metadata(self, metadata: Dict[int, Any]) -> None:
        """vLLM 0.33 tells the contents at the start again after each wake_up(); they are others by then."""
        if metadata and self._misses_tiers:
            self._plan.adopt([found.tier for _, found in sorted(metadata.items())])
            self._misses_tiers = False

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        return self._plan.find(request, num_computed_tokens), False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._plan.start(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        if self._misses_tiers:
            self._misses_tiers = False
            logger.warning(
                "gmsfs: KV cache %s: no worker told vLLM's scheduler the contents of its store, "
                "so nothing is kept; use a vLLM that passes on get_handshake_metadata()",
                self._settings.path,
            )
        again = scheduler_output.scheduled_cached_reqs
        added = [
            (name, blocks[0])
            for name, blocks in zip(again.req_ids, again.new_block_ids)
            if blocks and name not in again.resumed_req_ids  # those were start()'s
        ]
        return Orders(self._plan.step(scheduler_output.num_scheduled_tokens, added))

    def update_connector_output(self, connector_output: Any) -> None:
        if connector_output.invalid_block_ids:
            self._plan.forget()  # other ranks may have computed with these blocks, and saved wrong ones

    def request_finished(self, request: Any, block_ids: List[int]) -> Any:
        self._plan.finish(request.request_id)
        return False, None

    def reset_cache(self) -> Optional[bool]:
        """The weights may change, and the fingerprint of the store would not tell."""
        logger.warning(
            "gmsfs: KV cache %s: vLLM has reset it, as the weights may change; this engine goes on without "
            "it until it is started again",
            self._settings.path,
        )
        self._plan.forget()
        return True

    def has_pending_push_work(self) -> bool:
        """An engine without requests, such as one that goes to sleep, makes one more step for the drops."""
        return self._plan.has_drops()


FULL = (FullAttentionSpec, MLAAttentionSpec)


def specs_by_group(kv_cache_config: Any) -> List[List[Any]]:
    """The specs of the layers of each group."""
    return [
        list(spec.kv_cache_specs.values()) if isinstance(spec, UniformTypeKVCacheSpecs) else [spec]
        for spec in (group.kv_cache_spec for group in kv_cache_config.kv_cache_groups)
    ]
