# SPDX-License-Identifier: Apache-2.0
"""The parts of gmsfs.vllm that need no vLLM: settings, refused options, versions, the check of hooks. Needs
torch."""

import os
import sys
import types
import unittest
from unittest import mock

from torch import nn

from gmsfs import engine, hooks
from gmsfs.vllm import hooks as tables
from gmsfs.vllm import refusals, register


def config(**changes):
    """Makes an engine's configuration without unsupported settings, but for `changes`."""
    model = types.SimpleNamespace(sleep_preserve_parameter_names=[])
    parallel = types.SimpleNamespace(
        world_size=1, data_parallel_size=1, enable_eplb=False, enable_expert_parallel=False
    )
    made = types.SimpleNamespace(model_config=model, parallel_config=parallel, weight_transfer_config=None)
    for place, value in changes.items():
        *owners, leaf = place.split("__")
        owner = made
        for name in owners:
            owner = getattr(owner, name)
        setattr(owner, leaf, value)
    return made


class Settings(unittest.TestCase):
    def test_what_is_given_is_read_and_other_keys_are_left(self):
        self.assertEqual(
            engine.read_settings({"store": "/m/s", "timeout": 3, "enable_multithread_load": True}),
            ("/m/s", 3.0, {"enable_multithread_load": True}),
        )
        self.assertEqual(engine.read_settings({"store": "/m/s"}).timeout, 600)

    def test_what_makes_no_sense_is_named(self):
        for extra in (None, {}, {"store": ""}, {"store": 3}):
            with self.subTest(extra), self.assertRaisesRegex(ValueError, "no store is named; give"):
                engine.read_settings(extra)
        for timeout in ("soon", -1, float("inf"), float("nan"), True, None):
            with self.subTest(timeout), self.assertRaisesRegex(ValueError, '^/m/s: "timeout" is'):
                engine.read_settings({"store": "/m/s", "timeout": timeout})


class Refusals(unittest.TestCase):
    def test_an_engine_without_them_starts(self):
        given = config()
        refusals.check_options("/m/s", given, given.model_config)

    def test_each_option_is_named(self):
        for words, changes in {
            "tensor-parallel-size": {"parallel_config__world_size": 2},
            "enable-eplb": {"parallel_config__enable_eplb": True},
            "weight-transfer-config": {"weight_transfer_config": object()},
            "sleep-preserve-parameter-names": {"model_config__sleep_preserve_parameter_names": ["a.*"]},
        }.items():
            given = config(**changes)
            with self.subTest(words), self.assertRaisesRegex(ValueError, f"^/m/s: .*--{words}"):
                refusals.check_options("/m/s", given, given.model_config)

    def test_ranks_have_a_store_each(self):
        given = config(parallel_config__world_size=2)
        refusals.check_options("/m/s{rank}", given, given.model_config)
        with self.assertRaisesRegex(ValueError, "one rank; name its store without"):
            refusals.check_options("/m/s{rank}", config(), None)
        given.parallel_config.data_parallel_size = 2
        with self.assertRaisesRegex(ValueError, "--data-parallel-size 2"):
            refusals.check_options("/m/s{rank}", given, given.model_config)

    def test_a_draft_model_is_refused(self):
        with self.assertRaisesRegex(ValueError, "^/m/s: .*draft_load_config"):
            refusals.check_options("/m/s", config(), object())

    def test_layers_that_quantise_as_they_load_are_named(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        refusals.check_model("/m/s", model)
        model[1].quant_method = types.SimpleNamespace(uses_meta_device=True)
        with self.assertRaisesRegex(ValueError, "^/m/s: layers '1' quantise"):
            refusals.check_model("/m/s", model)


class Versions(unittest.TestCase):
    def check(self, version):
        hooks.check_version("vLLM", version, tables.OLDEST, tables.NEWEST)

    def test_releases_and_builds_of_the_known_numbers_are_known(self):
        for version in ("0.21.0", "0.21.1+cpu", "0.32.0", "0.33.0rc1", "0.33.2"):
            self.check(version)

    def test_another_version_is_refused_unless_it_is_tried(self):
        for version in ("0.20.2", "0.34.0", "1.0.0", "dev"):
            with self.subTest(version), self.assertRaisesRegex(ImportError, f"this is {version}; use one"):
                self.check(version)
        with mock.patch.dict(os.environ, {"GMSFS_UNTESTED": "1"}):
            self.check("0.34.0")


class Hooks(unittest.TestCase):
    def test_rows_are_names_of_vllm_with_known_versions(self):
        rows = tables.HOOKS + tables.WORKER_HOOKS + tables.KV_HOOKS
        self.assertEqual(len(rows), len({hook.target for hook in rows}))
        for hook in rows:
            self.assertTrue(hook.target.startswith("vllm."), hook)
            self.assertLessEqual(hooks.numbers(hook.since), hooks.numbers(tables.NEWEST), hook)

    def test_what_a_process_lacks_is_named(self):
        for name, arguments, lacks in (
            ("json.dumps", ("obj", "indent"), None),
            ("json.decoder.JSONDecoder", (), None),
            ("json.decoder.JSONDecoder.decode", ("self", "s"), None),
            ("json.dumps", ("obj", "other"), "json.dumps has no argument other"),
            ("json.absent", ("obj",), "json.absent is not there"),
            ("json.decoder.JSONDecoder.absent", (), "JSONDecoder.absent is not there"),
            ("absent_package.name", (), "absent_package.name is not there"),
            ("sys.version", ("self",), "sys.version has no arguments that can be seen"),
        ):
            row = [hooks.Hook(name, arguments)]
            with self.subTest(name):
                if lacks is None:
                    hooks.check("vLLM", "0.32.0", row)
                else:
                    with self.assertRaisesRegex(ImportError, lacks):
                        hooks.check("vLLM", "0.32.0", row)

    def test_a_lacking_hook_is_told_for_versions_that_should_have_it(self):
        rows = [hooks.Hook("json.dumps", ("obj",)), hooks.Hook("json.absent", since="0.27")]
        hooks.check("vLLM", "0.26.1", rows)
        with self.assertRaisesRegex(ImportError, r"vLLM 0.27.0: .*json.absent.*gmsfs-vllm\(7\) names"):
            hooks.check("vLLM", "0.27.0", rows)


class Register(unittest.TestCase):
    """Over a module that has vLLM's name."""

    def told(self, version, lookup=None):
        vllm = types.ModuleType("vllm")
        vllm.__version__ = version
        if lookup is not None:
            vllm.__getattr__ = lookup
        with mock.patch.dict(sys.modules, vllm=vllm), self.assertLogs("vllm.gmsfs", "WARNING") as told:
            register()
        (line,) = told.output
        return line

    def test_an_unknown_vllm_starts_without_the_format_and_the_log_says_the_way_out(self):
        line = self.told("0.34.0")
        self.assertIn("vLLM starts without the load format gmsfs", line)
        self.assertRegex(line, "this is 0.34.0; use one of .*GMSFS_UNTESTED=1")

    def test_a_vllm_without_a_name_starts_without_the_format_and_the_log_names_it(self):
        self.assertRegex(self.told("0.32.0"), "vllm.model_executor.*another load format")

    def test_a_vllm_that_cannot_be_imported_starts_without_the_format_and_the_log_says_why(self):
        def fail(name):
            raise OSError("libcudart.so.13: cannot open shared object file")

        self.assertIn("libcudart.so.13", self.told("0.32.0", fail))
