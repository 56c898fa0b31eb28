# SPDX-License-Identifier: Apache-2.0
"""The test client itself, without a server: frames as the reference's encoder made them, and answers from
the other end of a socket pair."""

import array
import os
import socket
import unittest

import gms_client
from gms_client import BadAnswer, Closed, Refused, decode, encode

ALLOCATION = {
    "type": "get_allocation_response",
    "allocation_id": "id",
    "size": 1,
    "aligned_size": 2,
    "tag": "weights",
    "layout_slot": 0,
}

EMPTY_STATE = {
    "type": "get_runtime_state_response",
    "state": "EMPTY",
    "has_rw_session": False,
    "ro_session_count": 0,
    "waiting_writers": 0,
    "committed": False,
    "is_ready": False,
    "allocation_count": 0,
    "memory_layout_hash": "",
    "layout_committed": False,
}

# (message, whole frame in hex), made by the reference's encoder
V0_GOLDEN = [
    (
        {"type": "handshake_request", "lock_type": "rw", "timeout_ms": None},
        "0000003183a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277"
        "aa74696d656f75745f6d73c0",
    ),
    (
        {"type": "handshake_response", "success": True, "committed": True, "granted_lock_type": "ro"},
        "0000004284a474797065b268616e647368616b655f726573706f6e7365a773756363657373c3a9636f"
        "6d6d6974746564c3b16772616e7465645f6c6f636b5f74797065a2726f",
    ),
    (
        {"type": "handshake_response", "success": False, "committed": True, "granted_lock_type": None},
        "0000004084a474797065b268616e647368616b655f726573706f6e7365a773756363657373c2a9636f"
        "6d6d6974746564c3b16772616e7465645f6c6f636b5f74797065c0",
    ),
    ({"type": "commit_request"}, "0000001581a474797065ae636f6d6d69745f72657175657374"),
    (
        {
            "type": "commit_layout_response",
            "success": True,
            "memory_layout_hash": "ab",
            "granted_lock_type": "rw_data",
        },
        "0000005684a474797065b6636f6d6d69745f6c61796f75745f726573706f6e7365a773756363657373"
        "c3b26d656d6f72795f6c61796f75745f68617368a26162b16772616e7465645f6c6f636b5f74797065"
        "a772775f64617461",
    ),
    (
        {"type": "allocate_request", "size": 5 << 30, "tag": "default"},
        "0000003183a474797065b0616c6c6f636174655f72657175657374a473697a65cf0000000140000000"
        "a3746167a764656661756c74",
    ),
    (
        {
            "type": "export_allocation_response",
            "allocation_id": "id",
            "size": 4096,
            "aligned_size": 2 << 20,
            "tag": "weights",
            "layout_slot": 0,
        },
        "0000006586a474797065ba6578706f72745f616c6c6f636174696f6e5f726573706f6e7365ad616c6c"
        "6f636174696f6e5f6964a26964a473697a65cd1000ac616c69676e65645f73697a65ce00200000a374"
        "6167a777656967687473ab6c61796f75745f736c6f7400",
    ),
    (
        {"type": "list_allocations_response", "allocations": [ALLOCATION]},
        "0000008982a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
        "636174696f6e739186a474797065b76765745f616c6c6f636174696f6e5f726573706f6e7365ad616c"
        "6c6f636174696f6e5f6964a26964a473697a6501ac616c69676e65645f73697a6502a3746167a77765"
        "6967687473ab6c61796f75745f736c6f7400",
    ),
    (
        {
            "type": "metadata_put_request",
            "key": "k",
            "allocation_id": "id",
            "offset_bytes": 0,
            "value": b"v",
        },
        "0000004985a474797065b46d657461646174615f7075745f72657175657374a36b6579a16bad616c6c"
        "6f636174696f6e5f6964a26964ac6f66667365745f627974657300a576616c7565c40176",
    ),
    (
        {
            "type": "metadata_get_response",
            "found": False,
            "allocation_id": None,
            "offset_bytes": None,
            "value": None,
        },
        "0000004785a474797065b56d657461646174615f6765745f726573706f6e7365a5666f756e64c2ad61"
        "6c6c6f636174696f6e5f6964c0ac6f66667365745f6279746573c0a576616c7565c0",
    ),
    (
        EMPTY_STATE,
        "000000ad8aa474797065ba6765745f72756e74696d655f73746174655f726573706f6e7365a5737461"
        "7465a5454d505459ae6861735f72775f73657373696f6ec2b0726f5f73657373696f6e5f636f756e74"
        "00af77616974696e675f7772697465727300a9636f6d6d6974746564c2a869735f7265616479c2b061"
        "6c6c6f636174696f6e5f636f756e7400b26d656d6f72795f6c61796f75745f68617368a0b06c61796f"
        "75745f636f6d6d6974746564c2",
    ),
    (
        {"type": "get_event_history_response", "events": [{"kind": "committed", "allocation_count": 0}]},
        "0000004b82a474797065ba6765745f6576656e745f686973746f72795f726573706f6e7365a6657665"
        "6e74739182a46b696e64a9636f6d6d6974746564b0616c6c6f636174696f6e5f636f756e7400",
    ),
    (
        {"type": "error_response", "error": "Expected HandshakeRequest", "code": 0},
        "0000003b83a474797065ae6572726f725f726573706f6e7365a56572726f72b9457870656374656420"
        "48616e647368616b6552657175657374a4636f646500",
    ),
]

