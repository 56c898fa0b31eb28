# SPDX-License-Identifier: Apache-2.0
"""A store through gmsfs web, beside a file in memory through the same nginx; called by bench/run.

    web.py --name STORE           has the writer's working copy show its allocation a as files/file
    web.py GMSFS MOUNT STORE FILE

FILE is in memory, alone in its folder; the immutable STORE of MOUNT has the same bytes as files/file.
"""

import getpass
import os
import pathlib
import subprocess
import sys
import time

ROUNDS = 7
LIMIT = 1 / 0.9  # of the time: 0.9 of the other rate


def fetch(url, size, count):
    step = size // count
    ranges = [f"{i * step}-{size - 1 if i == count - 1 else (i + 1) * step - 1}" for i in range(count)]
    clients = [subprocess.Popen(["curl", "-sSf", "-r", part, "-o", "/dev/null", url]) for part in ranges]
    if any([client.wait() for client in clients]):
        sys.exit(f"bench/run: curl cannot read {url}")


def measure(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def name_file(store):
    entry = store / "metadata/gmsfs:file:file"
    entry.write_text(f'{{"bytes":{(store / "allocations/a").stat().st_size}}}')
    os.setxattr(entry, "user.gmsfs.allocation", b"a")
    os.setxattr(entry, "user.gmsfs.offset", b"0")


def main():
    if sys.argv[1] == "--name":
        return name_file(pathlib.Path(sys.argv[2]))
    gmsfs, mount, store, file = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    address = f"127.0.0.1:{20000 + os.getpid() % 10000}"
    size = file.stat().st_size
    ours, floor = f"http://{address}/m/{store}/files/file", f"http://{address}/ui/{file.name}"
    server = subprocess.Popen([gmsfs, "web", "--listen", address, "--pages", file.parent, f"m={mount}",
                               *(["--user", "nobody"] if getpass.getuser() == "root" else [])],
                              stdout=subprocess.DEVNULL)
    try:
        time.sleep(1)
        for count in (1, 4):
            times = [], []
            for _ in range(ROUNDS):  # in turns, so that other load of the machine meets both
                times[0].append(measure(lambda: fetch(ours, size, count)))
                times[1].append(measure(lambda: fetch(floor, size, count)))
            best, other = min(times[0]), min(times[1])
            label = f"store over gmsfs web, {count} connections, and file in memory"
            print(f"{label:<58} {f'{size / best / 1e9:.2f} GB/s':>10} {f'{size / other / 1e9:.2f} GB/s':>10} "
                  f"{best / other:8.2f} {f'<= {LIMIT:.2f}':>8}  "
                  f"{'ok' if best / other <= LIMIT else 'MISSED'}", flush=True)
    finally:
        server.terminate()
        server.wait()


main()
