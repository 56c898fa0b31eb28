#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service manager as far as a descriptor store needs one: the protocol of sd_notify(3) and
sd_listen_fds(3), with systemd's rules (a name may be on several descriptors, one that is stored already is
not again, beyond the limit none is).

    descriptor_store.py DIRECTORY MAX COMMAND...

Starts COMMAND, and again with its stored descriptors when it ends with another status than 0. Writes
the names of the stored descriptors to DIRECTORY/store, one a line, and the pid of COMMAND to
DIRECTORY/main. Ends when COMMAND ends in order, or fails three times in a row before READY=1.
"""

import array
import ctypes
import fcntl
import os
import select
import signal
import socket
import sys

KCMP, KCMP_FILE = 312, 0
MAX_FAILURES = 3
libc = ctypes.CDLL(None, use_errno=True)


class Store:
    def __init__(self, limit):
        self.limit, self.items, self.is_ready = limit, [], False

    def is_same(self, a, b):
        pid = os.getpid()
        return libc.syscall(KCMP, pid, pid, KCMP_FILE, a, b) == 0

    def add(self, name, fds):
        for fd in fds:
            if len(self.items) >= self.limit or any(self.is_same(fd, kept) for _, kept in self.items):
                os.close(fd)
            else:
                self.items.append((name, fd))

    def remove(self, name):
        for kept_name, fd in self.items:
            if kept_name == name:
                os.close(fd)
        self.items = [item for item in self.items if item[0] != name]

    def hear(self, text, fds):
        words = dict(line.split("=", 1) for line in text.splitlines())
        self.is_ready |= words.get("READY") == "1"
        if words.get("FDSTORE") == "1":
            self.add(words.get("FDNAME", "stored"), fds)
        elif words.get("FDSTOREREMOVE") == "1":
            self.remove(words["FDNAME"])
        else:
            for fd in fds:  # BARRIER=1: its sender waits for that
                os.close(fd)

    def write(self, directory):
        with open(f"{directory}/store.new", "w") as file:
            file.writelines(f"{name}\n" for name, _ in self.items)
        os.rename(f"{directory}/store.new", f"{directory}/store")


def receive(listener, store):
    while True:
        try:
            text, rights, _, _ = listener.recvmsg(4096, socket.CMSG_SPACE(253 * 4), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        fds = array.array("i")
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data)
        store.hear(text.decode(), list(fds))


def become(command, path, store):
    os.setpgid(0, 0)
    os.environ["NOTIFY_SOCKET"] = path
    os.environ["FDSTORE"] = str(store.limit)
    if store.items:
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 5000) for _, fd in store.items]
        os.closerange(3, 5000)
        for i, fd in enumerate(moved):
            os.dup2(fd, 3 + i, inheritable=True)
            os.close(fd)
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = str(len(moved))
        os.environ["LISTEN_FDNAMES"] = ":".join(name for name, _ in store.items)
    os.execvp(command[0], command)


def serve(listener, store, directory, pid):
    """Until the process has ended: its wait status."""
    exits = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(exits, select.POLLIN)
    poll.register(listener, select.POLLIN)
    ended = False
    while not ended:
        ended = exits in [fd for fd, _ in poll.poll()]
        receive(listener, store)  # its messages from before its end count
        store.write(directory)
    os.close(exits)
    return os.waitpid(pid, 0)[1]


def main(directory, limit, command):
    path = f"{directory}/notify"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    os.chmod(path, 0o777)
    store, failures = Store(limit), 0
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    while failures < MAX_FAILURES:
        store.is_ready = False
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            become(command, path, store)
        with open(f"{directory}/main.new", "w") as file:
            file.write(f"{pid}\n")
        os.rename(f"{directory}/main.new", f"{directory}/main")
        status = serve(listener, store, directory, pid)
        if status == 0:
            return 0
        failures = 0 if store.is_ready else failures + 1
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
