# SPDX-License-Identifier: Apache-2.0
"""gmsfs.vllm.kv, the KV connector, with a stub of vLLM, and its parts. Needs torch. On the mount of a GPU the
engines' pools are in GPU memory too."""

import json
import os
import random
import signal
import subprocess
import sys
import types
import unittest
from unittest import mock

import torch

import gmsfs
import stub_vllm_kv as stub
from gmsfs.vllm import kv_options
from gmsfs.vllm.kv_copies import Pool, batches
from gmsfs.vllm.kv_plan import Plan, Tier
from support import MOUNT, TIMEOUT, StoreCase

PROMPT = list(range(100, 100 + 5 * stub.BLOCK + 1))  # five blocks and a token
BLOCK_BYTES = 2 * 2 * stub.BLOCK * 8


with open(os.path.join(MOUNT, "device"), encoding="utf-8") as file:
    DEVICE = "cuda" if json.load(file)["backend"] == "cuda" else "cpu"  # of the engines' own pools


def request(name, hashes, tokens=None, computed=0):
    """Makes a request from hashes given as a string, a letter for each block."""
    keys = [letter.encode() for letter in hashes]
    return types.SimpleNamespace(
        request_id=name, block_hashes=keys, num_computed_tokens=computed,
        num_tokens=len(keys) * 4 + 1 if tokens is None else tokens,
    )


def plan_of(keys="", count=4):
    plan = Plan(4)
    plan.adopt([Tier([letter.encode() for letter in keys], count)])
    return plan


def words(copies):
    return " ".join(f"{key.decode()}{block}" for key, block in copies)


