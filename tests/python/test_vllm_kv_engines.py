# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines on the processor; their blocks of the KV cache outlive them. Has the requirements of
test_vllm."""

import json

import test_vllm as vllm
from support import StoreCase

WHOLE = 2 * 32  # tokens of the blocks that each long prompt fills at least


class Blocks(vllm.EngineCase, StoreCase):
    def cached(self, engine):
        (line,) = (line for line in engine.text().splitlines() if line.startswith("CACHED "))
        return json.loads(line[len("CACHED ") :])

    def test_the_next_engine_has_the_blocks_of_a_killed_one(self):
        model = self.file("context")
        vllm.save_model("context", model)
        expected = self.run_to_the_end(model, "-", "long")
        self.assertEqual(len({tuple(tokens) for tokens in expected}), 3)  # the content of the blocks differs
        first = vllm.Engine(self, model, "-", "long", "stay", f"kv={self.path}")
        self.assertEqual(first.tokens(), expected)
        self.assertEqual(self.cached(first), [0, 0, 0])
        first.kill()
        self.assertEqual(self.run_to_the_end(model, "-", "long", f"kv={self.path}"), expected)
        self.assertEqual(self.cached(self.engines[-1]), [WHOLE] * 3)


class Steps(vllm.StepsCase, StoreCase):
    def test_tokens_are_the_same_with_requests_preempted_and_blocks_lost(self):
        self.steps("blocks, plain", "blocks", "blocks again", "blocks lost", model="context")
        for name, seen in self.seen.items():
            self.assertEqual(seen["tokens"], self.seen["blocks, plain"]["tokens"], name)
        self.assertGreater(self.seen["blocks"]["preempted"], 0)
        self.assertGreaterEqual(min(self.seen["blocks again"]["cached"]), WHOLE)
        self.assertIn("is closed; this engine goes on without it", self.text)
