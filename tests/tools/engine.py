# SPDX-License-Identifier: Apache-2.0
"""engine.py STORE FILE [PORT]: stands in for an inference engine that has the store mapped.

POST /sleep and POST /wake_up as engines have them; POST /ask/N lets N requests come, which are served
while it is awake, until POST /end, and else wait; GET /metrics tells of them as vLLM does. GET /sum is
a digest of its mapped bytes, or 503 while it sleeps. FILE gets the port of 127.0.0.1 that it listens
on, once it does."""

import hashlib
import http.server
import os
import sys
import threading
import time

import gmsfs

TIMEOUT = 60 * int(os.environ.get("GMSFS_TEST_SLOW", "1"))
TTFT = "vllm:time_to_first_token_seconds"


class Requests:
    """The waiting requests, their arrival times, and the requests being served."""

    def __init__(self):
        self.lock = threading.Lock()
        self.awake, self.waiting, self.running = True, [], 0
        self.first_tokens, self.first_tokens_s = 0, 0.0

    def serve(self):
        while self.awake and self.waiting:
            self.first_tokens_s += time.monotonic() - self.waiting.pop()
            self.first_tokens += 1
            self.running += 1

    def come(self, count):
        with self.lock:
            self.waiting += [time.monotonic()] * count
            self.serve()

    def set_awake(self, awake):
        """Requests being served when the engine goes to sleep wait again."""
        with self.lock:
            self.awake = awake
            if not awake:
                self.waiting += [time.monotonic()] * self.running
                self.running = 0
            self.serve()

    def end(self):
        with self.lock:
            self.running = 0

    def tell(self):
        labels = '{engine="0",model_name="m"}'
        with self.lock:
            rows = (
                ("vllm:num_requests_running", "gauge", "", float(self.running)),
                ("vllm:num_requests_waiting", "gauge", "", float(len(self.waiting))),
                (TTFT, "histogram", "_count", float(self.first_tokens)),
                (TTFT, "histogram", "_sum", self.first_tokens_s),
            )
        return "".join(
            f"# HELP {name} of requests.\n# TYPE {name} {kind}\n{name}{suffix}{labels} {value}\n"
            for name, kind, suffix, value in rows
        )


class Engine(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do(self, path):
        server = self.server
        if path == "/sleep":
            with server.memory:
                server.requests.set_awake(False)
                server.store.sleep()
        elif path == "/wake_up":
            with server.memory:
                server.store.wake(TIMEOUT, strict=True)
                server.requests.set_awake(True)
        elif path == "/end":
            server.requests.end()
        elif path.startswith("/ask/"):
            server.requests.come(int(path.rpartition("/")[2]))
        else:
            return False
        return True

    def do_POST(self):
        try:
            known = self.do(self.path)
        except gmsfs.Error as error:
            return self.answer(500, f"{error}\n")
        return self.answer(200, "done\n") if known else self.answer(404, "no such call\n")

    def do_GET(self):
        if self.path == "/metrics":
            return self.answer(200, self.server.requests.tell())
        with self.server.memory:
            if not self.server.requests.awake:
                return self.answer(503, "asleep\n")
            digest = hashlib.sha256()
            for view in self.server.views:
                digest.update(view)
        return self.answer(200, digest.hexdigest() + "\n")


def main(path, file, port="0"):
    with gmsfs.open(path, timeout=TIMEOUT) as store:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Engine)
        server.store, server.requests, server.memory = store, Requests(), threading.Lock()
        server.views = [buffer.view() for buffer in store.buffers()]
        with open(file + ".new", "w", encoding="ascii") as out:
            out.write(str(server.server_port))
        os.rename(file + ".new", file)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
