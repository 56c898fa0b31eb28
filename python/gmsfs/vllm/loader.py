# SPDX-License-Identifier: Apache-2.0
"""The load format: of all engines that name one store, the first loads the model as vLLM does and publishes
it; the others attach."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import weakref
from typing import Any, Dict, List, Tuple, Union

import torch
import vllm
from vllm.config.load import LoadConfig
from vllm.distributed.parallel_state import get_world_group
from vllm.model_executor.model_loader import get_model_loader, register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype

from .. import engine
from ..hooks import HookMissing, numbers
from ..torch import Shared, empty_parameters
from . import LOAD_FORMAT, SLEEP_BACKEND, hooks, refusals
from .ranks import RANK, Alone, Rank

logger = logging.getLogger("vllm.gmsfs")  # below vLLM's own, which has its handler
Place = Union[Alone, Rank]
alive: "weakref.WeakKeyDictionary[Shared, float]" = weakref.WeakKeyDictionary()  # timeouts of the models here
_early: Dict[str, Place] = {}  # by path: opened to tell its size, for the load that follows


class Loader(BaseModelLoader):  # type: ignore[misc] # vLLM need not be here
    """model_loader_extra_config: see gmsfs.engine; the rest is DefaultModelLoader's."""

    def __init__(self, load_config: Any) -> None:
        super().__init__(load_config)
        settings = engine.read_settings(load_config.model_loader_extra_config)
        self.path, self.timeout, rest = settings
        own = dataclasses.replace(load_config, load_format="auto", model_loader_extra_config=rest)
        with engine.keys_of(settings):
            self.files = DefaultModelLoader(own)

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Bytes of the store if this engine attaches, because it has no other copy then; 0 for the writer:
        vLLM sees its allocations itself. Takes the lock, and so waits for an engine that is loading:
        vLLM calls this before it looks at the memory of the device."""
        refusals.check_options(self.path, vllm_config, vllm_config.model_config)
        place = _early.get(self.path) or self._open(vllm_config)
        _early[self.path] = place
        return 0 if place.writable else place.store.info.total_bytes

    def download_model(self, model_config: Any) -> None:
        self.files.download_model(model_config)

    def load_weights(self, model: Any, model_config: Any) -> None:
        self._refuse_to_reload()

    def get_all_weights(self, model_config: Any, model: Any) -> Any:
        """vLLM asks for them to reload a model in place."""
        self._refuse_to_reload()

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        refusals.check_options(self.path, vllm_config, model_config)
        place = _early.pop(self.path, None) or self._open(vllm_config)
        is_first = place.writable
        fill = self._publish if is_first else self._attach
        try:
            with place.together(), set_default_torch_dtype(model_config.dtype):
                model, shared = fill(place, vllm_config, model_config, prefix)
                with shared.guard(private=True):
                    process_weights_after_loading(model, model_config, self._device(vllm_config))
        except BaseException:
            place.close()
            raise
        gc.collect()
        engine.tell(logger, "vLLM", shared, is_first)
        alive[shared] = self.timeout
        model.gmsfs = shared
        model.load_weights = self._refuse_to_reload
        return model.eval()

    def _refuse_to_reload(self, *arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"{self.path}: {refusals.RELOAD}")

    def _open(self, vllm_config: Any) -> Place:
        size = vllm_config.parallel_config.world_size
        if size == 1:
            with engine.wait_told(logger, [self.path], self.timeout):
                return Alone(self.path, self.timeout)
        paths = [self.path.replace(RANK, str(rank)) for rank in range(size)]
        rank = get_world_group().rank_in_group
        with engine.wait_told(logger, paths, self.timeout) if rank == 0 else contextlib.nullcontext():
            return Rank(paths, rank, gather, self.timeout)

    def _device(self, vllm_config: Any) -> torch.device:
        return torch.device(self.load_config.device or vllm_config.device_config.device)

    def _make(self, vllm_config: Any, model_config: Any, prefix: str) -> Any:
        """Makes the model. The engine's device is torch's default here, and not while weights are loaded and
        processed: the same as in vLLM's own loader."""
        with self._device(vllm_config):
            model = initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)
        refusals.check_model(self.path, model)
        return model

    def _publish(
        self, place: Place, vllm_config: Any, model_config: Any, prefix: str
    ) -> Tuple[Any, Shared]:
        model = self._make(vllm_config, model_config, prefix)
        self.files.load_weights(model, model_config)
        return model, place.publish(model, fingerprint(vllm_config, model_config))

    def _attach(
        self, place: Place, vllm_config: Any, model_config: Any, prefix: str
    ) -> Tuple[Any, Shared]:
        with empty_parameters():
            model = self._make(vllm_config, model_config, prefix)
        return model, place.attach(model, fingerprint(vllm_config, model_config))


def gather(value: Any) -> List[Any]:
    """Gathers the values of all ranks of this engine, by rank."""
    group = get_world_group()
    found: List[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, value, group=group.cpu_group)
    return found


def fingerprint(vllm_config: Any, model_config: Any) -> Dict[str, str]:
    parallel = vllm_config.parallel_config
    fields = {
        "model": model_config.model,
        "revision": model_config.revision,
        "dtype": model_config.dtype,
        "quantization": model_config.quantization,
        "device": torch.device(vllm_config.device_config.device).type,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "rank": get_world_group().rank_in_group if parallel.world_size > 1 else None,
    }
    return engine.fingerprint("vllm", vllm.__version__, fields)


def register() -> None:
    """Makes Loader and SleepBackend known to vLLM, and sees that vLLM finds them."""
    if numbers(vllm.__version__) >= numbers(hooks.SLEEP):
        _register_sleep_backend()
    if not is_registered():
        register_model_loader(LOAD_FORMAT)(Loader)
    if not is_registered():
        raise HookMissing(
            f"vLLM {vllm.__version__} did not take the load format {LOAD_FORMAT}; is another loader "
            "registered under this name?"
        )


def _register_sleep_backend() -> None:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    try:
        found = SleepModeBackendFactory.get_backend_class(SLEEP_BACKEND)
    except ValueError:
        SleepModeBackendFactory.register_backend(SLEEP_BACKEND, f"{__package__}.sleep", "SleepBackend")
        found = SleepModeBackendFactory.get_backend_class(SLEEP_BACKEND)
    if found.__module__ != f"{__package__}.sleep":
        raise HookMissing(
            f"vLLM {vllm.__version__} has another sleep backend of the name {SLEEP_BACKEND}, of "
            f"{found.__module__}; leave its plug-in out by VLLM_PLUGINS=gmsfs"
        )


def is_registered() -> bool:
    """Whether vLLM makes a Loader of the load format gmsfs."""
    try:
        config = LoadConfig(load_format=LOAD_FORMAT, model_loader_extra_config={"store": "?"})
        found = get_model_loader(config)
    except ValueError:
        return False
    return isinstance(found, Loader)
