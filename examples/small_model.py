# SPDX-License-Identifier: Apache-2.0
"""Shared by successor.py and shadow.py: a small Llama of random weights, and an engine of one process, which
prints its progress in lines on its standard output."""

import os
import signal
import subprocess
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM  # imported before anything is measured

import gmsfs.transformers

PROMPT = [1, 2, 3, 4, 5]


def save(directory):
    """Writes the model, unless it is there."""
    if not os.path.exists(os.path.join(directory, "config.json")):
        torch.manual_seed(1)
        config = LlamaConfig(
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            vocab_size=1024,
        )
        LlamaForCausalLM(config).save_pretrained(directory)


def is_committed(store):
    """Whether load() attaches."""
    try:
        gmsfs.wait_committed(store, timeout=0)
    except (gmsfs.NotFound, gmsfs.Timeout):
        return False
    return True


def load(directory, store):
    """The model, and how many seconds it took: from files in the first process, from the store in others."""
    start = time.monotonic()
    model = gmsfs.transformers.from_pretrained(directory, store, timeout=60)
    return model, time.monotonic() - start


def generate(model, count=8):
    prompt = torch.tensor([PROMPT], device=model.device)
    with torch.no_grad():
        found = model.generate(prompt, max_new_tokens=count, do_sample=False, pad_token_id=0)
    return found[0, len(PROMPT) :].tolist()


class Engine:
    """A process that runs a script of this folder; it ends when its standard input does."""

    def __init__(self, script, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self, word):
        """Waits for the line that begins with `word`; the rest of it."""
        for line in self.process.stdout:
            if line.startswith(word + " "):
                return line[len(word) + 1 :].strip()
        raise SystemExit(f"an engine ended without {word}")

    def kill(self):
        """kill -9; when that was."""
        now = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return now

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def say(word, value):
    print(word, value, flush=True)
