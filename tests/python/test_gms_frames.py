# SPDX-License-Identifier: Apache-2.0
"""GMS V0 and V1: frames that no client sends. A connection that sends them ends, and it alone."""

import os
import select
import struct
import time

import msgpack

import gms_client
from gms_client import V0_REQUESTS, V1_REQUESTS, encode, fields_of, frame
from gms_support import (
    PIECE,
    GmsCase,
    connection_bytes,
    sample,
    wait_until,
    worker_anonymous_bytes,
    worker_descriptors,
    worker_wakings,
)

STATE_REQUEST = {"type": "get_lock_state_request"}

# Values that are invalid for a type. None is invalid too, for types without `?`.
WRONG = {
    "int": (1.0, "1", b"1", True, False, [], {}, msgpack.ExtType(1, b"x")),
    "text": (1, b"text", True, 1.5, [], {}, msgpack.ExtType(1, b"x")),
    "bytes": ("text", 1, True, [], {}),
    "identity": ("text", 1, [], ["a"], ["a", "b", "c"], [1, "b"], ["a", None], [b"a", b"b"], {}),
}


def pack(value):
    return msgpack.packb(value, use_bin_type=True)


def map_of(*pairs):
    """A map of these pairs as they are, repeated keys too."""
    return bytes([0x80 | len(pairs)]) + b"".join(pack(key) + pack(value) for key, value in pairs)


# Whole payloads that no version takes.
UNDECODABLE = {
    "nothing": b"",
    "nil": b"\xc0",
    "a list": pack(["commit_request"]),
    "a text": pack("commit_request"),
    "an integer": b"\x01",
    "an empty map": b"\x80",
    "bytes after the map": pack(STATE_REQUEST) + b"\xc0",
    "two maps": pack(STATE_REQUEST) * 2,
    "cut off": pack(STATE_REQUEST)[:-1],
    "cut off in a length": b"\x81\xa4type\xd9",
    "a reserved byte": b"\x81\xa4type\xc1",
    "a map that is not as long as it says": b"\x82" + pack(STATE_REQUEST)[1:],
    "a map of four thousand million": b"\xdf\xff\xff\xff\xff",
    "a text of four thousand million": b"\x81\xa4type\xdb\xff\xff\xff\xff",
    "no type": pack({"key": "x"}),
    "a type that is nil": pack({"type": None}),
    "a type that is an integer": pack({"type": 7}),
    "a type that is bytes": pack({"type": b"commit_request"}),
    "an unknown type": pack({"type": "delete_everything_request"}),
    "the empty type": pack({"type": ""}),
    "a type in capitals": pack({"type": "COMMIT_REQUEST"}),
    "a type with a NUL": pack({"type": "commit_request\0"}),
    "a type that is no UTF-8": b"\x81\xa4type\xa2\xff\xfe",
    "a key that is an integer": map_of(("type", "commit_request"), (1, 2)),
    "a key that is nil": map_of(("type", "commit_request"), (None, 2)),
    "a key that is bytes": map_of((b"type", "commit_request")),
    "nested too deep to be meant": b"\x82\xa4type\xaecommit_request\xa1x" + b"\x91" * 100000,
}