class Plans(unittest.TestCase):
    def run_whole(self, plan, one, blocks):
        """One step that computes all that is left."""
        found = plan.find(one, 0)
        plan.start(one, blocks, found)
        one.num_computed_tokens = found
        return plan.step({one.request_id: one.num_tokens - found}, [])

    def test_full_blocks_are_saved_once_and_loaded_by_the_next(self):
        plan = plan_of()
        step = self.run_whole(plan, request("r", "abc"), [7, 8, 9, 10])
        self.assertEqual((step.loads, step.drops, words(step.saves)), ([], [], "a7 b8 c9"))
        self.assertEqual(plan.step({"r": 1}, []).saves, [])
        plan.finish("r")
        step = self.run_whole(plan, request("s", "abd"), [1, 2, 3, 4])
        self.assertEqual((words(step.loads), words(step.saves)), ("a1 b2", "d3"))

    def test_blocks_are_saved_as_they_fill(self):
        plan, one = plan_of(), request("r", "ab", tokens=9)
        self.assertEqual(plan.find(one, 0), 0)
        plan.start(one, [5, 6], 0)
        self.assertEqual(plan.step({"r": 3}, []).saves, [])
        one.num_computed_tokens = 3
        self.assertEqual(words(plan.step({"r": 4}, []).saves), "a5")
        one.num_computed_tokens = 7
        self.assertEqual(words(plan.step({"r": 2}, [("r", [9]), ("other", [3])]).saves), "b6")
        one.num_computed_tokens, one.num_tokens = 9, 13
        one.block_hashes.append(b"c")
        self.assertEqual(words(plan.step({"r": 3}, []).saves), "c9")

    def test_the_last_token_is_left_to_the_model(self):
        plan = plan_of("abc")
        self.assertEqual(plan.find(request("r", "abc", tokens=12), 0), 8)
        self.assertEqual(plan.find(request("r", "abc", tokens=13), 0), 12)
        self.assertEqual(plan.find(request("r", "abc", tokens=13), 4), 8)
        self.assertEqual(plan.find(request("r", "axc", tokens=13), 0), 4)
        self.assertEqual(plan.find(request("r", "xbc", tokens=13), 4), 8)

    def test_tokens_that_vllm_has_itself_are_not_loaded(self):
        plan, one = plan_of("abc"), request("r", "abc")
        self.assertEqual(plan.find(one, 4), 8)
        plan.start(one, [1, 2, 3, 4], 8)
        self.assertEqual(words(plan.step({"r": 1}, []).loads), "b2 c3")

    def test_what_vllm_does_not_take_is_not_loaded(self):
        plan, one = plan_of("abc"), request("r", "abc")
        plan.find(one, 0)
        plan.start(one, [1, 2, 3, 4], 0)
        self.assertEqual(plan.step({"r": 13}, [])[0], [])

    def test_a_full_tier_drops_the_end_of_what_was_used_least_recently(self):
        plan = plan_of(count=4)
        self.run_whole(plan, request("r", "abc"), [1, 2, 3, 4])
        plan.finish("r")
        step = self.run_whole(plan, request("s", "xy"), [5, 6, 7])
        self.assertEqual((step.drops, words(step.saves)), ([b"c"], "x5 y6"))

    def test_blocks_of_running_requests_stay(self):
        plan = plan_of(count=2)
        self.run_whole(plan, request("r", "ab"), [1, 2, 3])
        one = request("s", "xy")
        step = self.run_whole(plan, one, [5, 6, 7])
        self.assertEqual((step.drops, step.saves), ([], []))
        one.num_computed_tokens = 9
        plan.finish("r")
        self.assertEqual(plan.step({"s": 1}, [])[1:], ([b"b", b"a"], [(b"x", 5), (b"y", 6)]))

    def test_a_request_that_was_preempted_starts_anew(self):
        plan, one = plan_of(count=2), request("r", "ab")
        self.run_whole(plan, one, [1, 2, 3])
        step = self.run_whole(plan, one, [4, 5, 6])
        self.assertEqual((words(step.loads), step.saves), ("a4 b5", []))
        plan.finish("r")
        self.assertEqual(self.run_whole(plan, request("s", "xy"), [1, 2, 3]).drops, [b"b", b"a"])

    def test_ranks_have_what_all_of_them_have(self):
        plan = Plan(4)
        plan.adopt([Tier([b"a", b"b", b"c"], 4), Tier([b"c", b"a", b"d"], 3)])
        self.assertEqual(plan.find(request("r", "ab"), 0), 4)
        self.assertEqual(plan.step({}, []).drops, [b"b", b"d"])

    def test_what_is_forgotten_is_dropped_once_and_nothing_is_kept_after_it(self):
        plan = plan_of("abc")
        self.run_whole(plan, request("r", "abd"), [1, 2, 3])
        plan.forget()
        self.assertTrue(plan.has_drops())
        self.assertEqual(plan.find(request("s", "ab"), 0), 0)
        self.assertEqual(sorted(plan.step({"r": 1}, []).drops), [b"a", b"b", b"c", b"d"])
        self.assertFalse(plan.has_drops())
        plan.finish("r")
        self.assertEqual(self.run_whole(plan, request("s", "ab"), [1, 2, 3]), ([], [], []))

    def test_many_requests_find_what_the_tier_has_and_it_never_has_too_much(self):
        """A tier by the steps alone: loads, drops, saves."""
        chance, plan, tier, running = random.Random(7), plan_of(count=12), set(), {}
        loaded = 0
        for number in range(2000):
            if len(running) < 4:
                hashes = "".join(chance.choice("ab") for _ in range(chance.randrange(1, 7)))
                one = request(str(number), "")
                one.block_hashes = [hashes[: end + 1].encode() for end in range(len(hashes))]
                one.num_tokens = 4 * len(hashes) + 1
                one.num_computed_tokens = plan.find(one, 0)
                plan.start(one, range(100 * number, 100 * number + 9), one.num_computed_tokens)
                running[one.request_id] = one
            scheduled = {
                name: min(chance.randrange(1, 9), one.num_tokens - one.num_computed_tokens)
                for name, one in running.items()
            }
            step = plan.step(scheduled, [])
            self.assertLessEqual({key for key, _ in step.loads}, tier)
            loaded += len(step.loads)
            self.assertLessEqual(set(step.drops), tier)
            tier.difference_update(step.drops)
            for key, _ in step.saves:
                self.assertNotIn(key, tier)
                tier.add(key)
            self.assertLessEqual(len(tier), 12)
            for name, tokens in scheduled.items():
                running[name].num_computed_tokens += tokens
                if running[name].num_computed_tokens == running[name].num_tokens:
                    plan.finish(name)
            running = {name: one for name, one in running.items() if name in plan._running}
        self.assertGreater(loaded, 500)