V1_GOLDEN = [
    (
        {"type": "handshake_request", "lock_type": "rw", "expected_identity": None},
        "0000003883a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a27277"
        "b165787065637465645f6964656e74697479c0",
    ),
    (
        {"type": "handshake_request", "lock_type": "ro", "expected_identity": ["n", "GPU-u"]},
        "0000004083a474797065b168616e647368616b655f72657175657374a96c6f636b5f74797065a2726f"
        "b165787065637465645f6964656e7469747992a16ea54750552d75",
    ),
    (
        {"type": "handshake_response", "lock_type": "rw", "server_nonce": "n", "gpu_uuid": "GPU-u"},
        "0000004484a474797065b268616e647368616b655f726573706f6e7365a96c6f636b5f74797065a272"
        "77ac7365727665725f6e6f6e6365a16ea86770755f75756964a54750552d75",
    ),
    (
        {"type": "allocate_request", "allocation_id": "allocation-1", "aligned_size": 2 << 20},
        "0000004483a474797065b0616c6c6f636174655f72657175657374ad616c6c6f636174696f6e5f6964"
        "ac616c6c6f636174696f6e2d31ac616c69676e65645f73697a65ce00200000",
    ),
    ({"type": "success_response"}, "0000001781a474797065b0737563636573735f726573706f6e7365"),
    ({"type": "export_response"}, "0000001681a474797065af6578706f72745f726573706f6e7365"),
    (
        {
            "type": "list_allocations_response",
            "allocations": [{"allocation_id": "a", "aligned_size": 2 << 20}],
        },
        "0000005082a474797065b96c6973745f616c6c6f636174696f6e735f726573706f6e7365ab616c6c6f"
        "636174696f6e739182ad616c6c6f636174696f6e5f6964a161ac616c69676e65645f73697a65ce0020"
        "0000",
    ),
    (
        {"type": "checkpoint_state_response", "state": "serving", "token": None},
        "0000003583a474797065b9636865636b706f696e745f73746174655f726573706f6e7365a573746174"
        "65a773657276696e67a5746f6b656ec0",
    ),
    (
        {"type": "error_response", "message": "boom", "out_of_memory": False},
        "0000003183a474797065ae6572726f725f726573706f6e7365a76d657373616765a4626f6f6dad6f75"
        "745f6f665f6d656d6f7279c2",
    ),
]


class Frames(unittest.TestCase):
    def test_messages_are_encoded_as_the_reference_does(self):
        for message, frame in V0_GOLDEN + V1_GOLDEN:
            self.assertEqual(encode(message).hex(), frame, message)

    def test_answers_are_decoded(self):
        decoded = 0
        for schemas, golden in (gms_client.V0_ANSWERS, V0_GOLDEN), (gms_client.V1_ANSWERS, V1_GOLDEN):
            for message, frame in golden:
                if message["type"].endswith("_response"):
                    self.assertEqual(decode(bytes.fromhex(frame)[4:], schemas), message)
                    decoded += 1
        self.assertEqual(decoded, 15)

    def test_an_answer_that_is_not_as_the_protocol_says_is_found(self):
        good = {"type": "commit_response", "success": True}
        payload = encode(good)[4:]
        self.assertEqual(decode(payload, gms_client.V0_ANSWERS), good)
        for bad in (
            b"",
            payload + b"\xc0",
            payload[:-1],
            b"\xde\x00\x02" + payload[1:],  # a longer form
            encode({"success": True, "type": "commit_response"})[4:],
            encode({"type": "commit_response"})[4:],
            encode({"type": "commit_response", "success": 1})[4:],
            encode({"type": "commit_response", "success": None})[4:],
            encode({"type": "commit_response", "success": True, "more": 1})[4:],
            encode({"type": "no_response"})[4:],
            encode(["commit_response"])[4:],
            encode({"type": "get_event_history_response", "events": [{"kind": "x"}]})[4:],
            encode({"type": "metadata_list_response", "keys": [b"x"]})[4:],
        ):
            with self.assertRaises(BadAnswer, msg=bad):
                decode(bad, gms_client.V0_ANSWERS)


