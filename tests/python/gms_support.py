# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the GMS sockets: connections to the stores of the mount made by tests/66-gms.bats,
stores in each state, shells that use the same stores as files, and conditions to wait for.

The stores are `weights` and `kv_cache` of one mount, so every test begins by making both EMPTY."""

import contextlib
import functools
import glob
import json
import os
import re
import select
import subprocess
import time
import unittest

import gms_client
from gms_client import TIMEOUT, V0, V1, Refused

MOUNT = os.environ["GMSFS_TEST_MOUNT"]
SOCKETS = os.environ["GMSFS_TEST_GMS_DIR"]
STORES = ("weights", "kv_cache")

PIECE = 2 << 20  # the granularity of host memory
FENCED = "GMS admission is fenced for checkpoint"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

V0_EMPTY = {
    "type": "get_runtime_state_response",
    "state": "EMPTY",
    "has_rw_session": False,
    "ro_session_count": 0,
    "waiting_writers": 0,
    "committed": False,
    "is_ready": False,
    "allocation_count": 0,
    "memory_layout_hash": "",
    "layout_committed": False,
}


def device():
    with open(os.path.join(MOUNT, "device"), encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def v0_path(store="weights"):
    """Returns the socket's path, which contains the GPU's UUID."""
    found = glob.glob(os.path.join(SOCKETS, f"gms_*{bare_uuid()}_{store}.sock"))
    if len(found) != 1:
        raise AssertionError(f"{len(found)} V0 sockets of {store}: {os.listdir(SOCKETS)}")
    return found[0]


@functools.cache
def v1_path(store="weights"):
    found = glob.glob(os.path.join(SOCKETS, f"gms_[0-9]_{store}.sock"))
    if len(found) != 1:
        raise AssertionError(f"{len(found)} V1 sockets of {store}: {os.listdir(SOCKETS)}")
    return found[0]


@functools.cache
def bare_uuid():
    return device()["uuid"].removeprefix("GPU-").lower()


def store_file(store, name):
    with open(os.path.join(MOUNT, store, name), encoding="utf-8") as file:
        return file.read()


def wait_until(condition, text, seconds=TIMEOUT):
    """Waits for a true result of condition() and returns it; `text` names the condition in the error."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"still not so after {seconds} s: {text}")
        time.sleep(0.005)


