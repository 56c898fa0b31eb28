# SPDX-License-Identifier: Apache-2.0
"""S3 and a hub of models, for web_server.py: the folders of its directory are buckets and repositories.

/s3/BUCKET[/KEY] is S3 for the keys AKIDEXAMPLE and SECRET (with the token TOKEN, if TOKEN is the bucket's
name), in the region eu-test-1. Every request has to be signed, but for buckets that begin with `public`.
Faults are words of the bucket's name: `paged` has two keys a page, `endless` always another page,
`same` with the same token, `hidden` one hidden key a page,
`doctype`, `broken`, `lies` (a size), `climbs` (a key with "..").
Keys below `sums-KIND/` have this checksum, below `sums-KIND-wrong/` another one, below `sums-KIND-parts/`
one of parts. A HEAD of a key below `head-STATUS/` gets this status, below `head-silent/` no answer for 60 s.

/hub/ is a hub. Repositories whose model begins with `private` want the token hf_test. Words of the model's
name: `badsum`, `unsized`, `climbs`, `broken`, `lies` (a size), `wrongbytes`, `huge` (33 MiB of a list).
Files of `at-PORT` are at http://localhost:PORT.
"""

import base64
import datetime
import hashlib
import hmac
import json
import time
import urllib.parse
import zlib
from xml.sax.saxutils import escape

SECRET, REGION = "SECRET", "eu-test-1"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


# ---- S3 -----------------------------------------------------------------------------------------


