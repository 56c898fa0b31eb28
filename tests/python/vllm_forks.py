# SPDX-License-Identifier: Apache-2.0
"""Engines of vLLM on the processor as forks of the test. A worker stops at a moment that the test names, as
in the middle of the copy, until it is killed or told to go on."""

import importlib
import os

import forks

forks.prepare("gmsfs = gmsfs.vllm:register", "vllm.general_plugins")
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"

from vllm import LLM, SamplingParams

import gmsfs
from gmsfs.sleep import Sleeper
from gmsfs.vllm import loader

for module in (  # which vLLM imports late, and each engine would anew
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.core",
    "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker",
):
    importlib.import_module(module)

WORKER = "gmsfs.vllm.worker.Worker"
PROMPTS = ["Hello, world", "gmsfs", "3 a.m."]
# By name: the call before which a worker stops, and how many of these calls it makes before.
MOMENTS = {
    "it has the lock": (loader.Loader, "_publish", 0),
    "it has allocated": (gmsfs.Store, "_map", 0),
    "it is copying": (importlib.import_module("gmsfs.publish"), "_copy_item", 8),
    "it is about to commit": (gmsfs.Store, "commit", 0),
    "it has committed": (loader, "process_weights_after_loading", 0),
    "it has attached": (loader, "process_weights_after_loading", 0),
    "it is waking": (Sleeper, "_check_remap", 0),
}


class Engine(forks.Fork):
    """The main process; the engine core is its child, and the workers are the engine core's."""

    prompts = PROMPTS

    def serve(self, model, store="", moment="", **options):
        """Runs the engine with weights in `store`; without a store vLLM's own loader reads them."""
        if store:
            options.update(load_format="gmsfs", model_loader_extra_config={"store": store})
        self.note_workers()
        if moment in MOMENTS:
            self.stop_before(*MOMENTS[moment])
        usual = {"max_model_len": 128, "max_num_seqs": 4, "kv_cache_memory_bytes": 16 << 20}
        engine = LLM(model, enforce_eager=True, **{**usual, "dtype": "bfloat16", **options})
        self.note("tokens", self.generate(engine))
        if "worker_cls" in options:
            engine.sleep(1)
            self.note("asleep", True)
            self.wait_for("wake")
            engine.wake_up()
            self.note("awake", self.generate(engine))
        self.wait_for("the end")

    def generate(self, engine):
        parameters = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
        found = engine.generate(self.prompts, parameters)
        self.note("cached", [one.num_cached_tokens for one in found])
        return [list(one.outputs[0].token_ids) for one in found]

    def note_workers(self):
        real = loader.Loader.load_model

        def load_model(loader, vllm_config, *arguments, **options):
            self.note("core", os.getppid())
            self.note(f"worker {vllm_config.parallel_config.rank}", os.getpid())
            return real(loader, vllm_config, *arguments, **options)

        loader.Loader.load_model = load_model

    def stop_before(self, owner, name, calls):
        real, left = getattr(owner, name), [calls]

        def stop(*arguments, **options):
            if left[0] == 0:
                self.note("stopped", os.getpid())
                self.wait_for("go on")
            left[0] -= 1
            return real(*arguments, **options)

        setattr(owner, name, stop)

    def core(self):
        """The process that started the workers."""
        return self.hear("core")
