# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines on the processor, over one store. Needs vllm (a build for the processor), torch,
transformers and tokenizers. Each engine is three processes that import for half a minute."""

import json
import os
import signal
import subprocess
import sys
import time

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from forks import save_entry_point
from support import SCRATCH, TIMEOUT, StoreCase

ENGINE = os.path.join(os.path.dirname(__file__), "../tools/vllm_engine.py")
STEPS = os.path.join(os.path.dirname(__file__), "../tools/vllm_steps.py")
ENGINE_SECONDS = 10 * TIMEOUT
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "vocab_size": 512}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, **HEADS),
    # Weights so large that each token depends on all before it.
    "context": lambda: transformers.LlamaConfig(**SIZES, **HEADS, initializer_range=0.2),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES, **HEADS, head_dim=64),
    "mixtral": lambda: transformers.MixtralConfig(**SIZES, **HEADS, num_local_experts=4),
}


def save_model(name, directory):
    """A model of random weights, with a tokenizer of single bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate([*letters, "<s>", "</s>"])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(directory)
    torch.manual_seed(5)
    config = MODELS[name]()
    config.bos_token_id, config.eos_token_id = words["<s>"], words["</s>"]
    transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(directory)


def environment():
    """Returns an environment with the entry point that vLLM looks for."""
    path = os.path.join(SCRATCH, "entry-point")
    save_entry_point(path, "gmsfs = gmsfs.vllm:register", "vllm.general_plugins")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ["PYTHONPATH"]])}


class Engine:
    """An engine with all its processes, in a session of its own."""

    def __init__(self, case, model, store, *words):
        self.log = case.file(f"engine-{len(case.engines)}.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, ENGINE, model, store, *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment(),
                start_new_session=True,
                text=True,
            )
        case.engines.append(self)
        self.case = case

    def tokens(self):
        """Waits for them; vLLM's log is beside them."""
        while True:
            is_over = self.process.poll() is not None
            for line in self.text().splitlines():
                if line.startswith("TOKENS "):
                    return json.loads(line[len("TOKENS ") :])
            if is_over:
                raise AssertionError(f"the engine ended without tokens: {self.text()[-4000:]}")
            time.sleep(0.2)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self):
        """Lets it end by itself."""
        self.process.stdin.close()
        self.process.wait(ENGINE_SECONDS)

    def kill(self):
        """kill -9 of every process of it."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()


class EngineCase:
    """A mixin of a StoreCase that ends its engines after each test."""

    def setUp(self):
        super().setUp()
        self.engines = []

    def tearDown(self):
        for engine in self.engines:
            engine.kill()
        super().tearDown()

    def run_to_the_end(self, model, store, *words):
        engine = Engine(self, model, store, *words)
        tokens = engine.tokens()
        engine.end()
        return tokens


class Engines(EngineCase, StoreCase):
    def test_two_engines_at_once_and_a_third_after_their_death_share_a_llama(self):
        model = self.file("llama")
        save_model("llama", model)
        expected = self.run_to_the_end(model, "-")
        first, second = (Engine(self, model, self.path, "stay") for _ in range(2))
        self.assertEqual(first.tokens(), expected)
        self.assertEqual(second.tokens(), expected)
        roles = sorted(
            role for role in ("attached", "loaded and published")
            for text in (first.text(), second.text()) if f"gmsfs: {role}" in text
        )
        self.assertEqual(roles, ["attached", "loaded and published"])
        first.kill()
        second.kill()
        self.assertEqual(self.run_to_the_end(model, self.path), expected)
        self.assertIn("gmsfs: attached", self.engines[-1].text())


class StepsCase:
    """A mixin of a StoreCase: engines of one process each, by vllm_steps.py."""

    def steps(self, *names, model="llama"):
        kind, model = model, self.file(model)
        save_model(kind, model)
        ended = subprocess.run(
            [sys.executable, STEPS, model, self.path, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            text=True,
            timeout=2 * ENGINE_SECONDS,
            check=False,
        )
        self.seen, self.text = {}, ended.stdout
        for line in self.text.splitlines():
            if line.startswith("STEP "):
                name, _, text = line[len("STEP ") :].partition(": ")
                self.seen[name] = json.loads(text)
        self.assertEqual(list(self.seen), list(names), self.text[-4000:])


class Steps(StepsCase, StoreCase):
    def assert_refused(self, name, *words):
        for word in words:
            self.assertIn(word, self.seen[name])

    def test_engines_of_one_process_refuse_and_end_by_name(self):
        self.steps("plain", "run", "reload", "no store", "timeout", "unknown key", "weight transfer",
                   "online quantisation", "interrupted", "memory")
        self.assertEqual(self.seen["run"]["tokens"], self.seen["plain"]["tokens"])
        reload = self.seen["reload"]
        self.assertIn(f"{self.path}: weights that a store shares", reload["errors"][0])
        self.assertTrue(reload["same"])
        self.assert_refused("no store", "no store is named", "--model-loader-extra-config")
        self.assert_refused("timeout", f'{self.path}-refused: "timeout" is')
        self.assert_refused("unknown key", f"{self.path}-refused: ", "'threads'", 'gmsfs takes "store"')
        self.assert_refused("weight transfer", f"{self.path}-refused: --weight-transfer-config")
        self.assert_refused("online quantisation", "qkv_proj", "quantise weights as they are loaded")
        interrupted = self.seen["interrupted"]
        self.assertLess(interrupted["seconds"], 2)
        self.assertEqual([interrupted["waiters"], interrupted["waiters after it"]], [0, 0])
        self.assertIn("Timeout", interrupted["timeout"])
        none, role, there, other = self.seen["memory"]
        self.assertEqual([none, role, other], [0, "rw", "ro"])
        with open(os.path.join(self.path, "info"), encoding="utf-8") as file:
            self.assertEqual(there, json.load(file)["bytes"])

    def test_weights_sleep_and_wake_at_their_addresses(self):
        self.steps("run", "sleep 1", "sleep 2", "stale", "reload, worker")
        for name in ("sleep 1", "sleep 2"):
            self.assertEqual(
                self.seen[name], {"asleep": [True, ""], "awake": [False, "ro"], "moved": [], "same": True}
            )
        self.assert_refused("stale", "Stale", f"{self.path}-stale")
        reload = self.seen["reload, worker"]
        for text, call in zip(reload["errors"], ("reload_weights", "reload_weights", "reset_weights")):
            self.assertIn(f"{self.path}: {call}: weights that a store shares", text)
        self.assertTrue(reload["same"])
