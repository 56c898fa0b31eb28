# SPDX-License-Identifier: Apache-2.0
"""gmsfs.sglang over a stand-in for SGLang, as two of its versions. Needs torch."""

import os
import sys
import tempfile
import unittest
import unittest.mock

import torch

import gmsfs
import stub_sglang
from gmsfs.hooks import HookMissing
from support import TIMEOUT, StoreCase

GIB = 1 << 30
X = torch.arange(32.0) / 32
SAVER = "sglang.srt.utils.torch_memory_saver_adapter"
UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater"


class Stubbed(StoreCase):
    """Tests of each version."""

    version = "0.5.23"

    def setUp(self):
        super().setUp()
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        stub_sglang.install(place.name, self.version)
        self.addCleanup(stub_sglang.remove)
        self.model = self.save("model")
        self.engines = []

    def tearDown(self):
        for engine in self.engines:
            getattr(engine.model, "gmsfs", engine).close()
        self.engines.clear()
        super().tearDown()

    def save(self, name, size=32):
        torch.manual_seed(len(name))
        layer = stub_sglang.Layer(size)
        weights = {key: value for key, value in layer.named_parameters()}
        torch.save({key: value.detach().clone() for key, value in weights.items()}, self.file(name))
        return self.file(name)

    def start(self, model=None, **options):
        extra = {"timeout": TIMEOUT, **options.pop("extra", {})}
        engine = stub_sglang.engine(model or self.model, self.path, extra=extra, **options)
        if hasattr(engine.model, "gmsfs"):
            self.engines.append(engine)
        return engine

    def own(self):
        return stub_sglang.engine(self.model, self.path, load_format="auto").model

    @staticmethod
    def log():
        return sys.modules["sglang.srt.plugins.hook_registry"].HookRegistry.log

    def test_the_first_engine_publishes_and_the_next_attaches(self):
        with torch.no_grad():
            expected = self.own()(X)
            with self.assertLogs("gmsfs.sglang_loader", "INFO") as told:
                first, second = self.start(), self.start()
            self.assertIn("loaded and published", told.output[0])
            self.assertIn("attached", told.output[1])
            for engine in (first, second):
                self.assertTrue(torch.equal(engine.model(X), expected))
                self.assertIs(engine.model.head.weight, engine.model.embed.weight)
                report = engine.model.gmsfs.report()
                self.assertEqual(set(report.shared), {"embed.weight", "proj.weight", "proj.bias"})
                self.assertEqual(set(report.private), {"scale", "absorbed"})
                self.assertEqual(report.left, {})

    def test_weights_that_were_in_the_store_count_once_as_memory_of_the_engine(self):
        first, second = self.start(), self.start()
        self.assertEqual(first.reserve, 8.0)
        self.assertEqual(second.reserve, 8.0 + second.model.gmsfs.store.info.total_bytes / GIB)

    def test_a_hook_that_has_not_taken_is_named(self):
        stub_sglang.load_plugins()
        kept = sys.modules[SAVER].TorchMemorySaverAdapter
        kept.create = staticmethod(kept.Real)  # as another plugin may do
        with self.assertRaisesRegex(HookMissing, "TorchMemorySaverAdapter.create has not taken"):
            self.start()


