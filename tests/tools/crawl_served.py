#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a server of `gmsfs web` for everything that its mount has,
and attacks it: crawl_served.py PORT MOUNT

The mount is served as /host/. Fails unless each answer is that of the list below: the file's own bytes
where the list has the path, and an error with none of the mount's bytes where it has not. Prints how much
was asked.
"""
import errno
import os
import posixpath
import re
import socket
import sys
from urllib.parse import quote_from_bytes, unquote_to_bytes

PORT, MOUNT = int(sys.argv[1]), os.fsencode(sys.argv[2])
OF_MOUNT = {b"device", b"pools", b"metrics"}
OF_STORE = {b"state", b"residency", b"layout", b"layout_hash", b"pieces"}
DIRECTORIES = {b"allocations", b"metadata", b"files"}
NAMED = {b"events", b"info", b"sessions"}
ERRORS = {400, 403, 404, 405, 408, 411, 413, 414, 421, 431, 494, 501, 503, 505}
asked = 0


def exchange(request: bytes, ends: bool = False) -> tuple[int, bytes, bytes]:
    """Sends the bytes, and their end if it is to; returns status, headers, body. Status 0: a hang-up."""
    global asked
    asked += 1
    with socket.create_connection(("127.0.0.1", PORT), timeout=60) as connection:
        try:
            connection.sendall(request)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        except OSError as error:
            is_cut = isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN
            require(is_cut, "no answer", request, error)
            return 0, b"", b""
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split()
    return (int(words[1]) if len(words) > 1 else 0), head, body


def get(path: bytes, *headers: bytes, method: bytes = b"GET", ends: bool = False) -> tuple[int, bytes,
bytes]:
    lines = [method + b" " + path + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *headers]
    return exchange(b"\r\n".join(lines) + b"\r\n\r\n", ends)


def kind_of(parts: list[bytes], trusted: bool = True) -> str:
    """What the list says of the path below /host/: "file", "list", or "" for nothing."""
    if not parts:
        return "list"
    if len(parts) == 1:
        return "file" if parts[0] in OF_MOUNT or (trusted and parts[0] == b"events") else ""
    if parts[0] == b"regions":
        return ""
    if len(parts) == 2 and (parts[1] in OF_STORE or (trusted and parts[1] in NAMED - {b"events"})):
        return "file"
    if parts[1] == b"by-id":
        is_file = os.path.isfile(os.path.join(MOUNT, *parts))
        return "file" if is_file and parts[3] in {b"pieces", b"layout", b"allocations", b"files"} else ""
    if parts[1] in DIRECTORIES:
        return "list" if os.path.isdir(os.path.join(MOUNT, *parts)) else "file"
    return ""


def require(good: bool, what: str, *facts: object) -> None:
    if not good:
        sys.exit(f"{what}: {' '.join(repr(fact)[:300] for fact in facts)}")


def read(parts: list[bytes]) -> bytes | None:
    try:
        fd = os.open(os.path.join(MOUNT, *parts), os.O_RDONLY | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return file.read()
    except OSError:
        return None


def is_error(status: int, body: bytes) -> bool:
    """True for an error page of nginx's own: the mount's texts and bytes are none."""
    return status == 0 or (status in ERRORS and (not body or body.startswith(b"<html>")))


def paths_by_id(store: list[bytes]) -> list[list[bytes]]:
    """All that by-id/ID/ of the store has, and some that it has not; no list shows it."""
    found = re.search(rb"^id ([0-9a-f]{32})$", read(store + [b"pieces"]) or b"", re.M)
    if not found:
        return []
    top = store + [b"by-id", found[1]]
    paths = [top, *(top + [name] for name in (b"lock", b"state", b"info", b"metadata", b"commit"))]
    for at, directories, files in os.walk(os.path.join(MOUNT, *top)):
        below = os.path.relpath(at, MOUNT).split(b"/")
        paths += [below + [name] for name in directories + files]
    return paths + [top + [b"allocations", rank] for rank in (b"0", b"00", b"1", b"99", b"-1", b"a")]


def crawl() -> list[list[bytes]]:
    """Asks for each path of the tree, as it is and as a directory; returns the files that are sent."""
    sent = []
    paths: list[list[bytes]] = [[]]
    for top, directories, files in os.walk(MOUNT):
        below = [] if top == MOUNT else os.path.relpath(top, MOUNT).split(b"/")
        paths += [below + [name] for name in directories + files]
    for store in [path for path in paths if len(path) == 1 and os.path.isdir(os.path.join(MOUNT, *path))]:
        paths += [store + [name] for name in (b"by-id", b".fds", b"device", b"metrics", b"regions")]
        paths += [store + [b"by-id", b"0" * 32], store + [b"by-id", b"0" * 32, b"pieces"]]
        paths += paths_by_id(store)
    for parts in paths:
        path = b"/host/" + b"/".join(quote_from_bytes(part, safe="").encode() for part in parts)
        for ask in {path, path.rstrip(b"/") + b"/"}:
            status, head, body = get(ask)
            kind = kind_of(parts) if not ask.endswith(b"/") or kind_of(parts) == "list" else ""
            if kind == "list":
                is_list = body.endswith(b"0\r\n\r\n") and b"application/json" in head
                require(status == 301 or (status == 200 and is_list), "a list", ask, status, body)
            elif kind == "file" and read(parts) is not None:
                wanted = read(parts)
                changes = parts[-1] in {b"device", b"metrics", b"events", b"info", b"sessions"}
                if status == 0 and parts == [b"events"]:
                    continue  # its beginning is forgotten
                is_good = status == 200 and (changes or body == wanted)
                require(is_good, "a file", ask, status, body, wanted)
                sent.append(parts)
            else:  # a directory by-id/ID/files/PATH is told to be one, and has no list
                is_told = status == 301 and parts[1:2] == [b"by-id"] and not ask.endswith(b"/")
                require(is_told or is_error(status, body), "sent, and not in the list", ask, status, body)
            if kind_of(parts, trusted=False) != kind_of(parts):
                status, head, body = get(ask, b"X-Forwarded-For: 127.0.0.1")
                require(is_error(status, body), "sent to a client behind a proxy", ask, status, body)
    return sent


def normalise(path: bytes) -> list[bytes] | None:
    """The parts below /host/ that the path stands for, by the rules of URLs; None: elsewhere."""
    plain = unquote_to_bytes(re.split(rb"[?#]", path)[0])
    plain = re.sub(rb"/+", b"/", plain)
    normal = posixpath.normpath(plain)
    if normal != b"/host" and not normal.startswith(b"/host/"):
        return None
    return [part for part in normal[6:].split(b"/") if part]


def attack_paths() -> int:
    """Many spellings of files that are not sent, and of files outside."""
    ups = [b"../", b"..%2f", b"%2e%2e/", b"%2e%2e%2f", b"..%5c", b"..\\", b"%252e%252e%252f", b"..;/",
           b"%c0%ae%c0%ae/",
           b"%uff0e%uff0e/", b".%00./", b"...//", b"....//", b"..%00/", b"..%0d/", b"%2e./"]
    bases = [b"/host/", b"/host", b"/ui", b"/ui/", b"/", b"//", b"/host/weights/",
             b"/host/weights/files/", b"/host/weights/by-id/",
             b"/host/weights/allocations/", b"/host/weights/metadata/",
             b"/host/weights/by-id/" + b"0" * 32 + b"/files/"]
    targets = [b"lock", b"weights/lock", b"weights/ctl", b"weights/commit", b"weights/abort",
               b"weights/data", b"weights/auto",
               b"weights/seal", b".fds", b"regions/0/x", b"etc/passwd", b"proc/self/environ",
               b"nginx.conf"]
    ends = [b"", b"/", b".", b"/.", b"%00", b"%00.json", b"%0a", b"%20", b"?x", b"#x", b";x",
            b"/..;/state", b"~", b"::$DATA", b"/state/.."]
    few = targets[:2] + targets[8:12:3]
    paths = {base + up * times + target for base in bases for up in ups for times in (1,
             7) for target in few}
    paths |= {base + target + end for base in bases for target in targets for end in ends}
    paths |= {b"/HOST/weights/state", b"/host/weights/LOCK", b"/host/weights/lock/../state/../lock",
              b"/host%2fweights%2flock",
              b"/host/weights%2flock", b"/h%6fst/weights/l%6fck", b"*", b"host/weights/lock",
              b"/host/%s/state", b"/" + b"a" * 9000,
              b"http://localhost/host/weights/lock", b"http://evil.example/etc/passwd", b"/\xff\xfe",
              b"/host/weights/files/%ff",
              b"file:///etc/passwd", b"/host/weights/files/" + b"x/" * 2000, b"/host/weights/state\t",
              b"/%"}
    for path in sorted(paths):
        status, _, body = get(path)
        parts = normalise(path)
        kind = kind_of(parts) if parts is not None and all(b"\0" not in part for part in parts) else ""
        own = status in (301, 302) or path.startswith(b"/ui")
        require(is_error(status, body) or own or kind != "", "an attack on the path", path, status, body)
        require(b"root:" not in body and b"PATH=" not in body, "a file of the machine", path, body)
    return len(paths)


def attack_ranges(parts: list[bytes], whole: bytes) -> int:
    """Ranges that are odd: the answer is the whole, the right part, or an error."""
    path = b"/host/" + b"/".join(quote_from_bytes(part, safe="").encode() for part in parts)
    size = len(whole)
    ranges = [b"bytes=0-0", b"bytes=%d-" % (size - 1), b"bytes=-1", b"bytes=-%d" % (size + 9),
              b"bytes=5-2", b"bytes=%d-" % size,
              b"bytes=-0", b"bytes=", b"bytes=-", b"bytes=a-b", b"bytes=0-18446744073709551615",
              b"bytes=18446744073709551615-",
              b"bytes=-9223372036854775808", b"bytes=9223372036854775808-9223372036854775809",
              b"chars=0-1", b"bytes=0-1,3-4",
              b"bytes=" + b",".join(b"%d-%d" % (n, n) for n in range(1000)), b"bytes=0x1-0x2",
              b"bytes=1-\x00", b"bytes = 0-1"]
    for asked_range in ranges:
        status, head, body = get(path, b"Range: " + asked_range)
        found = re.search(rb"Content-Range: bytes (\d+)-(\d+)/(\d+)", head)
        if status == 206 and found:
            first, last, total = map(int, found.groups())
            require(total == size and body == whole[first:last + 1], "another part", asked_range, head)
        else:
            is_whole = status == 200 and body == whole
            require(is_whole or status in (400, 416), "a range", asked_range, status, body)
    return len(ranges)


def attack_requests() -> int:
    """Methods, headers and bodies: none has an effect, none has the server send something else."""
    state = b"/host/weights/state"
    wanted = read([b"weights", b"state"])
    refused = [b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT", b"PROPFIND",
               b"MKCOL", b"COPY", b"MOVE", b"LOCK",
               b"get", b"GETX", b"\0GET", b"G" * 5000]
    for method in refused:
        path = b"/host/weights/commit" if method == b"PUT" else state
        status, _, body = get(path, b"Content-Length: 2", method=method, ends=True)
        require(is_error(status, body), "a method", method, status, body)
    harmless = [b"X-Original-URL: /host/weights/lock", b"X-Rewrite-URL: /etc/passwd",
                b"X-Accel-Redirect: /etc/passwd",
                b"X-HTTP-Method-Override: PUT", b"X-Forwarded-Host: evil", b"Upgrade: h2c",
                b"If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", b"Accept-Encoding: gzip",
                b"Destination: /x",
                b"Depth: infinity", b"Translate: f", b"Cookie: " + b"a" * 4000]
    for header in harmless:
        status, _, body = get(state, header)
        require(status == 200 and body.endswith(wanted or b"?"), "a header", header, status, body)
    odd = [b"Transfer-Encoding: chunked\r\nContent-Length: 5", b"Content-Length: 5\r\nContent-Length: 6",
           b"Content-Length: -1",
           b"Content-Length: 99999999999999999999", b"Host: evil", b"A" * 40000 + b": x",
           b"x: " + b"a" * 70000, b"no colon",
           b": empty", b"Transfer-Encoding: gzip", b"Content-Length: 100000"]
    for header in odd:
        status, _, body = get(state, header, ends=True)
        is_good = is_error(status, body) or (status == 200 and body == wanted)
        require(is_good, "an odd header", header[:80], status, body)
    raw = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET " + state + b"\r\n\r\n",
           b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
           b"GET " + state + b" HTTP/9.9\r\n\r\n", b"\r\n" * 2000,
           b"GET  " + state + b"  HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
    for request in raw:
        status, _, body = exchange(request + b"GET /none HTTP/1.0\r\n\r\n", ends=True)
        require(is_error(status, body) or status == 200, "raw bytes", request, status, body)
    return len(refused) + len(harmless) + len(odd) + len(raw)


def attack_framing(parts: list[bytes]) -> int:
    """Requests within bodies, whose length is told in two ways: none is answered on its own."""
    hidden = b"GET /host/weights/state HTTP/1.1\r\nHost: localhost\r\n\r\n"
    length = b"Content-Length: %d" % len(hidden)
    path = b"/host/" + b"/".join(quote_from_bytes(part, safe="").encode() for part in parts)
    line = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-0\r\n"
    frames = [length, b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0",
              b"Transfer-Encoding: xchunked\r\n\r\n0", b"Transfer-Encoding : chunked\r\n\r\n0",
              b"Transfer-Encoding: chunked, identity\r\n\r\n0", length + b"\r\n" + length,
              length + b"\r\nX: a\r\n b", b"Transfer-Encoding:\x0bchunked\r\n\r\n0",
              b"Content-Length: +%d" % len(hidden)]
    for frame in frames:
        status, _, rest = exchange(line + frame + b"\r\n\r\n" + hidden, ends=True)
        require(b"HTTP/1.1 200" not in rest, "a request in a body", frame, status, rest)
        require(status == 206 or status in ERRORS, "a body", frame, status, rest)
    return len(frames)


def main() -> None:
    sent = crawl()
    names = {parts[1] for parts in sent if len(parts) > 1}
    wanted = OF_STORE | DIRECTORIES | {b"by-id", b"info", b"sessions"}
    require(names >= wanted, "the crawl missed some", names)
    largest = max((parts for parts in sent if b"allocations" in parts),
    key=lambda at: len(read(at) or b""))
    attacks = attack_paths() + attack_ranges(largest, read(largest) or b"") + attack_requests()
    attacks += attack_framing(largest)
    print(f"{asked} requests: {len(sent)} files sent, {attacks} attacks")


main()
