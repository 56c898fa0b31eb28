# SPDX-License-Identifier: Apache-2.0
"""GMS V0: every request in every state by every kind of session and by none, commits, events, older tags.
test_gms_v0_content.py tests the content of layouts."""

import os

import gms_client
from gms_client import V0_ANSWERS, V0_OLD_REQUESTS, V0_REQUESTS, encode, owned
from gms_support import PIECE, V0_EMPTY, GmsCase, camel, sample, sample_answer

ALL_REQUESTS = {**V0_REQUESTS, **V0_OLD_REQUESTS}
PROBES = ("get_runtime_state_request", "get_event_history_request")
ANSWER_TAGS = [name for name in V0_ANSWERS if not name.startswith("=")]

CHANGING = {"allocate_request", "free_allocation_request", "metadata_put_request", "metadata_delete_request"}
ENDING = {"commit_request", "commit_layout_request"}


class WithoutSession(GmsCase):
    def test_every_message_in_every_state(self):
        """Each message except the handshake and the probes gets an error and ends the connection."""
        expected = encode({"type": "error_response", "error": "Expected HandshakeRequest", "code": 0})
        messages = [sample(ALL_REQUESTS, name) for name in ALL_REQUESTS]
        messages += [sample_answer(V0_ANSWERS, name) for name in ANSWER_TAGS]
        for state in self.STATES:
            with self.in_state(state):
                before = self.probe()
                for message in messages:
                    if message["type"] == "handshake_request" or message["type"] in PROBES:
                        continue
                    client = self.v0()
                    client.send_raw(encode(message))
                    self.assertEqual(client.receive()[0], expected[4:], message)
                    client.expect_closed()
                    client.close()
                self.assertEqual(self.probe(), before)

    def test_the_probe_of_an_empty_store_is_these_bytes(self):
        client = self.v0()
        client.send("get_runtime_state_request")
        self.assertEqual(client.receive()[0], encode(V0_EMPTY)[4:])
        client.expect_closed()

    def test_a_probe_is_answered_once(self):
        for probe in PROBES:
            client = self.v0()
            client.send_raw(encode({"type": probe}) * 2)
            client.answer()
            client.expect_closed()


