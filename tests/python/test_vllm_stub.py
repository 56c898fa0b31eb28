# SPDX-License-Identifier: Apache-2.0
"""gmsfs.vllm's load format and sleep backend with a stub of vLLM, or with vLLM's own sleep backend and worker
from its releases: see stub_vllm. Needs torch. On the mount of a GPU the model is in GPU memory."""

import json
import logging
import os
import subprocess
import time
from unittest import mock

import torch

import gmsfs
import stub_vllm as stub
from gmsfs import engine as engines
from support import COMMAND, MOUNT, TIMEOUT, StoreCase

with open(os.path.join(MOUNT, "device"), encoding="utf-8") as file:
    DEVICE = "cuda" if json.load(file)["backend"] == "cuda" else "cpu"


class Case(StoreCase):
    version = "0.33.0"

    def setUp(self):
        super().setUp()
        self.addCleanup(stub.install(self.version))
        import gmsfs.vllm

        gmsfs.vllm.register()
        self.started = []

    def tearDown(self):
        for engine in self.started:
            if hasattr(engine.model, "gmsfs"):
                engine.model.gmsfs.close()
        super().tearDown()

    def engine(self, path=None, **more):
        self.started.append(stub.Engine(path, device=DEVICE, **more))
        return self.started[-1]

    def two(self, **more):
        """An engine that has published, one that has attached, and the output of vLLM's own loader."""
        return (*(self.engine(self.path, **more) for _ in range(2)), self.engine().output())

    def same(self, engine, expected):
        self.assertTrue(torch.equal(engine.output(), expected))


class Loading(Case):
    def test_the_first_engine_loads_and_the_second_attaches(self):
        first, second, expected = self.two()
        self.assertEqual(len(stub.loads), 2)  # of the first one, and of vLLM's own loader
        for engine in (first, second):
            self.same(engine, expected)
            self.assertEqual(engine.model.gmsfs.report().left, {})
        self.assertEqual(
            first.model.gmsfs.report().shared_bytes, second.model.gmsfs.report().shared_bytes
        )

    def test_weights_are_loaded_and_processed_without_a_default_device(self):
        self.two()
        self.assertEqual(set(stub.loads), {"cpu"})
        self.assertEqual(set(stub.processed), {("cpu", DEVICE)})

    def test_weights_that_vllm_rewrites_are_named(self):
        with self.assertLogs("vllm.gmsfs", logging.WARNING) as told:
            first, second, _ = self.two(rewrites=True)
        for engine in (first, second):
            self.assertEqual(list(engine.model.gmsfs.report().left), ["second.weight"])
        self.assertIn("vLLM has rewritten 1 parameters", told.output[0])
        self.assertIn("'second.weight'", told.output[0])

    def test_bytes_of_the_store_are_external_to_a_reader_alone(self):
        first, second, _ = self.two()
        with open(os.path.join(self.path, "info"), encoding="utf-8") as file:
            there = json.load(file)["bytes"]
        self.assertEqual((first.external, second.external), (0, there))

    def test_another_model_is_refused_with_both_values(self):
        self.engine(self.path)
        config = stub.configuration(self.path, "gmsfs", DEVICE)
        config.model_config.model = "large"
        with self.assertRaisesRegex(gmsfs.Mismatch, "model.*large.*small|model.*small.*large"):
            stub.get_model_loader(config.load_config).load_model(config, config.model_config)

    def test_a_wait_is_told_with_the_holder_of_the_lock(self):
        holder = subprocess.Popen(
            [COMMAND, "run", "-w", self.path, "--", "cat"], stdin=subprocess.PIPE, start_new_session=True
        )
        self.wait_until(lambda: self.state() == "RW", "no writer")
        try:
            with (
                mock.patch.object(engines, "QUIET_SECONDS", 0.1),
                self.assertLogs("vllm.gmsfs", logging.INFO) as told,
                self.assertRaises(gmsfs.Timeout),
            ):
                self.engine(self.path, timeout=1)
            with open(os.path.join(self.path, "sessions"), encoding="ascii") as file:
                _, _, _, pid, _, command, *_ = file.read().split()
        finally:
            holder.stdin.close()
            holder.wait()
        self.assertEqual(
            told.records[0].getMessage(),
            f"gmsfs: waits up to 1 seconds for the lock of {self.path}, "
            f"which process {pid} ({command}) has as RW",
        )

    def test_no_wait_is_told_where_the_lock_is_free(self):
        with mock.patch.object(engines, "QUIET_SECONDS", 0.5):
            with self.assertLogs("vllm.gmsfs", logging.INFO) as told:
                self.engine(self.path)
                time.sleep(1)
        self.assertFalse([text for text in told.output if "waits" in text])

    def test_a_reload_is_refused(self):
        engine = self.engine(self.path)
        for call in (
            lambda: engine.model.load_weights([]),
            lambda: stub.get_model_loader(engine.config.load_config).load_weights(engine.model, None),
            lambda: stub.get_model_loader(engine.config.load_config).get_all_weights(None, engine.model),
        ):
            with self.assertRaisesRegex(RuntimeError, f"^{self.path}: weights that a store shares"):
                call()


