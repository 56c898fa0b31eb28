# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines on the processor, with models of several kinds."""

import json
import os

from forks import ForkCase, in_child
from test_vllm import save_model
from vllm_forks import Engine


def sizes_of_memfds(pid):
    """Bytes of a process's mappings of memfds: resident, and as its share of pages that others map too."""
    found = {"Rss:": 0, "Pss:": 0}
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            if "-" in words[0]:
                is_memfd = "/memfd:gmsfs" in line
            elif is_memfd and words[0] in found:
                found[words[0]] += int(words[1]) << 10
    return found["Rss:"], found["Pss:"]


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
        self.assert_counted_once(first, second)
        first.kill()
        second.kill()
        self.assertEqual(self.run_engine(model, self.path), expected)
        self.assertIn("gmsfs: attached ", self.engines[-1].text())

    def assert_counted_once(self, *engines):
        """Each worker has the store's pages mapped, and the machine has them once."""
        mapped = [sizes_of_memfds(engine.hear("worker 0")) for engine in engines]
        with open(os.path.join(self.path, "info"), encoding="utf-8") as file:
            store_bytes = json.load(file)["bytes"]
        for resident, _ in mapped:
            self.assertGreater(resident, store_bytes / 2, mapped)
        self.assertLessEqual(sum(proportional for _, proportional in mapped), store_bytes, mapped)

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
