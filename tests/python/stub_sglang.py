# SPDX-License-Identifier: Apache-2.0
"""A stub of SGLang for machines without it: the modules, functions and arguments that gmsfs.sglang needs, as
in SGLang 0.5.17 and 0.5.23, around a model of one layer.

tests/python/test_contract.py compares these names with SGLang itself.
"""

import contextlib
import dataclasses
import enum
import functools
import importlib.metadata
import os
import pkgutil
import sys
import types

import torch

OWN_FORMATS = ("auto", "dummy")


def install(directory, version):
    """Puts the stub in place as that version, with the entry point of gmsfs, by files in `directory`."""
    remove()
    for name, lines in (
        (f"sglang-{version}", {"METADATA": f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"}),
        (
            "gmsfs_entry-0",
            {
                "METADATA": "Metadata-Version: 2.1\nName: gmsfs-entry\nVersion: 0\n",
                "entry_points.txt": "[sglang.srt.plugins]\ngmsfs = gmsfs.sglang:register\n",
            },
        ),
    ):
        info = os.path.join(directory, f"{name}.dist-info")
        os.makedirs(info, exist_ok=True)
        for file, text in lines.items():
            with open(os.path.join(info, file), "w", encoding="ascii") as out:
                out.write(text)
    sys.path.insert(0, directory)
    for name, contents in modules(counts=version >= "0.5.23").items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)


def remove():
    """Removes the stub and the gmsfs modules made for it."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "sglang" or name.startswith("gmsfs.sglang"):
            del sys.modules[name]
            if name.startswith("gmsfs."):
                vars(sys.modules["gmsfs"]).pop(name[len("gmsfs.") :], None)
    mark = "gmsfs_entry-0.dist-info"
    sys.path[:] = [path for path in sys.path if not os.path.exists(os.path.join(path, mark))]


def load_plugins():
    """Loads each plugin, then applies the hooks. As in SGLang, a failure is logged, here in a list, and
    startup continues."""
    registry = sys.modules["sglang.srt.plugins.hook_registry"].HookRegistry
    if registry.loaded:
        return
    registry.loaded = True
    for entry in importlib.metadata.entry_points(group="sglang.srt.plugins"):
        try:
            entry.load()()
        except Exception as error:
            registry.log.append(error)
    registry.apply_hooks()


class HookType(enum.Enum):
    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    REPLACE = "replace"


def hooked(original, hook, kind):
    @functools.wraps(original)
    def before(*args, **kwargs):
        changed = hook(*args, **kwargs)
        args, kwargs = (args, kwargs) if changed is None else changed
        return original(*args, **kwargs)

    @functools.wraps(original)
    def around(*args, **kwargs):
        return hook(original, *args, **kwargs)

    return {HookType.BEFORE: before, HookType.AROUND: around, HookType.REPLACE: hook}[kind]


def make_registry():
    class HookRegistry:
        hooks = []
        log = []
        loaded = False

        @classmethod
        def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
            cls.hooks.append((target, hook, hook_type))

        @classmethod
        def apply_hooks(cls):
            for target, hook, kind in cls.hooks:
                path, _, name = target.rpartition(".")
                try:
                    owner = pkgutil.resolve_name(path)
                    is_static = isinstance(vars(owner).get(name), staticmethod)
                    made = hooked(getattr(owner, name), hook, kind)
                    setattr(owner, name, staticmethod(made) if is_static else made)
                except Exception as error:
                    cls.log.append(error)
            cls.hooks.clear()

    return HookRegistry


def make_load_config():
    @dataclasses.dataclass
    class LoadConfig:
        load_format: object = "auto"
        model_loader_extra_config: object = dataclasses.field(default_factory=dict)
        weight_cache_mode: str = "off"

        def __post_init__(self):
            self._verify_load_format()

        def _verify_load_format(self) -> None:
            if isinstance(self.load_format, str) and self.load_format not in OWN_FORMATS:
                raise ValueError(f"{self.load_format!r} is not a valid LoadFormat")

    return LoadConfig


def make_adapters():
    class TorchMemorySaverAdapter:
        @staticmethod
        def create(enable: bool):
            return Real(enable)

        def configure_subprocess(self):
            raise NotImplementedError

        def region(self, tag: str, enable_cpu_backup: bool = False):
            raise NotImplementedError

        def cuda_graph(self, **kwargs):
            raise NotImplementedError

        def disable(self):
            raise NotImplementedError

        def pause(self, tag: str):
            raise NotImplementedError

        def resume(self, tag: str):
            raise NotImplementedError

        @property
        def enabled(self):
            raise NotImplementedError

    class Real(TorchMemorySaverAdapter):
        calls = []

        def __init__(self, enable):
            self.enable = enable

        @contextlib.contextmanager
        def region(self, tag: str, enable_cpu_backup: bool = False):
            self.calls.append(("region", tag))
            yield

        def pause(self, tag: str):
            self.calls.append(("pause", tag))

        def resume(self, tag: str):
            self.calls.append(("resume", tag))

        @property
        def enabled(self):
            return self.enable

    TorchMemorySaverAdapter.Real = Real
    return TorchMemorySaverAdapter


class Layer(torch.nn.Module):
    """Two weights, one of them tied, and a buffer; SGLang's work after a load is a method of its own."""

    def __init__(self, size):
        super().__init__()
        self.embed = torch.nn.Linear(size, size, bias=False)
        self.proj = torch.nn.Linear(size, size)
        self.head = torch.nn.Linear(size, size, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((size,), 2.0), persistent=False)
        self.after_load = []

    def load_weights(self, weights):
        own = dict(self.named_parameters())
        for name, tensor in weights:
            with torch.no_grad():
                own[name].copy_(tensor)
        self.post_load_weights()

    def post_load_weights(self):
        self.after_load.append("post_load_weights")
        self.absorbed = self.proj.weight * 2

    def process_weights_after_loading(self):
        self.after_load.append("process_weights_after_loading")

    def forward(self, x):
        return self.head(self.proj(self.embed(x)) * self.scale) + self.absorbed.sum()


def make_loaders(counts):
    class BaseModelLoader:
        if counts:
            preloaded_weights_bytes: int = 0

        def __init__(self, load_config):
            self.load_config = load_config

        def download_model(self, model_config) -> None:
            raise NotImplementedError

        def load_model(self, *, model_config, device_config):
            raise NotImplementedError

    class DefaultModelLoader(BaseModelLoader):
        def __init__(self, load_config):
            super().__init__(load_config)
            unexpected = set(load_config.model_loader_extra_config) - {"num_threads"}
            if unexpected:
                raise ValueError(f"Unexpected extra config keys: {unexpected}")

        def download_model(self, model_config) -> None:
            pass

        def _get_all_weights(self, model_config, model):
            yield from torch.load(model_config.model_path).items()

        def load_model(self, *, model_config, device_config):
            with torch.device(device_config.device):
                model = model_config.make()
            self.load_weights_and_postprocess(
                model, self._get_all_weights(model_config, model), torch.device(device_config.device)
            )
            return model.eval()

        @staticmethod
        def load_weights_and_postprocess(model, weights, target_device):
            model.load_weights(weights)
            model.process_weights_after_loading()

    def get_model_loader(load_config, model_config=None):
        if isinstance(load_config.load_format, type):
            return load_config.load_format(load_config)
        return DefaultModelLoader(load_config)

    return {
        "BaseModelLoader": BaseModelLoader,
        "DefaultModelLoader": DefaultModelLoader,
        "get_model_loader": get_model_loader,
    }


@dataclasses.dataclass
class ModelConfig:
    model_path: str
    size: int = 32
    revision: object = None
    dtype: object = torch.float32
    quantization: object = None
    layer: object = Layer

    def make(self):
        return self.layer(self.size)


@dataclasses.dataclass
class DeviceConfig:
    device: str = "cpu"


def make_updater():
    class WeightUpdater:
        def __init__(self, model):
            self.model = model

        def _assert_weight_cache_inactive(self, op: str) -> None:
            pass

        def update_weights_from_tensor(self, named_tensors, load_format=None):
            self._assert_weight_cache_inactive("update_weights_from_tensor")
            self.model.load_weights(named_tensors)
            return True, "Success"

    return WeightUpdater


def make_runner(counts):
    class ModelRunner:
        """model_runner.ModelRunner from free memory to the size of its pool, both in GiB."""

        def __init__(self, model_config, load_config, device_config, free_gib):
            module = sys.modules["sglang.srt.utils.torch_memory_saver_adapter"]
            self.memory_saver_adapter = module.TorchMemorySaverAdapter.create(enable=True)
            self.load_config = load_config
            self.pre_model_load_memory = free_gib
            with self.memory_saver_adapter.region("weights", enable_cpu_backup=False):
                self.loader = sys.modules["sglang.srt.model_loader.loader"].get_model_loader(
                    load_config=load_config, model_config=model_config
                )
                self.model = self.loader.load_model(model_config=model_config, device_config=device_config)
            if counts:
                self.pre_model_load_memory += self.loader.preloaded_weights_bytes / (1 << 30)
            self.alloc_memory_pool()

        def alloc_memory_pool(self, memory_pool_config=None):
            with self.memory_saver_adapter.region("kv_cache"):
                self.reserve = self.pre_model_load_memory

    return ModelRunner


def modules(counts):
    choices = list(OWN_FORMATS)
    parallel = {
        "get_tensor_model_parallel_world_size": lambda: 1,
        "get_pipeline_model_parallel_world_size": lambda: 1,
    }
    args = types.SimpleNamespace(enable_eplb=False)
    return {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.constants": {"GPU_MEMORY_TYPE_WEIGHTS": "weights"},
        "sglang.srt.plugins": {"load_plugins": load_plugins},
        "sglang.srt.plugins.hook_registry": {"HookRegistry": make_registry(), "HookType": HookType},
        "sglang.srt.server_args": {"LOAD_FORMAT_CHOICES": choices, "add_load_format_choices": choices.extend},
        "sglang.srt.configs": {},
        "sglang.srt.configs.load_config": {"LoadConfig": make_load_config()},
        "sglang.srt.utils": {},
        "sglang.srt.utils.torch_memory_saver_adapter": {"TorchMemorySaverAdapter": make_adapters()},
        "sglang.srt.model_loader": {},
        "sglang.srt.model_loader.loader": make_loaders(counts),
        "sglang.srt.distributed": {},
        "sglang.srt.distributed.parallel_state": parallel,
        "sglang.srt.runtime_context": {"get_server_args": lambda: args},
        "sglang.srt.model_executor": {},
        "sglang.srt.model_executor.model_runner": {"ModelRunner": make_runner(counts)},
        "sglang.srt.model_executor.model_runner_components": {},
        "sglang.srt.model_executor.model_runner_components.weight_updater": {
            "WeightUpdater": make_updater()
        },
    }


def engine(path, store, free_gib=8.0, load_format="gmsfs", extra=None, **config):
    """An engine from its plug-ins to its pool, as SGLang starts a scheduler."""
    load_plugins()
    if load_format not in sys.modules["sglang.srt.server_args"].LOAD_FORMAT_CHOICES:
        raise SystemExit(f"invalid choice: {load_format}")
    load_config = sys.modules["sglang.srt.configs.load_config"].LoadConfig(
        load_format=load_format,
        model_loader_extra_config={"store": store, **(extra or {})} if load_format == "gmsfs" else {},
        weight_cache_mode=config.pop("weight_cache_mode", "off"),
    )
    runner = sys.modules["sglang.srt.model_executor.model_runner"].ModelRunner
    return runner(ModelConfig(path, **config), load_config, DeviceConfig(), free_gib)
