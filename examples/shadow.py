# SPDX-License-Identifier: Apache-2.0
"""A shadow engine has started and sleeps: it holds no memory and no lock. The engine that serves is killed,
and the shadow wakes into the lock that the dead one lost, with the blocks of its KV cache.

    python examples/shadow.py MOUNT [DIRECTORY]

MOUNT: a mount of gmsfs, of host memory or of a GPU; the example makes the stores `shadow` (the weights) and
`shadow-kv` (the blocks, which one engine at a time may write) there, if they are not there, and leaves them.
DIRECTORY: for the model's files, /tmp/gmsfs-small-model if it is left out.
"""

import os
import sys
import time

import torch

import gmsfs.kv
import small_model

BLOCK_BYTES = 1 << 16
KEY = b"block 1"


def open_blocks(store):
    """Waits until no other engine has the blocks."""
    return gmsfs.kv.Blocks(store, BLOCK_BYTES, 16, fingerprint={"model": "small"}, timeout=120)


def run_engine(directory, store, role):
    model, _ = small_model.load(directory, store)
    if role == "shadow":
        small_model.generate(model, 1)  # so that nothing is made for the first time later
        model.gmsfs.sleep()
        small_model.say("ASLEEP", role)
    tier = open_blocks(store + "-kv")
    if role == "shadow":
        model.gmsfs.wake(timeout=60)
    small_model.say("FIRST", f"{small_model.generate(model, 1)} {time.monotonic()}")
    if role == "shadow":
        small_model.say("BLOCK", tier.get(KEY) is not None)
    else:
        block = torch.full((BLOCK_BYTES,), 7, dtype=torch.uint8, device=model.device)
        tier.put(KEY, block)
    small_model.say("TOKENS", small_model.generate(model))
    sys.stdin.read()


def main(mount, directory="/tmp/gmsfs-small-model"):
    small_model.save(directory)
    store = os.path.join(mount, "shadow")
    first = small_model.Engine(__file__, "--engine", directory, store, "first")
    tokens = first.hear("TOKENS")
    shadow = small_model.Engine(__file__, "--engine", directory, store, "shadow")
    shadow.hear("ASLEEP")
    print("first engine: serves; its shadow: has started, and sleeps")
    killed = first.kill()
    woken = float(shadow.hear("FIRST").rpartition(" ")[2])
    print(f"first engine: killed; its shadow: first token {(woken - killed) * 1000:.1f} ms later")
    found = shadow.hear("BLOCK") == "True"
    same = shadow.hear("TOKENS") == tokens
    shadow.end()
    print("its shadow: has the dead engine's block" if found else "the block is lost")
    print("its shadow: generates the same tokens" if same else "the tokens differ")
    return 0 if same and found else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        run_engine(*sys.argv[2:])
    elif len(sys.argv) in (2, 3):
        sys.exit(main(*sys.argv[1:]))
    else:
        sys.exit(__doc__)
