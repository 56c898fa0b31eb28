# SPDX-License-Identifier: Apache-2.0
"""gmsfs pull beside curl into memory, with as many connections; called by bench/run.

    pull.py GMSFS MOUNT STORE OTHER FOLDER

A local nginx serves MOUNT; STORE is pulled into OTHER, both host memory. FOLDER is in memory, for
nginx and the bytes of curl.
"""

import getpass
import os
import pathlib
import subprocess
import sys
import time

ROUNDS = 5
LIMIT = 1 / 0.9  # of the time: 0.9 of curl's rate


def serve(root, folder, port):
    config = folder / "nginx.conf"
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    config.write_text(f"""{user} worker_processes auto; daemon off;
pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{ access_log off; sendfile on; sendfile_max_chunk 2m; server {{ listen 127.0.0.1:{port}; root {root}; }} }}
""")
    server = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(config)], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    if server.poll() is not None:
        sys.exit(f"bench/run: nginx does not start: {(folder / 'nginx.log').read_text()}")
    return server


def measure(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def main():
    gmsfs, mount, store, other, folder = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], pathlib.Path(sys.argv[5])
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
                subprocess.run([gmsfs, "pull", "-q", "--threads", str(count), f"{mount}/{other}", base], check=True)

            times = [], []
            for _ in range(ROUNDS):  # in turns, so that other load of the machine meets both
                times[0].append(measure(pull))
                times[1].append(measure(curl))
            ours, floor, size = min(times[0]), min(times[1]), sum(sizes)
            label = f"pull with sums, {count} connections, and curl to memory"
            print(f"{label:<58} {f'{size / ours / 1e9:.2f} GB/s':>10} {f'{size / floor / 1e9:.2f} GB/s':>10} "
                  f"{ours / floor:8.2f} {f'<= {LIMIT:.2f}':>8}  {'ok' if ours / floor <= LIMIT else 'MISSED'}", flush=True)
    finally:
        server.terminate()
        server.wait()


main()