def canonical_query(query):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
    pairs = sorted((urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~")) for k, v in pairs)
    return "&".join(f"{name}={value}" for name, value in pairs)


def signature_fault(handler):
    """Check AWS' signature, version 4; returns what is wrong, or None."""
    header = handler.headers.get("Authorization", "")
    if not header.startswith("AWS4-HMAC-SHA256 "):
        return "AccessDenied"
    parts = dict(part.strip().split("=", 1) for part in header[17:].split(","))
    key, date, region, service, end = parts["Credential"].split("/")
    date_time = handler.headers["x-amz-date"]
    then = datetime.datetime.strptime(date_time, "%Y%m%dT%H%M%SZ")
    if abs((datetime.datetime.utcnow() - then).total_seconds()) > 900 or date_time[:8] != date:
        return "RequestTimeTooSkewed"
    if (key, region, service, end) != ("AKIDEXAMPLE", REGION, "s3", "aws4_request"):
        return "InvalidAccessKeyId"
    names = parts["SignedHeaders"].split(";")
    present = [name.lower() for name in handler.headers if name.lower().startswith("x-amz-")]
    if names != sorted(names) or not set(present + ["host"]) <= set(names):
        return "UnsignedHeaders"
    path, _, query = handler.path.partition("?")
    headers = "".join(f"{name}:{handler.headers[name].strip()}\n" for name in names)
    payload = handler.headers["x-amz-content-sha256"]
    if payload != hashlib.sha256(b"").hexdigest():
        return "XAmzContentSHA256Mismatch"
    canonical = "\n".join([handler.command, path, canonical_query(query), headers, ";".join(names), payload])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", date_time, f"{date}/{region}/s3/aws4_request", digest])
    secret = ("AWS4" + SECRET).encode()
    for word in (date, region, "s3", "aws4_request", text):
        secret = hmac.new(secret, word.encode(), hashlib.sha256).digest()
    return None if hmac.compare_digest(secret.hex(), parts["Signature"]) else "SignatureDoesNotMatch"


def send_error(handler, status, code):
    handler.send(status, f"<Error><Code>{code}</Code><Message>It is {code}.</Message></Error>".encode())


def list_bucket(handler, bucket, query):
    def encode(text):
        return urllib.parse.quote_plus(text, safe="/-_.~")

    query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    if query.get("list-type") != "2" or query.get("encoding-type") != "url":
        return send_error(handler, 400, "InvalidArgument")
    root = handler.state.directory / bucket
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    if "climbs" in bucket:
        sizes[prefix + "../up.json"] = 1
    rows = {}
    for key, size in sizes.items():
        rest = key[len(prefix) :]
        if key.startswith(prefix) and delimiter and delimiter in rest:
            rows[prefix + rest.split(delimiter)[0] + delimiter] = None
        elif key.startswith(prefix):
            rows[key] = size
    keys = sorted(rows)
    if "hidden" in bucket:
        keys, rows = [prefix + ".key"], {prefix + ".key": 1}
    first = int(query.get("continuation-token", "0/+")[:-2])
    end = len(keys) if "paged" not in bucket else first + 2
    more = end < len(keys) or "endless" in bucket
    text = ['<?xml version="1.0" encoding="UTF-8"?>']
    if "doctype" in bucket:
        text.append('<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">]>')
    text.append('<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">')
    text.append(f"<Name>{bucket}</Name><IsTruncated>{'true' if more else 'false'}</IsTruncated>")
    if more:
        token = 1 if "same" in bucket else first + 1 if "hidden" in bucket else end
        text.append(f"<NextContinuationToken>{token}/+</NextContinuationToken>")
    for key in keys if "hidden" in bucket else keys[first:end]:
        if rows[key] is None:
            text.append(f"<CommonPrefixes><Prefix>{escape(encode(key))}</Prefix></CommonPrefixes>")
        else:
            size = "many" if "lies" in bucket else rows[key]
            text.append(f"<Contents><Key>{escape(encode(key))}</Key><Size>{size}</Size></Contents>")
    if "broken" not in bucket:
        text.append("</ListBucketResult>")
    handler.send(200, "".join(text).encode(), [("Content-Type", "application/xml")])
    return None


def crc(polynomial, bits, data):
    """A reflected CRC, bit by bit: for short data."""
    ones = (1 << bits) - 1
    value = ones
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return (value ^ ones).to_bytes(bits // 8, "big")


SUMS = {
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: crc(0x82F63B78, 32, data),
    "crc64nvme": lambda data: crc(0x9A6C9329AC4BC9B5, 64, data),
}


def list_sums(handler, path, key):
    """The headers of an object below sums-KIND, sums-KIND-wrong or sums-KIND-parts, for a HEAD that asks."""
    word, kind, *rest = key.split("/")[0].split("-") + [""]
    if handler.command != "HEAD" or handler.headers.get("x-amz-checksum-mode") != "ENABLED" or word != "sums":
        return []
    data = path.read_bytes()
    text = base64.b64encode(SUMS[kind](data[:-1] if rest[0] in ("wrong", "parts") else data)).decode()
    name, parts = f"x-amz-checksum-{kind}", rest[0] == "parts"
    return [(name, text + "-2" * parts), ("x-amz-checksum-type", "COMPOSITE" if parts else "FULL_OBJECT")]


def refuse_head(handler, key):
    """Answer a HEAD of a key below head-STATUS or head-silent; returns False for any other request."""
    word, _, fault = key.split("/")[0].partition("-")
    if handler.command != "HEAD" or word != "head":
        return False
    if fault == "silent":
        time.sleep(60)
        handler.close_connection = True
    else:
        handler.send(int(fault))
    return True


def serve_s3(handler):
    path, _, query = handler.path.partition("?")
    if not path.startswith("/s3/"):
        return False
    bucket, _, key = path[4:].partition("/")
    fault = None if bucket.startswith("public") else signature_fault(handler)
    if "TOKEN" in bucket and handler.headers.get("x-amz-security-token") != "TOKEN":
        fault = fault or "InvalidToken"
    if bucket == "far":
        body = b"<Error><Code>PermanentRedirect</Code></Error>"
        handler.send(301, body, [("x-amz-bucket-region", "eu-far-2"), ("Location", "http://other.invalid/")])
    elif fault:
        send_error(handler, 403, fault)
    elif not key:
        list_bucket(handler, bucket, query)
    elif not (handler.state.directory / bucket / urllib.parse.unquote(key)).is_file():
        send_error(handler, 404, "NoSuchKey")
    elif not refuse_head(handler, key):
        handler.path = f"/plain/{bucket}/{key}"
        handler.more = list_sums(handler, handler.state.directory / bucket / urllib.parse.unquote(key), key)
        handler.answer()
        handler.more = []
    return True


# ---- a hub --------------------------------------------------------------------------------------


def describe(root, name):
    siblings = []
    for path in sorted(root.rglob("*")):
        if not path.is_file():
            continue
        row = {"rfilename": str(path.relative_to(root)), "size": path.stat().st_size, "blobId": "0" * 40}
        if path.suffix == ".safetensors":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            digest = "f" * 64 if "wrongbytes" in name else "short" if "badsum" in name else digest
            row["lfs"] = {"sha256": digest, "size": row["size"], "pointerSize": 134}
        if "unsized" in name:
            row = {"rfilename": row["rfilename"]}
        if "lies" in name:
            row["size"] += 1
        siblings.append(row)
    if "climbs" in name:
        siblings.append({"rfilename": "../up.json", "size": 1})
    return json.dumps({"id": name, "sha": COMMIT, "siblings": siblings})[: -20 if "broken" in name else None]


def serve_hub(handler):
    path = handler.path.partition("?")[0]
    if not path.startswith("/hub/"):
        return False
    words = path[5:].split("/")
    listing = words[:2] == ["api", "models"]
    owner, model, verb, revision = (words[2:] if listing else words)[:4]
    root = handler.state.directory / owner / model
    if model.startswith("private") and handler.headers.get("Authorization") != "Bearer hf_test":
        handler.send(401, b"{}", [("X-Error-Message", "Invalid username or password.")])
    elif not root.is_dir() or urllib.parse.unquote(revision) not in ("main", "refs/pr/1", COMMIT):
        handler.send(404, b"{}", [("X-Error-Message", "Repository not found")])
    elif listing and verb == "revision":
        padding = b" " * (33 << 20) if "huge" in model else b""
        handler.send(200, describe(root, model).encode() + padding)
    else:  # as the hub does for large files
        to = "/plain/" + "/".join([owner, model] + words[4:])
        to = f"http://localhost:{model[3:]}{to}" if model.startswith("at-") else to
        handler.send(302, b"", [("Location", to), ("X-Repo-Commit", COMMIT)])
    return True
