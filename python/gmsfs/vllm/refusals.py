# SPDX-License-Identifier: Apache-2.0
"""Options of vLLM that write to weights, or that one store cannot serve: each is refused by name."""

from __future__ import annotations

from typing import Any

from ..module_parts import some
from .ranks import RANK

RELOAD = (
    "weights that a store shares cannot be changed or loaded again in place; publish another store, and "
    "start the engine on it"
)


def check_options(path: str, vllm_config: Any, model_config: Any) -> None:
    """Raises ValueError, which names the option and the way out."""
    parallel = vllm_config.parallel_config
    if parallel.world_size > 1 and RANK not in path:
        raise ValueError(
            f"{path}: one store holds the weights of one rank, and this engine has {parallel.world_size} by "
            "--tensor-parallel-size and --pipeline-parallel-size; name one for each, as "
            f'"/mnt/gms/gpu{RANK}/NAME"'
        )
    if parallel.world_size == 1 and RANK in path:
        raise ValueError(f"{path}: this engine has one rank; name its store without {RANK}")
    if parallel.data_parallel_size > 1 and (parallel.world_size > 1 or parallel.enable_expert_parallel):
        raise ValueError(
            f"{path}: with --data-parallel-size {parallel.data_parallel_size} only engines of one rank and "
            "without --enable-expert-parallel share a store; leave it out, and start several engines"
        )
    if parallel.enable_eplb:
        raise ValueError(
            f"{path}: --enable-eplb moves experts between weights, which are shared; leave it out"
        )
    if vllm_config.weight_transfer_config is not None:
        raise ValueError(
            f"{path}: --weight-transfer-config writes to weights, which are shared; leave it out"
        )
    if getattr(vllm_config.model_config, "sleep_preserve_parameter_names", None):
        raise ValueError(
            f"{path}: --sleep-preserve-parameter-names writes to weights, which are shared and keep their "
            "values while the engine sleeps; leave it out"
        )
    if model_config is not vllm_config.model_config:
        raise ValueError(
            f"{path}: the store has the weights of one model, and the draft model of --speculative-config is "
            'another; give its "draft_load_config" as {"load_format": "auto"}'
        )


def check_model(path: str, model: Any) -> None:
    """Raises ValueError for layers that make their weights while a checkpoint is loaded into them."""
    names = [
        name
        for name, module in model.named_modules()
        if getattr(getattr(module, "quant_method", None), "uses_meta_device", False)
    ]
    if names:
        raise ValueError(
            f"{path}: layers {some(names)} quantise weights as they are loaded, which a store does not keep; "
            "leave --quantization out, or use a checkpoint that is quantised"
        )