class Permissions(GmsCase):
    SESSIONS = {
        # lock type: (states to ask in, lock granted, requests refused with the plain text, with the other)
        "rw": (("EMPTY", "COMMITTED", "LAYOUT_COMMITTED"), "rw", set(), set()),
        "ro": (
            ("COMMITTED", "RO by V0", "RO by V1", "RO by a file"),
            "ro",
            CHANGING | ENDING | {"free_request", "clear_all_request"},
            set(),
        ),
        "rw_data_or_rw": (("LAYOUT_COMMITTED",), "rw_data", ENDING, CHANGING),
    }

    def test_every_request_of_every_session(self):
        for lock_type, (states, granted, plain, sealed) in self.SESSIONS.items():
            for state in states:
                with self.in_state(state):
                    client = self.session(lock_type, granted=granted)
                    before = client.lock_state()
                    entries = client.keys()
                    for name in ALL_REQUESTS:
                        self.ask(client, granted, name, plain, sealed)
                    for name in ANSWER_TAGS:
                        message = sample_answer(V0_ANSWERS, name)
                        self.refused(client, granted, message, self.plain_text(granted, name))
                    self.assertEqual(client.lock_state(), before)
                    self.assertEqual(client.keys(), entries)

    def ask(self, client, granted, name, plain, sealed):
        message = sample(ALL_REQUESTS, name)
        if name == "handshake_request" or name in PROBES or name in plain:
            self.refused(client, granted, message, self.plain_text(granted, name))
        elif name in sealed:
            self.refused(
                client,
                granted,
                message,
                f"{camel(name)} not allowed: the layout is committed. Reconnect with RW to replace it.",
            )
        elif name in ENDING or name in ("free_request", "clear_all_request"):
            return  # these have tests of their own
        else:
            self.allowed(client, name, message)

    @staticmethod
    def plain_text(granted, name):
        return f"{camel(name)} not allowed for {granted.upper()} session in state {granted[:2].upper()}"

    def refused(self, client, granted, message, text):
        client.send_raw(encode(message))
        expected = encode({"type": "error_response", "error": text, "code": 0})
        self.assertEqual(client.receive()[0], expected[4:], (granted, message))

    def allowed(self, client, name, message):
        """Checks that the request is answered by its own type; an unknown id gets its own error."""
        client.send_raw(encode(message))
        if "allocation_id" in message and name != "free_allocation_request":
            expected = {"type": "error_response", "error": "Unknown allocation: no-such-id", "code": 0}
            self.assertEqual(client.answer().message, expected, name)
        else:
            self.assertEqual(client.answer().message["type"], client.answer_of(name))
        if name == "allocate_request":
            self.assertTrue(client.free(client.list()[-1]["allocation_id"]))

    def test_permission_is_looked_at_before_what_is_asked(self):
        self.commit_content()
        reader = self.session("ro")
        text = "AllocateRequest not allowed for RO session in state RO"
        self.assert_refused(text, reader.allocate, -5)
        text = "MetadataPutRequest not allowed for RO session in state RO"
        self.assert_refused(text, reader.put, "k", "no-such-id", -1, b"")

    def test_who_sealed_may_from_then_on_only_look(self):
        writer = self.session("rw")
        first, _ = self.fill(writer)
        writer.commit_layout()
        text = "%s not allowed: the layout is committed. Reconnect with RW to replace it."
        self.assert_refused(text % "AllocateRequest", writer.allocate, 1)
        self.assert_refused(text % "FreeAllocationRequest", writer.free, first)
        self.assert_refused(text % "MetadataPutRequest", writer.put, "k", first, 0, b"")
        self.assert_refused(text % "MetadataDeleteRequest", writer.delete, "first")
        text = "%s not allowed for RW_DATA session in state RW"
        self.assert_refused(text % "CommitRequest", writer.commit)
        self.assert_refused(text % "CommitLayoutRequest", writer.commit_layout)
        self.assertEqual(len(writer.list()), 2)
        self.assertEqual(writer.keys(), ["first", "second"])

    def test_a_session_goes_on_after_an_error(self):
        with self.logs(("rw_connected", 0), ("committed", 0)):
            writer = self.session("rw")
            for _ in range(100):
                self.assert_refused("size must be > 0, got 0", writer.allocate, 0)
            self.assertEqual(writer.allocate(1)["layout_slot"], 0)
            self.assertTrue(writer.commit())


class Commits(GmsCase):
    def test_the_answer_comes_before_the_end_of_the_connection(self):
        writer = self.session("rw")
        self.fill(writer)
        writer.send("commit_request")
        expected = encode({"type": "commit_response", "success": True})
        self.assertEqual(writer.receive()[0], expected[4:])
        writer.expect_closed()
        self.assertEqual(self.state(), "COMMITTED")

    def test_readers_are_admitted_at_once(self):
        """Not only when the writer has closed as well."""
        writer = self.session("rw")
        self.fill(writer)
        writer.commit()
        self.assertEqual(self.v0().lock("ro", 0), "ro")

    def test_what_follows_a_commit_is_not_answered(self):
        writer = self.session("rw")
        writer.send_raw(encode({"type": "commit_request"}) + encode({"type": "get_lock_state_request"}))
        writer.answer()
        writer.expect_closed()

    def test_a_seal_leaves_the_session_open_with_less_rights(self):
        writer = self.session("rw")
        self.fill(writer)
        message = writer.commit_layout()
        self.assertEqual((message["success"], message["granted_lock_type"]), (True, "rw_data"))
        seen = self.probe()
        self.assertEqual((seen["state"], seen["has_rw_session"]), ("RW", True))
        self.assertEqual((seen["committed"], seen["is_ready"]), (False, False))
        self.assertTrue(seen["layout_committed"])
        self.assertIsNone(self.v0().lock("rw_data_or_rw", 0))
        self.assertIsNone(self.v0().lock("ro", 0))

    def test_a_sealed_layout_survives_any_number_of_owners(self):
        ids = self.seal_content()
        for _ in range(5):
            client = self.session("rw_data_or_rw", granted="rw_data")
            self.assertEqual([item["allocation_id"] for item in client.list()], list(ids))
            client.close()
            self.wait_state("LAYOUT_COMMITTED")

    def test_a_writer_takes_a_committed_layout_with_it(self):
        self.commit_content()
        self.session("rw").close()
        self.wait_state("EMPTY")
        self.assertFalse(self.probe()["committed"])


