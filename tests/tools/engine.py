# SPDX-License-Identifier: Apache-2.0
"""engine.py STORE FILE: stands in for an inference engine that has the store mapped.

POST /sleep and POST /wake_up as engines have them; GET /sum is a digest of what it has mapped. FILE gets
the port of 127.0.0.1 that it listens on, once it does."""

import hashlib
import http.server
import os
import sys

import gmsfs

TIMEOUT = 60 * int(os.environ.get("GMSFS_TEST_SLOW", "1"))


class Engine(http.server.BaseHTTPRequestHandler):
    def answer(self, status, text):
        body = (text + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        try:
            if self.path == "/sleep":
                self.server.store.sleep()
            elif self.path == "/wake_up":
                self.server.store.wake(TIMEOUT, strict=True)
            else:
                return self.answer(404, "no such call")
        except gmsfs.Error as error:
            return self.answer(500, str(error))
        return self.answer(200, "done")

    def do_GET(self):
        digest = hashlib.sha256()
        for view in self.server.views.values():
            digest.update(view)
        self.answer(200, digest.hexdigest())


def main(path, file):
    with gmsfs.open(path, timeout=TIMEOUT) as store:
        server = http.server.HTTPServer(("127.0.0.1", 0), Engine)
        server.store, server.views = store, store.views()
        with open(file + ".new", "w", encoding="ascii") as out:
            out.write(str(server.server_port))
        os.rename(file + ".new", file)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
