#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# Real engines over a mount of host memory, and the content of their releases; `make check-engines` runs this
# file alone. GMSFS_TEST_PYTHON names a Python for each engine, separated by colons, for engines need a Python
# and a torch of their own.
#
# bats file_tags=slow

load helpers
load python

prepare() {
    python_setup
    requires engines
}

patient_tests() { # TIMES FILE MODULE: engines take that many times as long
    HANG=$((HANG * $1))
    python_tests "${@:2}"
}

@test "each name of vLLM and SGLang that a loader needs is in every release that is supported" {
    requires package-index
    python_with pip
    HANG=$((HANG * 8))
    GMSFS_TEST_SOURCES=$BUILD/engine-sources python -m unittest -v test_contract
    assert_match "$output" 'OK'
}

@test "the sleep backend works with the code of each vLLM that has sleep backends" {
    requires package-index
    export GMSFS_TEST_SOURCES=$BUILD/engine-sources
    HANG=$((HANG * 8))
    python_tests test_vllm_stub torch
}

@test "vLLM engines share a store token for token, before and after kill -9" { patient_tests 8 test_vllm vllm; }
@test "vLLM engines share models of several kinds" { patient_tests 8 test_vllm_models vllm; }
@test "vLLM engines of several ranks share a store for each rank, all or none" { patient_tests 8 test_vllm_several_ranks vllm; }
@test "kill -9 of a process of vLLM at any moment leaves a store empty or whole, and Ctrl-C no waiter" { patient_tests 8 test_vllm_kills vllm; }
@test "SGLang engines share a store token for token, sleep, and outlive each other" { patient_tests 8 test_sglang sglang; }
@test "a vLLM engine has the blocks of the KV cache of one that was killed" { patient_tests 8 test_vllm_kv_engines vllm; }
@test "programs that know nothing of gmsfs have the same outputs on files of a store" { requires passthrough; patient_tests 4 test_files_programs transformers; }
@test "ONNX Runtime has the same outputs on files of a store" { patient_tests 4 test_files_programs.OnnxRuntime onnxruntime; }
@test "llama.cpp has the same logits from a file of a store, whose memory is counted once" { requires passthrough; patient_tests 4 test_files_programs.LlamaCpp llama; }
@test "vLLM's own loader gives the same tokens from files of a store" { patient_tests 8 test_files_vllm vllm; }

@test "a model comes from the S3 that moto serves, whatever the names of its keys" {
    python_with moto
    mkdir -p "$T/model/a/b"
    head -c 3000001 /dev/urandom >"$T/model/w.bin"
    echo '{}' >"$T/model/a/con fig+1~.json"
    head -c 200 /dev/urandom >"$T/model/a/b/é%41?.txt"
    spawn "$PYTHON" "$ROOT/tests/tools/moto_s3.py" "$T/model" "$T/address"
    wait_until 60 test -s "$T/address"
    start_mount
    AWS_ENDPOINT_URL=$(<"$T/address") AWS_ACCESS_KEY_ID=moto AWS_SECRET_ACCESS_KEY=moto AWS_REGION=us-east-1 \
        cli load -q --files "$M/weights" 's3://models/a b+c~d'
    diff -r "$T/model" "$M/weights/files"
}
