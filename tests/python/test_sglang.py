# SPDX-License-Identifier: Apache-2.0
"""Real SGLang engines on the processor, over one store. Needs sglang, torch and transformers; SGLang runs
without its kernels."""

import json
import os
import signal
import time

import forks

forks.prepare("gmsfs = gmsfs.sglang:register", "sglang.srt.plugins")

import sglang
import sglang.srt.managers.detokenizer_manager
import sglang.srt.managers.scheduler
import sglang.srt.models.llama
import torch
import transformers

import gmsfs
from support import TIMEOUT, command

PROMPTS = [[1, 2, 3, 4, 5], [400, 7]]
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 512}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}


def save_model(directory):
    torch.manual_seed(5)
    config = transformers.LlamaConfig(**SIZES, **HEADS)
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(directory)


class Engine(forks.Fork):
    """Weights in a store, or without one loaded by SGLang's own loader."""

    def serve(self, model, store=""):
        options = {}
        if store:
            options = {"load_format": "gmsfs", "model_loader_extra_config": json.dumps({"store": store})}
        engine = sglang.Engine(
            model_path=model,
            device="cpu",
            attention_backend="torch_native",
            disable_cuda_graph=True,
            skip_tokenizer_init=True,
            mem_fraction_static=0.5,  # other processes of the machine may take memory during the start
            max_total_tokens=256,
            log_level="info",
            **options,
        )
        self.note("tokens", self.generate(engine))
        if store:
            self.wait_for("sleep")
            engine.release_memory_occupation(tags=["weights"])
            self.note("asleep", True)
            self.wait_for("wake")
            engine.resume_memory_occupation(tags=["weights"])
            self.note("awake", self.generate(engine))
        self.wait_for("the end")

    def generate(self, engine):
        parameters = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}
        found = engine.generate(input_ids=PROMPTS, sampling_params=parameters)
        return [one["output_ids"] for one in found]


class Engines(forks.ForkCase):
    def sessions(self):
        with open(f"{self.path}/sessions", encoding="ascii") as file:
            return file.readlines()

    def holders(self):
        return len(self.sessions())

    def waits(self):
        return any(" waiting " in line for line in self.sessions())

    def test_ctrl_c_ends_a_start_that_waits(self):
        model = self.file("llama")
        forks.in_child(save_model, model)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT):
            engine = Engine(self, model, self.path)
            self.wait_until(self.waits, "the engine does not wait")
            start = time.monotonic()
            os.killpg(engine.main, signal.SIGINT)  # as a terminal sends it
            self.wait_until(lambda: not self.waits(), "a waiter is left")
            self.assertLess(time.monotonic() - start, TIMEOUT / 60)
            self.wait_until(lambda: not engine.is_alive(), f"it goes on: {engine.text()[-4000:]}")

    def test_engines_share_a_llama_sleep_and_outlive_each_other(self):
        model = self.file("llama")
        forks.in_child(save_model, model)
        own = Engine(self, model)
        expected = own.hear("tokens")
        own.kill()
        first = Engine(self, model, self.path)
        self.assertEqual(first.hear("tokens"), expected)
        self.assertIn("gmsfs: loaded and published ", first.text())
        whole = command("sum", self.path)
        second = Engine(self, model, self.path)
        self.assertEqual(second.hear("tokens"), expected)
        self.assertIn("gmsfs: attached ", second.text())
        self.assertEqual(self.holders(), 2)
        first.kill()
        self.wait_until(lambda: self.holders() == 1, "the dead engine has its lock")
        second.order("sleep")
        second.hear("asleep")
        self.assertEqual(self.holders(), 0)
        second.order("wake")
        self.assertEqual(second.hear("awake"), expected)
        second.kill()
        self.wait_until(lambda: self.state() == "COMMITTED", "the dead engine has its lock")
        self.assertEqual(command("sum", self.path), whole)
        third = Engine(self, model, self.path)
        self.assertEqual(third.hear("tokens"), expected)
        self.assertIn("gmsfs: attached ", third.text())