class Pools(unittest.TestCase):
    def test_bytes_are_those_of_the_index_whatever_the_strides(self):
        values = torch.arange(6 * 2 * 4 * 8, dtype=torch.float32).view(6, 2, 4, 8).to(torch.bfloat16)
        strided = values.transpose(1, 2).contiguous().transpose(1, 2)
        plain, other = Pool({"a": values, "b": values + 1}, 6), Pool({"a": strided, "b": strided + 1}, 6)
        self.assertEqual(plain.layout, other.layout)
        self.assertEqual(plain.widths, [128, 128])
        for one, two in zip(plain.read([3, 1]), other.read([3, 1])):
            self.assertEqual(one.shape, (2, 128))
            self.assertTrue(torch.equal(one, two))

    def test_blocks_are_written_where_they_belong(self):
        for dtype in (torch.uint8, torch.float16, torch.float8_e4m3fn):
            cache = torch.zeros(12, 4, 8, 2).transpose(1, 2).to(dtype)  # two of the kernel's blocks in each
            pool = Pool({"a": cache, "shared": cache}, 6)
            self.assertEqual(pool.widths, [128 * dtype.itemsize])
            data = torch.randint(0, 100, (2, pool.block_bytes), dtype=torch.uint8)
            pool.write([4, 2], iter([data]))
            self.assertTrue(torch.equal(pool.read([4, 2])[0], data))
            left = cache.view(torch.uint8).unflatten(0, (6, 2))[[0, 1, 3, 5]]
            self.assertFalse(left.any())

    def test_layouts_tell_shapes_and_types(self):
        made = {
            Pool({name: torch.zeros(6, *shape, dtype=dtype)}, 6).layout
            for name, shape, dtype in (
                ("a", (2, 8), torch.float16), ("a", (2, 8), torch.bfloat16), ("a", (8, 2), torch.float16),
                ("b", (2, 8), torch.float16),
            )
        }
        self.assertEqual(len(made), 4)

    def test_a_cache_without_blocks_is_refused(self):
        for wrong in (torch.zeros(2, 7), [torch.zeros(6, 2)]):
            with self.assertRaisesRegex(ValueError, "layer a is not made of 6 blocks"):
                Pool({"a": wrong}, 6)

    def test_many_copies_are_made_in_batches_of_64_mib(self):
        copies = [(str(number).encode(), number) for number in range(70)]
        for nbytes, counts in ((2 << 20, [32, 32, 6]), (65 << 20, [1] * 70)):
            made = list(batches(copies, nbytes))
            self.assertEqual([len(keys) for keys, _ in made], counts)
            self.assertEqual([pair for keys, blocks in made for pair in zip(keys, blocks)], copies)


class Options(unittest.TestCase):
    def refused(self, words, path="/m/kv", **changes):
        with self.assertRaisesRegex(ValueError, words):
            kv_options.read(stub.config(path, **changes))

    def test_what_is_given_is_read(self):
        self.assertEqual(kv_options.read(stub.config("/m/kv", 5)), ("/m/kv", 5, 600.0))

    def test_each_option_is_refused_by_name(self):
        extra = "kv_transfer_config__kv_connector_extra_config"
        for words, changes in (
            ("has no store; give", {extra: {"bytes": 1}}),
            ('"bytes" is the size', {extra: {"store": "/m/kv", "bytes": 1.5}}),
            ('"bytes" is the size', {extra: {"store": "/m/kv", "bytes": True}}),
            ('"bytes" is the size', {extra: {"store": "/m/kv"}}),
            ('"timeout" is a number', {extra: {"store": "/m/kv", "bytes": 1, "timeout": "soon"}}),
            ("does not know the keys size", {extra: {"store": "/m/kv", "bytes": 1, "size": 2}}),
            ('"kv_role": "kv_both"', {"kv_transfer_config__kv_role": "kv_producer"}),
            ('"kv_load_failure_policy": "recomp', {"kv_transfer_config__kv_load_failure_policy": "fail"}),
            ("ranks is 2", {"parallel_config__world_size": 2}),
            ("ranks is 1", {"path": "/m/kv{rank}"}),
            ("--pipeline-parallel-size 2", {"parallel_config__pipeline_parallel_size": 2}),
            ("--data-parallel-size 2", {"parallel_config__data_parallel_size": 2}),
            ("--enable-lora", {"lora_config": object()}),
            ("--weight-transfer-config", {"weight_transfer_config": object()}),
        ):
            with self.subTest(words):
                self.refused(words, **changes)

    def test_hashes_that_the_next_engine_has_not_are_refused(self):
        changes = {"cache_config__prefix_caching_hash_algo": "xxhash"}
        with mock.patch.dict(os.environ):
            os.environ.pop("PYTHONHASHSEED", None)
            self.refused("--prefix-caching-hash-algo xxhash.*PYTHONHASHSEED=0", **changes)
            plain = kv_options.fingerprint(stub.config("/m/kv"), 4)
            os.environ["PYTHONHASHSEED"] = "0"
            kv_options.read(stub.config("/m/kv", **changes))
            self.assertNotEqual(kv_options.fingerprint(stub.config("/m/kv"), 4), plain)


