# SPDX-License-Identifier: Apache-2.0
"""gmsfs pull beside curl into memory, and beside other tools and engines; called by bench/run.

    pull.py GMSFS MOUNT STORE OTHER FOLDER [MODEL]

A local nginx serves MOUNT, of host memory; its STORE is pulled into the store at the path OTHER. FOLDER
is in memory, for nginx and the bytes of the others. rsync (a daemon), scp (an sshd of its own) and the
engines of other_peers, which PEERS_PYTHON may have, get the same bytes over the loopback. With MODEL, the
files that STORE was loaded from, OTHER is on a GPU: then the times are those of the bytes alone, and the
floor is the slower of curl and of gmsfs load from the page cache to that GPU.
"""

import contextlib
import getpass
import os
import pathlib
import re
import shutil
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


def print_row(label, ours, theirs, size, most):
    rates = [f"{size / seconds / 1e9:.2f} GB/s" for seconds in (ours, theirs)]
    verdict = "ok" if ours / theirs <= most else "MISSED"
    row = f"{label:<58} {rates[0]:>10} {rates[1]:>10} {ours / theirs:8.2f} {f'<= {most:.2f}':>8}  {verdict}"
    print(row, flush=True)


def find(program):
    return shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")


@contextlib.contextmanager
def server(words):
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        yield process.poll() is None
    finally:
        process.terminate()
        process.wait()


def rsync_words(folder, port):
    """The server's command, and the client's."""
    config = folder / "rsyncd.conf"
    ids = "uid = root\ngid = root\n" if os.geteuid() == 0 else ""
    config.write_text(f"use chroot = no\n{ids}[from]\npath = {folder}/from\n")
    daemon = ["rsync", "--daemon", "--no-detach", f"--config={config}"]
    daemon += ["--address=127.0.0.1", f"--port={port}"]
    return daemon, ["rsync", "-rW", "--inplace", f"rsync://127.0.0.1:{port}/from/", f"{folder}/to"]


def scp_words(folder, port):
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = folder / "sshd.conf"
    config.write_text(f"ListenAddress 127.0.0.1:{port}\nHostKey {key}\nAuthorizedKeysFile {key}.pub\n"
                      "StrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
                      "PidFile none\n")
    daemon = [find("sshd"), "-D", "-f", config]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    return daemon, ["scp", "-qr", "-P", str(port), "-i", key, *options,
                    f"{getpass.getuser()}@127.0.0.1:{folder}/from", f"{folder}/to"]


def compare_tools(pull, folder, size, port):
    """rsync and scp in turns with pull; returns pull's best time."""
    best = None
    for name, need, make_words in (("rsync", "rsync", rsync_words), ("scp", "sshd", scp_words)):
        if not find(need):
            print(f"bench/run: {name} is left out: no {need} here", file=sys.stderr)
            continue
        daemon, client = make_words(folder, port)
        times = [], []
        with server(daemon) as is_there:
            if not is_there:
                print(f"bench/run: {name} is left out: its server does not start", file=sys.stderr)
                continue
            for _ in range(ROUNDS):
                times[0].append(pull())
                times[1].append(measure(lambda: subprocess.run(client, check=True)))
                if sum(at.stat().st_size for at in (folder / "to").rglob("*") if at.is_file()) != size:
                    sys.exit(f"bench/run: {name} did not bring all bytes")
                shutil.rmtree(folder / "to")
        print_row(f"pull with sums, 8 connections, and {name}", min(times[0]), min(times[1]), size, 1)
        best = min([*times[0], *([best] if best else [])])
    return best or pull()


def compare_peers(ours, size):
    program = pathlib.Path(__file__).with_name("other_peers")
    words = [os.environ.get("PEERS_PYTHON", sys.executable), program, str(size)]
    lines = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    for name, took in (line.split() for line in lines if len(line.split()) == 2):
        if took.isdigit():
            print_row(f"pull with sums, 8 connections, and {name} over TCP", ours, int(took) / 1e6, size, 1)
        elif took in ("absent", "failed"):
            print(f"bench/run: {name} is left out: {took}", file=sys.stderr)


def compare_others(pull, mount, store, folder, size, port):
    (folder / "from").mkdir()
    for at in pathlib.Path(mount, store, "allocations").iterdir():
        shutil.copyfile(at, folder / "from" / at.name)
    best = compare_tools(pull, folder, size, port)
    shutil.rmtree(folder / "from")
    compare_peers(best, size)


def seconds_of_bytes(words, size):
    """The time of the bytes alone, as the command tells their rate."""
    output = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    return size / 1e9 / float(re.findall(r"([0-9.]+) GB/s", output)[-1])


def main():
    gmsfs, mount, store, other = sys.argv[1:5]
    folder, model = pathlib.Path(sys.argv[5]), sys.argv[6:7]
    lines = pathlib.Path(mount, store, "pieces").read_text().splitlines()
    contents = lines[1].split()[1]
    sizes = [int(line.split()[2]) for line in lines if line.startswith("allocation ")]
    size = sum(sizes)
    port = 20000 + os.getpid() % 10000
    base = f"http://127.0.0.1:{port}/{store}"
    nginx = serve(mount, folder, port)
    try:
        for count in (1, 4, 8):

            def curl():
                outs, clients = [], []
                for first in range(min(count, len(sizes))):  # each its allocations, one after the other
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
                os.rmdir(other) if pathlib.Path(other).exists() else None
                words = [gmsfs, "pull", "--threads", str(count), other, base]
                if model:
                    return seconds_of_bytes(words, size)
                return measure(lambda: subprocess.run([*words, "-q"], check=True))

            times = [], [], [0]
            for _ in range(ROUNDS):  # in turns, so that other load of the machine meets all
                times[0].append(pull())
                times[1].append(measure(curl))
                if model:
                    times[2].append(seconds_of_bytes([gmsfs, "load", other, *model], size))
            floor = max(min(times[1]), min(times[2][1:], default=0))
            label = f"pull with sums, {count} connections, and curl to memory"
            if model:
                label = f"pull to a GPU, {count} connections, and curl or load"
            print_row(label, min(times[0]), floor, size, LIMIT)
        if not model:
            compare_others(pull, mount, store, folder, size, port + 1)
    finally:
        nginx.terminate()
        nginx.wait()


if __name__ == "__main__":
    main()
