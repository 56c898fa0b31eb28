# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines on the processor, with models of several kinds."""

import unittest

from forks import ForkCase, in_child
from test_vllm import save_model
from vllm_forks import Engine


class Models(ForkCase):
    def save(self, name):
        in_child(save_model, name, self.file(name))
        return self.file(name)

    def run_engine(self, model, store=""):
        engine = Engine(self, model, store)
        tokens = engine.hear("tokens")
        engine.kill()
        return tokens

    def check(self, name):
        model = self.save(name)
        expected = self.run_engine(model)
        first, second = Engine(self, model, self.path), Engine(self, model, self.path)
        self.assertEqual(first.hear("tokens"), expected)
        self.assertEqual(second.hear("tokens"), expected)
        roles = [
            role
            for role in ("attached", "loaded and published")
            for engine in (first, second)
            if f"gmsfs: {role} " in engine.text()
        ]
        self.assertEqual(roles, ["attached", "loaded and published"])
        first.kill()
        second.kill()
        self.assertEqual(self.run_engine(model, self.path), expected)
        self.assertIn("gmsfs: attached ", self.engines[-1].text())

    def test_two_engines_at_once_and_a_third_after_their_death_share_a_qwen(self):
        self.check("qwen3")

    def test_two_engines_at_once_and_a_third_after_their_death_share_a_mixtral(self):
        """vLLM writes to the experts' weights as it starts."""
        self.check("mixtral")

    def test_a_store_of_another_model_ends_the_start_with_both_sides(self):
        self.run_engine(self.save("llama"), self.path)
        other = Engine(self, self.save("qwen3"), self.path)
        with self.assertRaises(AssertionError):
            other.hear("tokens")
        self.assertIn("model: the store has", other.text())


if __name__ == "__main__":
    unittest.main()
