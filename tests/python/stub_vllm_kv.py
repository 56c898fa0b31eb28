# SPDX-License-Identifier: Apache-2.0
"""A stub of vLLM around its KV connector: the names that gmsfs.vllm.kv needs, as in vLLM 0.32, and an engine
with blocks but without a model: a token's entry in the cache is computed from all tokens up to it.

tests/python/test_contract.py compares these names with vLLM itself.
"""

import abc
import contextlib
import dataclasses
import hashlib
import importlib
import sys
import types
from typing import Optional
from unittest import mock

import torch

BLOCK = 4  # tokens
SHAPES = {"model.0": (2, BLOCK, 8), "model.1": (2, BLOCK, 8)}  # of one block of a layer: heads, tokens, bytes


class Metadata(abc.ABC):
    pass


class Connector(abc.ABC):
    def __init__(self, vllm_config, role, kv_cache_config):
        self._connector_metadata = None
        self._vllm_config = vllm_config
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._kv_cache_config = kv_cache_config

    @property
    def requires_kv_delivery(self):
        return True

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata

    def register_kv_caches(self, kv_caches):
        pass

    def get_handshake_metadata(self):
        pass

    @abc.abstractmethod
    def start_load_kv(self, forward_context, **kwargs):
        pass

    @abc.abstractmethod
    def wait_for_layer_load(self, layer_name):
        pass

    @abc.abstractmethod
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    @abc.abstractmethod
    def wait_for_save(self):
        pass

    def get_block_ids_with_load_errors(self):
        return set()

    def shutdown(self):
        pass

    def set_xfer_handshake_metadata(self, metadata):
        pass

    def set_xfer_handshake_metadata_pp_aware(self, metadata):
        self.set_xfer_handshake_metadata({rank: found for (_, rank), found in metadata.items()})

    @abc.abstractmethod
    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        pass

    @abc.abstractmethod
    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        pass

    @abc.abstractmethod
    def build_connector_meta(self, scheduler_output):
        pass

    def update_connector_output(self, connector_output):
        pass

    def request_finished(self, request, block_ids):
        return False, None

    def reset_cache(self):
        return None

    def has_pending_push_work(self):
        return False


class FullAttentionSpec:
    pass


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec:
    pass


@dataclasses.dataclass
class UniformTypeKVCacheSpecs:
    kv_cache_specs: dict


@dataclasses.dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_groups: list
    hash_block_size: Optional[int] = None


class ModelConfig:
    model = "small"

    def compute_hash(self):
        return "0123"


@dataclasses.dataclass
class KVCacheBlocks:
    ids: list

    def get_block_ids(self):
        return (list(self.ids),)


class Request:
    def __init__(self, request_id, tokens, block_hasher=None):
        self.request_id = request_id
        self.tokens = list(tokens)
        self.num_computed_tokens = 0
        self.block_hasher = block_hasher

    @property
    def num_tokens(self):
        return len(self.tokens)

    @property
    def block_hashes(self):
        return [self.block_hasher(self.tokens[:end]) for end in range(BLOCK, len(self.tokens) + 1, BLOCK)]


BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
MODULES = {
    "vllm": {"__version__": "0.32.0"},
    BASE: {
        "KVConnectorBase_V1": Connector,
        "KVConnectorMetadata": Metadata,
        "KVConnectorHandshakeMetadata": Metadata,
    },
    "vllm.v1.kv_cache_interface": {
        one.__name__: one
        for one in (KVCacheConfig, FullAttentionSpec, MLAAttentionSpec, UniformTypeKVCacheSpecs)
    },
    "vllm.config.model": {"ModelConfig": ModelConfig},
    "vllm.v1.core.kv_cache_manager": {"KVCacheBlocks": KVCacheBlocks},
    "vllm.v1.request": {"Request": Request},
    "gmsfs.vllm.loader": {
        "fingerprint": lambda vllm_config, model_config: {
            "model": model_config.model, **({"rank": vllm_config.rank} if vllm_config.rank else {})
        }
    },
}


@contextlib.contextmanager
def connector_class(version="0.32.0"):
    """gmsfs.vllm.kv.KVConnector over this vLLM."""
    made = {}
    for name, contents in MODULES.items():
        words = name.split(".")
        for count in range(1, len(words) + 1):
            one = ".".join(words[:count])
            if one != "gmsfs" and one != "gmsfs.vllm":
                made.setdefault(one, types.ModuleType(one)).__path__ = []
        vars(made[name]).update(contents)
    made["vllm"].__version__ = version
    for name, module in made.items():
        parent, _, leaf = name.rpartition(".")
        if parent in made:
            setattr(made[parent], leaf, module)
    with mock.patch.dict(sys.modules, made):
        sys.modules.pop("gmsfs.vllm.kv", None)
        yield importlib.import_module("gmsfs.vllm.kv").KVConnector


