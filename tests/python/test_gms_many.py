# SPDX-License-Identifier: Apache-2.0
"""GMS V0 and V1: after very many repetitions the store still serves and the daemon has not grown. The counts
here take seconds; `make soak GMS=1` runs the large ones."""

import os
import random
import socket
import time

import msgpack

import gms_client
from gms_client import V0_REQUESTS, V1_REQUESTS, encode, frame
from gms_support import (
    PIECE,
    WORKER,
    GmsCase,
    anonymous_bytes,
    descriptors,
    sample,
    v0_path,
    v1_path,
    wait_until,
)

FRAMES = int(os.environ.get("GMSFS_TEST_GMS_FRAMES", "4000"))
CONNECTS = int(os.environ.get("GMSFS_TEST_GMS_CONNECTS", "1000"))
EXPORTS = int(os.environ.get("GMSFS_TEST_GMS_EXPORTS", "1000"))

WARM_UP = 200  # repetitions before the count begins: the first ones fill the daemon's caches
KEPT_BYTES = 4 << 20  # most bytes that the heap may grow by, for any count
LOOK_AFTER = 500  # connections between two looks at the store, each of which lifts a fence

ANSWER_SECONDS = 0.02  # wait for the answer to a random request: some requests block without an end

ANY = {  # values of the fields of a random request
    "int": (0, 1, -1, PIECE, PIECE - 1, PIECE + 1, 64 << 20, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    "text": ("", "a", "b", "c", "/", "..", "\0", "x" * 300, "x" * 70000, "\N{BRAIN}", "no-such-id"),
    "bytes": (b"", b"value", bytes(5000), bytes(1 << 20)),
    "identity": (None, ("", ""), ("a", "b")),
}

PROCESSES = {"the worker": WORKER, "the keeper": int(os.environ["GMSFS_TEST_KEEPER"])}


class ManyCase(GmsCase):
    def look(self):
        """Descriptors and private memory of each process of the daemon, to compare with."""
        return {name: (descriptors(pid), anonymous_bytes(pid)) for name, pid in PROCESSES.items()}

    def assert_as(self, before, label):
        """Fails if the daemon has more descriptors, or KEPT_BYTES more memory, than `before`."""
        print(label)
        for name, pid in PROCESSES.items():
            files, held = before[name]
            wait_until(lambda pid=pid, files=files: descriptors(pid) <= files,
                       f"{name} has {files} descriptors again after {label}")
            grown = anonymous_bytes(pid) - held
            print(f"    {name}: descriptors {files}, then {descriptors(pid)}; memory {grown >> 10:+} KiB")
            if not os.environ.get("SANITIZE"):  # a sanitizer frees memory late
                self.assertLess(grown, KEPT_BYTES, f"{name} after {label}")

    def do_many(self, label, count, do):
        for at in range(WARM_UP):
            do(at)
        before = self.look()
        start = time.monotonic()
        for at in range(count):
            do(at)
        self.assert_as(before, f"{count} {label} in {time.monotonic() - start:.1f} s")


class Many(ManyCase):
    def test_connections_one_after_the_other(self):
        self.commit_content()

        def connect(at):
            with (gms_client.V1(v1_path()) if at % 2 else gms_client.V0(v0_path())) as client:
                self.assertEqual(client.lock("ro"), "ro")

        self.do_many("connects", CONNECTS, connect)
        self.wait_state("COMMITTED")
        self.session("rw").allocate(1)

    def test_connections_that_say_nothing(self):
        def connect(at):
            with gms_client.V1(v1_path()) if at % 2 else gms_client.V0(v0_path()):
                pass

        self.do_many("silent connects", CONNECTS, connect)
        self.session("rw").allocate(1)

    def test_exports(self):
        first, _ = self.commit_content()
        reader = self.session("ro")
        self.do_many("V0 exports", EXPORTS, lambda _: os.close(reader.export(first)[1]))

    def test_exports_in_v1(self):
        self.commit_content_v1()
        reader = self.session_v1("ro")
        self.do_many("V1 exports", EXPORTS, lambda _: os.close(reader.export("a")))

    def test_exports_by_who_may_write(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        self.do_many("exports to a writer", EXPORTS, lambda _: os.close(writer.export("a")))


class Random(ManyCase):
    """Randomly damaged frames, by a seed that is printed."""

    def damaged(self, rng, payload):
        data = bytearray(payload)
        for _ in range(rng.choice((1, 1, 2, 5))):
            change = rng.randrange(6)
            at = rng.randrange(len(data)) if data else 0
            if change == 0 and data:
                data[at] = rng.randrange(256)
            elif change == 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            elif change == 2:
                del data[at : at + rng.randrange(1, 9)]
            elif change == 3:
                data[at:at] = rng.choice((b"\xc0", b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x81"))
            elif change == 4 and data:
                data[at] ^= 1 << rng.randrange(8)
            else:
                data = bytearray(rng.randbytes(rng.randrange(64)))
        return bytes(data)

    def run_against(self, connect, requests, handshake):
        seed = int(os.environ.get("GMSFS_TEST_SEED", str(time.time_ns() % 100000)))
        rng = random.Random(seed)
        self.sent = self.answered = self.connections = 0
        before = self.look()
        start = time.monotonic()
        with self.subTest(seed=seed):
            while self.sent < FRAMES:
                with connect() as client:
                    self.speak(client, rng, requests, handshake)
                self.connections += 1
                if self.connections % LOOK_AFTER == 0:
                    self.lift_fence()
                    self.probe("kv_cache")
        seconds = time.monotonic() - start
        self.assertGreater(self.answered, self.sent // 20)  # it is not all refused at the door
        self.lift_fence()
        self.make_empty("weights")
        self.assert_as(before, f"{self.sent} frames, {self.answered} answers, {self.connections} connections "
                               f"in {seconds:.1f} s, seed {seed}")
        self.assertEqual(self.session("rw").allocate(1)["layout_slot"], 0)

    def speak(self, client, rng, requests, handshake):
        if rng.random() < 0.8:
            client.send_raw(encode(handshake))
            client.receive()
        for _ in range(50):
            payload = pack(self.any_request(rng, requests))
            if rng.random() < 0.3:
                payload = self.damaged(rng, payload)
            if not self.is_taken(client, frame(payload), 0 if rng.random() < 0.1 else ANSWER_SECONDS):
                break
        if rng.random() < 0.1:
            self.is_taken(client, payload, 0)  # without a length

    @staticmethod
    def any_request(rng, requests):
        """A request with fields of the right types, of which some are unusual."""
        name = rng.choice(tuple(requests))
        fields = {}
        for field, kind in gms_client.fields_of(requests, name).items():
            if field != "lock_type" and rng.random() < 0.7:
                fields[field] = rng.choice(ANY[kind.rstrip("?")])
        return sample(requests, name, **fields)

    def is_taken(self, client, data, seconds):
        """Sends a request and reads any answer. Returns false if none comes in `seconds`: the request then
        waits, and is dropped with the connection. With 0 seconds, later calls read the answers."""
        self.sent += 1
        try:
            client.send_raw(data)
            client.socket.settimeout(seconds)
            answer = client.socket.recv(1 << 16)
            self.answered += answer != b""
            return answer != b""
        except BlockingIOError:
            return True
        except (ConnectionResetError, socket.timeout):
            return False

    def test_v0(self):
        handshake = sample(V0_REQUESTS, "handshake_request", lock_type="rw", timeout_ms=10000)
        self.run_against(lambda: gms_client.V0(v0_path()), V0_REQUESTS, handshake)

    def test_v1(self):
        handshake = sample(V1_REQUESTS, "handshake_request", lock_type="rw")
        self.run_against(lambda: gms_client.V1(v1_path()), V1_REQUESTS, handshake)


def pack(value):
    return msgpack.packb(value, use_bin_type=True)
