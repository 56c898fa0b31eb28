# SPDX-License-Identifier: Apache-2.0
"""Options of the KV connector, and options of vLLM under which the next engine cannot use the blocks of the
last one: each is refused by name."""

from __future__ import annotations

import os
from typing import Any, Dict, NamedTuple, Sequence, Tuple

from ..engine import TIMEOUT_SECONDS, check_timeout
from .ranks import RANK

KEYS = {"store", "bytes", "timeout"}
SEED = "PYTHONHASHSEED"  # of vLLM's hashes of blocks


class Settings(NamedTuple):
    """kv_connector_extra_config."""

    path: str  # of the store, with {rank} for the number of the rank
    nbytes: int  # of the tier of each rank
    timeout: float  # seconds


def read(vllm_config: Any) -> Settings:
    """Raises ValueError, which names the option and the way out."""
    transfer = vllm_config.kv_transfer_config
    extra = dict(transfer.kv_connector_extra_config)
    path, nbytes = extra.get("store"), extra.get("bytes")
    if not isinstance(path, str) or not path:
        raise ValueError(
            "gmsfs: the KV connector has no store; give "
            '"kv_connector_extra_config": {"store": "/mnt/gms/gpu0/NAME", "bytes": N} in '
            "--kv-transfer-config"
        )
    if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes <= 0:
        raise ValueError(f'{path}: "bytes" is the size of the store of each rank, not {nbytes!r}')
    unknown = sorted(set(extra) - KEYS)
    if unknown:
        raise ValueError(
            f"{path}: the KV connector does not know the keys {', '.join(unknown)}; leave them out"
        )
    timeout = check_timeout(path, extra.get("timeout", TIMEOUT_SECONDS))
    for option, wanted in (("kv_role", "kv_both"), ("kv_load_failure_policy", "recompute")):
        if getattr(transfer, option) != wanted:
            raise ValueError(f'{path}: give "{option}": "{wanted}" in --kv-transfer-config')
    _check_parallel(path, vllm_config.parallel_config)
    _check_contents(path, vllm_config)
    return Settings(path, nbytes, timeout)


def _check_parallel(path: str, parallel: Any) -> None:
    if (parallel.world_size > 1) != (RANK in path):
        raise ValueError(
            f"{path}: each rank has a store: name it with {RANK} if there are several, and without it if "
            f"there is one; the number of ranks is {parallel.world_size}"
        )
    for option in (
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ):
        if getattr(parallel, option) > 1:
            raise ValueError(
                f"{path}: the KV connector does not work with --{option.replace('_', '-')} "
                f"{getattr(parallel, option)}; leave out one of both"
            )


def _check_contents(path: str, vllm_config: Any) -> None:
    """A block is found by a hash of its tokens, which has to say all that the next engine cannot see."""
    if vllm_config.lora_config is not None:
        raise ValueError(
            f"{path}: with --enable-lora a block is found by the adapter's name, and the next engine may "
            "have another adapter of that name; leave out one of both"
        )
    if vllm_config.weight_transfer_config is not None:
        raise ValueError(
            f"{path}: --weight-transfer-config changes the weights, and the next engine has others; leave "
            "out one of both"
        )
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if not algorithm.startswith("sha256") and SEED not in os.environ:
        raise ValueError(
            f"{path}: with --prefix-caching-hash-algo {algorithm} each engine has other hashes; give sha256, "
            f"or set {SEED}=0 for all engines"
        )


def check_groups(path: str, groups: Sequence[Sequence[Any]], full: Tuple[type, ...]) -> None:
    """Only attention that keeps all of a request's blocks has whole prefixes."""
    kinds = {type(spec) for group in groups for spec in group}
    if len(groups) != 1 or not kinds.issubset(full):
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            f"{path}: the KV connector keeps blocks of full attention in one group, and this model has "
            f"{len(groups)} of {names}; leave --kv-transfer-config out"
        )


def fingerprint(vllm_config: Any, block_tokens: int) -> Dict[str, str]:
    """The settings that decide the bytes of a block and its hash, besides the weights."""
    cache = vllm_config.cache_config
    return {
        "cache_dtype": str(cache.cache_dtype),
        "block_tokens": str(block_tokens),
        "hash": f"{cache.prefix_caching_hash_algo} {os.environ.get(SEED, '')}".strip(),
        "model_config": vllm_config.model_config.compute_hash(),
    }
