# SPDX-License-Identifier: Apache-2.0
"""gmsfs load over HTTP beside curl into memory, with as many connections; called by bench/run.

    load_http.py GMSFS STORE FOLDER NAME

FOLDER is in memory and has the model NAME; a local nginx serves it.
"""

import getpass
import os
import pathlib
import subprocess
import sys
import time

ROUNDS = 5
LIMIT = 1 / 0.9  # of the time: 0.9 of curl's rate


def best_of(ours, floor):
    """Both in turns, so that other load of the machine meets both."""
    times = [], []
    for _ in range(ROUNDS):
        for run, into in ((ours, times[0]), (floor, times[1])):
            begin = time.perf_counter()
            run()
            into.append(time.perf_counter() - begin)
    return min(times[0]), min(times[1])


def serve(root, folder, port):
    """A local nginx that serves root, with its own files in folder."""
    config = folder / "nginx.conf"
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""  # the folder is this user's alone
    parts = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{part}_temp_path {folder}/{part};" for part in parts)
    config.write_text(f"""{user} worker_processes auto; daemon off;
pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ }}
http {{ {paths} access_log off; sendfile on; sendfile_max_chunk 2m;
server {{ listen 127.0.0.1:{port}; root {root}; }} }}
""")
    log = folder / "nginx.log"
    server = subprocess.Popen(["nginx", "-e", log, "-p", folder, "-c", config], stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    if server.poll() is not None:
        sys.exit(f"bench/run: nginx does not start: {log.read_text()}")
    return server


def main():
    gmsfs, store, folder, name = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4]
    port = 20000 + os.getpid() % 10000
    url = f"http://127.0.0.1:{port}/{name}"
    size = (folder / name).stat().st_size
    server = serve(folder, folder, port)
    try:
        for count in (1, 4, 16):
            step = size // count + 1

            def curl():
                outs = [folder / f"out-{i}" for i in range(count)]
                ranges = [f"{i * step}-{min(size, (i + 1) * step) - 1}" for i in range(count)]
                clients = [subprocess.Popen(["curl", "-sSf", "-r", part, "-o", str(out), url])
                           for part, out in zip(ranges, outs)]
                if any([client.wait() for client in clients]):
                    sys.exit("bench/run: curl failed")
                for out in outs:
                    out.unlink()

            def load():
                subprocess.run([gmsfs, "load", "-q", "--threads", str(count), store, url], check=True)

            ours, floor = best_of(load, curl)
            label = f"load over HTTP, {count} connections, and curl to memory"
            ok = "ok" if ours / floor <= LIMIT else "MISSED"
            print(f"{label:<58} {f'{size / ours / 1e9:.2f} GB/s':>10} {f'{size / floor / 1e9:.2f} GB/s':>10} "
                  f"{ours / floor:8.2f} {f'<= {LIMIT:.2f}':>8}  {ok}", flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
