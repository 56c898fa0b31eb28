# SPDX-License-Identifier: Apache-2.0
"""Every name and argument of an engine that this package uses exists in the engine's releases, up to the
newest. Needs the package index; sources that an earlier run saved in GMSFS_TEST_SOURCES are not fetched."""

import os
import unittest

from gmsfs import sglang
from gmsfs.hooks import numbers, wanted
from gmsfs.vllm import hooks as vllm
from sources import Missing, Release, newest

SOURCES = os.environ["GMSFS_TEST_SOURCES"]
CONTRACTS = (
    ("sglang", ("0.5.17", "0.5.20", "0.5.22", "0.5.23"), sglang.PLUGIN_HOOKS + sglang.LOADER_HOOKS),
    ("vllm", ("0.21.0", "0.27.1", "0.32.0", "0.33.0"), vllm.HOOKS + vllm.WORKER_HOOKS),
    ("vllm", ("0.32.0", "0.33.0"), vllm.KV_HOOKS),
)
# Of vLLM's dataclasses, which a process cannot look up in the class: the fields that the package reads.
LOADER_FIELDS = {
    "vllm.config.load.LoadConfig": "device load_format model_loader_extra_config",
    "vllm.config.model.ModelConfig": "dtype model quantization revision",
    "vllm.config.parallel.ParallelConfig": "data_parallel_size enable_eplb enable_expert_parallel "
    "pipeline_parallel_size rank tensor_parallel_size world_size",
    "vllm.config.vllm.VllmConfig": "device_config model_config parallel_config weight_transfer_config",
}
KV_FIELDS = {
    "vllm.config.cache.CacheConfig": "cache_dtype prefix_caching_hash_algo",
    "vllm.config.kv_transfer.KVTransferConfig": "kv_connector_extra_config kv_load_failure_policy kv_role",
    "vllm.config.parallel.ParallelConfig": "decode_context_parallel_size prefill_context_parallel_size",
    "vllm.config.vllm.VllmConfig": "cache_config kv_transfer_config lora_config",
    "vllm.v1.core.sched.output.CachedRequestData": "new_block_ids req_ids resumed_req_ids",
    "vllm.v1.core.sched.output.SchedulerOutput": "num_scheduled_tokens scheduled_cached_reqs",
    "vllm.v1.kv_cache_interface.KVCacheConfig": "kv_cache_groups num_blocks",
    "vllm.v1.kv_cache_interface.KVCacheGroupSpec": "kv_cache_spec",
    "vllm.v1.kv_cache_interface.UniformTypeKVCacheSpecs": "kv_cache_specs",
    "vllm.v1.outputs.KVConnectorOutput": "invalid_block_ids",
}


class Contract(unittest.TestCase):
    def test_every_release_has_every_hook(self):
        for name, versions, hooks in CONTRACTS:
            for version in versions:
                release = Release(SOURCES, name, version)
                for hook in wanted(hooks, version):
                    with self.subTest(engine=name, version=version, hook=hook.target):
                        release.check(hook.target, hook.arguments)

    def test_every_release_has_every_field(self):
        fields = ((CONTRACTS[1][1], LOADER_FIELDS), (CONTRACTS[2][1], KV_FIELDS))
        for versions, owners in fields:
            for version in versions:
                release = Release(SOURCES, "vllm", version)
                for owner, names in owners.items():
                    for name in names.split():
                        with self.subTest(version=version, field=f"{owner}.{name}"):
                            release.check(f"{owner}.{name}", ())

    def test_the_newest_release_of_the_index_is_the_newest_one_here(self):
        for name, versions, _ in CONTRACTS[:2]:
            with self.subTest(name):
                self.assertEqual(newest(name), versions[-1], "hold its hooks, and raise NEWEST")

    def test_a_name_and_an_argument_that_are_not_there_are_found(self):
        release = Release(SOURCES, "sglang", "0.5.23")
        loader = "sglang.srt.model_loader.loader.DefaultModelLoader"
        release.check(f"{loader}.download_model", ("self", "model_config"))
        for target, arguments, words in (
            (f"{loader}.load_all", (), "has no load_all"),
            (f"{loader}.download_model", ("where",), "has no argument where"),
            ("sglang.srt.no_module.Loader", (), "sglang.srt.no_module.Loader: sglang has no srt"),
            (loader, ("self",), "is no function"),
        ):
            with self.assertRaisesRegex(Missing, words):
                release.check(target, arguments)

    def test_the_versions_that_are_held_are_the_ends_of_those_that_are_supported(self):
        ends = ((sglang.OLDEST, sglang.NEWEST), (vllm.OLDEST, vllm.NEWEST), (vllm.KV, vllm.NEWEST))
        for (_, versions, _), of in zip(CONTRACTS, ends):
            for version, end in zip((versions[0], versions[-1]), of):
                self.assertEqual(numbers(version)[: len(numbers(end))], numbers(end))
