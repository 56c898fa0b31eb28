# SPDX-License-Identifier: Apache-2.0
"""Models of transformers over a store; on a GPU where GMSFS_TEST_DEVICE is cuda. Needs torch and
transformers."""

import json
import os
import subprocess
import sys

import torch
import transformers

import gmsfs
import gmsfs.transformers
from support import MOUNT, TIMEOUT, StoreCase

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
LLAMA = {**SMALL, "hidden_size": 32, "intermediate_size": 64, "num_key_value_heads": 2}
MODELS = {
    "llama": lambda: transformers.LlamaConfig(**LLAMA, tie_word_embeddings=False),
    "llama_tied": lambda: transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True),
    "llama_of_500_mib": lambda: transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=8, num_attention_heads=8, vocab_size=64
    ),
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64),
    "mixtral": lambda: transformers.MixtralConfig(
        **LLAMA, num_local_experts=4, num_experts_per_tok=2
    ),
}
DEVICE = os.environ.get("GMSFS_TEST_DEVICE", "cpu")
PROMPT = torch.arange(1, 9)[None].to(DEVICE)


def generate(model):
    with torch.no_grad():
        return model.generate(PROMPT, max_new_tokens=8, do_sample=False, pad_token_id=0).tolist()


def free_bytes():
    """Of the GPU, for all processes; 0 without one."""
    if DEVICE == "cpu":
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def engine(source, store):
    """A process: prints its tokens, and by how much free memory fell while it got its model, and stays."""
    large = torch.ones(1024, 1024, device=DEVICE)
    large = large @ large  # its context and its workspace are there before the measure
    before = free_bytes()
    model = gmsfs.transformers.from_pretrained(source, store, timeout=TIMEOUT)
    tokens = generate(model)
    print(json.dumps([tokens, before - free_bytes()]), flush=True)
    sys.stdin.read()


class Transformers(StoreCase):
    def setUp(self):
        super().setUp()
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            self.kill(process)
        super().tearDown()

    def make(self, name, **changes):
        """A directory with the model, as save_pretrained writes it."""
        torch.manual_seed(3)
        config = MODELS[name]()
        for key, value in changes.items():
            setattr(config, key, value)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        model.generation_config.max_new_tokens = 7
        model.save_pretrained(self.file(name))
        return self.file(name)

    def open(self, source, **options):
        model = gmsfs.transformers.from_pretrained(source, self.path, timeout=TIMEOUT, **options)
        self.addCleanup(model.gmsfs.close)
        return model

    def check(self, name):
        source = self.make(name)
        plain = transformers.AutoModelForCausalLM.from_pretrained(source).eval().to(DEVICE)
        first, second = self.open(source), self.open(source)
        with torch.no_grad():
            expected = plain(PROMPT).logits
            for model in (first, second):
                self.assertTrue(torch.equal(model(PROMPT).logits, expected))
        self.assertEqual(generate(second), generate(plain))
        self.assertEqual(second.generation_config.max_new_tokens, 7)
        report = second.gmsfs.report()
        self.assertEqual(report.left, {})
        self.assertFalse(set(report.private) & {name for name, _ in second.named_parameters()})
        self.assertGreater(report.shared_bytes, report.private_bytes)

    def test_llama(self):
        self.check("llama")

    def test_llama_with_a_tied_head(self):
        self.check("llama_tied")

    def test_gpt2(self):
        self.check("gpt2")

    def test_a_mixture_of_experts(self):
        self.check("mixtral")

    def engine(self, source):
        program = "import sys, test_transformers\ntest_transformers.engine(*sys.argv[1:])"
        process = subprocess.Popen(
            [sys.executable, "-c", program, source, self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.processes.append(process)
        return process, *json.loads(process.stdout.readline())

    def kill(self, process):
        process.kill()
        process.communicate()

    def test_a_killed_publisher_leaves_one_copy_to_two_readers(self):
        source = self.make("llama" if DEVICE == "cpu" else "llama_of_500_mib")
        publisher, tokens, taken = self.engine(source)
        self.kill(publisher)
        with open(os.path.join(self.path, "info"), encoding="utf-8") as file:
            stored = json.load(file)["bytes"]
        if DEVICE != "cpu":
            self.assertGreaterEqual(taken, stored)  # so a copy is seen by this measure
        readers = [self.engine(source) for _ in range(2)]
        for _, found, taken in readers:
            self.assertEqual(found, tokens)
            self.assertLess(taken, stored / 4)
        with open(os.path.join(MOUNT, "device"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["used_bytes"], stored)

    def test_another_model_is_refused_with_both_sides(self):
        self.open(self.make("llama"))
        other = self.make("gpt2")
        with self.assertRaisesRegex(
            gmsfs.Mismatch, "class: the store has 'LlamaForCausalLM', this process wants 'GPT2LMHeadModel'"
        ):
            self.open(other)

    def test_another_dtype_is_refused_with_both_sides(self):
        source = self.make("llama")
        self.open(source, dtype=torch.bfloat16)
        self.assertEqual(self.open(source, dtype="bfloat16").dtype, torch.bfloat16)
        with self.assertRaisesRegex(gmsfs.Mismatch, "'torch.bfloat16', this process wants 'torch.float32'"):
            self.open(source, dtype=torch.float32)

    def test_names_of_a_file_are_refused_with_the_way_out(self):
        source = self.make("llama")
        gmsfs.publish(self.path, {"w": torch.zeros(2)})
        with self.assertRaisesRegex(gmsfs.Mismatch, "name an empty store"):
            self.open(source)

    def test_a_load_that_fails_leaves_the_store_empty_and_no_lock(self):
        source = self.make("llama")
        os.unlink(os.path.join(source, "model.safetensors"))
        with self.assertRaises(OSError):
            self.open(source)
        self.assertEqual(self.state(), "EMPTY")
