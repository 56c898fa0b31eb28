#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines that find their weights in a store: rows of the table of bench/run.

    engines.py vllm STORE         a Llama of 548 MiB, vLLM on the processor: Python needs vllm
    engines.py successor STORE    a small Llama: Python needs transformers

vllm: from vLLM's imports to weights in place: the store opened and the model's parameters put over it,
against the time of vLLM's own loader to read them from files in the page cache. The other work of both
loaders, making the model and packing weights for the processor, is printed below.
successor: from the death of an engine to the first token of the next. The floor is a process that makes the
model with memory of its own and reads no weights at all. The limit is of the difference. The processes are
forks of this one, so their start and imports are in neither.
shadow: the next engine has started before, and sleeps. The floor is a token of an engine that is awake.
Processor time is told beside, for machines with other work.
"""
import importlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback

import gpu_python

ROUNDS = 11
VLLM_ROUNDS = 3
LOAD_LIMIT_MS = 50.0
TOKEN_LIMIT_MS = 100.0
VLLM_MODULES = (
    "vllm.entrypoints.llm",
    "vllm.model_executor.models.llama",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.worker.cpu_worker",
)
LLAMA = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 14,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32768,
}


children = []  # that run


def fork(call, *arguments):
    """A child that runs call(tell, *arguments): (its id, the file that has a line for each tell(value))."""
    out, into = os.pipe()
    child = os.fork()
    if child:
        children.append(child)
        os.close(into)
        return child, os.fdopen(out, encoding="ascii")
    try:
        os.close(out)
        os.dup2(2, 1)  # the table is this process's
        call(lambda value: os.write(into, json.dumps(value).encode() + b"\n"), *arguments)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def hear(lines):
    line = lines.readline()
    if not line:
        sys.exit("engines.py: an engine has ended; its messages are above")
    return json.loads(line)


def end(child):
    os.kill(child, signal.SIGKILL)
    now = time.monotonic()
    os.waitpid(child, 0)
    children.remove(child)
    return now


def kill(child, lines):
    now = end(child)
    lines.close()
    return now


def ask(call, *arguments):
    """Returns the first message of a child."""
    child, lines = fork(call, *arguments)
    told = hear(lines)
    kill(child, lines)
    return told


def save_llama(tell, directory):
    import torch
    import transformers

    config = transformers.LlamaConfig(**LLAMA, max_position_embeddings=128)
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu").save_pretrained(directory)
    tell(True)


# ---- vLLM --------------------------------------------------------------------------------------


def add_time(times, name, owner, function, then=None):
    real = getattr(owner, function)

    def timed(*arguments, **options):
        wall, cpu = time.perf_counter(), time.process_time()
        found = real(*arguments, **options)
        times[name] = times.get(name, 0) + time.perf_counter() - wall
        times[name + " cpu"] = times.get(name + " cpu", 0) + time.process_time() - cpu
        if then is not None:
            then(times)
        return found

    setattr(owner, function, timed)


def start_vllm(tell, directory, store):
    """Tells the seconds for the weights, and for the loader as a whole, and stops there."""
    import gmsfs.vllm
    from vllm import LLM
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    gmsfs.vllm.register()
    from gmsfs.vllm import loader, ranks

    def stop(times):
        tell(times)
        signal.pause()

    times, options = {}, {}
    if store:
        options = {"load_format": "gmsfs", "model_loader_extra_config": {"store": store}}
        for function in ("__init__", "attach", "publish"):
            add_time(times, "weights", ranks.Alone, function)
        add_time(times, "loader", loader.Loader, "load_model", stop)
    else:
        add_time(times, "weights", DefaultModelLoader, "load_weights")
        add_time(times, "loader", BaseModelLoader, "load_model", stop)
    sizes = {"max_model_len": 128, "max_num_seqs": 4, "kv_cache_memory_bytes": 64 << 20}
    LLM(directory, dtype="bfloat16", enforce_eager=True, skip_tokenizer_init=True, **sizes, **options)


def bench_vllm(store):
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR")
    with tempfile.TemporaryDirectory(prefix="gmsfs-bench-llama") as directory:
        ask(save_llama, directory)
        for module in VLLM_MODULES:
            importlib.import_module(module)
        ask(start_vllm, directory, store)  # publishes
        rounds = [[ask(start_vllm, directory, which) for which in ("", store)] for _ in range(VLLM_ROUNDS)]
    floor, ours = (
        {name: 1e3 * statistics.median(times[name] for times in side) for name in side[0]}
        for side in zip(*rounds)
    )
    gpu_python.print_row(
        "engines: vLLM, 548 MiB, imports to weights in place",
        ours["weights"],
        floor["weights"],
        f"<={LOAD_LIMIT_MS:.0f}ms",
        ours["weights"] <= LOAD_LIMIT_MS,
    )
    print(
        f"  processor time: {ours['weights cpu']:.0f} ms, vLLM's own loader {floor['weights cpu']:.0f} ms; "
        f"the loader as a whole: {ours['loader']:.0f} ms, vLLM's own {floor['loader']:.0f} ms",
        flush=True,
    )


# ---- an engine of transformers -----------------------------------------------------------------


def serve(tell, directory, store):
    import small_model

    model, _ = small_model.load(directory, store)
    small_model.generate(model, 1)
    tell([time.monotonic(), time.process_time()])
    signal.pause()


def serve_without(tell, directory):
    """A model of the same shape, in memory that nothing was read into."""
    import small_model
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(directory))
    small_model.generate(model.to_empty(device="cpu").eval(), 1)
    tell([time.monotonic(), time.process_time()])
    signal.pause()


def sleep_and_serve(tell, directory, store, orders):
    import small_model

    model, _ = small_model.load(directory, store)
    small_model.generate(model, 1)
    wall, cpu = time.monotonic(), time.process_time()
    small_model.generate(model, 1)
    tell([time.monotonic() - wall, time.process_time() - cpu])
    model.gmsfs.sleep()
    tell(True)
    os.read(orders, 1)
    cpu = time.process_time()
    model.gmsfs.wake(timeout=60)
    small_model.generate(model, 1)
    tell([time.monotonic(), time.process_time() - cpu])
    signal.pause()


def succeed(directory, store):
    """Seconds, and of processor time, from an engine's death to the next one's first token, and the same of
    the floor."""
    engine = fork(serve, directory, store)
    hear(engine[1])
    killed = kill(*engine)
    token, cpu = ask(serve, directory, store)
    start = time.monotonic()
    floor, floor_cpu = ask(serve_without, directory)
    return token - killed, cpu, floor - start, floor_cpu


def wake_shadow(directory, store):
    """As succeed(), with a token that the shadow generated before as the floor."""
    engine = fork(serve, directory, store)
    hear(engine[1])
    orders, order = os.pipe()
    shadow = fork(sleep_and_serve, directory, store, orders)
    floor, floor_cpu = hear(shadow[1])
    hear(shadow[1])
    killed = kill(*engine)
    os.write(order, b"1")
    woken, cpu = hear(shadow[1])
    kill(*shadow)
    os.close(orders)
    os.close(order)
    return woken - killed, cpu, floor, floor_cpu


def bench_token(label, measure, directory, store):
    measure(directory, store)  # everything was called once
    rounds = [measure(directory, store) for _ in range(ROUNDS)]
    ours, cpu, floor, floor_cpu = [1e3 * statistics.median(column) for column in zip(*rounds)]
    gpu_python.print_row(
        f"engines: kill -9 to the first token of {label}",
        ours,
        floor,
        f"<=+{TOKEN_LIMIT_MS:.0f}ms",
        ours - floor <= TOKEN_LIMIT_MS,
    )
    print(f"  processor time: {cpu:.1f} ms, floor {floor_cpu:.1f} ms", flush=True)


def bench_successor(store):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../examples"))
    import small_model
    import torch

    torch.set_num_threads(1)  # a fork has no other threads
    with tempfile.TemporaryDirectory(prefix="gmsfs-bench-model") as directory:
        small_model.save(directory)
        bench_token("the next engine", succeed, directory, store)
        bench_token("a shadow", wake_shadow, directory, store)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("vllm", "successor"):
        sys.exit("usage: engines.py vllm|successor STORE")
    try:
        (bench_vllm if sys.argv[1] == "vllm" else bench_successor)(sys.argv[2])
    finally:
        for child in children[:]:
            end(child)
