#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# python/gmsfs over a mount of host memory: each test here is a file of tests/python; each test of that file
# has a store of its own.
#
# bats file_tags=slow

load helpers
load python

USE_WHEEL='import sys, gmsfs
gmsfs.publish(sys.argv[1], {"t": b"bytes"})
with gmsfs.open(sys.argv[1]) as store:
    print(bytes(store.views()["t"]), gmsfs.library.get()._name)'

prepare() { python_setup; }

# bats test_tags=quick
@test "Python reads loaded tensors: bytes, types, read-only, and alive as long as they are used" { python_tests test_read; }
# bats test_tags=quick
@test "Python publishes as gmsfs load does, and nothing where anything goes wrong" { python_tests test_publish; }
# bats test_tags=quick
@test "Python publishes the values of an array, also where other arrays share its memory" { python_tests test_values; }
@test "Python waits, sleeps, wakes, forks and ends, and names errors in exceptions" { python_tests test_lock; }
@test "Python waits in an event loop, and a cancelled task leaves no waiter" { python_tests test_waiting ctypes; }
@test "Python is told of a lock that was taken from it, at every use" { python_tests test_lost; }
# bats test_tags=quick
@test "Python takes several stores as one, copies tensors, and sleeps by tag" { python_tests test_together; }
@test "Python hears that a store is drained, from when on and by when" { python_tests test_drain ctypes; }

# bats test_tags=quick
@test "Python sleeps while its store leaves the device, and wakes with the same addresses and bytes" {
    python_tests test_places numpy size=64M,host_size=32M,keep_copy=no
}

# bats test_tags=quick
@test "Python seals a layout, and the next process adopts it" { python_tests test_seal ctypes; }
@test "Python makes no view beyond an allocation, with any metadata" { python_tests test_foreign; }
@test "Python registers, lists, reads and writes regions, and says why where it cannot" { python_tests test_regions ctypes; }

@test "Ctrl-C ends Python's requests for regions of a stopped daemon at once" {
    python_with ctypes
    python_preload
    start_mount
    local worker call
    worker=$(worker_of "$KEEPER")
    for call in 'regions.list()' 'regions.unregister("r")' 'gmsfs.regions.open(mount).get("r")'; do
        spawn "${PRELOAD[@]}" env --default-signal=INT "$PYTHON" -c 'import os, signal, sys, time, gmsfs.regions
mount, ready, call = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)
regions = gmsfs.regions.open(mount)
regions.list()
open(ready, "w").close()
os.kill(os.getpid(), signal.SIGSTOP)
try:
    eval(call)
except KeyboardInterrupt:
    print("interrupted")' "$M" "$T/ready" "$call"
        wait_until 10 test -e "$T/ready"
        wait_until 10 process_stopped "$SPAWNED"
        kill -STOP "$worker"
        kill -CONT "$SPAWNED"
        never_within 1 process_gone "$SPAWNED"
        kill -INT "$SPAWNED"
        wait_exit "$SPAWNED" 5
        kill -CONT "$worker"
        assert_eq "$(output_of "$SPAWNED")" interrupted "output of $call"
        rm "$T/ready"
    done
}

@test "Python's structures are those of the headers" {
    python_with ctypes
    GMSFS_TEST_MOUNT='' python -m unittest -v test_abi
}

@test "all that Python offers says its types" {
    python_with ctypes
    GMSFS_TEST_MOUNT='' python -m unittest -v test_types
}

# bats test_tags=quick
@test "Python opens a store as safetensors opens a file, with slices" { python_tests test_safe; }
@test "a program changes one import of safetensors, and has the tensors of a store" { python_tests test_names torch; }

@test "a wheel brings the library, and needs nothing else that is installed" {
    requires readelf no-sanitizer
    python_with ctypes
    start_mount
    run_logged -0 "$ROOT/scripts/make-wheel" "$BUILD/libgmsfs.so.0" "$T"
    assert_match "$output" 'gmsfs-[0-9.]+-py3-none-manylinux_2_[0-9]+_.*\.whl$'
    local wheel=$output
    run_logged -0 "$PYTHON" -m zipfile -e "$wheel" "$T/site"
    unset GMSFS_LIBRARY
    PYTHONPATH=$T/site python -c "$USE_WHEEL" "$M/weights"
    assert_match "$output" "b'bytes' $T/site/gmsfs/libgmsfs.so.0"
    # the name promises the library's requirement, by the linker's own words
    run_logged -0 objdump -T "$T/site/gmsfs/libgmsfs.so.0"
    local newest
    newest=$(grep -o 'GLIBC_2\.[0-9]*' <<<"$output" | sort -uV | tail -n 1)
    assert_match "$wheel" "manylinux_2_${newest##*.}_"
}

