# SPDX-License-Identifier: Apache-2.0
"""GMS V1: every request in every state by every kind of session and by none, locks, identity.
Checkpoints are in test_gms_v1_checkpoints.py."""

import os
import uuid

import gms_client
from gms_client import CHECKPOINT_REQUESTS, V1_ANSWERS, V1_REQUESTS, encode, owned
from gms_support import (
    PIECE,
    UUID4,
    GmsCase,
    bare_uuid,
    device,
    refusal_v1,
    sample,
    sample_answer,
    wait_until,
)

ANSWER_TAGS = [name for name in V1_ANSWERS if not name.startswith("=")]
SUCCESS = {"type": "success_response"}

NEEDS_WRITER = "operation requires an RW session"
NEEDS_SESSION = "operation requires an active GMS session"
ONLY_FIRST = "handshake is valid only as the first message"

GRANTS = {
    "EMPTY": {"rw": "rw", "rw_or_ro": "rw"},
    "RW by V0": {},
    "RW by V1": {},
    "RW by a file": {},
    "RW_DATA": {},
    "COMMITTED": {"rw": "rw", "ro": "ro", "rw_or_ro": "ro"},
    "RO by V0": {"ro": "ro", "rw_or_ro": "ro"},
    "RO by V1": {"ro": "ro", "rw_or_ro": "ro"},
    "RO by a file": {"ro": "ro", "rw_or_ro": "ro"},
    "LAYOUT_COMMITTED": {"rw": "rw", "rw_or_ro": "rw"},
}


class WithoutSession(GmsCase):
    def test_what_is_no_handshake_ends_the_connection_in_every_state(self):
        messages = [sample(V1_REQUESTS, name) for name in V1_REQUESTS]
        messages += [sample_answer(V1_ANSWERS, name) for name in ANSWER_TAGS]
        for state in self.STATES:
            with self.in_state(state):
                before = self.probe()
                for message in messages:
                    if message["type"] in ("handshake_request", *CHECKPOINT_REQUESTS):
                        continue
                    client = self.v1()
                    client.send_raw(encode(message))
                    client.expect_closed()
                    client.close()
                self.assertEqual(self.probe(), before)

    def test_a_checkpoint_request_is_answered_once(self):
        for name in CHECKPOINT_REQUESTS:
            client = self.v1()
            client.send_raw(encode(sample(V1_REQUESTS, name)) * 2)
            client.answer()
            client.expect_closed()

    def test_the_state_of_the_checkpoint_is_these_bytes(self):
        client = self.v1()
        client.send("get_checkpoint_state_request")
        expected = encode({"type": "checkpoint_state_response", "state": "serving", "token": None})
        self.assertEqual(client.receive()[0], expected[4:])

    def test_a_lock_type_of_v0_is_refused_by_name(self):
        client = self.v1()
        client.ask("rw_data_or_rw")
        self.assertEqual(client.receive()[0], refusal_v1("unsupported GMS lock type rw_data_or_rw"))
        client.expect_closed()


