#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
#
# bench/run on the fake driver: a bench of a GPU comes to its rows. The rows are not judged here.
#
# bats file_tags=slow

load helpers

@test "the bench of slabs measures the slabs that the library makes" {
    requires fuse
    fake_gpus 'devices 1' 'memory 32768'
    mkdir -p "$T/bench"
    O=$BUILD TMPDIR=$T/bench run_logged "$ROOT/bench/run" gpu_slabs
    [[ $output == *'attach 3435 mappings / '* && $output == *'wake 3435 mappings / '* ]]
    [[ $output =~ [0-9]+\ ok,\ [0-9]+\ missed$ ]]
}

@test "the bench of copies comes to its rows, in a chain of three too" {
    requires fuse
    fake_gpus 'devices 3' 'memory 256'
    mkdir -p "$T/bench"
    O=$BUILD TMPDIR=$T/bench COPY='3 4194304' run_logged "$ROOT/bench/run" gpu_copy
    [[ $output == *'from GPU to GPU / cuMemcpyPeer'* && $output == *'to 2 GPUs in a chain'* ]]
    [[ $output == *'from host memory to GPU'* && $output == *'from GPU to host memory'* ]]
    [[ $output =~ [0-9]+\ ok,\ [0-9]+\ missed$ ]]
}