def compute_and_die(path):
    """A process that is killed once an engine has computed the prompt."""
    with stub.connector_class() as connector:
        engine = stub.Engine(connector, [stub.config(path, 64 * BLOCK_BYTES)], DEVICE)
        engine.generate(PROMPT)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        os.kill(os.getpid(), signal.SIGKILL)


class Engines(StoreCase):
    """Engines that stand in for vLLM's."""

    def setUp(self):
        super().setUp()
        context = stub.connector_class()
        self.connector = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)

    def engine(self, count=64, **options):
        return stub.Engine(self.connector, [stub.config(self.path, count * BLOCK_BYTES)], DEVICE, **options)

    def test_the_next_engine_loads_what_the_last_one_computed(self):
        first = self.engine()
        self.assertEqual(first.generate(PROMPT, more=5), 0)
        self.assertEqual(first.generate(PROMPT), 5 * stub.BLOCK)
        first.close()
        second = self.engine()
        self.assertEqual(second.generate([*PROMPT, 121, 122, 123, 5]), 5 * stub.BLOCK)
        self.assertEqual(second.generate([1, *PROMPT]), 0)
        second.close()

    def test_blocks_outlive_a_killed_engine(self):
        program = "import sys, test_vllm_kv\ntest_vllm_kv.compute_and_die(sys.argv[1])\n"
        died = subprocess.run([sys.executable, "-c", program, self.path], timeout=TIMEOUT, check=False)
        self.assertEqual(died.returncode, -signal.SIGKILL)
        engine = self.engine()
        self.assertEqual(engine.generate(PROMPT), 5 * stub.BLOCK)
        engine.close()

    def test_a_small_tier_has_what_was_used_last(self):
        engine = self.engine(count=6)
        for _ in range(3):
            for prompt in (PROMPT, PROMPT[::-1]):
                engine.generate(prompt)
        self.assertEqual(engine.generate(PROMPT[::-1]), 5 * stub.BLOCK)
        self.assertEqual(engine.generate(PROMPT), stub.BLOCK)  # the last evicted of six blocks
        engine.close()

    def test_a_tier_that_is_lost_costs_no_request(self):
        engine = self.engine()
        engine.generate(PROMPT)
        engine.workers[0]._copies._tier.close()
        with self.assertLogs("vllm.gmsfs", "ERROR") as told:
            self.assertEqual(engine.generate(PROMPT), 0)
        self.assertEqual(engine.generate(PROMPT), 0)
        (line,) = told.output
        self.assertRegex(line, f"KV cache {self.path}: .*goes on without it")
        engine.close()

    def test_an_engine_that_passes_nothing_on_is_told_once(self):
        engine = self.engine(shakes_hands=False)
        with self.assertLogs("vllm.gmsfs", "WARNING") as told:
            self.assertEqual([engine.generate(PROMPT), engine.generate(PROMPT)], [0, 0])
        (line,) = told.output
        self.assertRegex(line, f"KV cache {self.path}: no worker told .* so nothing is kept")
        engine.close()

    def test_a_reset_empties_the_tier(self):
        engine = self.engine()
        engine.generate(PROMPT)
        with self.assertLogs("vllm.gmsfs", "WARNING") as told:
            self.assertTrue(engine.scheduler.reset_cache())
        self.assertRegex(told.output[0], f"KV cache {self.path}: vLLM has reset it.*started again")
        engine.idle()
        engine.close()
        engine = self.engine()
        self.assertEqual(engine.generate(PROMPT), 0)
        engine.close()

    def test_an_engine_whose_cache_was_reset_keeps_nothing_of_other_weights(self):
        engine = self.engine()
        engine.scheduler.reset_cache()
        engine.generate(PROMPT)
        self.assertEqual(engine.generate(PROMPT), 0)
        engine.close()
        engine = self.engine()
        self.assertEqual(engine.generate(PROMPT), 0)
        engine.close()

    def test_an_engine_that_wakes_goes_on_without_the_tier(self):
        engine = self.engine()
        engine.generate(PROMPT)
        engine.scheduler.reset_cache()  # as it goes to sleep
        engine.idle()
        engine.shake_hands()
        self.assertEqual([engine.generate(PROMPT), engine.generate(PROMPT)], [0, 0])
        engine.close()
        engine = self.engine()
        self.assertEqual(engine.generate(PROMPT), 0)
        engine.close()

    def test_workers_that_tell_the_tier_again_change_nothing(self):
        engine = self.engine(count=6)
        engine.generate(PROMPT)
        engine.shake_hands()
        self.assertEqual(engine.generate(PROMPT), 5 * stub.BLOCK)
        engine.close()

    def test_ranks_have_a_tier_each(self):
        path = self.path + "-{rank}"
        configs = [
            stub.config(path, 64 * BLOCK_BYTES, rank=str(rank), parallel_config__world_size=2)
            for rank in (0, 1)
        ]
        for hits in (0, 5 * stub.BLOCK):
            engine = stub.Engine(self.connector, configs, DEVICE)
            self.assertEqual(engine.generate(PROMPT), hits)
            engine.close()
        gmsfs.open(path.replace("{rank}", "1"), "rw").close()
        engine = stub.Engine(self.connector, configs, DEVICE)
        self.assertEqual(engine.generate(PROMPT), 0)
        self.assertEqual(engine.generate(PROMPT), 5 * stub.BLOCK)
        engine.workers[1]._copies._tier.close()
        with self.assertLogs("vllm.gmsfs", "ERROR"):
            self.assertEqual(engine.generate(PROMPT), 0)
        engine.idle()
        self.assertEqual(engine.workers[0]._copies._tier.keys(), [])  # a rank may have computed garbage
        engine.close()
        for rank in "01":
            os.rmdir(path.replace("{rank}", rank))

    def test_another_model_and_another_size_are_refused(self):
        self.engine().close()
        other = stub.config(self.path, 64 * BLOCK_BYTES)
        other.model_config = stub.ModelConfig()
        other.model_config.model = "large"
        with self.assertRaisesRegex(gmsfs.Mismatch, "model: the store has 'small', this .* 'large'"):
            stub.Engine(self.connector, [other], DEVICE)
        with self.assertRaisesRegex(gmsfs.Mismatch, "blocks: the store has '64', this process wants '65'"):
            self.engine(count=65)
        with self.assertRaisesRegex(ValueError, '"bytes" is 127, and one block'):
            stub.Engine(self.connector, [stub.config(self.path, BLOCK_BYTES - 1)], DEVICE)

    def test_attention_that_does_not_keep_all_blocks_is_refused(self):
        with self.assertRaisesRegex(ValueError, "this model has 1 of SlidingWindowSpec"):
            self.engine(spec=stub.SlidingWindowSpec)
        both = [stub.FullAttentionSpec(), stub.MLAAttentionSpec()]
        self.engine(spec=lambda: stub.UniformTypeKVCacheSpecs(dict(enumerate(both)))).close()

    def test_a_vllm_that_is_too_old_ends_the_start_by_name(self):
        words = "KV connector gmsfs knows vLLM 0.32 to 0.33, and this is 0.31.0"
        with self.assertRaisesRegex(ImportError, words):
            with stub.connector_class("0.31.0"):
                pass