class Newest(Stubbed):
    def test_what_sglang_does_after_a_load_is_done_once_in_each_engine(self):
        for engine in (self.start(), self.start()):
            self.assertEqual(
                engine.model.after_load, ["post_load_weights", "process_weights_after_loading"]
            )
            self.assertNotIn("load_weights", vars(engine.model))

    def test_pausing_weights_gives_the_store_back_and_resuming_maps_the_same_bytes(self):
        engine = self.start()
        address = engine.model.proj.weight.data_ptr()
        expected = engine.model(X)
        saver = sys.modules[SAVER].TorchMemorySaverAdapter.create(enable=True)  # the scheduler's own
        saver.pause("kv_cache")
        self.assertEqual(self.state(), "RO")
        saver.pause("weights")
        self.wait_until(lambda: self.state() == "COMMITTED", "the lock is still there")
        saver.resume("weights")
        self.assertEqual(self.state(), "RO")
        self.assertEqual(engine.model.proj.weight.data_ptr(), address)
        self.assertTrue(torch.equal(engine.model(X), expected))
        self.assertEqual(
            [call for call in saver.inner.calls if call[0] != "region"],
            [("pause", "kv_cache"), ("pause", "weights"), ("resume", "weights")],
        )

    def test_weights_of_a_store_are_in_no_region_of_the_memory_saver(self):
        engine = self.start()
        self.assertEqual(engine.memory_saver_adapter.inner.calls, [("region", "kv_cache")])

    def test_without_the_format_everything_is_as_it_was(self):
        engine = stub_sglang.engine(self.model, self.path, load_format="auto")
        saver = engine.memory_saver_adapter
        self.assertEqual(saver.inner.calls, [("region", "weights"), ("region", "kv_cache")])
        self.assertTrue(saver.enabled)
        saver.pause("weights")
        self.assertEqual(saver.inner.calls[-1], ("pause", "weights"))
        updater = sys.modules[UPDATER].WeightUpdater(engine.model)
        self.assertEqual(updater.update_weights_from_tensor([]), (True, "Success"))
        self.assertEqual(self.state(), "EMPTY")

    def test_an_update_of_weights_is_refused_before_it_writes(self):
        engine = self.start()
        updater = sys.modules[UPDATER].WeightUpdater(engine.model)
        new = [("proj.bias", torch.zeros(32))]
        with self.assertRaisesRegex(RuntimeError, f"{self.path}: update_weights_from_tensor: .* shares"):
            updater.update_weights_from_tensor(new)

    def test_a_write_after_the_load_is_refused_with_the_name_of_the_weight(self):
        class Rewriting(stub_sglang.Layer):
            def process_weights_after_loading(self):
                self.proj.weight.data.mul_(2)

        with self.assertRaisesRegex(gmsfs.ReadOnly, "proj.weight"):
            self.start(layer=Rewriting)
        self.assertNotEqual(self.state(), "RO")

    def test_what_sglang_replaces_after_the_load_is_private_and_named(self):
        class Packing(stub_sglang.Layer):
            def process_weights_after_loading(self):
                self.proj.weight = torch.nn.Parameter(self.proj.weight.clone(), requires_grad=False)

        with self.assertLogs("gmsfs.sglang_loader", "WARNING") as told:
            self.start(layer=Packing)
        self.assertIn("SGLang has rewritten 1 parameters", told.output[0])
        self.assertIn("proj.weight", told.output[0])

    def test_another_model_is_refused_with_both_sides(self):
        self.start()
        other = self.save("another")
        both = "model: the store has '.*model', this process wants '.*another'"
        with self.assertRaisesRegex(gmsfs.Mismatch, both):
            self.start(other)

    def test_a_store_of_a_kv_cache_keeps_it(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"blocks": bytes(100)}, seal=True)
        with self.assertRaisesRegex(gmsfs.Mismatch, "its layout is sealed"):
            self.start()
        self.assertEqual(self.state(), "LAYOUT_COMMITTED")

    def test_a_load_that_fails_leaves_the_store_empty_and_the_next_engine_loads(self):
        with self.assertRaises(FileNotFoundError):
            self.start(self.file("nothing"))
        self.wait_until(lambda: self.state() == "EMPTY", "a lock is left")
        self.start()

    def test_a_model_that_is_loaded_without_load_weights_is_refused(self):
        loader = sys.modules["sglang.srt.model_loader.loader"].DefaultModelLoader
        loader.load_weights_and_postprocess = staticmethod(lambda model, weights, target_device: None)
        with self.assertRaisesRegex(RuntimeError, "a Layer without its load_weights"):
            self.start()

    def test_options_that_cannot_be_are_refused_by_name(self):
        parallel = sys.modules["sglang.srt.distributed.parallel_state"]
        with self.assertRaisesRegex(ValueError, "--weight-cache-mode client"):
            self.start(weight_cache_mode="client")
        with self.assertRaisesRegex(ValueError, "no store is named"):
            self.start(extra={"store": ""})
        for timeout in ("long", -1, float("nan"), float("inf"), True):
            with self.assertRaisesRegex(ValueError, '"timeout" is a number of seconds'):
                self.start(extra={"timeout": timeout})
        words = f"{self.path}: --model-loader-extra-config: Unexpected .*'threads'.*; gmsfs takes \"store\""
        with self.assertRaisesRegex(ValueError, words):
            self.start(extra={"threads": 3})
        sys.modules["sglang.srt.runtime_context"].get_server_args().enable_eplb = True
        with self.assertRaisesRegex(ValueError, "EPLB moves experts"):
            self.start()
        parallel.get_tensor_model_parallel_world_size = lambda: 2
        sys.modules.pop("gmsfs.sglang_loader")
        with self.assertRaisesRegex(ValueError, "this engine has 2; run it with --tp-size 1"):
            self.start()
        self.assertEqual(self.state(), "EMPTY")

    def test_a_hook_that_sglang_lacks_is_named_and_the_format_is_not_known(self):
        del sys.modules[SAVER].TorchMemorySaverAdapter.create
        with self.assertRaisesRegex(SystemExit, "invalid choice: gmsfs"):
            self.start()
        self.assertIn(f"SGLang 0.5.23: load format gmsfs: {SAVER}.TorchMemory", str(self.log()[0]))

    def test_an_argument_that_sglang_lacks_is_named(self):
        del sys.modules[UPDATER].WeightUpdater._assert_weight_cache_inactive
        with self.assertRaisesRegex(HookMissing, "WeightUpdater._assert_weight_cache_inactive is not there"):
            self.start()
        loader = sys.modules["sglang.srt.model_loader.loader"].DefaultModelLoader
        loader._get_all_weights = lambda self, model_config: ()
        with self.assertRaisesRegex(HookMissing, "_get_all_weights has no argument model"):
            self.start()

    def test_a_version_that_is_not_known_is_refused_unless_it_is_asked_for(self):
        for version in ("0.5.16", "0.5.24"):
            place = tempfile.TemporaryDirectory()
            self.addCleanup(place.cleanup)
            stub_sglang.install(place.name, version)
            with self.assertRaisesRegex(SystemExit, "invalid choice: gmsfs"):
                self.start()
            self.assertIn(f"this is {version}; use one of them, or set GMSFS_UNTESTED=1", str(self.log()[0]))
        with unittest.mock.patch.dict(os.environ, GMSFS_UNTESTED="1"):
            stub_sglang.install(place.name, "0.5.24")
            self.start()


class Oldest(Stubbed):
    """0.5.17 does not ask a loader for bytes that were there before."""

    version = "0.5.17"


del Stubbed  # runs as its subclasses alone
