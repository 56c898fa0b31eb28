# SPDX-License-Identifier: Apache-2.0
"""Hostile clients: half requests, floods, many at once. Other clients are served meanwhile."""

import json
import os
import select
import socket
import struct
import time
import unittest

import triton_raw as raw
from triton_raw import H2, Http, error_of, frame, message

MAX_MESSAGE = 8 << 20
CHUNKED = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def is_served():
    """Checks that the server answers at once, by both protocols."""
    with Http() as http:
        assert http.ask("GET", "/v2/health/live")[0] == 200
    with H2() as h2:
        assert b"\x08\x01" in h2.answer(h2.call("ServerLive"))


def memory_kib():
    with open(f"/proc/{os.environ['GMSFS_TEST_SERVER']}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


class Served(unittest.TestCase):
    def tearDown(self):
        is_served()

    def assert_memory(self, before_kib, limit_kib):
        if not os.environ.get("SANITIZE"):  # a sanitizer frees memory late
            self.assertLess(memory_kib() - before_kib, limit_kib)


class Requests(Served):

    def test_requests_may_follow_each_other_at_once(self):
        with Http() as http:
            http.send(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
                      b"POST /v2/systemsharedmemory/unregister HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: 0\r\n\r\n"
                      b"GET /v2/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                      b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertEqual([http.answer()[0] for _ in range(4)], [200, 200, 404, 200])

    def test_a_request_may_come_byte_by_byte(self):
        with Http() as http:
            http.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in CHUNKED + b"2\r\n{}\r\n0\r\n\r\n":
                http.send(bytes([byte]))
            self.assertEqual(error_of(http.answer()), "Request for unknown model: 'm' is not found")
            self.assertEqual(http.ask("GET", "/v2")[0], 200)

    def test_who_says_all_at_once_and_then_only_listens_is_known_and_answered(self):
        for _ in range(20):
            with Http() as http:
                http.send(b"GET /v2/systemsharedmemory/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
                http.socket.shutdown(socket.SHUT_WR)
                self.assertEqual(http.answer()[0], 200)
                self.assertTrue(http.is_closed())

    def test_unknown_paths_and_methods(self):
        with Http() as http:
            for method, path, status, text in (
                    ("GET", "/", 404, "Not Found"), ("POST", "/v2/repository/index", 404, "Not Found"),
                    ("GET", "/v2/models/simple/config", 404, "Not Found"),
                    ("POST", "/v2", 405, "Method Not Allowed"),
                    ("GET", "/v2/systemsharedmemory/region/a/register", 405, "Method Not Allowed"),
                    ("POST", "/v2/systemsharedmemory/region/%/register", 400, "the path is malformed")):
                answer = http.ask(method, path, b"{}" if method == "POST" else None)
                self.assertEqual((answer[0], error_of(answer)), (status, text))

    def test_a_body_that_is_too_large_is_taken_to_its_end_and_then_answered(self):
        size, before = MAX_MESSAGE + (32 << 20), memory_kib()
        piece = b" " * 65536
        with Http() as http:
            http.send(b"POST /v2/systemsharedmemory/region/a/register HTTP/1.1\r\nHost: localhost\r\n"
                      b"Content-Length: %d\r\n\r\n" % size)
            for _ in range(size // len(piece)):
                http.send(piece)
            answer = http.answer()
            self.assertEqual((answer[0], error_of(answer)), (
                400, f"request JSON size of {size} bytes exceeds the maximum allowed input size of "
                f"{MAX_MESSAGE} bytes."))
            self.assertEqual(http.ask("GET", "/v2")[0], 200)
            http.send(CHUNKED)
            for _ in range(size // len(piece)):
                http.send(b"10000\r\n" + piece + b"\r\n")
            http.send(b"0\r\n\r\n")
            self.assertIn(f"request JSON size of {size} bytes", error_of(http.answer()))
        self.assert_memory(before, 40 << 10)

    def test_who_expects_to_be_asked_for_the_body_is(self):
        with Http() as http:
            http.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                      b"Content-Length: 2\r\n\r\n")
            self.assertEqual(http.answer()[0], 100)
            http.send(b"{}")
            self.assertEqual(http.answer()[0], 404)

    def test_the_answer_to_a_head_has_no_body_and_the_next_one_follows(self):
        with Http() as http:
            http.send(b"HEAD /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"
                      b"HEAD /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                      b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            heads = []
            for _ in range(2):
                while b"\r\n\r\n" not in http.input:
                    http.input += http.socket.recv(65536)
                head, http.input = http.input.split(b"\r\n\r\n", 1)
                heads.append(head)
            self.assertEqual([head[9:12] for head in heads], [b"200", b"404"])
            status, headers, _ = http.answer()
            self.assertEqual(status, 200)
            self.assertIn(b"Content-Length: " + headers["content-length"].encode(), heads[0])

    def test_an_input_has_its_bytes_from_one_place(self):
        data, binary = {"data": [0] * 16}, {"binary_data_size": 64}
        region = {"shared_memory_region": "r", "shared_memory_byte_size": 64}
        tensor = {"name": "INPUT0", "shape": [1, 16], "datatype": "INT32"}
        for one in (dict(tensor, **data, parameters=region), dict(tensor, **data, parameters=binary),
                    dict(tensor, parameters={**region, **binary})):
            head = json.dumps({"inputs": [one]}).encode()
            with Http() as http:
                answer = http.ask("POST", "/v2/models/simple/infer", head + bytes(64),
                                  [f"Inference-Header-Content-Length: {len(head)}"])
                self.assertEqual(answer[0], 400)
                self.assertIn("send one of them", error_of(answer))

    def test_a_malformed_host_is_refused_by_both_protocols(self):
        for host in "[evil]", "a b", "localhost:x":
            with Http() as http:
                http.send(f"GET /v2 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                self.assertEqual(http.answer()[0], 400)
        with H2() as h2:
            block = raw.call_headers("ServerLive").replace(raw.literal(":authority", "localhost"),
                                                           raw.literal(":authority", "[evil]"))
            h2.send(frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, h2.next, block))
            self.assertEqual(h2.answer(h2.next), b"\x8c")  # :status 400 of the static table

    def test_compressed_requests_are_refused_and_plain_ones_follow(self):
        with Http() as http:
            answer = http.ask("POST", "/v2/models/m/infer", b"\x1f\x8b", ["Content-Encoding: gzip"])
            self.assertEqual(answer[0], 501)
            self.assertEqual(http.ask("GET", "/v2")[0], 200)

    def test_what_cannot_be_understood_is_answered_and_the_end(self):
        for sent, status in ((b"nonsense\r\n\r\n", 400), (b"GET /v2 HTTP/1.1\nA: b\n\n", 400),
                             (b"GET /v2 HTTP/3.0\r\n\r\n", 505),
                             (CHUNKED[:-2] + b"Content-Length: 1\r\n\r\n", 400), (CHUNKED + b"x\r\n", 400)):
            with Http() as http:
                http.send(sent)
                answer = http.answer()
                self.assertEqual((answer[0], answer[1]["connection"]), (status, "close"))
                http.socket.shutdown(socket.SHUT_WR)
                self.assertTrue(http.is_closed())

    def test_the_last_answer_is_followed_by_the_end_before_the_connection_is_closed(self):
        with Http() as http:
            http.request("GET", "/v2", headers=["Connection: close"])
            answer = http.answer()
            self.assertEqual((answer[0], answer[1]["connection"]), (200, "close"))
            self.assertTrue(http.is_closed())
            for _ in range(2):  # a connection that was closed would be reset by the first of them
                http.send(b"still there")
                time.sleep(0.05)

    def test_heads_that_do_not_end_are_cut_off(self):
        for head in (b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 101 + b"\r\n",
                     b"GET /" + b"v" * 20000,
                     b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 20000):
            with Http() as http:
                http.send(head)
                self.assertEqual(http.answer()[0], 431)

    def test_connections_that_do_not_read_or_send_halves_are_no_harm(self):
        before, held = memory_kib(), []
        for i in range(1000):
            http = Http()
            if i % 4 == 0:
                http.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
                          b"Content-Length: 100\r\n\r\n{")
            elif i % 4 == 1:
                http.send(b"GET /v2 HT")
            elif i % 4 == 2:
                http.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            held.append(http)
        is_served()
        self.assert_memory(before, 100 << 10)
        for http in held:
            http.socket.close()

    def test_an_answer_that_is_not_taken_stops_what_is_read(self):
        with Http() as http:
            http.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            http.socket.settimeout(1)
            sent, before = 0, memory_kib()
            with self.assertRaises(TimeoutError):
                while sent < 64 << 20:
                    http.send(b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000)
                    sent += 20000
            is_served()
            self.assert_memory(before, 10 << 10)


class Grpc(Served):

    def test_errors_are_one_block_of_trailers(self):
        with H2() as h2:
            for wrong in (b"\x0a\x03a%\xc3", b"\x0a\x04a%\xc3\xa9"):
                stream = h2.call("SystemSharedMemoryStatus", wrong)
                kind, flags, where, _ = h2.frame()
                while where != stream:
                    kind, flags, where, _ = h2.frame()
                self.assertEqual((kind, flags & raw.END_STREAM), (raw.HEADERS, raw.END_STREAM))

    def test_what_is_no_call_is_refused(self):
        with H2() as h2:
            self.assertTrue(h2.answer(h2.call("ModelStreamInfer")))
            self.assertTrue(h2.answer(h2.begin("ServerLive", method="GET", end=True)))
            self.assertTrue(h2.answer(h2.begin("ServerLive", content_type="text/html", end=True)))
            for sent in (b"", b"\0\0\0\0", b"\0\0\0\0\x05ab", b"\x01\0\0\0\0", message() + message(),
                         b"\0\xff\xff\xff\xff"):
                stream = h2.begin("ServerLive")
                h2.send(frame(raw.DATA, raw.END_STREAM, stream, sent))
                self.assertTrue(h2.answer(stream))
            self.assertIn(b"\x08\x01", h2.answer(h2.call("ServerLive")))

    def test_a_message_that_is_too_large_is_refused_before_its_end(self):
        with H2() as h2:
            stream = h2.begin("ModelInfer")
            try:
                for _ in range(MAX_MESSAGE // 16384 + 2):
                    h2.send(frame(raw.DATA, 0, stream, b"\0" * 16384))
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertTrue(h2.answer(stream))
            self.assertIn(b"\x08\x01", h2.answer(h2.call("ServerLive")))

    def test_headers_that_are_too_long_are_refused(self):
        with H2() as h2:
            stream = h2.next
            h2.next += 2
            block = raw.call_headers("ServerLive") + raw.literal("x", b"y" * 12000)
            h2.send(frame(raw.HEADERS, 0, stream, block))
            h2.send(frame(9, raw.END_HEADERS, stream, raw.literal("z", b"y" * 12000)))
            h2.send(frame(raw.DATA, raw.END_STREAM, stream, message()))
            self.assertNotIn(b"\x08\x01", h2.answer(stream))
            self.assertIn(b"\x08\x01", h2.answer(h2.call("ServerLive")))

    def assert_told_to_leave(self, cut):
        """cut(h2, stream) must make the server drop a call that has begun."""
        with H2() as h2:
            try:
                for _ in range(500):
                    cut(h2, h2.begin("ServerReady"))
                payload = h2.until(raw.GOAWAY)[3]
                self.assertEqual(payload[4:8], struct.pack(">I", 11))  # ENHANCE_YOUR_CALM
            except (BrokenPipeError, ConnectionResetError, EOFError):
                pass
            try:
                for _ in range(20):
                    h2.send(frame(raw.PING, 0, 0, b"12345678"))
                    time.sleep(0.05)
                self.fail("the connection goes on")
            except (BrokenPipeError, ConnectionResetError):
                pass

    def test_rapid_resets_end_the_connection(self):
        self.assert_told_to_leave(
            lambda h2, stream: h2.send(frame(raw.RST, 0, stream, struct.pack(">I", 8))))

    def test_rapid_errors_that_make_the_server_reset_end_the_connection(self):
        self.assert_told_to_leave(
            lambda h2, stream: h2.send(frame(raw.WINDOW, 0, stream, struct.pack(">I", 0x7fffffff))))

    def test_some_resets_are_the_clients_right(self):
        with H2() as h2:
            for _ in range(100):
                stream = h2.begin("ServerReady")
                h2.send(frame(raw.RST, 0, stream, struct.pack(">I", 8)))
            self.assertIn(b"\x08\x01", h2.answer(h2.call("ServerLive")))

    def test_floods_of_pings_and_settings_that_nobody_reads(self):
        before = memory_kib()
        for flood in (frame(raw.PING, 0, 0, b"12345678"), frame(raw.SETTINGS, 0, 0)):
            with H2() as h2:
                h2.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                h2.socket.settimeout(1)
                try:
                    for _ in range(2000):
                        h2.send(flood * 1000)
                except (TimeoutError, BrokenPipeError, ConnectionResetError):
                    pass
                is_served()
        self.assert_memory(before, 20 << 10)

    def test_streams_that_are_begun_and_left_have_a_bound(self):
        with H2() as h2:
            for _ in range(300):
                h2.begin("ModelInfer")
            refused = 0
            while refused < 200:
                kind, _, _, payload = h2.frame()
                if kind == raw.RST:
                    self.assertEqual(payload, struct.pack(">I", 7))  # REFUSED_STREAM
                    refused += 1

    def test_windows_that_are_never_opened(self):
        """SETTINGS_INITIAL_WINDOW_SIZE 0: the answer cannot be sent; others on the connection go on."""
        with H2(settings=struct.pack(">HI", 4, 0)) as h2:
            held = [h2.call("ServerLive") for _ in range(20)]
            opened = h2.call("ServerLive")
            h2.send(frame(raw.WINDOW, 0, opened, struct.pack(">I", 100)))
            self.assertIn(b"\x08\x01", h2.answer(opened))
            self.assertEqual(len(held), 20)

    def test_what_is_no_http2_ends(self):
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00" * 10):
            with Http(raw.GRPC) as http:
                http.send(sent)
                while not http.is_closed():
                    pass


class Work(Served):
    """A client that makes more work than its bytes are worth is told to calm down and ended."""

    FLOOD = 200000  # frames; ten times the credit of a connection and of the time that they take

    def assert_ended(self, h2):
        """No frame that the client sent last is answered any more."""
        try:
            h2.send(frame(raw.PING, 0, 0, b"the last"))
            while True:
                kind, _, _, payload = h2.frame()
                self.assertNotEqual(payload, b"the last")
                if kind == raw.GOAWAY:
                    self.assertEqual(payload[4:8], struct.pack(">I", 11))  # ENHANCE_YOUR_CALM
        except (BrokenPipeError, ConnectionResetError, EOFError):
            pass

    def bomb(self, value):
        """One field of 4 KB in the table, and 16,000 bytes that each name it."""
        return b"\x40\1a" + raw.length(len(value)) + value + b"\xbe" * 12000

    def test_headers_that_are_compressed_thousandfold(self):
        for value in b"v" * 3966, b"v" * 3965 + b"\1":  # a field that counts, and one that is forbidden
            with self.subTest(value[-1:]), H2() as h2:
                block = raw.call_headers("ServerLive") + self.bomb(value)
                h2.send(frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, h2.next, block))
                self.assert_ended(h2)

    def test_trailers_that_are_compressed_thousandfold(self):
        with H2() as h2:
            stream = h2.begin("ModelInfer")
            h2.send(frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, stream, self.bomb(b"v" * 3966)))
            self.assert_ended(h2)

    def test_headers_that_are_too_long_again_and_again(self):
        with H2() as h2:
            field = b"\x40\1a" + raw.length(3966) + b"v" * 3966
            for i in range(500):
                more = (field if i == 0 else b"\xbe") + b"\xbe" * 14
                try:
                    h2.send(frame(raw.HEADERS, raw.END_HEADERS | raw.END_STREAM, h2.next,
                                  raw.call_headers("ServerLive") + more))
                except (BrokenPipeError, ConnectionResetError):
                    break
                h2.next += 2
            self.assert_ended(h2)

    def test_headers_that_never_end(self):
        with H2() as h2:
            head = frame(raw.HEADERS, 0, h2.next, raw.call_headers("ServerLive"))
            h2.send(head + frame(9, 0, h2.next) * 20)
            self.assert_ended(h2)

    def test_floods_of_frames_whose_answers_are_read(self):
        stream = 1
        for flood in (frame(raw.PING, 0, 0, b"12345678"), frame(raw.SETTINGS, 0, 0),
                      frame(raw.WINDOW, 0, 0, struct.pack(">I", 1)), frame(raw.DATA, 0, stream),
                      frame(2, 0, stream, struct.pack(">IB", 0, 1)),  # PRIORITY
                      frame(0xbb, 0, 0), frame(raw.SETTINGS, 0, 0, struct.pack(">HI", 4, 9) * 16)):
            with self.subTest(flood), H2() as h2:
                self.assertEqual(h2.begin("ModelInfer"), stream)
                self.send_until_closed(h2.socket, flood * 1000, self.FLOOD // 1000)

    def send_until_closed(self, made, flood, times):
        made.setblocking(False)
        left = b""
        try:
            while True:
                if not left and times:
                    left, times = flood, times - 1
                can_read, can_write, _ = select.select([made], [made] if left else [], [], raw.TIMEOUT)
                self.assertTrue(can_read or can_write, "the connection goes on")
                if can_read and not made.recv(1 << 20):
                    return
                if can_write:
                    left = left[made.send(left):]
        except (BrokenPipeError, ConnectionResetError):
            pass

    def test_calls_never_run_out(self):
        """Far more of them than a connection has credit for, with much in their headers."""
        with H2() as h2:
            field = b"\x40\1a" + raw.length(3000) + b"v" * 3000
            for i in range(3000):
                h2.send(frame(raw.HEADERS, raw.END_HEADERS, h2.next,
                              raw.call_headers("ServerLive") + (field if i == 0 else b"\xbe") + b"\xbe" * 3))
                h2.send(frame(raw.DATA, raw.END_STREAM, h2.next, message()))
                h2.send(frame(raw.PING, 0, 0, b"12345678") + frame(raw.WINDOW, 0, 0, struct.pack(">I", 1)))
                self.assertIn(b"\x08\x01", h2.answer(h2.next))
                h2.next += 2


class Lists(Served):
    COUNT = 1500

    def setUp(self):
        self.key = f"/{os.environ['GMSFS_TEST_SHM']}-lists"
        with open("/dev/shm" + self.key, "wb") as file:
            file.write(bytes(64))
        with Http() as http:
            for i in range(self.COUNT):
                self.assertEqual(raw.register(http, f"list{i}", self.key, 64)[0], 200)

    def tearDown(self):
        with Http() as http:
            http.ask("POST", "/v2/systemsharedmemory/unregister", b"")
        super().tearDown()

    def test_long_lists_that_are_not_taken_cost_no_more_than_they_are_long(self):
        """An answer is about 100 KiB, made from ten times as much data."""
        before, held = memory_kib(), []
        for _ in range(2):
            h2 = H2(settings=struct.pack(">HI", 4, 0))
            last = [h2.call("SystemSharedMemoryStatus") for _ in range(100)][-1]
            h2.send(frame(raw.WINDOW, 0, last, struct.pack(">I", 1)))
            while h2.frame()[2] != last:  # the others were asked for before it
                pass
            held.append(h2)
        for _ in range(100):
            http = Http()
            http.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            http.request("GET", "/v2/systemsharedmemory/status")
            self.assertTrue(http.socket.recv(1))
            held.append(http)
        self.assert_memory(before, 100 << 10)
        for each in held:
            each.socket.close()


class Account(unittest.TestCase):
    def test_connections_come_and_go_without_a_trace(self):
        is_served()  # the first one makes the server ask the kernel by a socket that it keeps
        fds = len(os.listdir(f"/proc/{os.environ['GMSFS_TEST_SERVER']}/fd"))
        for _ in range(300):
            is_served()
        for _ in range(100):
            left = len(os.listdir(f"/proc/{os.environ['GMSFS_TEST_SERVER']}/fd"))
            if left <= fds:
                break
            time.sleep(0.05)
        self.assertLessEqual(left, fds)
