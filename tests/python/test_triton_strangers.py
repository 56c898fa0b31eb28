# SPDX-License-Identifier: Apache-2.0
"""Connections of unknown users, in a network namespace of this test alone: from an address outside the
loopback, or without a token. They take no resources from users known by the kernel or by a token."""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import unittest

ADDRESS = "192.0.2.1"  # reserved for documentation: no host has it
TOKEN = os.environ["GMSFS_TEST_TOKEN"]
SAID = [f"gmsfs-session: {TOKEN}"]
MORE_THAN_THERE_ARE = 4500


def bring_up():
    """The loopback, which has another address as well."""
    with socket.socket() as any_socket:
        address = struct.pack("16sH2s4s8s", b"lo:1", socket.AF_INET, b"\0\0", socket.inet_aton(ADDRESS),
                              b"\0" * 8)
        fcntl.ioctl(any_socket, 0x8916, address)  # SIOCSIFADDR
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14s", b"lo", 0x41, b"\0" * 14))  # SIOCSIFFLAGS


def start():
    """The server, and its ports for HTTP and gRPC."""
    server = subprocess.Popen([sys.argv[1], "0.0.0.0:0", "0.0.0.0:0", "0", sys.argv[2]],
                              stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    words = server.stdout.readline().replace(",", "").split()
    return server, *(int(words[words.index(kind) + 1].rsplit(":", 1)[1]) for kind in ("http", "grpc"))


class Strangers(unittest.TestCase):
    def setUp(self):
        self.held = []

    def tearDown(self):
        for each in self.held:
            each.close()

    def http(self, address):
        made = raw.Http(f"{address}:{HTTP}")
        self.held.append(made.socket)
        return made

    def check_served(self):
        body = json.dumps({"inputs": [], "x": " " * (6 << 20)}).encode()
        for address, said in (("127.0.0.1", ()), (ADDRESS, SAID)):
            http = self.http(address)
            self.assertEqual(http.ask("GET", "/v2/systemsharedmemory/status", None, said)[0], 200)
            self.assertEqual(http.ask("POST", "/v2/models/m/infer", body, said)[0], 404)
        with raw.H2(f"{ADDRESS}:{GRPC}") as h2:
            stream = h2.call("SystemSharedMemoryUnregister", b"", ("gmsfs-session", TOKEN))
            self.assertTrue(h2.answer(stream).endswith(b"\x010"))  # grpc-status

    def test_more_connections_than_there_are_leave_those_who_are_known_served(self):
        known = self.http(ADDRESS)
        self.assertEqual(known.ask("GET", "/v2", None, SAID)[0], 200)
        local = self.http("127.0.0.1")
        for _ in range(MORE_THAN_THERE_ARE):
            self.held.append(socket.create_connection((ADDRESS, HTTP)))
        self.check_served()
        self.assertEqual(known.ask("GET", "/v2", None, SAID)[0], 200)  # it has not made room
        self.assertEqual(local.ask("GET", "/v2")[0], 200)

    def test_memory_that_halves_of_requests_take_is_had_by_those_who_are_known(self):
        half = b" " * (7 << 20)
        for _ in range(40):
            http = self.http(ADDRESS)
            http.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: %d\r\n\r\n" % (len(half) + 1))
            try:
                http.send(half)
            except (BrokenPipeError, ConnectionResetError):
                pass
        self.check_served()

    def test_a_wrong_token_makes_nobody_known(self):
        http = self.http(ADDRESS)
        answer = http.ask("GET", "/v2/systemsharedmemory/status", None, [f"gmsfs-session: {TOKEN[:-1]}x"])
        self.assertEqual(answer[0], 401)
        for _ in range(MORE_THAN_THERE_ARE):
            self.held.append(socket.create_connection((ADDRESS, HTTP)))
        self.assertTrue(http.is_closed())


if __name__ == "__main__":
    bring_up()
    SERVER, HTTP, GRPC = start()
    os.environ.update(GMSFS_TEST_HTTP=f"{ADDRESS}:{HTTP}", GMSFS_TEST_GRPC=f"{ADDRESS}:{GRPC}")
    import triton_raw as raw
    try:
        unittest.main(argv=sys.argv[:1], verbosity=2)
    finally:
        SERVER.terminate()
        SERVER.wait()
