# SPDX-License-Identifier: Apache-2.0
"""A stub of vLLM for machines without it: the modules, functions and arguments that gmsfs.vllm needs for its
load format and its sleep backend, as in vLLM 0.25, 0.32 and 0.33, around a model of two layers.

With GMSFS_TEST_SOURCES the sleep backend and the worker's calls are not this file's, but vLLM's own: read
from its release on the package index, or from that directory, and run over the stub's allocator.
tests/python/test_contract.py compares the names with vLLM itself.
"""

import ast
import contextlib
import dataclasses
import importlib
import logging
import os
import sys
import time
import types

import torch
from torch import nn

from gmsfs.hooks import numbers

DEVICE = "cpu"
HIDDEN = 64
FACTORY = "vllm.device_allocator.sleep_mode_backend"
WORKER_CALLS = (
    "sleep_mode_backend", "_get_sleep_mode_backend", "_get_sleep_parameters", "_save_sleep_parameters",
    "_restore_sleep_parameters", "sleep", "wake_up", "discard",
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(HIDDEN, HIDDEN)
        self.second = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.scale = nn.Parameter(torch.zeros(HIDDEN))
        self.register_buffer("table", torch.arange(HIDDEN).float(), persistent=False)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, values):
        return self.second(torch.tanh(self.first(values))) * self.scale + self.table


class Allocator:
    """vLLM's memory pool: which tags sleep, and which of them come back with their bytes."""

    def __init__(self):
        self.calls = []

    def sleep(self, offload_tags=None):
        self.calls.append(("sleep", *offload_tags))

    def wake_up(self, tags=None):
        self.calls.append(("wake_up", *(tags or ())))

    def discard(self, tags):
        self.calls.append(("discard", *tags))


class SleepModeBackend:
    def __init__(self):
        self._state = "RUNNING"

    def state(self):
        return self._state

    @classmethod
    def is_supported(cls):
        return True


class CuMemBackend(SleepModeBackend):
    def suspend(self, level=1):
        self._state = "SUSPENDED"
        allocator.sleep(("weights",) if level == 1 else ())

    def resume(self, tags=None):
        self._state = "RESUMING"
        allocator.wake_up(tags)
        self._state = "RUNNING"

    def discard(self, tags):
        allocator.discard(tags)
        self._state = "SUSPENDED"


class SleepModeBackendFactory:
    _registry = {}

    @classmethod
    def register_backend(cls, name, module_path, class_name):
        if name in cls._registry:
            raise ValueError(f"Sleep-mode backend '{name}' is already registered.")
        cls._registry[name] = lambda: getattr(importlib.import_module(module_path), class_name)

    @classmethod
    def get_backend_class(cls, name):
        if name not in cls._registry:
            raise ValueError(f"Unsupported sleep-mode backend '{name}'.")
        return cls._registry[name]()

    @classmethod
    def create_backend(cls, model_config):
        return cls.get_backend_class(model_config.sleep_mode_backend)()


class WorkerCalls:
    """Of vLLM's worker on a GPU, as far as it is about sleep."""

    @property
    def sleep_mode_backend(self):
        if self._sleep_mode_backend is None:
            factory = sys.modules[FACTORY].SleepModeBackendFactory
            self._sleep_mode_backend = factory.create_backend(self.model_config)
        return self._sleep_mode_backend

    def sleep(self, level=1):
        self.sleep_mode_backend.suspend(level)

    def wake_up(self, tags=None):
        self.sleep_mode_backend.resume(tags)

    def discard(self, tags):
        self.sleep_mode_backend.discard(tags)


@dataclasses.dataclass
class LoadConfig:
    load_format: str = "auto"
    model_loader_extra_config: dict = dataclasses.field(default_factory=dict)
    device: str = None