class Shell:
    """A bash in a process of its own, that does one line at a time. `$S` is the store's directory."""

    def __init__(self, store="weights"):
        program = "echo up; while read -r line; do eval \"$line\" 2>&1; echo \"[$?]\"; done"
        # The runtime of a sanitizer, which this Python may have been started with, is not for dd.
        of_shells = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self.process = subprocess.Popen(
            ["bash", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**of_shells, "S": os.path.join(MOUNT, store)},
            start_new_session=True,
        )
        self._out = b""
        self._until(b"up\n")

    def _until(self, *ends, timeout=TIMEOUT):
        """Waits for a line that begins with one of `ends`. Returns (the output before it, that line)."""
        limit = time.monotonic() + timeout
        while True:
            lines = self._out.split(b"\n")
            for at, line in enumerate(lines[:-1]):
                if line.startswith(tuple(end.rstrip(b"\n") for end in ends)):
                    self._out = b"\n".join(lines[at + 1 :])
                    return b"\n".join(lines[:at]).decode(), line.decode()
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, limit - time.monotonic()))
            if not ready:
                raise TimeoutError(f"a shell did not answer; it printed {self._out!r}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise AssertionError(f"a shell ended; it printed {self._out!r}")
            self._out += more

    def begin(self, line):
        """Starts something that may wait; finish() has its end."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def finish(self, timeout=TIMEOUT):
        """Waits for the end of the begun line. Returns (output, exit status)."""
        text, last = self._until(b"[", timeout=timeout)
        return text, int(last.strip("[]"))

    def waits(self):
        """Returns true while the begun line has not ended."""
        return not self._out and not select.select([self.process.stdout], [], [], 0)[0]

    def do(self, line):
        """Runs a line that has to succeed. Returns its output."""
        self.begin(line)
        text, status = self.finish()
        if status:
            raise AssertionError(f"`{line}` ended with {status}: {text}")
        return text

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        for file in self.process.stdin, self.process.stdout:
            with contextlib.suppress(BrokenPipeError):
                file.close()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(TIMEOUT)


class GmsCase(unittest.TestCase):
    """Each test has both stores EMPTY, and leaves nothing open."""

    maxDiff = None

    def setUp(self):
        self._open = []
        self.addCleanup(self.close_all)
        self.lift_fence()
        for store in STORES:
            self.make_empty(store)

    def close_all(self):
        while self._open:
            self._open.pop().close()

    def keep(self, thing):
        """Closed at the end of the test."""
        self._open.append(thing)
        return thing

    def keep_descriptor(self, descriptor):
        self.addCleanup(os.close, descriptor)
        return descriptor

    # -- connections --

    def v0(self, store="weights", **options):
        return self.keep(V0(v0_path(store), **options))

    def v1(self, store="weights", **options):
        return self.keep(V1(v1_path(store), **options))

    def shell(self, store="weights"):
        return self.keep(Shell(store))

    def session(self, lock_type, store="weights", granted=None, timeout_ms=TIMEOUT * 1000):
        """A V0 session."""
        made = self.v0(store)
        self.assertEqual(made.lock(lock_type, timeout_ms), granted or lock_type)
        return made

    def session_v1(self, lock_type, store="weights", granted=None):
        made = self.v1(store)
        self.assertEqual(made.lock(lock_type), granted or lock_type)
        return made

    def waiting(self, lock_type, store="weights", timeout_ms=None):
        """A V0 client that waits for the lock, and is seen to."""
        before = self.waiters(store)
        made = self.v0(store)
        made.ask(lock_type, timeout_ms)
        wait_until(lambda: self.waiters(store) == before + 1, f"{lock_type} waits for {store}")
        return made

    def waiting_v1(self, lock_type, store="weights"):
        before = self.waiters(store)
        made = self.v1(store)
        made.ask(lock_type)
        wait_until(lambda: self.waiters(store) == before + 1, f"{lock_type} waits for {store}")
        return made

    # -- looking --

    def probe(self, store="weights"):
        with V0(v0_path(store)) as connection:
            return connection.runtime_state()

    def state(self, store="weights"):
        return self.probe(store)["state"]

    def events(self, store="weights"):
        with V0(v0_path(store)) as connection:
            return connection.events()

    def waiters(self, store="weights"):
        return store_file(store, "sessions").count(" waiting ")

    def wait_state(self, state, store="weights"):
        wait_until(lambda: self.state(store) == state, f"{store} is {state}")

    @contextlib.contextmanager
    def logs(self, *expected, store="weights"):
        """Checks that the body logs exactly these events, at the latest 2 s after it."""
        before = self.events(store)
        yield
        wanted = list(expected)

        def seen():
            after = self.events(store)
            return after[-len(wanted) :] == wanted if wanted else after == before

        with contextlib.suppress(AssertionError):
            wait_until(seen, "events", 2)
        after = self.events(store)
        grown = [event for event in before + wanted][-len(after) :]
        self.assertEqual(after[-len(wanted) - 3 :], grown[-len(wanted) - 3 :])

    def assert_refused(self, text, call, *arguments):
        """An error_response with exactly this text."""
        with self.assertRaises(Refused) as caught:
            call(*arguments)
        self.assertEqual(str(caught.exception), text)
        return caught.exception.message

    # -- stores in a state --

    def lift_fence(self):
        with V1(v1_path()) as connection:
            state, token = connection.checkpoint_state()
        if state != "serving":
            with V1(v1_path()) as connection:
                connection.abort_checkpoint(token)

    def make_empty(self, store):
        if self.probe(store) == V0_EMPTY:
            return
        with V0(v0_path(store)) as connection:
            if connection.lock("rw", TIMEOUT * 1000) != "rw":
                raise AssertionError(f"a test before this one left a session in {store}")
        wait_until(lambda: self.probe(store) == V0_EMPTY, f"{store} is empty")

    def fill(self, writer):
        """Makes two allocations with an entry each. Returns their ids."""
        first = writer.allocate(4096, "weights")["allocation_id"]
        second = writer.allocate(PIECE + 1, "kv")["allocation_id"]
        writer.put("first", first, 16, b"one")
        writer.put("second", second, 0, b"two")
        return first, second

    def commit_content(self, store="weights"):
        """Makes the store COMMITTED, by V0, with the content of fill(). Returns the ids."""
        writer = self.session("rw", store)
        ids = self.fill(writer)
        self.assertTrue(writer.commit())
        writer.expect_closed()
        writer.close()
        self.wait_state("COMMITTED", store)
        return ids

    def seal_content(self, store="weights"):
        """Makes the store LAYOUT_COMMITTED with the content of fill(). Returns the ids."""
        writer = self.session("rw", store)
        ids = self.fill(writer)
        writer.commit_layout()
        writer.close()
        self.wait_state("LAYOUT_COMMITTED", store)
        return ids

    def commit_content_v1(self, store="weights", ids=("a", "b")):
        """Makes the store COMMITTED, by V1, with pieces of these names; no session remains."""
        writer = self.session_v1("rw", store)
        for name in ids:
            writer.allocate(name, PIECE)
        writer.commit()
        writer.close()
        self.wait_state("COMMITTED", store)

    # The states as a second client finds them, each with its holder.

    STATES = ("EMPTY", "RW by V0", "RW by V1", "RW by a file", "RW_DATA", "COMMITTED", "RO by V0",
              "RO by V1", "RO by a file", "LAYOUT_COMMITTED")

    def make_state(self, name, store="weights"):
        """Brings the store into one of STATES; committed states have the content of fill(). Returns the
        holder, or None."""
        if name == "EMPTY":
            return None
        if name == "RW by V0":
            return self.session("rw", store)
        if name == "RW by V1":
            return self.session_v1("rw", store)
        if name == "RW by a file":
            holder = self.shell(store)
            holder.do("exec 3<>$S/lock")
            return holder
        if name in ("RW_DATA", "LAYOUT_COMMITTED"):
            self.seal_content(store)
            return self.session("rw_data_or_rw", store, "rw_data") if name == "RW_DATA" else None
        self.commit_content(store)
        if name == "RO by V0":
            return self.session("ro", store)
        if name == "RO by V1":
            return self.session_v1("ro", store)
        if name == "RO by a file":
            holder = self.shell(store)
            holder.do("exec 3<$S/lock")
            return holder
        return None

    @contextlib.contextmanager
    def in_state(self, name, store="weights"):
        """Runs the body with the store in this state, and empties the store afterwards."""
        holder = self.make_state(name, store)
        with self.subTest(state=name):
            yield holder
        self.close_all()
        self.make_empty(store)


WORKER = int(os.environ["GMSFS_TEST_WORKER"])
KEEPER = int(os.environ["GMSFS_TEST_KEEPER"])


def anonymous_bytes(pid):
    """Private memory of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def worker_anonymous_bytes():
    return anonymous_bytes(WORKER)


def worker_descriptors():
    return descriptors(WORKER)


def connection_bytes():
    """Returns the bytes of the memory in which the keeper holds requests that are not served yet."""
    directory = f"/proc/{KEEPER}/fd"
    for number in os.listdir(directory):
        path = os.path.join(directory, number)
        if os.readlink(path).startswith("/memfd:gmsfs-connections"):
            return os.stat(path).st_blocks * 512
    raise AssertionError("the keeper has no memory of connections")


CLIENT_MESSAGES = {  # default values of request fields
    "lock_type": "ro",
    "timeout_ms": 0,
    "expected_identity": None,
    "size": 4096,
    "aligned_size": PIECE,
    "tag": "default",
    "allocation_id": "no-such-id",
    "key": "no-such-key",
    "offset_bytes": 0,
    "value": b"value",
    "prefix": "",
    "token": "no-such-token",
}


def sample(schemas, type_, **fields):
    """A message of this type with all its fields."""
    values = {name: CLIENT_MESSAGES[name] for name in gms_client.fields_of(schemas, type_)}
    return {"type": type_, **values, **fields}


ZERO_OF = {"text": "", "int": 0, "bool": False, "bytes": b""}


def sample_answer(schemas, type_):
    """An answer, which a server must not be sent."""
    values = {}
    for name, kind in gms_client.fields_of(schemas, type_).items():
        values[name] = None if kind.endswith("?") else [] if kind[0] == "[" else ZERO_OF[kind]
    if values.get("granted_lock_type", "") is None:
        values["granted_lock_type"] = "rw"
    for name, word in (("lock_type", "rw"), ("state", "serving")):
        if values.get(name) == "" and schemas is gms_client.V1_ANSWERS:
            values[name] = word
    return {"type": type_, **values}


def refusal_v1(text):
    """Returns V1's answer for a refusal with this text."""
    return gms_client.encode({"type": "error_response", "message": text, "out_of_memory": False})[4:]


def camel(type_):
    """The name of a request in the server's texts."""
    if type_ == "get_memory_layout_hash_request":
        return "GetStateHashRequest"
    return "".join(word.capitalize() for word in type_.split("_"))


def worker_wakings():
    """How often the worker's loop has slept."""
    with open(f"/proc/{WORKER}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))