class V0Frames(GmsCase):
    REQUESTS = V0_REQUESTS
    LIMIT = 16 << 20

    def open_session(self):
        return self.session("rw")

    def connect(self):
        return self.v0()

    def served(self):
        """That others are."""
        self.assertIn(self.probe()["state"], ("EMPTY", "RW"))

    def test_what_cannot_be_decoded_ends_the_connection_without_an_answer(self):
        for name, payload in UNDECODABLE.items():
            with self.subTest(first=name):
                client = self.connect()
                client.send_raw(frame(payload))
                client.expect_closed()
            with self.subTest(in_a_session=name):
                client = self.open_session()
                client.send_raw(frame(payload))
                client.expect_closed()
                self.wait_state("EMPTY")
        self.served()

    def test_fields_of_another_type_or_missing_end_the_connection(self):
        for name in self.REQUESTS:
            for field, kind in fields_of(self.REQUESTS, name).items():
                bad = [{**sample(self.REQUESTS, name), field: value} for value in WRONG[kind.rstrip("?")]]
                if not kind.endswith("?") and field != "token":
                    bad.append({**sample(self.REQUESTS, name), field: None})
                if self.has_no_default(name, field):
                    whole = sample(self.REQUESTS, name)
                    bad.append({key: whole[key] for key in whole if key != field})
                for message in bad:
                    with self.subTest(message=message):
                        client = self.connect() if self.is_first(name) else self.open_session()
                        client.send_raw(encode(message))
                        client.expect_closed()
                        client.close()
                        self.wait_state("EMPTY")

    @staticmethod
    def is_first(name):
        return name == "handshake_request"

    @staticmethod
    def has_no_default(name, field):
        return field not in ("timeout_ms", "tag", "prefix")

    def test_an_enum_value_that_there_is_not_ends_the_connection(self):
        for lock_type in ("", "RW", "rw ", "rw_data", "r", "rw\0", "write"):
            client = self.connect()
            client.send_raw(encode(sample(self.REQUESTS, "handshake_request", lock_type=lock_type)))
            client.expect_closed()
        self.served()

    def test_text_that_is_no_utf_8_ends_the_connection(self):
        for text in (b"\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"a\x80", b"\xf4\x90\x80\x80"):
            client = self.open_session()
            payload = pack(sample(self.REQUESTS, self.TEXT_REQUEST, **{self.TEXT_FIELD: "TEXT"}))
            spoilt = payload.replace(pack("TEXT"), bytes([0xA0 | len(text)]) + text)
            self.assertNotEqual(payload, spoilt)
            client.send_raw(frame(spoilt))
            client.expect_closed()
            self.wait_state("EMPTY")

    TEXT_REQUEST, TEXT_FIELD = "metadata_get_request", "key"

    # -- unusual but valid --

    def test_longer_forms_than_needed_are_taken(self):
        client = self.connect()
        payload = (
            b"\xdf\0\0\0\3"  # a map of 3, in 32 bits
            + b"\xd9\4type\xdb\0\0\0\x11handshake_request"
            + b"\xda\0\x09lock_type\xd9\2rw"
            + b"\xaatimeout_ms\xd3\0\0\0\0\0\0\0\0"
        )
        client.send_raw(frame(payload))
        self.assertEqual(client.granted()["granted_lock_type"], "rw")
        client.send_raw(frame(b"\x82\xa4type\xb0allocate_request\xa4size\xcf\0\0\0\0\0\0\0\5"))
        self.assertEqual(client.result("allocate_response")["size"], 5)
        client.send_raw(frame(b"\x82\xa4type\xb0allocate_request\xa4size\xd1\0\6"))
        self.assertEqual(client.result("allocate_response")["size"], 6)

    def test_fields_may_come_in_any_order(self):
        client = self.connect()
        client.send_raw(encode({"timeout_ms": 0, "lock_type": "rw", "type": "handshake_request"}))
        self.assertEqual(client.granted()["granted_lock_type"], "rw")

    def test_of_a_repeated_key_the_last_counts(self):
        client = self.connect()
        client.send_raw(
            frame(map_of(("type", "handshake_request"), ("lock_type", "ro"), ("lock_type", "rw"),
                         ("type", "handshake_request")))
        )
        self.assertEqual(client.granted()["granted_lock_type"], "rw")
        client.send_raw(frame(map_of(("type", "allocate_request"), ("size", 1), ("size", 7))))
        self.assertEqual(client.result("allocate_response")["size"], 7)

    def test_keys_that_nobody_knows_are_skipped_whatever_they_hold(self):
        client = self.open_session()
        for value in (None, 1, -1, 1.5, "text", b"\xff\xfe", [[[]]], {"a": {"b": [1]}}, {1: 2},
                      msgpack.ExtType(5, b"x" * 300), msgpack.Timestamp(0, 0), True, 2**64 - 1):
            client.send_raw(encode({"unknown": value, **STATE_REQUEST, "more": value}))
            client.result("get_lock_state_response")
        client.send_raw(frame(b"\x82\xa4type\xb6get_lock_state_request\xa1x\xa2\xff\xfe"))  # no UTF-8
        client.result("get_lock_state_response")

    def test_a_descriptor_that_a_client_sends_is_closed(self):
        client = self.open_session()
        read_end, write_end = os.pipe()
        with gms_client.owned(read_end):
            client.send_raw(encode(STATE_REQUEST), [write_end, write_end])
            os.close(write_end)
            client.result("get_lock_state_response")
            self.assertTrue(select.select([read_end], [], [], gms_client.TIMEOUT)[0])
            self.assertEqual(os.read(read_end, 1), b"")

    def test_a_frame_may_come_byte_by_byte_and_ends_where_it_says(self):
        client = self.open_session()
        for byte in encode(STATE_REQUEST) + encode({"type": "metadata_list_request", "prefix": ""}):
            client.send_raw(bytes([byte]))
        client.result("get_lock_state_response")
        client.result("metadata_list_response")

    def test_requests_may_have_16_mib_and_no_more(self):
        message = {**STATE_REQUEST, "pad": b""}
        room = self.LIMIT - len(pack({**message, "pad": b"x" * 70000})) + 70000
        client = self.open_session()
        client.send_raw(encode({**message, "pad": bytes(room)}))
        client.result("get_lock_state_response", timeout=3 * gms_client.TIMEOUT)
        client.send_raw(struct.pack(">I", self.LIMIT + 1))
        client.expect_closed()
        self.wait_state("EMPTY")

    def test_a_length_that_is_not_followed_takes_no_memory(self):
        before = worker_anonymous_bytes()
        clients = [self.connect() for _ in range(100)]
        for client in clients:
            client.send_raw(struct.pack(">I", self.LIMIT) + b"\x81")
        self.served()
        self.assertLess(worker_anonymous_bytes() - before, 25 * self.LIMIT)
        for client in clients:
            self.assertFalse(client.is_closed())


class V1Frames(V0Frames):
    """The same, but where V1 is stricter."""

    REQUESTS = V1_REQUESTS
    LIMIT = 1 << 20
    TEXT_REQUEST, TEXT_FIELD = "free_request", "allocation_id"

    def open_session(self):
        return self.session_v1("rw")

    def connect(self):
        return self.v1()

    @staticmethod
    def is_first(name):
        return name == "handshake_request" or name in gms_client.CHECKPOINT_REQUESTS

    @staticmethod
    def has_no_default(name, field):
        return field != "expected_identity"

    def test_longer_forms_than_needed_are_taken(self):
        client = self.connect()
        client.send_raw(
            frame(b"\xdf\0\0\0\2\xd9\4type\xdb\0\0\0\x11handshake_request\xda\0\x09lock_type\xd9\2rw")
        )
        self.assertEqual(client.granted()["lock_type"], "rw")
        size = b"\xcf" + struct.pack(">Q", PIECE)
        client.send_raw(
            frame(b"\x83\xa4type\xb0allocate_request\xadallocation_id\xd9\1a\xacaligned_size" + size)
        )
        client.result("success_response")
        self.assertEqual(client.list(), [("a", PIECE)])

    def test_fields_may_come_in_any_order(self):
        client = self.connect()
        client.send_raw(encode({"expected_identity": None, "lock_type": "rw", "type": "handshake_request"}))
        self.assertEqual(client.granted()["lock_type"], "rw")

    def test_of_a_repeated_key_the_last_counts(self):
        client = self.connect()
        client.send_raw(
            frame(map_of(("type", "handshake_request"), ("lock_type", "ro"), ("lock_type", "rw"),
                         ("type", "handshake_request")))
        )
        self.assertEqual(client.granted()["lock_type"], "rw")

    def test_keys_that_nobody_knows_are_skipped_whatever_they_hold(self):
        """Are not: they end the connection, in every message."""
        for name in V1_REQUESTS:
            with self.subTest(name=name):
                client = self.connect() if self.is_first(name) else self.open_session()
                client.send_raw(encode({**sample(V1_REQUESTS, name), "unknown": 1}))
                client.expect_closed()
                client.close()
                self.wait_state("EMPTY")

    def test_a_descriptor_that_a_client_sends_is_closed(self):
        """It also ends the connection."""
        client = self.open_session()
        read_end, write_end = os.pipe()
        with gms_client.owned(read_end):
            client.send_raw(encode({"type": "list_allocations_request"}), [write_end])
            os.close(write_end)
            client.expect_closed()
            self.assertTrue(select.select([read_end], [], [], gms_client.TIMEOUT)[0])
            self.assertEqual(os.read(read_end, 1), b"")
        self.wait_state("EMPTY")

    def test_a_frame_may_come_byte_by_byte_and_ends_where_it_says(self):
        client = self.open_session()
        for byte in encode({"type": "list_allocations_request"}) * 2:
            client.send_raw(bytes([byte]))
        for _ in range(2):
            client.result("list_allocations_response")

    def test_requests_may_have_16_mib_and_no_more(self):
        """1 MiB here."""
        message = sample(V1_REQUESTS, "free_request", allocation_id="x" * 70000)
        name = "x" * (self.LIMIT - len(pack(message)) + 70000)
        client = self.open_session()
        client.send_raw(encode({**message, "allocation_id": name}))
        self.assert_refused_by(client, "unknown allocation ID")
        client.send_raw(struct.pack(">I", self.LIMIT + 1))
        client.expect_closed()
        self.wait_state("EMPTY")

    def assert_refused_by(self, client, text):
        with self.assertRaises(gms_client.Refused) as caught:
            client.result("success_response")
        self.assertEqual(str(caught.exception), text)


class Floods(GmsCase):
    def test_frames_that_come_early_are_answered_in_their_order(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        count = 2000
        data = b""
        for at in range(count):
            fields = {"key": f"{at}", "allocation_id": first, "offset_bytes": at}
            data += encode(sample(V0_REQUESTS, "metadata_put_request", **fields))
            data += encode({"type": "metadata_get_request", "key": f"{at}"})
        at = 0
        for number in range(count):
            at = self.push(writer, data, at)
            writer.result("metadata_put_response")
            self.assertEqual(writer.result("metadata_get_response")["offset_bytes"], number)
        self.assertEqual(at, len(data))

    @staticmethod
    def push(connection, data, at):
        """Sends from `at` as much as the server takes at once. Returns the new position."""
        while at < len(data):
            taken = connection.send_some(data[at : at + 65536])
            if not taken:
                break
            at += taken
        return at

    @staticmethod
    def flood(connection, data, limit):
        """Data again and again, until for a while nothing is taken, or `limit` bytes were; the bytes."""
        sent = 0
        while sent < limit:
            taken = connection.send_some(data[sent % len(data) :])
            if not taken and not select.select([], [connection], [], 0.2)[1]:
                break
            sent += taken
        return sent

    def test_early_frames_with_descriptors_among_their_answers(self):
        first, _ = self.commit_content()
        reader = self.session("ro")
        export = encode({"type": "export_allocation_request", "allocation_id": first})
        state = encode(STATE_REQUEST)
        reader.send_raw((state + export + export) * 50)
        for _ in range(50):
            reader.result("get_lock_state_response")
            for _ in range(2):
                os.close(reader.result("export_allocation_response", descriptor=True)[1])

    def test_requests_before_the_grant_are_answered_after_it(self):
        holder = self.session("rw")
        client = self.v0()
        client.send_raw(encode(sample(V0_REQUESTS, "handshake_request", lock_type="rw", timeout_ms=None)))
        client.send_raw(encode(STATE_REQUEST) * 3)
        client.expect_silence(0.05)
        holder.close()
        client.granted()
        for _ in range(3):
            self.assertEqual(client.result("get_lock_state_response")["state"], "RW")

    def test_early_frames_behind_a_handshake_that_times_out_are_not_answered(self):
        self.session("rw")
        client = self.v0()
        client.send_raw(encode(sample(V0_REQUESTS, "handshake_request", lock_type="rw", timeout_ms=50)))
        client.send_raw(encode(STATE_REQUEST) * 3)
        self.assertFalse(client.granted()["success"])
        client.expect_closed()

    def test_early_frames_of_one_that_waits_are_bounded(self):
        self.session("rw")
        before = worker_anonymous_bytes()
        client = self.v0()
        client.ask("rw")
        sent = self.flood(client, encode(STATE_REQUEST) * 2000, 100 << 20)
        self.served_meanwhile()
        self.assertLess(sent, 100 << 20)
        self.assertLess(worker_anonymous_bytes() - before, 64 << 20)

    def served_meanwhile(self):
        start = time.monotonic()
        for _ in range(20):
            self.probe("kv_cache")
        self.assertLess(time.monotonic() - start, gms_client.TIMEOUT / 2)

    def test_a_client_that_does_not_read_its_answers_costs_no_memory_and_nobody_time(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        writer.put("large", first, 0, b"v" * (1 << 20))
        writer.commit()
        before = worker_anonymous_bytes()
        clients = [self.session("ro") for _ in range(4)]
        for client in clients:
            self.flood(client, encode({"type": "metadata_get_request", "key": "large"}) * 1000, 1 << 20)
        self.served_meanwhile()
        self.assertLess(worker_anonymous_bytes() - before, 400 << 20)
        # The answers continue as soon as the client reads.
        for _ in range(20):
            self.assertEqual(len(clients[0].result("metadata_get_response")["value"]), 1 << 20)
        for client in clients:
            client.close()
        self.wait_state("COMMITTED")

    LONG = 15 << 20

    def half_a_long_request(self):
        client = self.session("ro")
        client.send_raw(struct.pack(">I", self.LONG + 1024) + b"\x81" + bytes(self.LONG))
        return client

    def test_long_requests_that_are_gone_take_no_memory_whoever_else_sends_one(self):
        self.commit_content()
        self.half_a_long_request().close()
        self.wait_state("COMMITTED")
        before = connection_bytes()
        clients = [self.half_a_long_request() for _ in range(8)]
        wait_until(lambda: connection_bytes() - before > 6 * self.LONG, "all are there")
        for client in clients[:-1]:
            client.close()
        wait_until(lambda: connection_bytes() - before < 3 * self.LONG, "that of seven is free")
        self.assertFalse(clients[-1].is_closed())

    def test_exports_that_nobody_receives_leave_no_descriptors_behind(self):
        first, _ = self.commit_content()
        before = worker_descriptors()
        clients = [self.session("ro") for _ in range(4)]
        for client in clients:
            client.send_raw(encode({"type": "export_allocation_request", "allocation_id": first}) * 100)
        self.served_meanwhile()
        for client in clients:
            client.close()
        self.wait_state("COMMITTED")
        wait_until(lambda: worker_descriptors() <= before, "the daemon has closed them all")

    def test_an_export_behind_an_answer_is_woken_by_the_reader_and_by_nothing_else(self):
        """A pause that doubles up to a second wakes the worker 7 times in 2 s for each of them."""
        first, _ = self.commit_content()
        readers = [self.session("ro") for _ in range(30)]
        behind = encode(STATE_REQUEST) + encode({"type": "export_allocation_request", "allocation_id": first})
        for reader in readers:
            reader.send_raw(behind)
            time.sleep(0.01)  # so that no two of them are woken at once
        before = worker_wakings()
        time.sleep(2)
        self.assertLess(worker_wakings() - before, 30)
        for reader in readers:
            reader.result("get_lock_state_response")
            os.close(reader.result("export_allocation_response", descriptor=True)[1])

    def test_200_connections_at_once(self):
        first, _ = self.commit_content()
        readers = [self.session("ro") for _ in range(200)]
        self.assertEqual(readers[0].lock_state()["ro_session_count"], 200)
        for reader in readers:
            reader.send("export_allocation_request", allocation_id=first)
        for reader in readers:
            os.close(reader.result("export_allocation_response", descriptor=True)[1])
        waiters = [self.v0() for _ in range(20)]
        for waiter in waiters:
            waiter.ask("rw", None)
        wait_until(lambda: self.probe()["waiting_writers"] == 20, "20 writers wait")
        for reader in readers:
            reader.close()
        while waiters:  # the first to ask is not always the first to connect
            granted = select.select([waiter.socket for waiter in waiters], [], [], 30)[0]
            self.assertEqual(len(granted), 1)
            waiter = next(waiter for waiter in waiters if waiter.socket is granted[0])
            waiters.remove(waiter)
            waiter.granted()
            waiter.close()
        self.wait_state("EMPTY")