class Permissions(GmsCase):
    def everything(self):
        yield from (sample(V1_REQUESTS, name) for name in V1_REQUESTS)
        yield from (sample_answer(V1_ANSWERS, name) for name in ANSWER_TAGS)

    def hold(self, client, allowed):
        """Checks the answer to each request: a request not in `allowed` is refused by its kind."""
        for message in self.everything():
            name = message["type"]
            if name in ("commit_request", "abort_request") and name in allowed:
                continue  # these have tests of their own
            client.send_raw(encode(message))
            payload, descriptors = client.receive()
            for descriptor in descriptors:
                os.close(descriptor)
            self.assertEqual(payload, self.expected(name, allowed), name)
            self.assertEqual(len(descriptors), payload == encode({"type": "export_response"})[4:], name)

    @staticmethod
    def expected(name, allowed):
        if name in allowed:
            if name == "list_allocations_request":
                return encode({"type": "list_allocations_response", "allocations": allowed[name]})[4:]
            return allowed[name]
        if name in ("allocate_request", "free_request", "commit_request", "abort_request"):
            return refusal_v1(NEEDS_WRITER)
        if name in ("export_request", "list_allocations_request"):
            return refusal_v1(NEEDS_SESSION)
        return refusal_v1(ONLY_FIRST)

    UNKNOWN = refusal_v1("unknown allocation ID")

    def test_a_writer(self):
        for state in "EMPTY", "COMMITTED", "LAYOUT_COMMITTED":
            with self.in_state(state):
                writer = self.session_v1("rw")
                success = encode(SUCCESS)[4:]
                # in this order: the allocation is made, exported and freed again
                allowed = {
                    "allocate_request": success,
                    "export_request": encode({"type": "export_response"})[4:],
                    "free_request": success,
                    "list_allocations_request": [],
                    "commit_request": None,
                    "abort_request": None,
                }
                self.hold(writer, allowed)

    def test_a_reader(self):
        for state in "COMMITTED", "RO by V0", "RO by V1", "RO by a file":
            with self.in_state(state):
                reader = self.session_v1("ro")
                listed = [{"allocation_id": name, "aligned_size": size} for name, size in reader.list()]
                self.assertEqual(len(listed), 2)
                self.hold(reader, {"export_request": self.UNKNOWN, "list_allocations_request": listed})
                self.assertEqual(self.state(), "RO")

    def test_a_writer_that_has_committed(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        writer.commit()
        listed = [{"allocation_id": "a", "aligned_size": PIECE}]
        self.hold(writer, {"export_request": self.UNKNOWN, "list_allocations_request": listed})

    def test_a_writer_that_has_aborted(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        writer.abort()
        self.hold(writer, {})

    def test_newer_requests_are_refused_in_the_protocols_shape(self):
        writer = self.session_v1("rw")
        for name in "retain_allocations_request", "release_attachment_request":
            writer.send(name)
            with self.assertRaises(gms_client.Refused):
                writer.result("success_response")
        self.assertEqual(writer.list(), [])

    def test_a_process_fence_is_refused_and_its_absence_is_not(self):
        client = self.v1()
        client.send("handshake_request", lock_type="rw", expected_identity=None, process_fence=False)
        self.assertEqual(client.granted()["lock_type"], "rw")
        client.close()
        client = self.v1()
        client.send("handshake_request", lock_type="rw", expected_identity=None, process_fence=True)
        with self.assertRaises(gms_client.Refused):
            client.granted()
        self.wait_state("EMPTY")


class Identity(GmsCase):
    def test_it_is_the_same_for_all_connections_of_a_store(self):
        self.commit_content_v1()
        answers = []
        for _ in range(3):
            client = self.v1()
            client.ask("ro")
            answers.append(client.granted())
        self.assertEqual(len({answer["server_nonce"] for answer in answers}), 1)
        self.assertRegex(answers[0]["server_nonce"], UUID4)
        self.assertEqual(answers[0]["gpu_uuid"], f"GPU-{bare_uuid()}")

    def test_stores_have_nonces_of_their_own(self):
        nonces = set()
        for store in "weights", "kv_cache":
            client = self.v1(store)
            client.ask("rw")
            nonces.add(client.granted()["server_nonce"])
        self.assertEqual(len(nonces), 2)

    def identity(self):
        client = self.v1()
        client.ask("rw")
        answer = client.granted()
        client.close()
        self.wait_state("EMPTY")
        return [answer["server_nonce"], answer["gpu_uuid"]]

    def test_the_right_one_is_let_in(self):
        self.assertEqual(self.v1().lock("rw", self.identity()), "rw")

    def test_another_one_is_told_so_without_waiting(self):
        nonce, gpu = self.identity()
        self.session("rw")
        other = str(uuid.uuid4())
        for expected in ([other, gpu], [nonce, gpu + "0"], ["", ""], [nonce.upper(), gpu], [gpu, nonce]):
            client = self.v1()
            client.ask("rw", expected)
            self.assertEqual(
                client.receive()[0], refusal_v1("GMS server incarnation or physical GPU changed"), expected
            )
            client.expect_closed()


class Locks(GmsCase):
    def test_each_lock_type_in_each_state(self):
        for state in self.STATES:
            for lock_type in ("rw", "ro", "rw_or_ro"):
                with self.in_state(state):
                    expected = GRANTS[state].get(lock_type)
                    if expected:
                        self.assertEqual(self.v1().lock(lock_type), expected, lock_type)
                    else:
                        self.waiting_v1(lock_type).expect_silence(0.02)

    def test_the_answer_is_these_bytes(self):
        client = self.v1()
        client.ask("rw")
        answer = client.answer()
        expected = {
            "type": "handshake_response",
            "lock_type": "rw",
            "server_nonce": answer.message["server_nonce"],
            "gpu_uuid": f"GPU-{bare_uuid()}",
        }
        self.assertEqual(answer.payload, encode(expected)[4:])

    def test_a_commit_leaves_the_connection_a_reader(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        with owned(writer.export("a")) as memory:
            os.pwrite(memory, b"bytes", 0)
        waiter = self.waiting_v1("ro")
        writer.commit()
        waiter.granted()
        self.assertEqual(self.probe()["ro_session_count"], 2)
        with owned(writer.export("a")) as mine, owned(waiter.export("a")) as theirs:
            self.assertEqual(os.pread(mine, 5, 0), b"bytes")
            self.assertEqual(os.pread(theirs, 5, 0), b"bytes")
        writer.close()
        wait_until(lambda: self.probe()["ro_session_count"] == 1, "the former writer is gone")
        waiter.close()
        self.wait_state("COMMITTED")
        self.assertEqual(self.probe()["allocation_count"], 1)

    def test_a_committed_layout_stays_until_the_next_writer(self):
        self.commit_content_v1()
        self.assertEqual(self.session_v1("ro").list(), [("a", PIECE), ("b", PIECE)])
        self.close_all()
        writer = self.session_v1("rw")
        self.assertEqual(writer.list(), [])
        self.assertFalse(self.probe()["committed"])
        writer.allocate("a", PIECE)
        self.assertEqual(writer.list(), [("a", PIECE)])

    def test_an_empty_layout_can_be_committed(self):
        writer = self.session_v1("rw")
        writer.commit()
        self.assertEqual(writer.list(), [])
        self.assertEqual(self.state(), "RO")

    def test_an_abort_has_released_everything_when_it_is_answered(self):
        writer = self.session_v1("rw")
        for name in "abc":
            writer.allocate(name, PIECE)
        writer.send("abort_request")
        self.assertEqual(writer.receive()[0], encode(SUCCESS)[4:])
        self.assertEqual(device()["used_bytes"], 0)
        self.assertEqual(self.probe()["state"], "EMPTY")
        self.assertEqual(self.session_v1("rw").list(), [])
        writer.expect_silence(0.02)

    def test_what_ends_a_writers_connection_is_an_abort(self):
        for how in "close", "half-close", "garbage":
            with self.subTest(how=how):
                writer = self.session_v1("rw")
                writer.allocate("a", PIECE)
                if how == "close":
                    writer.close()
                elif how == "half-close":
                    writer.half_close()
                    writer.expect_closed()
                else:
                    writer.send_raw(b"\0\0\0\0")
                    writer.expect_closed()
                self.wait_state("EMPTY")
                self.assertEqual(self.probe()["allocation_count"], 0)

    def test_a_waiting_client_that_goes_away_is_forgotten_and_never_granted(self):
        for how in "close", "half_close":
            for lock_type in "rw", "ro", "rw_or_ro":
                with self.subTest(how=how, lock_type=lock_type):
                    holder = self.session_v1("rw")
                    gone = self.waiting_v1(lock_type)
                    getattr(gone, how)()
                    wait_until(lambda: self.waiters() == 0, "forgotten")
                    holder.allocate("a", PIECE)
                    holder.commit()
                    holder.close()
                    self.wait_state("COMMITTED")
                    self.assertEqual(self.probe()["allocation_count"], 1)

    def test_a_former_writer_is_no_member_of_the_next(self):
        former = self.session_v1("rw")
        former.abort()
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        self.assert_refused(NEEDS_SESSION, former.list)
        self.assert_refused(NEEDS_SESSION, former.export, "a")
        former.close()
        self.assertEqual(writer.list(), [("a", PIECE)])


class Requests(GmsCase):
    def test_errors_of_allocate_in_their_order(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        self.assert_refused("allocation ID must not be empty", writer.allocate, "", 0)
        self.assert_refused("allocation ID must not be empty", writer.allocate, "", PIECE)
        for size in (0, -1, -PIECE, 1, PIECE - 1, PIECE + 4096, -(2**63)):
            text = "allocation size is not aligned for this GPU"
            self.assert_refused(text, writer.allocate, "a", size)
            self.assert_refused(text, writer.allocate, "b", size)
        self.assert_refused("allocation ID already exists", writer.allocate, "a", PIECE)
        self.assertEqual(writer.list(), [("a", PIECE)])

    def test_errors_of_export_and_free(self):
        writer = self.session_v1("rw")
        writer.allocate("a", PIECE)
        for call in (writer.export, writer.free):
            self.assert_refused("allocation ID must not be empty", call, "")
            for name in ("b", "A", "a ", "a\0", "x" * 10000):
                self.assert_refused("unknown allocation ID", call, name)
        writer.free("a")
        self.assert_refused("unknown allocation ID", writer.free, "a")
        self.assert_refused("unknown allocation ID", writer.export, "a")

    def test_an_error_is_these_bytes(self):
        writer = self.session_v1("rw")
        writer.send("free_request", allocation_id="x")
        self.assertEqual(writer.receive()[0], refusal_v1("unknown allocation ID"))

    def test_ids_are_any_text(self):
        writer = self.session_v1("rw")
        slab = f"allocation-{uuid.uuid4()}"
        names = ["b", "a", "/", "..", "a/b", "ä", "%41", "x" * 255, " ", slab]
        for name in "a\0b", "x" * 256:
            writer.send("allocate_request", allocation_id=name, aligned_size=PIECE)
            self.assertEqual(writer.receive()[0], refusal_v1(
                "allocation ID must have at most 255 bytes, and no NUL"))
        for name in names:
            writer.allocate(name, PIECE)
            with owned(writer.export(name)) as memory:
                os.pwrite(memory, name.encode(), 0)
        self.assertEqual(writer.list(), [(name, PIECE) for name in names])
        writer.commit()
        writer.close()
        reader = self.session_v1("ro")
        self.assertEqual(reader.list(), [(name, PIECE) for name in names])
        for name in names:
            with owned(reader.export(name)) as memory:
                self.assertEqual(os.pread(memory, len(name.encode()), 0), name.encode())

    def test_lists_are_in_order_of_allocation(self):
        writer = self.session_v1("rw")
        for name in "cab":
            writer.allocate(name, PIECE)
        writer.free("a")
        writer.allocate("a", 2 * PIECE)
        self.assertEqual(writer.list(), [("c", PIECE), ("b", PIECE), ("a", 2 * PIECE)])

    def test_the_same_ids_can_be_had_again_after_an_abort(self):
        for _ in range(3):
            writer = self.session_v1("rw", "kv_cache")
            for name in "ab":
                writer.allocate(name, PIECE)
                os.close(writer.export(name))
            writer.abort()
            writer.close()

    def test_stores_have_ids_of_their_own(self):
        for store in "weights", "kv_cache":
            writer = self.session_v1("rw", store)
            writer.allocate("a", PIECE)
            self.assertEqual(writer.list(), [("a", PIECE)])

    def test_a_descriptor_has_the_size_of_its_allocation(self):
        writer = self.session_v1("rw")
        writer.allocate("a", 3 * PIECE)
        with owned(writer.export("a")) as memory:
            self.assertEqual(os.fstat(memory).st_size, 3 * PIECE)

    def test_readers_get_what_cannot_be_written(self):
        self.commit_content_v1()
        with owned(self.session_v1("ro").export("a")) as memory:
            with self.assertRaises(OSError):
                os.pwrite(memory, b"x", 0)

    def test_memory_is_waited_for_without_limit(self):
        """Longer than the mount's alloc_timeout of 2 s, which is that of others."""
        wait_until(lambda: device()["used_bytes"] == 0, "all device memory is free")
        holder = self.session_v1("rw", "kv_cache")
        holder.allocate("all", device()["total_bytes"] // PIECE * PIECE)
        writer = self.session_v1("rw")
        writer.send("allocate_request", allocation_id="a", aligned_size=PIECE)
        writer.expect_silence(3)
        holder.abort()
        writer.result("success_response")
        self.assertEqual(writer.list(), [("a", PIECE)])

    def test_who_goes_away_does_not_wait_for_memory(self):
        for how in "close", "half_close":
            with self.subTest(how=how):
                wait_until(lambda: device()["used_bytes"] == 0, "all device memory is free")
                holder = self.session_v1("rw", "kv_cache")
                holder.allocate("all", device()["total_bytes"] // PIECE * PIECE)
                writer = self.session_v1("rw")
                writer.send("allocate_request", allocation_id="a", aligned_size=PIECE)
                writer.expect_silence(0.05)
                getattr(writer, how)()
                wait_until(lambda: self.state() == "EMPTY", "the session ends", 1.5)
                holder.close()

    def test_more_than_the_device_has_is_refused_at_once(self):
        writer = self.session_v1("rw")
        writer.send("allocate_request", allocation_id="a", aligned_size=1 << 40)
        message = writer.answer().message
        self.assertEqual(message["type"], "error_response")
        self.assertTrue(message["out_of_memory"])
        total = device()["total_bytes"]
        self.assertEqual(
            message["message"], f"{1 << 40} bytes cannot be allocated: the mount has {total} in all"
        )
        writer.allocate("a", PIECE)