class BaseModelLoader:
    def __init__(self, load_config):
        self.load_config = load_config

    def get_external_weight_memory(self, vllm_config):
        return 0

    def download_model(self, model_config):
        raise NotImplementedError

    def load_weights(self, model, model_config):
        raise NotImplementedError

    def load_model(self, vllm_config, model_config, prefix=""):
        with torch.device(vllm_config.device_config.device):
            model = initialize_model(vllm_config, prefix=prefix, model_config=model_config)
        self.load_weights(model, model_config)
        process_weights_after_loading(model, model_config, torch.device(vllm_config.device_config.device))
        return model.eval()


class DefaultModelLoader(BaseModelLoader):
    """Its files are random numbers of the model's seed."""

    def __init__(self, load_config):
        super().__init__(load_config)
        extra = load_config.model_loader_extra_config
        if set(extra) - {"enable_multithread_load"}:
            raise ValueError(f"Unexpected extra config keys for load format auto: {sorted(extra)}")

    def download_model(self, model_config):
        pass

    def get_all_weights(self, model_config, model):
        raise AssertionError("a model over a store is not loaded again")

    def load_weights(self, model, model_config):
        loads.append(torch.empty(0).device.type)
        source = torch.Generator().manual_seed(model_config.seed)
        for parameter in model.parameters():
            parameter.data.copy_(torch.randn(parameter.shape, generator=source))


def initialize_model(vllm_config, *, prefix="", model_config=None):
    return Model()


def process_weights_after_loading(model, model_config, target_device):
    processed.append((torch.empty(0).device.type, target_device.type))
    if model_config.rewrites:  # as a kernel's layout does
        model.second.weight.data = model.second.weight.data.t().contiguous().t()


formats, loads, processed, allocator = {}, [], [], Allocator()


def register_model_loader(load_format):
    def take(loader):
        formats[load_format] = loader
        return loader

    return take


def get_model_loader(load_config):
    if load_config.load_format not in formats:
        raise ValueError(f"Load format `{load_config.load_format}` is not supported")
    return formats[load_config.load_format](load_config)


@contextlib.contextmanager
def set_default_torch_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class Platform:
    def is_cpu(self):
        return False

    def is_rocm(self):
        return False


def configuration(path, backend, device, rewrites=False, seed=5, **extra):
    """A VllmConfig as far as the package and the stub read it."""
    model = types.SimpleNamespace(
        model="small", revision=None, dtype=torch.float32, quantization=None, seed=seed, rewrites=rewrites,
        sleep_mode_backend=backend, sleep_preserve_parameter_names=[], enable_nccl_comm_suspend=False,
    )
    parallel = types.SimpleNamespace(
        world_size=1, rank=0, data_parallel_size=1, tensor_parallel_size=1, pipeline_parallel_size=1,
        enable_eplb=False, enable_expert_parallel=False,
    )
    load = LoadConfig("gmsfs", {"store": path, **extra}) if path else LoadConfig()
    return types.SimpleNamespace(
        model_config=model, parallel_config=parallel, load_config=load, weight_transfer_config=None,
        device_config=types.SimpleNamespace(device=device),
    )


class Engine:
    """One worker, which starts as vLLM's does."""

    def __init__(self, path=None, backend="gmsfs", device=DEVICE, **more):
        config = configuration(path, backend, device, **more)
        self.config, version = config, numbers(sys.modules["vllm"].__version__)
        self.external = None
        if version >= (0, 32):
            self.external = get_model_loader(config.load_config).get_external_weight_memory(config)
        model = get_model_loader(config.load_config).load_model(config, config.model_config)
        self.worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker()
        vars(self.worker).update(
            model_config=config.model_config, vllm_config=config, _sleep_mode_backend=None,
            model_runner=types.SimpleNamespace(model=model, post_kv_cache_wake_up=lambda: None),
            get_draft_model=lambda: None, synchronize_device=lambda: None,
            _sleep_saved_parameters={}, _sleep_saved_buffers={}, _sleep_saved_draft_buffers={},
        )
        self.model = model

    def output(self):
        values = torch.linspace(-1, 1, HIDDEN, device=self.model.table.device)
        return self.model(values)


# ---- the modules -------------------------------------------------------------------------------