@test "pip installs the wheel in a virtual environment, without an index and with its types" {
    requires readelf no-sanitizer
    python_with venv
    python_with ensurepip
    start_mount
    run_logged -0 "$ROOT/scripts/make-wheel" "$BUILD/libgmsfs.so.0" "$T"
    local wheel=$output
    run_logged -0 "$PYTHON" -m venv "$T/venv"
    run_logged -0 "$T/venv/bin/python" -m pip install --no-index "$wheel"
    unset GMSFS_LIBRARY PYTHONPATH
    PYTHON=$T/venv/bin/python
    cd "$T"
    python -c "$USE_WHEEL" "$M/weights"
    assert_match "$output" "b'bytes' $T/venv/.*/gmsfs/libgmsfs.so.0"
    run_logged -0 "$T/venv/bin/python" -m pip check
    run_logged -0 find "$T/venv" -path '*gmsfs/py.typed'
    assert_match "$output" 'py.typed'
}

@test "torch tensors over host memory are the file's, live as long as they are used, and are published" { python_tests test_torch torch; }
@test "torch modules are published and attached with ties, views, buffers and checks of both sides" { python_tests test_modules torch; }

@test "the load format of vLLM reads its options, refuses by name and names each hook that is not there" {
    python_tests test_vllm_parts torch
}

@test "engines of vLLM's stand-in share a store, sleep by its backend, and refuse a reload" { python_tests test_vllm_stub torch; }

@test "ranks of an engine take and commit their stores together or not at all" {
    SLOW=$((SLOW * 2))
    python_tests test_vllm_ranks torch
}

@test "the KV connector of vLLM keeps blocks for the next engine, also of a killed one" { python_tests test_vllm_kv torch; }
@test "transformers models of two processes share a store and equal a plain load" { python_tests test_transformers transformers; }

@test "engines of SGLang's stand-in share a store by their plug-in, and every hook is checked" {
    python_tests test_sglang_stub.Newest torch
}

@test "engines of an older SGLang's stand-in count their shared memory" { python_tests test_sglang_stub.Oldest torch; }

# bats test_tags=quick
@test "a killed engine's successor has its weights at once, and its shadow wakes into its lock" {
    SLOW=$((SLOW * 3)) # five processes that import for seconds
    python_tests test_recovery transformers
}

# bats test_tags=quick
@test "blocks of a KV cache outlive the engine, and none that was half written is found" { python_tests test_kv torch; }
@test "Python makes a store that is not there, and waits for a commit without a lock" { python_tests test_opening ctypes; }
@test "torch saves, copies, sends and changes a store's tensors one by one, as those of a file" { python_tests test_torch_storages torch; }

@test "Python maps GPU memory on the right device, and hands it on as CUDA libraries ask for it" {
    fake_gpus 'devices 2' 'memory 256'
    python_tests test_gpu numpy device=1
}

@test "Python asks torch for captures, events, workspaces and blocks in the order that they need" {
    python_with ctypes
    GMSFS_TEST_MOUNT='' python -m unittest -v test_graphs_calls
}

@test "Python captures many shapes into the memory of one, and undoes failures" { python_tests test_graphs numpy alloc_timeout=0.2; }
@test "Python's graph pools drop shapes, sleep, wake and take turns" { python_tests test_graphs_turns numpy alloc_timeout=0.2; }

@test "Python's graph pools keep rows and arenas apart from memory that graphs share" {
    python_tests test_graphs_rows numpy alloc_timeout=0.2
}

fake_gpu_for_graphs() {
    fake_gpus 'devices 2' 'memory 256'
    export GMSFS_TEST_ORDINAL=1
}

@test "Python's graph pools capture in the memory of a fake GPU as well" {
    fake_gpu_for_graphs
    python_tests test_graphs numpy device=1,alloc_timeout=0.2
}

@test "Python's graph pools take turns in the memory of a fake GPU as well" {
    fake_gpu_for_graphs
    python_tests test_graphs_turns numpy device=1,alloc_timeout=0.2
}

@test "Python's graph pools keep rows and arenas in the memory of a fake GPU as well" {
    fake_gpu_for_graphs
    python_tests test_graphs_rows numpy device=1,alloc_timeout=0.2
}
