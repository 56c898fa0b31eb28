# SPDX-License-Identifier: Apache-2.0
"""How long a connection may take: the server's times are divided by 60 here (GMSFS_TRITON_HASTE), so a
request has one second, an answer half a second, and a connection may be idle for five. The server checks
once a second, so each limit may fire one second late. A delay that the client did not cause never ends its
connection."""

import socket
import struct
import time
import unittest

import triton_raw as raw
from triton_raw import H2, Http, frame, message

REQUEST_S, UNREAD_S, IDLE_S = 1, 0.5, 5
LATE_S = 8  # on a busy machine


class Times(unittest.TestCase):
    def ends(self, connection, at_least):
        """The other end closes, not before that time."""
        start = time.monotonic()
        connection.socket.settimeout(at_least + LATE_S)
        try:
            while connection.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        self.assertGreater(time.monotonic() - start, at_least - 0.2)

    def test_half_a_request_is_told_that_it_is_late(self):
        for half in (b"GET /v2 HT",
                     b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
                     b"POST /v2/nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"):
            with Http() as http:
                http.send(half)
                start = time.monotonic()
                self.assertEqual(http.answer()[0], 408)
                self.assertGreater(time.monotonic() - start, REQUEST_S - 0.2)

    def test_half_a_request_behind_a_whole_one_is_told_that_it_is_late_as_well(self):
        with Http() as http:
            http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v2 HT")
            self.assertEqual(http.answer()[0], 200)
            start = time.monotonic()
            self.assertEqual(http.answer()[0], 408)
            took = time.monotonic() - start
            self.assertGreater(took, REQUEST_S - 0.2)
            self.assertLess(took, IDLE_S - 0.2)

    def test_bytes_that_trickle_do_not_lengthen_a_requests_time(self):
        with Http() as http:
            http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: ")
            try:
                for _ in range(int(LATE_S / 0.1)):
                    http.send(b"b")
                    time.sleep(0.1)
                self.fail("it goes on")
            except (BrokenPipeError, ConnectionResetError):
                pass

    def test_between_two_requests_there_is_time_but_not_for_ever(self):
        with Http() as http:
            for _ in range(3):
                self.assertEqual(http.ask("GET", "/v2")[0], 200)
                time.sleep(REQUEST_S + 1.2)
            self.ends(http, IDLE_S - REQUEST_S - 1.2)

    def test_who_connects_and_says_nothing_ends(self):
        with Http() as http:
            self.ends(http, REQUEST_S)

    def test_an_answer_that_is_not_taken_ends_the_connection(self):
        with Http() as http:
            http.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            http.socket.settimeout(0.3)
            with self.assertRaises((TimeoutError, BrokenPipeError, ConnectionResetError)):
                while True:
                    http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
            time.sleep(UNREAD_S + 1.5)
            http.socket.settimeout(LATE_S)
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                for _ in range(1000):
                    http.socket.recv(1 << 20)
                    http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def test_a_call_that_is_begun_and_left_ends_its_connection(self):
        with H2() as h2:
            stream = h2.begin("ModelInfer")
            h2.send(frame(raw.DATA, 0, stream, b"\0"))
            self.ends(h2, REQUEST_S)

    def test_an_answer_without_a_window_ends_its_connection(self):
        with H2(settings=struct.pack(">HI", 4, 0)) as h2:
            h2.call("ServerLive")
            self.ends(h2, UNREAD_S)

    def test_calls_that_take_long_are_no_connections_fault(self):
        """The inference takes three seconds."""
        one = b"\x12\x05INT32\x1a\x02\x01\x10"
        data = b"\x3a\x40" + b"\1" * 64
        inputs = [b"\x2a" + bytes([8 + len(one)]) + b"\x0a\x06INPUT" + name + one for name in (b"0", b"1")]
        wanted = b"\x0a\x06simple" + b"".join(inputs) + 2 * data
        with H2() as h2:
            stream = h2.begin("ModelInfer")
            h2.send(frame(raw.DATA, raw.END_STREAM, stream, message(wanted)))
            self.assertIn(b"\x02" * 64, h2.answer(stream))