class Sleep(Case):
    def test_the_code_is_vllms_where_its_sources_are_given(self):
        engine = self.engine(self.path)
        self.assertEqual(isinstance(engine.worker, stub.WorkerCalls), "GMSFS_TEST_SOURCES" not in os.environ)
        from gmsfs.vllm.sleep import SleepBackend

        (base,) = SleepBackend.__bases__
        self.assertEqual(base is stub.CuMemBackend, "GMSFS_TEST_SOURCES" not in os.environ)

    def calls(self):
        made, stub.allocator.calls[:] = list(stub.allocator.calls), []
        return made

    def addresses(self, engine):
        return {name: one.data_ptr() for name, one in engine.model.named_parameters()}

    def test_levels_1_and_2_give_the_memory_back_and_wake_at_the_same_addresses(self):
        _, second, expected = self.two()
        before, store = self.addresses(second), second.model.gmsfs.store
        for level in (1, 2):
            second.worker.sleep(level)
            self.assertEqual((store.asleep, store.mode), (True, ""))
            ((call, *saved),) = self.calls()
            self.assertEqual((call, saved[0]), ("sleep", "weights"))  # private ones are saved at both levels
            second.worker.wake_up()
            self.assertEqual((store.asleep, store.mode), (False, "ro"))
            self.assertEqual(self.calls(), [("wake_up",)])
            self.assertEqual(self.addresses(second), before)
            self.same(second, expected)

    def test_weights_wake_by_their_tag_alone(self):
        _, second, expected = self.two()
        second.worker.sleep(1)
        second.worker.wake_up(["kv_cache"])
        self.assertTrue(second.model.gmsfs.store.asleep)
        second.worker.wake_up(["weights"])
        self.same(second, expected)
        second.worker.wake_up()  # of an engine that is awake

    def test_after_another_commit_the_engine_sleeps_on_as_a_whole(self):
        first, second, _ = self.two()
        for engine in (first, second):
            engine.worker.sleep(1)
        self.calls()
        gmsfs.publish(self.path, {"other": torch.ones(3)})
        with self.assertRaisesRegex(gmsfs.Stale, self.path):
            second.worker.wake_up()
        self.assertTrue(second.model.gmsfs.store.asleep)
        self.assertEqual(self.calls(), [])

    def test_while_it_sleeps_a_writer_can_have_the_store(self):
        engine = self.engine(self.path)
        with self.assertRaises(gmsfs.Timeout):
            gmsfs.open(self.path, "rw", timeout=0.2)
        engine.worker.sleep(1)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT):
            pass

    def test_the_kv_cache_goes_alone(self):
        _, second, expected = self.two()
        second.worker.discard(("kv_cache",))
        self.assertFalse(second.model.gmsfs.store.asleep)
        self.same(second, expected)
        second.worker.wake_up()
        self.assertEqual(self.calls(), [("discard", "kv_cache"), ("wake_up",)])
        self.same(second, expected)

    def test_the_pool_of_another_backend_is_vllms(self):
        engine = self.engine(self.path, backend="cumem")
        engine.worker.sleep(1)
        self.assertFalse(engine.model.gmsfs.store.asleep)
        self.assertEqual(self.calls()[0][:2], ("sleep", "weights"))


class Sleep32(Sleep):
    version = "0.32.0"


class Sleep27(Sleep):
    version = "0.27.1"
    test_the_kv_cache_goes_alone = None  # a call that this version does not have


class Older(Case):
    version = "0.25.1"

    def test_a_version_without_sleep_backends_shares_weights(self):
        first, second, expected = self.two()
        self.assertIsNone(second.external)
        self.same(first, expected)
        self.same(second, expected)
