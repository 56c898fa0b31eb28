# SPDX-License-Identifier: Apache-2.0
"""Connections to the front end for Triton clients, byte by byte: HTTP/1.1, and the few frames of HTTP/2
that a call takes. Python's own library alone, so that any user can run it."""

import json
import os
import socket
import struct

HTTP = os.environ["GMSFS_TEST_HTTP"]
GRPC = os.environ["GMSFS_TEST_GRPC"]
TIMEOUT = 20

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def connect(address):
    if address.startswith("unix:"):
        made = socket.socket(socket.AF_UNIX)
        made.connect(address[5:])
    else:
        host, port = address.rsplit(":", 1)
        made = socket.create_connection((host.strip("[]"), int(port)))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.settimeout(TIMEOUT)
    return made


class Http:
    def __init__(self, address=HTTP):
        self.socket = connect(address)
        self.input = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def request(self, method, path, body=None, headers=()):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))

    def _more(self):
        got = self.socket.recv(65536)
        if not got:
            raise EOFError(self.input)
        self.input += got

    def answer(self):
        """Status, headers by lower-case name, body."""
        while b"\r\n\r\n" not in self.input:
            self._more()
        head, self.input = self.input.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
        status = int(lines[0].split(" ")[1])
        size = int(headers.get("content-length", 0))
        while len(self.input) < size:
            self._more()
        body, self.input = self.input[:size], self.input[size:]
        return status, headers, body

    def ask(self, method, path, body=None, headers=()):
        self.request(method, path, body, headers)
        return self.answer()

    def is_closed(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def register(http, name, key, size, offset=0, headers=()):
    body = json.dumps({"key": key, "offset": offset, "byte_size": size}).encode()
    return http.ask("POST", f"/v2/systemsharedmemory/region/{name}/register", body, headers)


def error_of(answer):
    return json.loads(answer[2])["error"]


# ---- HTTP/2 -----------------------------------------------------------------------------------


def literal(name, value):
    """A field that goes into no table, not Huffman-coded; both below 127 bytes long."""
    name, value = name.encode(), value if isinstance(value, bytes) else value.encode()
    return b"\0" + bytes([len(name)]) + name + length(len(value)) + value


def length(number):
    if number < 127:
        return bytes([number])
    number -= 127
    out = b"\x7f"
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def call_headers(call, *more, method="POST", content_type="application/grpc"):
    fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"),
              (":path", f"/inference.GRPCInferenceService/{call}"), ("content-type", content_type),
              ("te", "trailers"), *more]
    return b"".join(literal(*field) for field in fields)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def message(data=b""):
    return b"\0" + struct.pack(">I", len(data)) + data


class H2:
    def __init__(self, address=GRPC, settings=b""):
        self.socket = connect(address)
        self.input = b""
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, settings))
        self.next = 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def begin(self, call, *more, end=False, **which):
        stream, self.next = self.next, self.next + 2
        self.send(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream,
                        call_headers(call, *more, **which)))
        return stream

    def call(self, call, data=b"", *more):
        stream = self.begin(call, *more)
        self.send(frame(DATA, END_STREAM, stream, message(data)))
        return stream

    def frame(self):
        """Kind, flags, stream, payload of the next one."""
        while len(self.input) < 9 or len(self.input) < 9 + int.from_bytes(self.input[:3], "big"):
            got = self.socket.recv(65536)
            if not got:
                raise EOFError(self.input)
            self.input += got
        size = int.from_bytes(self.input[:3], "big")
        kind, flags = self.input[3:5]
        stream = int.from_bytes(self.input[5:9], "big")
        payload, self.input = self.input[9:9 + size], self.input[9 + size:]
        return kind, flags, stream, payload

    def until(self, kind, stream=None):
        while True:
            got = self.frame()
            if got[0] == kind and stream in (None, got[2]):
                return got

    def answer(self, stream):
        """All payloads of the stream up to its end."""
        said = b""
        while True:
            kind, flags, where, payload = self.frame()
            if kind == GOAWAY:
                raise EOFError(payload)
            if where != stream:
                continue
            said += payload
            if kind == RST or flags & END_STREAM:
                return said
