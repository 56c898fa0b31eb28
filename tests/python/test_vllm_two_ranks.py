# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines of two ranks on the processor, with a store for each rank."""

import os
import signal
import unittest

from forks import ForkCase, in_child
from support import command
from test_vllm import save_model
from vllm_forks import Engine

import gmsfs


class TwoRanks(ForkCase):
    def setUp(self):
        super().setUp()
        self.paths = [f"{self.path}-{rank}" for rank in range(2)]
        os.rmdir(self.path)
        for path in self.paths:
            os.mkdir(path)
        self.model = self.file("llama")
        in_child(save_model, "llama", self.model)
        own = self.engine("")
        self.expected = own.hear("tokens")
        own.kill()

    def tearDown(self):
        for self.path in self.paths:
            super().tearDown()

    def engine(self, store, *moment):
        return Engine(self, self.model, store, *moment, tensor_parallel_size=2)

    def over_stores(self, *moment):
        return self.engine(self.path + "-{rank}", *moment)

    def infos(self):
        stores = [gmsfs.Store(path) for path in self.paths]
        found = [store.info for store in stores]
        for store in stores:
            store.close()
        return found

    def holders(self):
        found = []
        for path in self.paths:
            with open(os.path.join(path, "sessions"), encoding="ascii") as file:
                found += file.readlines()
        return found

    def assert_loaded(self, engine, role):
        """Returns the id of the load."""
        self.assertEqual(engine.hear("tokens"), self.expected)
        for path in self.paths:
            self.assertIn(f"gmsfs: {role} {path}:", engine.text())
        first, second = self.infos()
        self.assertTrue(first.committed and second.committed)
        self.assertNotEqual(first.group, "")
        self.assertEqual(first.group, second.group)
        return first.group

    def test_ranks_publish_together_and_the_next_engines_attach(self):
        first = self.over_stores()
        load = self.assert_loaded(first, "loaded and published")
        sums = [command("sum", path) for path in self.paths]
        self.assertNotEqual(*sums)
        second = self.over_stores()
        self.assertEqual(self.assert_loaded(second, "attached"), load)
        first.kill()
        second.kill()
        self.wait_until(lambda: not self.holders(), "a dead rank has its lock")
        self.assertEqual(self.assert_loaded(self.over_stores(), "attached"), load)
        self.assertEqual([command("sum", path) for path in self.paths], sums)

    def test_a_rank_that_is_killed_while_it_publishes_leaves_both_stores_empty(self):
        for rank in range(2):
            engine = self.over_stores("it is copying")
            engine.hear("stopped", 2)
            os.kill(engine.hear(f"worker {rank}"), signal.SIGKILL)
            engine.order("go on")
            self.wait_until(lambda: not self.holders(), f"a rank has its lock: {engine.text()[-4000:]}")
            self.assertEqual([info.committed for info in self.infos()], [False, False])
            engine.kill()
        self.assert_loaded(self.over_stores(), "loaded and published")


if __name__ == "__main__":
    unittest.main()
