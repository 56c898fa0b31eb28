#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A web server that misbehaves as the first part of a path says.

    web_server.py DIRECTORY PORT_FILE [--tls CERTIFICATE KEY [--client-ca FILE]] [--log FILE]

/FAULT+FAULT.../NAME is the file NAME of DIRECTORY (/plain/NAME: without a fault), with
    noranges       200 and the whole file, for a range too
    chunked        the same, without its length
    cut=N          each answer ends after N bytes of the body; cut=N:M: only the first M do
    slow=MS        so long before each 64 KiB
    stall=N        nothing more after N bytes, for 60 s
    longer=N       Content-Length is N too large, and the connection is closed then
    change=N       after N answers it is another file of the same size, with another ETag
    swap=N         the same, but without ETag and date before and after
    grow=N         after N answers the file has a byte more
    noetag weak    no ETag; a weak one
    ifless         If-Range is ignored
    shifted        ranges begin one byte later
    more           bytes beyond the range follow
    endless        the same, chunked and without an end
    empty416       416 for a range of an empty file
    encoded        Content-Encoding: gzip
    headers        headers of 200 KB
    fail=STATUS:N  the first N requests are answered with STATUS
    retry=S        with Retry-After, too
    late=STATUS:N  all requests after the first N
    of=TEXT        all these only for names with this text
    password       401 without user "user", password "secret"
    to=URL         redirects there, with the path /plain/NAME; to=loop: to itself
                   also with a query that is another each time
    once=N         403 after N answers to the same query

/s3/ and /hub/ are web_places.py.