def config(path, nbytes=1 << 20, rank="", **changes):
    """vLLM's, with `changes` to any part by name."""
    parts = {
        "kv_transfer_config": types.SimpleNamespace(
            kv_connector_extra_config={"store": path, "bytes": nbytes},
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
        ),
        "parallel_config": types.SimpleNamespace(
            world_size=1, pipeline_parallel_size=1, data_parallel_size=1, decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        "cache_config": types.SimpleNamespace(prefix_caching_hash_algo="sha256", cache_dtype="auto"),
        "model_config": ModelConfig(),
        "lora_config": None,
        "weight_transfer_config": None,
        "rank": rank,
    }
    for name, value in changes.items():
        owner, _, leaf = name.partition("__")
        if leaf:
            setattr(parts[owner], leaf, value)
        else:
            parts[owner] = value
    return types.SimpleNamespace(**parts)


def entries(tokens):
    """Returns each layer's cache entries for a sequence, a row for each token."""
    made = torch.empty(len(SHAPES), len(tokens), 16, dtype=torch.uint8)
    seen = hashlib.sha256()
    for at, token in enumerate(tokens):
        seen.update(str(token).encode())
        for layer in range(len(SHAPES)):
            made[layer, at] = torch.tensor(list(hashlib.md5(seen.digest() + bytes([layer])).digest()))
    return made


def hash_of(tokens):
    return hashlib.sha256(str(tokens).encode()).digest()


class Engine:
    """One scheduler and workers with a pool each, in one process."""

    def __init__(
        self, connector, configs, device="cpu", blocks=32, spec=FullAttentionSpec, shakes_hands=True
    ):
        caches = KVCacheConfig(blocks, [types.SimpleNamespace(kv_cache_spec=spec())], BLOCK)
        self.pools, self.workers = [], []
        self.scheduler = connector(configs[0], "scheduler", caches)
        for one in configs:
            # As vLLM lays them out: tokens before heads in memory, heads before tokens in the index.
            pool = {
                name: torch.zeros(blocks, shape[1], shape[0], shape[2], dtype=torch.uint8, device=device)
                .transpose(1, 2) for name, shape in SHAPES.items()
            }
            worker = connector(one, "worker", caches)
            worker.register_kv_caches(pool)
            self.pools.append(pool)
            self.workers.append(worker)
        if shakes_hands:
            self.shake_hands()
        self.free = list(range(1, blocks))
        self.count = 0

    def shake_hands(self):
        """As the engine starts, and in vLLM 0.33 after each wake_up() as well."""
        self.scheduler.set_xfer_handshake_metadata_pp_aware(
            {(0, rank): worker.get_handshake_metadata() for rank, worker in enumerate(self.workers)}
        )

    def generate(self, tokens, more=0, chunk=6):
        """Computes a request in steps of `chunk` tokens, then `more` tokens one by one, and checks the
        pools' content. Returns the number of tokens that came from the tier."""
        self.count += 1
        request = Request(f"request {self.count}", tokens, hash_of)
        blocks = [self.free.pop() for _ in range(-(-len(tokens) // BLOCK))]
        cached, later = self.scheduler.get_num_new_matched_tokens(request, 0)
        assert not later
        self.scheduler.update_state_after_alloc(request, KVCacheBlocks(blocks), cached)
        request.num_computed_tokens = hits = cached
        added = []
        while request.num_computed_tokens < len(tokens) + more:
            if request.num_computed_tokens >= request.num_tokens:
                request.tokens.append(len(request.tokens))
                if len(request.tokens) > len(blocks) * BLOCK:
                    added = [self.free.pop()]
                    blocks += added
            scheduled = min(chunk, request.num_tokens - request.num_computed_tokens)
            failed = self.step(request, blocks, added, scheduled)
            added = []
            if failed:
                hits = request.num_computed_tokens = min(blocks.index(one) for one in failed) * BLOCK
                self.scheduler.update_connector_output(types.SimpleNamespace(invalid_block_ids=failed))
            else:
                request.num_computed_tokens += scheduled
        for pool in self.pools:
            self.check(pool, request, blocks)
        self.scheduler.request_finished(request, blocks)
        self.free += blocks
        return hits

    def idle(self):
        """The loop of an engine without requests: steps that compute nothing, while the connector asks."""
        for _ in range(3):
            if not self.scheduler.has_pending_push_work():
                return
            orders = self.orders({}, [], [])
            for worker in self.workers:
                worker._connector_metadata = orders
                worker.start_load_kv(None)
                worker.wait_for_save()
                worker._connector_metadata = None
        raise AssertionError("the connector keeps an idle engine busy")

    def orders(self, scheduled, names, blocks):
        again = types.SimpleNamespace(req_ids=names, new_block_ids=blocks, resumed_req_ids=set())
        return self.scheduler.build_connector_meta(
            types.SimpleNamespace(num_scheduled_tokens=scheduled, scheduled_cached_reqs=again)
        )

    def step(self, request, blocks, added, scheduled):
        name = request.request_id
        orders = self.orders({name: scheduled}, [name], [(added,) if added else None])
        failed = set()
        begin = request.num_computed_tokens
        values = entries(request.tokens)
        for worker, pool in zip(self.workers, self.pools):
            worker._connector_metadata = orders
            worker.start_load_kv(None)
            for layer, cache in enumerate(pool.values()):
                for at in range(begin, begin + scheduled):
                    cache[blocks[at // BLOCK], :, at % BLOCK] = values[layer, at].view(2, 8).to(cache.device)
            worker.wait_for_save()
            failed |= worker.get_block_ids_with_load_errors()
            worker._connector_metadata = None
        return failed

    def check(self, pool, request, blocks):
        values = entries(request.tokens)
        for layer, cache in enumerate(pool.values()):
            for at in range(request.num_computed_tokens):
                found = cache[blocks[at // BLOCK], :, at % BLOCK].flatten().cpu()
                assert torch.equal(found, values[layer, at]), (layer, at)

    def close(self):
        for worker in self.workers:
            worker.shutdown()
