# SPDX-License-Identifier: Apache-2.0
"""An engine is killed, and its successor has the weights in milliseconds, for they never left memory.

    python examples/successor.py MOUNT [DIRECTORY]

MOUNT: a mount of gmsfs, of host memory or of a GPU; the example makes the store `successor` there, if it is
not there, and leaves it: on its second run the first engine attaches as well. DIRECTORY: for the model's
files, /tmp/gmsfs-small-model if it is left out.
"""

import os
import sys

import small_model


def run_engine(directory, store):
    role = "mapped" if small_model.is_committed(store) else "loaded and published"
    model, seconds = small_model.load(directory, store)
    small_model.say("WEIGHTS", f"{role} in {seconds * 1000:.1f} ms")
    small_model.say("TOKENS", small_model.generate(model))
    sys.stdin.read()


def main(mount, directory="/tmp/gmsfs-small-model"):
    small_model.save(directory)
    store = os.path.join(mount, "successor")
    first = small_model.Engine(__file__, "--engine", directory, store)
    print(f"first engine: model made and weights {first.hear('WEIGHTS')}")
    tokens = first.hear("TOKENS")
    first.kill()
    print("first engine: killed by SIGKILL")
    second = small_model.Engine(__file__, "--engine", directory, store)
    print(f"its successor: model made and weights {second.hear('WEIGHTS')}")
    same = second.hear("TOKENS") == tokens
    second.end()
    print("its successor: generates the same tokens" if same else "the tokens differ")
    return 0 if same else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine"]:
        run_engine(*sys.argv[2:])
    elif len(sys.argv) in (2, 3):
        sys.exit(main(*sys.argv[1:]))
    else:
        sys.exit(__doc__)
