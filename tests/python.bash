# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what it sets is for tests; output is set by bats' run
#
# For bats files that run the unittest files of tests/python over a mount.

python_setup() {
    export PYTHONPATH=$ROOT/python:$ROOT/tests/python PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1
    export GMSFS_LIBRARY=$BUILD/libgmsfs.so.0 GMSFS
}

# python_with MODULE: sets PYTHON to an interpreter that has it. GMSFS_TEST_PYTHON may name several,
# with colons between them. Debian's packages belong to Debian's python3, which need not be the
# first in PATH. The module is not imported: engines import for a minute.
python_with() {
    for PYTHON in ${GMSFS_TEST_PYTHON//:/ } python3 /usr/bin/python3; do
        "$PYTHON" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$1'))" 2>/dev/null &&
            return
    done
    PYTHON=''
    requires "python3-$1"
}

# A sanitized library needs its runtime before all others; Python itself frees little at its end.
# Sets PRELOAD to the words before a command that loads one.
python_preload() {
    PRELOAD=()
    [[ -z ${SANITIZE-} ]] ||
        PRELOAD=(env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
            ASAN_OPTIONS="${ASAN_OPTIONS-}:detect_leaks=0")
}

python() { # ARGUMENT...
    python_preload
    run_logged -0 timeout -k 5 $((80 * HANG)) "${PRELOAD[@]}" "$PYTHON" "$@"
}

python_tests() { # FILE [MODULE]: all its tests pass
    python_with "${2:-numpy}"
    start_mount "${3-}"
    GMSFS_TEST_MOUNT=$M python -m unittest -v "$1"
    assert_match "$output" 'OK'
}

# ---- programs that stand in for engines; they need curl, python_with and python_preload -----------

begin_engine() { # STORE [PORT]: in the background, SPAWNED; it listens once it has its store
    rm -f "$T/port-$1"
    spawn "${PRELOAD[@]}" "$PYTHON" "$ROOT/tests/tools/engine.py" "$M/$1" "$T/port-$1" "${@:2}"
}

engine() { # STORE [PORT]: PORT
    begin_engine "$@"
    wait_until 20 test -s "$T/port-$1"
    PORT=$(cat "$T/port-$1")
}

asked() { # PORT: the engine's mapped bytes, as soon as it is awake
    curl -sf --retry 20 --retry-delay 1 "http://localhost:$1/sum"
}
