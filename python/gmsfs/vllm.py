# SPDX-License-Identifier: Apache-2.0
"""A load format for vLLM.

    vllm serve MODEL --load-format gmsfs --model-loader-extra-config '{"store": PATH}'

vLLM finds register() by the entry point `vllm.general_plugins` of this package, in each of its processes.
Of all engines that name one store, the first loads the model as vLLM does and publishes it; the others
attach. Hooks: register_model_loader, and BaseModelLoader with download_model, load_weights, load_model and
get_external_weight_memory, as vLLM 0.32.0 has them (vllm/model_executor/model_loader).
"""

from __future__ import annotations

import dataclasses
import gc
from typing import Any, Dict, Optional

import torch
import vllm
from vllm.logger import init_logger
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype

from .errors import Error
from .opening import open as open_store
from .store import Store
from .torch import Shared, attach, empty_parameters, publish

LOAD_FORMAT = "gmsfs"
TIMEOUT_SECONDS = 600.0  # for the lock, and for an engine that is loading

logger = init_logger("vllm.gmsfs")
_registered = False


def register() -> None:
    """Makes --load-format gmsfs known; vLLM calls it several times in one process."""
    global _registered
    if not _registered:
        register_model_loader(LOAD_FORMAT)(Loader)
        _registered = True


class Loader(BaseModelLoader):  # type: ignore[misc] # vLLM need not be here
    """model_loader_extra_config: "store", the path of the store, and "timeout", in seconds; the rest is
    DefaultModelLoader's."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        extra = dict(load_config.model_loader_extra_config or {})
        self.path = extra.pop("store", None)
        self.timeout = extra.pop("timeout", TIMEOUT_SECONDS)
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(
                "load format gmsfs: no store is named; give --model-loader-extra-config "
                '\'{"store": "/mnt/gms/gpu0/NAME"}\''
            )
        self.files = DefaultModelLoader(
            dataclasses.replace(load_config, load_format="auto", model_loader_extra_config=extra)
        )

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Bytes of the store if it is committed: this engine will attach, and has no other copy."""
        store = Store(self.path)
        try:
            info = store.info
            return info.total_bytes if info.committed else 0
        finally:
            store.close()

    def download_model(self, model_config: Any) -> None:
        self.files.download_model(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        raise RuntimeError(
            f"{self.path}: weights that a store shares cannot be loaded again in place; publish another "
            "store, and start the engine on it"
        )

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        refuse(self.path, vllm_config)
        target = torch.device(self.load_config.device or vllm_config.device_config.device)
        wanted = fingerprint(vllm_config, model_config)
        store = open_store(self.path, "rw_or_ro", self.timeout)
        try:
            with set_default_torch_dtype(model_config.dtype), target:
                if store.writable:
                    model = initialize_model(
                        vllm_config=vllm_config, model_config=model_config, prefix=prefix
                    )
                    self.files.load_weights(model, model_config)
                    shared = publish(model, store, fingerprint=wanted)
                    role = "loaded and published"
                else:
                    with empty_parameters():
                        model = initialize_model(
                            vllm_config=vllm_config, model_config=model_config, prefix=prefix
                        )
                    shared = attach(model, store, fingerprint=wanted)
                    role = "attached"
                with shared.guard(private=True):
                    process_weights_after_loading(model, model_config, target)
        except BaseException:
            store.close()
            raise
        gc.collect()
        tell(shared, role)
        model.gmsfs = shared
        return model.eval()


def refuse(path: str, vllm_config: Any) -> None:
    """Raises ValueError for options that write to weights, or that one store cannot serve."""
    parallel = vllm_config.parallel_config
    if parallel.world_size > 1:
        raise ValueError(
            f"{path}: one store holds the weights of one rank, and this engine has {parallel.world_size}; "
            "run it with --tensor-parallel-size 1 and --pipeline-parallel-size 1"
        )
    if getattr(parallel, "enable_eplb", False):
        raise ValueError(f"{path}: EPLB moves experts between weights, which are shared; leave it out")
    if getattr(vllm_config, "weight_transfer_config", None) is not None:
        raise ValueError(f"{path}: weight transfer writes to weights, which are shared; leave it out")


def fingerprint(vllm_config: Any, model_config: Any) -> Dict[str, Any]:
    """What decides the names, shapes and values of an engine's weights."""
    parallel = vllm_config.parallel_config
    found: Dict[str, Optional[Any]] = {
        "engine": "vllm",
        "version": vllm.__version__,
        "model": model_config.model,
        "revision": model_config.revision,
        "dtype": str(model_config.dtype),
        "quantization": model_config.quantization,
        "device": torch.device(vllm_config.device_config.device).type,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
    }
    return {field: value for field, value in found.items() if value is not None}


def tell(shared: Shared, role: str) -> None:
    """Logs what is shared, and by name what the engine has taken out of the store again."""
    report = shared.report()
    logger.info(
        "gmsfs: %s %s: %d bytes shared, %d bytes private",
        role,
        shared.store.path,
        report.shared_bytes,
        report.private_bytes,
    )
    if report.left:
        logger.warning(
            "gmsfs: vLLM has rewritten %d parameters for this processor or device, so their %d bytes are "
            "private to this engine, among them %s; the store saves loading them, not their memory",
            len(report.left),
            sum(report.left.values()),
            ", ".join(list(report.left)[:8]),
        )


__all__ = ["Error", "Loader", "register"]