class Events(GmsCase):
    def test_a_commit(self):
        with self.logs(("rw_connected", 0), ("committed", 0)):
            self.commit_content()

    def test_a_writer_over_what_was_committed(self):
        self.commit_content()
        with self.logs(
            ("allocations_cleared", 2), ("rw_connected", 0), ("rw_aborted", 0), ("allocations_cleared", 0)
        ):
            self.session("rw").close()
            self.wait_state("EMPTY")

    def test_a_writer_over_what_was_sealed(self):
        self.seal_content()
        with self.logs(("rw_connected", 0), ("rw_aborted", 0), ("allocations_cleared", 1)):
            writer = self.session("rw")
            writer.allocate(1)
            writer.close()
            self.wait_state("EMPTY")

    def test_a_seal_and_its_successors(self):
        with self.logs(
            ("rw_connected", 0),
            ("layout_committed", 2),
            ("rw_disconnected", 2),
            ("rw_connected", 0),
            ("rw_disconnected", 2),
        ):
            self.seal_content()
            self.session("rw_data_or_rw", granted="rw_data").close()
            self.wait_state("LAYOUT_COMMITTED")

    def test_readers_log_nothing(self):
        self.commit_content()
        with self.logs():
            for _ in range(3):
                self.session("ro").close()
            self.wait_state("COMMITTED")

    def test_who_was_not_granted_logs_nothing(self):
        self.session("rw")
        with self.logs():
            self.assertIsNone(self.v0().lock("rw", 20))
            self.assertIsNone(self.v0().lock("ro", 0))

    def test_stores_have_events_of_their_own(self):
        with self.logs(store="kv_cache"):
            self.commit_content()

    def test_the_newest_256_are_kept(self):
        for at in range(130):
            writer = self.session("rw")
            writer.commit()
            writer.close()
            if at % 10 == 0:
                self.assertLessEqual(len(self.events()), 256)
        found = self.events()
        self.assertEqual(len(found), 256)
        self.assertEqual(found[-3:], [("allocations_cleared", 0), ("rw_connected", 0), ("committed", 0)])


class Older(GmsCase):
    """Tags of early 2026."""

    def test_export(self):
        first, _ = self.commit_content()
        reader = self.session("ro")
        message, memory = reader.export_old(first)
        with owned(memory):
            self.assertEqual(message, reader.get(first))
            self.assertEqual(os.fstat(memory).st_size, PIECE)
        self.assert_refused("Unknown allocation: x", reader.export_old, "x")

    def test_free(self):
        writer = self.session("rw")
        first, _ = self.fill(writer)
        self.assertTrue(writer.free_old(first))
        self.assertFalse(writer.free_old(first))
        self.assertEqual(writer.keys(), ["second"])

    def test_clear_all(self):
        writer = self.session("rw")
        self.fill(writer)
        self.assertEqual(writer.clear_all(), 2)
        self.assertEqual((writer.list(), writer.keys()), ([], []))
        self.assertEqual(writer.clear_all(), 0)

    def test_a_successor_may_not_free_or_clear(self):
        first, _ = self.seal_content()
        client = self.session("rw_data_or_rw", granted="rw_data")
        for call in (lambda: client.free_old(first), client.clear_all):
            with self.assertRaises(gms_client.Refused):
                call()
        self.assertEqual(len(client.list()), 2)
