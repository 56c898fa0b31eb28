# SPDX-License-Identifier: Apache-2.0
"""SGLang's model loader for --load-format gmsfs; see gmsfs.sglang."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
from typing import Any, Dict, Optional

import torch
from sglang.srt.distributed.parallel_state import (
    get_pipeline_model_parallel_world_size,
    get_tensor_model_parallel_world_size,
)
from sglang.srt.model_loader.loader import BaseModelLoader, DefaultModelLoader
from sglang.srt.runtime_context import get_server_args

from . import engine, sglang, sglang_saver
from .store import Store
from .torch import Shared, attach, empty_parameters, publish

logger = logging.getLogger(__name__)


class Loader(BaseModelLoader):  # type: ignore[misc] # SGLang need not be here
    """model_loader_extra_config: "store", the path of the store, and "timeout", in seconds; the rest is
    DefaultModelLoader's.

    preloaded_weights_bytes: bytes of the store that this engine attached, if they were there before it
    measured free memory, as far as that can be told: if the store was committed when the loader began.
    """

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        self.settings = engine.read_settings(load_config.model_loader_extra_config)
        self.preloaded_weights_bytes = 0
        own = dataclasses.replace(
            load_config, load_format="auto", model_loader_extra_config=self.settings.rest
        )
        with engine.keys_of(self.settings):
            self.files = _Files(own)

    def download_model(self, model_config: Any) -> None:
        self.files.download_model(model_config)

    def load_model(self, *, model_config: Any, device_config: Any) -> Any:
        sglang.check_hooks()
        refuse(self.settings.path, model_config)
        wanted = fingerprint(model_config, device_config)
        were_there = engine.committed_bytes(self.settings.path)
        with engine.first_or_reader(logger, self.settings) as store:
            is_first = store.writable
            model, shared = self.files.load_shared(store, wanted, model_config, device_config)
        self.preloaded_weights_bytes = 0 if is_first else were_there
        gc.collect()
        model.gmsfs = shared
        sglang_saver.add(shared, self.settings.timeout)
        engine.tell(logger, "SGLang", shared, is_first)
        return model

    def take_preloaded_bytes(self) -> int:
        """preloaded_weights_bytes, once."""
        found, self.preloaded_weights_bytes = self.preloaded_weights_bytes, 0
        return found


class _Files(DefaultModelLoader):  # type: ignore[misc]
    """SGLang's own way to load, in which the weights come from the store, or go there, where
    model.load_weights is called: before SGLang converts them for this device."""

    def load_shared(self, store: Store, wanted: Dict[str, str], model_config: Any, device_config: Any) -> Any:
        self.store, self.wanted, self.is_first = store, wanted, store.writable
        self.shared: Optional[Shared] = None
        with contextlib.ExitStack() as self.making:
            if not self.is_first:
                self.making.enter_context(empty_parameters())
            model = super().load_model(model_config=model_config, device_config=device_config)
        if self.shared is None:
            raise RuntimeError(
                f"{store.path}: SGLang loads a {type(model).__name__} without its load_weights(), so its "
                "weights cannot be shared; use another load format"
            )
        return model, self.shared

    def _get_all_weights(self, model_config: Any, model: Any) -> Any:
        self.making.close()  # the model is made
        return super()._get_all_weights(model_config, model) if self.is_first else iter(())

    def load_weights_and_postprocess(self, model: Any, weights: Any, target_device: Any) -> None:
        load = model.load_weights
        with contextlib.ExitStack() as guarded:

            def load_or_attach(weights: Any) -> Any:
                loaded = None
                if self.is_first:
                    loaded = load(weights)
                    self.shared = publish(model, self.store, fingerprint=self.wanted)
                else:
                    self.shared = attach(model, self.store, fingerprint=self.wanted)
                guarded.enter_context(self.shared.guard())
                if not self.is_first and hasattr(model, "post_load_weights"):
                    model.post_load_weights()  # the last step of this model's load_weights()
                return loaded

            model.load_weights = load_or_attach
            try:
                super().load_weights_and_postprocess(model, weights, target_device)
            finally:
                del model.load_weights


def refuse(path: str, model_config: Any) -> None:
    """Raises ValueError for options that write to weights, or that one store cannot serve."""
    ranks = get_tensor_model_parallel_world_size() * get_pipeline_model_parallel_world_size()
    if ranks > 1:
        raise ValueError(
            f"{path}: one store holds the weights of one rank, and this engine has {ranks}; run it with "
            "--tp-size 1 and --pp-size 1"
        )
    if getattr(get_server_args(), "enable_eplb", False):
        raise ValueError(f"{path}: EPLB moves experts between weights, which are shared; leave it out")
    if getattr(model_config, "modelopt_quant", None):
        raise ValueError(f"{path}: ModelOpt loads weights in its own way; leave --modelopt-quant out")


def fingerprint(model_config: Any, device_config: Any) -> Dict[str, str]:
    fields = {
        "model": model_config.model_path,
        "revision": model_config.revision,
        "dtype": model_config.dtype,
        "quantization": model_config.quantization,
        "device": torch.device(device_config.device).type,
    }
    return engine.fingerprint("sglang", sglang.version(), fields)