class Pairs(unittest.TestCase):
    """The test is the server, at the other end of a socket pair."""

    def setUp(self):
        self.server, client = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.client = gms_client.V0(client, timeout=5)
        self.zero = os.open("/dev/zero", os.O_RDONLY)
        self.addCleanup(os.close, self.zero)
        self.addCleanup(self.client.close)
        self.addCleanup(self.server.close)

    def say(self, *messages):
        self.server.sendall(b"".join(encode(message) for message in messages))

    def give(self, data, count):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.zero] * count))]
        self.server.sendmsg([data], rights)

    def exported(self):
        return encode(dict(ALLOCATION, type="export_allocation_response"))

    def test_a_request_is_sent_with_all_its_fields(self):
        self.say({"type": "metadata_put_response", "success": True})
        self.assertTrue(self.client.put("k", "id", 0, b"v"))
        self.assertEqual(self.server.recv(4096).hex(), V0_GOLDEN[8][1])

    def test_an_answer_may_come_in_pieces(self):
        data = encode(EMPTY_STATE)
        for at in range(0, len(data), 7):
            self.server.sendall(data[at : at + 7])
        self.assertEqual(self.client.answer().message, EMPTY_STATE)

    def test_a_refusal_is_an_exception_with_its_text(self):
        self.say({"type": "error_response", "error": "Unknown allocation: x", "code": 0})
        with self.assertRaisesRegex(Refused, "^Unknown allocation: x$"):
            self.client.get("x")

    def test_an_answer_of_another_type_is_found(self):
        self.say({"type": "commit_response", "success": True})
        with self.assertRaisesRegex(BadAnswer, "expected free_allocation_response"):
            self.client.free("x")

    def test_an_export_brings_its_descriptor(self):
        self.give(self.exported(), 1)
        message, descriptor = self.client.export("id")
        self.assertEqual(message["allocation_id"], "id")
        with gms_client.owned(descriptor):
            self.assertEqual(os.read(descriptor, 4), bytes(4))

    def test_the_descriptor_belongs_to_the_answer_that_it_came_with(self):
        self.say(EMPTY_STATE)
        self.give(self.exported(), 1)
        self.say(EMPTY_STATE)
        self.assertEqual(self.client.answer().descriptors, [])
        answer = self.client.answer(descriptor=True)
        os.close(answer.descriptors[0])
        self.assertEqual(self.client.answer().descriptors, [])

    def test_an_export_without_a_descriptor_or_with_two_is_found(self):
        self.server.sendall(self.exported())
        with self.assertRaisesRegex(BadAnswer, "0 descriptors"):
            self.client.export("id")
        self.give(self.exported(), 2)
        with self.assertRaisesRegex(BadAnswer, "more than one descriptor"):
            self.client.export("id")

    def test_a_descriptor_with_another_answer_is_found(self):
        self.give(encode(EMPTY_STATE), 1)
        with self.assertRaisesRegex(BadAnswer, "1 descriptors"):
            self.client.answer()

    def test_the_end_of_the_connection_is_told_from_a_frame_that_is_cut_off(self):
        self.server.sendall(encode(EMPTY_STATE)[:9])
        self.server.close()
        with self.assertRaisesRegex(BadAnswer, "within a frame"):
            self.client.answer()

    def test_the_end_is_waited_for(self):
        self.assertFalse(self.client.is_closed())
        self.server.close()
        self.assertTrue(self.client.is_closed())
        self.client.expect_closed()
        with self.assertRaises(Closed):
            self.client.answer()

    def test_an_answer_instead_of_the_end_is_found(self):
        self.say(EMPTY_STATE)
        with self.assertRaisesRegex(BadAnswer, "had to end"):
            self.client.expect_closed()

    def test_every_wait_ends(self):
        with self.assertRaises(TimeoutError):
            self.client.answer(timeout=0.05)
        self.client.expect_silence(0.05)
        self.say(EMPTY_STATE)
        with self.assertRaisesRegex(BadAnswer, "none was due"):
            self.client.expect_silence(0.05)

    def test_found_without_its_fields_is_found_out(self):
        self.say(
            {
                "type": "metadata_get_response",
                "found": True,
                "allocation_id": None,
                "offset_bytes": None,
                "value": b"",
            }
        )
        with self.assertRaisesRegex(BadAnswer, "do not fit"):
            self.client.get_entry("k")
