# SPDX-License-Identifier: Apache-2.0
"""gmsfs pull beside curl into memory, with as many connections; called by bench/run.

    pull.py GMSFS MOUNT STORE OTHER FOLDER

A local nginx serves MOUNT; STORE is pulled into OTHER, both host memory. FOLDER is in memory, for
nginx and the bytes of curl.
"""

import os
import pathlib
import subprocess
import sys
import time

from load_http import serve

ROUNDS = 3
LIMIT = 1 / 0.9  # of the time: 0.9 of curl's rate


def measure(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main():
    gmsfs, mount, store, other = sys.argv[1:5]
    folder = pathlib.Path(sys.argv[5])
    lines = pathlib.Path(mount, store, "pieces").read_text().splitlines()
    contents = lines[1].split()[1]
    sizes = [int(line.split()[2]) for line in lines if line.startswith("allocation ")]
    port = 20000 + os.getpid() % 10000
    base = f"http://127.0.0.1:{port}/{store}"
    server = serve(mount, folder, port)
    try:
        for count in (1, 4, 8):

            def curl():
                outs, clients = [], []
                for first in range(count):  # each its allocations, one after the other
                    words = ["curl", "-sSf"]
                    for rank in range(first, len(sizes), count):
                        outs.append(folder / f"out-{rank}")
                        words += ["-o", str(outs[-1]), f"{base}/by-id/{contents}/allocations/{rank}"]
                    clients.append(subprocess.Popen(words))
                if any([client.wait() for client in clients]):
                    sys.exit("bench/run: curl failed")
                for out in outs:
                    out.unlink()

            def pull():
                os.rmdir(pathlib.Path(mount, other)) if pathlib.Path(mount, other).exists() else None
                words = [gmsfs, "pull", "-q", "--threads", str(count), f"{mount}/{other}", base]
                subprocess.run(words, check=True)

            times = [], []
            for _ in range(ROUNDS):  # in turns, so that other load of the machine meets both
                times[0].append(measure(pull))
                times[1].append(measure(curl))
            ours, floor, size = min(times[0]), min(times[1]), sum(sizes)
            label = f"pull with sums, {count} connections, and curl to memory"
            rates = [f"{size / seconds / 1e9:.2f} GB/s" for seconds in (ours, floor)]
            verdict = "ok" if ours / floor <= LIMIT else "MISSED"
            limit = f"<= {LIMIT:.2f}"
            row = f"{label:<58} {rates[0]:>10} {rates[1]:>10} {ours / floor:8.2f} {limit:>8}  {verdict}"
            print(row, flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
