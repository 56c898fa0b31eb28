# SPDX-License-Identifier: Apache-2.0
"""Two users on one machine, and users by token. Runs as root and takes the other user's id for a while. A
connection belongs to the user that opened it, to its end."""

import contextlib
import json
import os
import struct
import unittest

import triton_raw as raw
from triton_raw import H2, Http, error_of, register

PREFIX = os.environ["GMSFS_TEST_SHM"]
OTHER = int(os.environ["GMSFS_TEST_UID"])
TOKEN = os.environ["GMSFS_TEST_TOKEN"]
SIZE = 128


@contextlib.contextmanager
def other():
    os.setegid(OTHER)
    os.seteuid(OTHER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def make(name):
    """Makes an object owned by the effective user. Returns its key."""
    key = f"/{PREFIX}-{name}-{os.geteuid()}"
    descriptor = os.open("/dev/shm" + key, os.O_CREAT | os.O_RDWR, 0o600)
    os.ftruncate(descriptor, SIZE)
    os.close(descriptor)
    return key


def names(http, headers=()):
    said = http.ask("GET", "/v2/systemsharedmemory/status", None, headers)[2]
    return [row["name"] for row in json.loads(said)]


def infer(http, region, headers=()):
    place = {"shared_memory_region": region, "shared_memory_byte_size": 64}
    inputs = [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "parameters": place}
              for i in range(2)]
    return http.ask("POST", "/v2/models/simple/infer", json.dumps({"inputs": inputs}).encode(), headers)