The log has a line for each request: its path, Range, Authorization and other headers as JSON.
"""

import argparse
import base64
import http.server
import json
import os
import pathlib
import ssl
import sys
import threading
import time
import urllib.parse

sys.dont_write_bytecode = True

import web_places  # noqa: E402  beside this program

PIECE = 64 << 10
OTHER = bytes(255 - byte for byte in range(256))
USER = "Basic " + base64.b64encode(b"user:secret").decode()


class State:
    """What all requests share."""

    def __init__(self, directory, log):
        self.directory = pathlib.Path(directory)
        self.log = log
        self.lock = threading.Lock()
        self.counts = {}

    def count(self, key):
        with self.lock:
            self.counts[key] = self.counts.get(key, 0) + 1
            return self.counts[key]

    def note(self, handler):
        line = {"path": handler.path, **{name.lower(): value for name, value in handler.headers.items()}}
        if self.log:
            with self.lock, open(self.log, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def parse_range(text, size):
    """(first, end), None: no range, or False: not satisfiable."""
    if not text or not text.startswith("bytes="):
        return None
    first, _, last = text[6:].partition("-")
    end = int(last) + 1 if last else size
    return (int(first), min(end, size)) if int(first) < size else False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms between its headers and its body
    state = None  # of the server
    more = []  # further headers of a file
    services = (web_places.serve_s3, web_places.serve_hub)  # each answers paths of its own

    def log_message(self, *unused):
        pass

    def do_GET(self):
        self.state.note(self)
        try:
            if not any(service(self) for service in self.services):
                self.answer()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    do_HEAD = do_GET

    def send(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    # ---- faults --------------------------------------------------------------------------------

    def answer(self):
        parts = self.path.partition("?")[0].split("/", 2)
        if len(parts) < 3:
            return self.send(404)
        words, name = parts[1], urllib.parse.unquote(parts[2])
        self.faults = dict(word.partition("=")[::2] for word in urllib.parse.unquote(words).split("+"))
        if self.faults.get("of", "") not in name:
            self.faults = {}
        self.key = words + "/" + name
        if not self.refused(name):
            self.send_file(name)

    def refused(self, name):
        faults, number = self.faults, self.state.count(self.key + "#")
        for fault in ("fail", "late"):
            status, _, count = faults.get(fault, "0:0").partition(":")
            if status != "0" and (number <= int(count)) == (fault == "fail"):
                headers = [("Retry-After", faults["retry"])] if "retry" in faults else []
                self.send(int(status), b"no", headers)
                return True
        if "password" in faults and self.headers.get("Authorization") != USER:
            self.send(401, b"", [("WWW-Authenticate", 'Basic realm="x"')])
        elif "once" in faults and self.state.count(self.path) > int(faults["once"]):
            self.send(403, b"expired")
        elif "to" in faults:
            to = f'{faults["to"]}{urllib.parse.quote(name)}?n={number}'
            to = self.path if faults["to"] == "loop" else to
            self.send(302, b"elsewhere", [("Location", to)])
        else:
            return False
        return True

    def contents(self, name):
        path = self.state.directory / name
        if ".." in name.split("/") or not path.is_file():
            return None, None
        data, tag = path.read_bytes(), "one"
        number = self.state.count(self.key)
        for fault in ("change", "swap", "grow"):
            if fault in self.faults and number > int(self.faults[fault]):
                data = data + b"x" if fault == "grow" else data.translate(OTHER)
                tag = "two"
        return data, tag

    # ---- a file --------------------------------------------------------------------------------

    def send_file(self, name):
        faults = self.faults
        data, tag = self.contents(name)
        if data is None:
            return self.send(404, b"not here")
        tag = "0" * 32 if "wrongmd5" in name else tag
        etag = ("W/" if "weak" in faults else "") + f'"{tag}"'
        wanted = parse_range(self.headers.get("Range"), len(data))
        condition = self.headers.get("If-Range")
        is_other = condition and condition != etag and not condition.endswith("GMT")
        if (is_other and "ifless" not in faults) or "noranges" in faults or "chunked" in faults:
            wanted = None
        if wanted is False:
            if data or "empty416" in faults:
                return self.send(416, b"", [("Content-Range", f"bytes */{len(data)}")])
            return self.send(200)
        first, end = wanted or (0, len(data))
        if "shifted" in faults and wanted:
            first, end = first + 1, min(end + 1, len(data))
        body = data[first:end] + (b"y" * 1000 if "more" in faults else b"")
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(data)}")
        if "noetag" not in faults and "swap" not in faults:
            self.send_header("ETag", etag)
        if "swap" not in faults:
            self.send_header("Last-Modified", "Sat, 28 Nov 2026 12:00:00 GMT")
        if "encoded" in faults:
            self.send_header("Content-Encoding", "gzip")
        for name, value in self.more:
            self.send_header(name, value)
        if "headers" in faults:
            for i in range(100):
                self.send_header(f"X-Long-{i}", "x" * 2000)
        if "chunked" in faults or "endless" in faults:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) + int(faults.get("longer", 0))))
        self.end_headers()
        if self.command != "HEAD":
            self.send_body(body)

    def send_body(self, body):
        faults = self.faults
        most, _, times = faults.get("cut", str(len(body))).partition(":")
        most = int(most) if not times or self.state.count(self.key + "cut") <= int(times) else len(body)
        stall = int(faults["stall"]) if "stall" in faults else None
        for at in range(0, min(most, len(body)), PIECE):
            if "slow" in faults:
                time.sleep(int(faults["slow"]) / 1000)
            piece = body[at : min(at + PIECE, most)]
            if stall is not None and at + len(piece) > stall:
                self.wfile.write(piece[: max(0, stall - at)])
                self.wfile.flush()
                time.sleep(60)
            if "chunked" in faults or "endless" in faults:
                piece = b"%x\r\n%s\r\n" % (len(piece), piece)
            self.wfile.write(piece)
        while "endless" in faults:
            self.wfile.write(b"1\r\ny\r\n")
            time.sleep(0.01)
        if "chunked" in faults:
            self.wfile.write(b"0\r\n\r\n")
        if most < len(body) or "longer" in faults:
            self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("port_file")
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--client-ca")
    parser.add_argument("--log")
    options = parser.parse_args()
    Handler.state = State(options.directory, options.log)
    server = Server(("127.0.0.1", 0), Handler)
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
        if options.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(options.client_ca)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with open(options.port_file + ".new", "w", encoding="utf-8") as file:
        file.write(f"{server.server_address[1]}\n")
    os.rename(options.port_file + ".new", options.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