def install(version):
    """Puts the stub in place as that version. Returns the function that takes it away again."""
    remove()
    for made in (formats, loads, processed, allocator.calls, SleepModeBackendFactory._registry):
        made.clear()
    formats["auto"] = DefaultModelLoader
    for name, contents in modules(version).items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
    if numbers(version) >= (0, 27):
        add_sleep(version)
    return remove


def remove():
    import gmsfs.vllm

    for name in list(sys.modules):
        if name.partition(".")[0] == "vllm" or name in ("gmsfs.vllm.loader", "gmsfs.vllm.sleep"):
            del sys.modules[name]
    for leaf in ("loader", "sleep"):
        vars(gmsfs.vllm).pop(leaf, None)


def modules(version):
    loader = "vllm.model_executor.model_loader"
    return {
        "vllm": {"__version__": version},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.config": {},
        "vllm.config.load": {"LoadConfig": LoadConfig},
        "vllm.model_executor": {},
        loader: {"register_model_loader": register_model_loader, "get_model_loader": get_model_loader},
        f"{loader}.base_loader": {"BaseModelLoader": BaseModelLoader},
        f"{loader}.default_loader": {"DefaultModelLoader": DefaultModelLoader},
        f"{loader}.utils": {
            "initialize_model": initialize_model,
            "process_weights_after_loading": process_weights_after_loading,
        },
        "vllm.distributed": {},
        "vllm.distributed.parallel_state": {"get_world_group": lambda: None},
        "vllm.utils": {},
        "vllm.utils.torch_utils": {"set_default_torch_dtype": set_default_torch_dtype},
        "vllm.platforms": {"current_platform": Platform()},
        "vllm.platforms.interface": {"Platform": Platform},
        "vllm.v1": {},
        "vllm.v1.worker": {},
        "vllm.v1.worker.gpu_worker": {"Worker": WorkerCalls},
    }


def add_sleep(version):
    names = {
        "SleepModeBackendFactory": SleepModeBackendFactory,
        "CuMemBackend": CuMemBackend,
        "SleepModeBackend": SleepModeBackend,
    }
    for name in (FACTORY.rpartition(".")[0], FACTORY):
        module = types.ModuleType(name)
        module.__path__ = []
        module.get_mem_allocator_instance = lambda: allocator
        sys.modules[name] = module
    sys.modules["vllm"].device_allocator = sys.modules[FACTORY.rpartition(".")[0]]
    sys.modules["vllm.device_allocator"].sleep_mode_backend = sys.modules[FACTORY]
    vars(sys.modules[FACTORY]).update(names)
    if "GMSFS_TEST_SOURCES" in os.environ:
        use_source(version)
    else:
        SleepModeBackendFactory.register_backend("cumem", FACTORY, "CuMemBackend")


def use_source(version):
    """vLLM's own sleep backends, and its worker's calls for sleep, in place of the stub's."""
    from sources import Release

    release = Release(os.environ["GMSFS_TEST_SOURCES"], "vllm", version)
    exec(compile(release.tree(FACTORY), FACTORY, "exec"), vars(sys.modules[FACTORY]))
    (worker,) = (
        one for one in release.tree("vllm.v1.worker.gpu_worker").body
        if isinstance(one, ast.ClassDef) and one.name == "Worker"
    )
    worker.bases = []
    worker.body = [one for one in worker.body if getattr(one, "name", "") in WORKER_CALLS]
    accelerator = types.SimpleNamespace(synchronize=lambda: None, get_memory_info=lambda: (0, 0))
    names = vars(sys.modules["vllm.v1.worker.gpu_worker"])
    names.update(
        torch=types.SimpleNamespace(accelerator=accelerator, no_grad=torch.no_grad), nn=nn, time=time,
        has_kv_transfer_group=lambda: False, current_platform=Platform(), format_gib=str,
        logger=logging.getLogger("stub"),
    )
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    tree = ast.fix_missing_locations(ast.Module([future, worker], []))
    exec(compile(tree, "vllm.v1.worker.gpu_worker", "exec"), names)
