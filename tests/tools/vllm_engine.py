# SPDX-License-Identifier: Apache-2.0
"""vllm_engine.py MODEL STORE|- [stay]: generates greedily by vLLM on the processor, with weights in STORE,
or by vLLM's own loader (-). Prints the tokens as one line of JSON behind TOKENS; with `stay` it waits for
its end then."""

import json
import os
import sys

PROMPTS = ["Hello, world", "gmsfs", "3 a.m."]

if __name__ == "__main__":
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1")
    from vllm import LLM, SamplingParams

    model, store = sys.argv[1:3]
    options = {}
    if store != "-":
        options = {"load_format": "gmsfs", "model_loader_extra_config": {"store": store}}
    engine = LLM(model, enforce_eager=True, max_model_len=128, max_num_seqs=4, dtype="bfloat16", **options)
    found = engine.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    print("TOKENS", json.dumps([list(one.outputs[0].token_ids) for one in found]), flush=True)
    if "stay" in sys.argv[3:]:
        sys.stdin.read()
