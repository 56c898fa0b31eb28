# SPDX-License-Identifier: Apache-2.0
"""vllm_engine.py MODEL STORE|- [long] [stay] [kv=STORE]: generates greedily by vLLM on the processor, with
weights in STORE, or by vLLM's own loader (-). Prints the tokens as one line of JSON behind TOKENS, and before
them how many tokens of each prompt were not computed, behind CACHED. long: prompts of two blocks and more.
kv: blocks of the KV cache go to that store. With `stay` it waits for its end then."""

import json
import os
import sys

PROMPTS = ["Hello, world", "gmsfs", "3 a.m."]
LONG = [text + " and then" for text in ("A quick fox jumps. " * 4, "quick foxes jump! " * 4, "0" * 70)]
BLOCK_TOKENS = 32


def kv_transfer(store):
    """The option of vLLM by which blocks of the KV cache go to a store."""
    return {
        "kv_connector": "KVConnector",
        "kv_connector_module_path": "gmsfs.vllm.kv",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {"store": store, "bytes": 16 << 20},
    }


if __name__ == "__main__":
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    from vllm import LLM, SamplingParams

    model, store, *rest = sys.argv[1:]
    words = dict(word.partition("=")[::2] for word in rest)
    # By 32 bits: with 16 a token can differ where a prompt is computed in parts.
    options = {"block_size": BLOCK_TOKENS, "dtype": "float32"} if "long" in words else {"dtype": "bfloat16"}
    if store != "-":
        options.update(load_format="gmsfs", model_loader_extra_config={"store": store})
    if "kv" in words:
        options["kv_transfer_config"] = kv_transfer(words["kv"])
    engine = LLM(model, enforce_eager=True, max_model_len=128, max_num_seqs=4, **options)
    prompts = LONG if "long" in words else PROMPTS
    found = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    print("CACHED", json.dumps([one.num_cached_tokens for one in found]), flush=True)
    print("TOKENS", json.dumps([list(one.outputs[0].token_ids) for one in found]), flush=True)
    if "stay" in words:
        sys.stdin.read()