class Users(unittest.TestCase):
    def setUp(self):
        self.mine = Http()
        with other():
            self.theirs = Http()
        for http in (self.mine, self.theirs):
            self.assertEqual(http.ask("POST", "/v2/systemsharedmemory/unregister", b"")[0], 200)

    def tearDown(self):
        self.mine.socket.close()
        self.theirs.socket.close()

    def test_each_has_names_of_his_own_and_sees_no_others(self):
        with other():
            their_key = make("a")
        my_key = make("a")
        self.assertEqual(register(self.mine, "a", my_key, SIZE)[0], 200)
        self.assertEqual(register(self.mine, "mine", my_key, SIZE)[0], 200)
        self.assertEqual(register(self.theirs, "a", their_key, SIZE)[0], 200)
        self.assertEqual((names(self.mine), names(self.theirs)), (["a", "mine"], ["a"]))
        for name in ("mine", "gone"):
            answer = self.theirs.ask("GET", f"/v2/systemsharedmemory/region/{name}/status")
            self.assertEqual((answer[0], error_of(answer)),
                             (404, f"Unable to find system shared memory region: '{name}'"))
        row = json.loads(self.theirs.ask("GET", "/v2/systemsharedmemory/region/a/status")[2])[0]
        self.assertEqual(row["key"], their_key)

    def test_nobody_unregisters_or_infers_with_anothers(self):
        self.assertEqual(register(self.mine, "mine", make("b"), SIZE)[0], 200)
        for path in ("region/mine/unregister", "unregister"):
            self.assertEqual(self.theirs.ask("POST", f"/v2/systemsharedmemory/{path}", b"")[0], 200)
        self.assertEqual(names(self.mine), ["mine"])
        answer = infer(self.theirs, "mine")
        self.assertEqual((answer[0], error_of(answer)), (404, "Unable to find shared memory region: 'mine'"))
        self.assertEqual(infer(self.mine, "mine")[0], 200)

    def test_an_object_is_opened_for_its_owner_alone(self):
        key = make("c")
        os.chmod("/dev/shm" + key, 0o666)
        answer = register(self.theirs, "c", key, SIZE)
        self.assertEqual((answer[0], error_of(answer)),
                         (500, f"Unable to open shared memory region: '{key}'"))
        with other():
            their_key = make("d")
        self.assertEqual(register(self.mine, "d", their_key, SIZE)[0], 500)  # root is no exception
        self.assertEqual(register(self.theirs, "d", their_key, SIZE)[0], 200)

    def test_links_pipes_and_devices_are_no_objects(self):
        with other():
            base = f"/dev/shm/{PREFIX}-e"
            for suffix, create in (("link", lambda at: os.symlink("/etc/passwd", at)), ("pipe", os.mkfifo),
                                   ("dir", os.mkdir)):
                create(base + suffix)
                self.assertEqual(register(self.theirs, "e", f"/{PREFIX}-e{suffix}", 1)[0], 500)
            os.rmdir(base + "dir")

    def test_a_token_says_who_somebody_is_whoever_connects(self):
        with other():
            key = make("f")
        said = [f"gmsfs-session: {TOKEN}"]
        self.assertEqual(register(self.mine, "f", key, SIZE, headers=said)[0], 200)
        self.assertEqual((names(self.mine), names(self.mine, said), names(self.theirs)), ([], ["f"], ["f"]))
        self.assertEqual(infer(self.mine, "f", said)[0], 200)
        for wrong in (TOKEN[:-1], TOKEN + "x", "x" * 300, "x" * 256):
            answer = self.mine.ask("GET", "/v2/systemsharedmemory/status", None, [f"gmsfs-session: {wrong}"])
            self.assertEqual((answer[0], error_of(answer)),
                             (401, "the token that was sent as gmsfs-session is unknown"))

    def test_a_token_is_metadata_of_grpc(self):
        with other():
            key = make("g")
        self.assertEqual(register(self.theirs, "of-theirs", key, SIZE)[0], 200)
        with H2() as h2:
            self.assertNotIn(b"of-theirs", h2.answer(h2.call("SystemSharedMemoryStatus")))
            stream = h2.call("SystemSharedMemoryStatus", b"", ("gmsfs-session", TOKEN))
            self.assertIn(b"of-theirs", h2.answer(stream))

    def test_grpc_knows_whose_a_connection_is(self):
        with other():
            key = make("h")
            their_h2 = H2()
        with their_h2, H2() as h2:
            wanted = b"\x0a\x01n\x12" + bytes([len(key)]) + key.encode() + b"\x20\x40"
            their_h2.answer(their_h2.call("SystemSharedMemoryRegister", wanted))
            self.assertEqual(names(self.theirs), ["n"])
            self.assertNotIn(key.encode(), h2.answer(h2.call("SystemSharedMemoryStatus")))

    def test_nobody_waits_for_all_that_another_has_asked(self):
        """Lists of 800 regions; of an answer that may not be sent its headers come all the same."""
        with other():
            key = make("i")
            for i in range(800):
                self.assertEqual(register(self.theirs, f"i{i}", key, SIZE)[0], 200)
            flood = [H2(settings=struct.pack(">HI", 4, 0)) for _ in range(20)]
        for h2 in flood:
            for _ in range(100):
                h2.call("SystemSharedMemoryStatus")
        with Http() as http:
            self.assertEqual(register(http, "mine", make("j"), SIZE)[0], 200)
            self.assertEqual(names(http), ["mine"])
        flood[-1].socket.setblocking(False)
        answered = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                answered += flood[-1].frame()[0] == raw.HEADERS
        self.assertLess(answered, 100)
        for h2 in flood:
            h2.socket.close()

    def test_nobody_waits_for_requests_that_another_has_sent_ahead(self):
        ahead = 300
        with other():
            flood = [Http() for _ in range(1000)]
        with Http() as http:
            for each in flood:
                each.send(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * ahead)
            self.assertEqual(http.ask("GET", "/v2")[0], 200)
        flood[-1].socket.setblocking(False)
        answers = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                answers += flood[-1].socket.recv(65536)
        self.assertLess(answers.count(b"HTTP/1.1 200"), ahead)
        flood[-1].socket.settimeout(raw.TIMEOUT)
        while answers.count(b"HTTP/1.1 200") < ahead:  # its own turns come all the same
            answers += flood[-1].socket.recv(65536)
        for each in flood:
            each.socket.close()

    def test_one_users_connections_leave_room_for_others(self):
        with other():
            held = [raw.connect(raw.HTTP) for _ in range(2500)]
        with Http() as http:
            self.assertEqual(http.ask("GET", "/v2")[0], 200)
            self.assertEqual(names(http), [])
        for each in held:
            each.close()
