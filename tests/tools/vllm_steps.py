# SPDX-License-Identifier: Apache-2.0
"""vllm_steps.py MODEL STORE STEP...: engines of vLLM on the processor, one after the other, each in a child
of this process, so that vLLM is imported once. Prints a line for each step: its name and its view, as
JSON."""

import json
import os
import signal
import sys
import threading
import time
import traceback

os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0")
from vllm import LLM, SamplingParams

from vllm_engine import BLOCK_TOKENS, kv_transfer

PROMPTS = ["Hello, world", "gmsfs", "3 a.m."]
MODEL, STORE = sys.argv[1:3]
SMALL = {"enforce_eager": True, "max_model_len": 128, "max_num_seqs": 4, "dtype": "bfloat16"}
LONG = ["A quick fox jumps. " * 4 + "It was " * number for number in range(1, 7)]
WORKER = "gmsfs.vllm.worker.Worker"


def start(store=STORE, extra=None, **options):
    if store:
        options.update(load_format="gmsfs", model_loader_extra_config={"store": store, **(extra or {})})
    return LLM(MODEL, **{**SMALL, **options})


def tokens(engine):
    found = engine.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=12, ignore_eos=True))
    return [list(one.outputs[0].token_ids) for one in found]


def shared():
    from gmsfs.vllm import loader

    (found,) = loader.alive
    return found


def blocks(store=None, lose=False, **options):
    """Long prompts and answers: of each the tokens, and how many of them were not computed. lose: the tier
    is lost before the first load. By 32 bits: with 16 a token can differ where a prompt is computed in
    parts."""
    if store:
        options["kv_transfer_config"] = kv_transfer(store)
    engine = start(None, block_size=BLOCK_TOKENS, max_model_len=256, dtype="float32", **options)
    preempted = []
    scheduler = engine.llm_engine.engine_core.engine_core.scheduler
    preempt = scheduler._preempt_request
    scheduler._preempt_request = lambda *args, **more: preempted.append(1) or preempt(*args, **more)
    if lose:
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        get_kv_transfer_group()._copies._tier.store.close()
    found = engine.generate(LONG, SamplingParams(temperature=0, max_tokens=80, ignore_eos=True))
    return {
        "tokens": [list(one.outputs[0].token_ids) for one in found],
        "cached": [one.num_cached_tokens for one in found],
        "preempted": len(preempted),
    }


def run():
    """The view of a plain start, or of one over the store."""
    engine = start()
    found = shared()
    report = found.report()
    return {"tokens": tokens(engine), "shared": list(report.shared), "left": list(report.left)}


def sleep(level):
    engine = start(worker_cls=WORKER)
    store, expected = shared().store, tokens(engine)
    addresses = {name: one.data_ptr() for name, one in shared()._module().named_parameters()}
    engine.sleep(level)
    seen = {"asleep": [store.asleep, store.mode]}
    engine.wake_up()
    seen["awake"] = [store.asleep, store.mode]
    seen["moved"] = [
        name for name, one in shared()._module().named_parameters() if one.data_ptr() != addresses[name]
    ]
    seen["same"] = tokens(engine) == expected
    return seen


def wake_on_another_commit():
    import gmsfs
    import torch

    engine = start(STORE + "-stale", worker_cls=WORKER)
    engine.sleep(1)
    gmsfs.publish(STORE + "-stale", {"other": torch.ones(3)})
    return error(engine.wake_up)


def error(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception as caught:
        return f"{type(caught).__name__}: {caught}"
    return ""


def reload(worker):
    engine = start(**({"worker_cls": WORKER} if worker else {}))
    expected = tokens(engine)
    said = [error(engine.collective_rpc, "reload_weights")]
    if worker:
        said.append(error(engine.collective_rpc, "reload_weights", kwargs={"weights_iterator": []}))
        said.append(error(engine.collective_rpc, "reset_weights"))
    return {"errors": said, "same": tokens(engine) == expected}


def refused(extra=None, **options):
    return error(start, STORE + "-refused", extra, **options)


def interrupted():
    """Ctrl-C while another engine has the lock."""
    import gmsfs
    from gmsfs.vllm import ranks

    path = STORE + "-busy"
    busy, real, at = gmsfs.open(path, "rw"), ranks.open_weights, []

    def interrupt():
        while not waiters(path):
            time.sleep(0.05)
        at.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def wait(*arguments):
        threading.Thread(target=interrupt).start()
        return real(*arguments)

    ranks.open_weights = wait
    try:
        start(path)
    except KeyboardInterrupt:
        seconds = time.monotonic() - at[0]
    seen = {"seconds": seconds, "waiters": waiters(path)}
    ranks.open_weights = real
    seen["timeout"] = error(start, path, {"timeout": 1})
    seen["waiters after it"] = waiters(path)
    busy.close()
    return seen


def waiters(path):
    with open(path + "/info", encoding="utf-8") as file:
        return json.load(file)["writers_waiting"]


def memory():
    """vLLM's questions before it looks at the memory of a GPU: for a new store, and for an existing one."""
    from gmsfs.vllm import loader
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader

    seen = []
    for path in (STORE + "-none", STORE):
        config = EngineArgs(
            MODEL, load_format="gmsfs", model_loader_extra_config={"store": path}
        ).create_engine_config()
        seen.append(get_model_loader(config.load_config).get_external_weight_memory(config))
        seen.append(loader._early.pop(path).store.mode)
    return seen


STEPS = {
    "plain": lambda: {"tokens": tokens(start(None))},
    "run": run,
    "sleep 1": lambda: sleep(1),
    "sleep 2": lambda: sleep(2),
    "stale": wake_on_another_commit,
    "reload": lambda: reload(False),
    "reload, worker": lambda: reload(True),
    "no store": lambda: error(LLM, MODEL, load_format="gmsfs", enforce_eager=True, max_model_len=128),
    "timeout": lambda: refused({"timeout": "soon"}),
    "unknown key": lambda: refused({"threads": 3}),
    "weight transfer": lambda: refused(weight_transfer_config={"backend": "nccl"}),
    "online quantisation": lambda: refused(quantization="fp8"),
    "interrupted": interrupted,
    "memory": memory,
    "blocks, plain": blocks,
    "blocks": lambda: blocks(STORE, num_gpu_blocks_override=12, max_num_batched_tokens=48),
    "blocks again": lambda: blocks(STORE),
    "blocks lost": lambda: blocks(STORE, lose=True),
}


def do(name):
    """In the child."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"STEP {name}: {json.dumps(STEPS[name]())}", flush=True)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    for step in sys.argv[3:]:
        child = os.fork()
        if not child:
            do(step)
        os.waitpid(child, 0)
