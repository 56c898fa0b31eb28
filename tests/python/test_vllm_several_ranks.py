# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines of several ranks on the processor, with a store for each rank."""

import os
import signal
import sys

from forks import ForkCase, in_child
from support import command
from test_vllm import save_model
from vllm_forks import Engine

import gmsfs

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../tools"))
from vllm_engine import BLOCK_TOKENS, kv_transfer


class RanksCase(ForkCase):
    model_kind = "llama"
    count = 2

    def setUp(self):
        super().setUp()
        self.paths = [f"{self.path}-{rank}" for rank in range(self.count)]
        os.rmdir(self.path)
        for path in self.paths:
            os.mkdir(path)
        self.model = self.file(self.model_kind)
        in_child(save_model, self.model_kind, self.model)

    def tearDown(self):
        for self.path in self.paths:
            super().tearDown()

    def holders(self):
        found = []
        for path in self.paths:
            with open(os.path.join(path, "sessions"), encoding="ascii") as file:
                found += file.readlines()
        return found


class Weights(RanksCase):
    def setUp(self):
        super().setUp()
        own = self.engine("")
        self.expected = own.hear("tokens")
        own.kill()

    def engine(self, store, *moment):
        return Engine(self, self.model, store, *moment, tensor_parallel_size=self.count)

    def over_stores(self, *moment):
        return self.engine(self.path + "-{rank}", *moment)

    def infos(self):
        stores = [gmsfs.Store(path) for path in self.paths]
        found = [store.info for store in stores]
        for store in stores:
            store.close()
        return found

    def assert_loaded(self, engine, role):
        """Returns the id of the load."""
        self.assertEqual(engine.hear("tokens"), self.expected)
        for path in self.paths:
            self.assertIn(f"gmsfs: {role} {path}:", engine.text())
        infos = self.infos()
        self.assertTrue(all(info.committed for info in infos))
        (load,) = {info.group for info in infos}
        self.assertNotEqual(load, "")
        return load

    def test_ranks_publish_together_and_the_next_engines_attach(self):
        first = self.over_stores()
        load = self.assert_loaded(first, "loaded and published")
        sums = [command("sum", path) for path in self.paths]
        self.assertEqual(len(set(sums)), self.count)
        second = self.over_stores()
        self.assertEqual(self.assert_loaded(second, "attached"), load)
        first.kill()
        second.kill()
        self.wait_until(lambda: not self.holders(), "a dead rank has its lock")
        self.assertEqual(self.assert_loaded(self.over_stores(), "attached"), load)
        self.assertEqual([command("sum", path) for path in self.paths], sums)

    def test_a_mix_of_two_loads_is_loaded_anew(self):
        first = self.over_stores()
        load = self.assert_loaded(first, "loaded and published")
        first.kill()
        self.wait_until(lambda: not self.holders(), "a dead rank has its lock")
        in_child(gmsfs.publish, self.paths[-1], {"x": b"other"})
        self.assertNotEqual(self.assert_loaded(self.over_stores(), "loaded and published"), load)

    def test_a_rank_that_is_killed_while_it_publishes_leaves_all_stores_empty(self):
        for rank in range(self.count):
            engine = self.over_stores("it is copying")
            engine.hear("stopped", self.count)
            os.kill(engine.hear(f"worker {rank}"), signal.SIGKILL)
            engine.order("go on")
            self.wait_until(lambda: not self.holders(), f"a rank has its lock: {engine.text()[-4000:]}")
            self.assertEqual([info.committed for info in self.infos()], [False] * self.count)
            engine.kill()
        self.assert_loaded(self.over_stores(), "loaded and published")


class WeightsOfFourRanks(Weights):
    count = 4


class LongEngine(Engine):
    prompts = [text + " and then" for text in ("A quick fox jumps. " * 4, "quick foxes jump! " * 4, "0" * 70)]


class Blocks(RanksCase):
    model_kind = "context"

    def engine(self, **options):
        # By 32 bits: with 16 a token can differ where a prompt is computed in parts.
        options.update(dtype="float32", block_size=BLOCK_TOKENS, tensor_parallel_size=self.count)
        return LongEngine(self, self.model, **options)

    def with_blocks(self):
        return self.engine(kv_transfer_config=kv_transfer(self.path + "-{rank}"))

    def test_the_next_engine_has_the_blocks_of_all_ranks(self):
        own = self.engine()
        expected = own.hear("tokens")
        own.kill()
        first = self.with_blocks()
        self.assertEqual(first.hear("tokens"), expected)
        self.assertEqual(first.hear("cached"), [0, 0, 0])
        first.kill()
        self.wait_until(lambda: not self.holders(), "a dead rank has its lock")
        second = self.with_blocks()
        self.assertEqual(second.hear("tokens"), expected)
        self.assertEqual(second.hear("cached"), [2 * BLOCK_TOKENS] * 3)


class BlocksOfFourRanks(Blocks):
    count = 4
