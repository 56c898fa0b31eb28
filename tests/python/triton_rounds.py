# SPDX-License-Identifier: Apache-2.0
"""Register a region, infer on it, unregister it, over and over, and see that nothing stays.

    triton_rounds.py HTTP_ADDRESS KEY ROUNDS PID...

KEY is an object in /dev/shm of at least 128 bytes; PIDs are processes that must have as many descriptors
afterwards as after the first ten rounds. For tests/68-triton.bats and tests/soak."""

import json
import os
import sys
import time

os.environ.setdefault("GMSFS_TEST_HTTP", "")
os.environ.setdefault("GMSFS_TEST_GRPC", "")

from triton_raw import Http, register  # noqa: E402

PLACE = {"shared_memory_region": "r", "shared_memory_byte_size": 64}
INFER = json.dumps({
    "inputs": [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "parameters": PLACE}
               for i in range(2)],
    "outputs": [{"name": "OUTPUT0", "parameters": dict(PLACE, shared_memory_offset=64)}],
}).encode()
PATIENCE_S = 10


def go(http, key, rounds):
    for at in range(rounds):
        for answer in (register(http, "r", key, 128),
                       http.ask("POST", "/v2/models/simple/infer", INFER),
                       http.ask("POST", "/v2/systemsharedmemory/region/r/unregister", b"")):
            if answer[0] != 200:
                sys.exit(f"round {at}: {answer}")


def count(pids):
    return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]


def main(address, key, rounds, *pids):
    with Http(address) as http:
        go(http, key, 10)
        before = count(pids)
        go(http, key, int(rounds))
        end = time.monotonic() + PATIENCE_S
        # Fewer is no error: descriptors of the first rounds may be closed only after the first count.
        while any(now > then for now, then in zip(count(pids), before)):
            if time.monotonic() > end:
                sys.exit(f"descriptors of {pids}: {before} before, {count(pids)} after")
            time.sleep(0.05)
        listed = http.ask("GET", "/v2/systemsharedmemory/status")[2]
        if listed != b"[]":
            sys.exit(f"still there: {listed}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
