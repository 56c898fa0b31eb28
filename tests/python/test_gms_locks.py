# SPDX-License-Identifier: Apache-2.0
"""GMS V0: the lock requests that are granted and that wait in each state, their time limits and errors."""

import threading
import time

import gms_client
from gms_client import V0, encode
from gms_support import GmsCase, v0_path, wait_until

# state: {requested lock: lock granted at once}; a request that has to wait is absent.
GRANTS = {
    "EMPTY": {"rw": "rw", "rw_or_ro": "rw", "auto": "rw", "rw_data_or_rw": "rw"},
    "RW by V0": {},
    "RW by V1": {},
    "RW by a file": {},
    "RW_DATA": {},
    "COMMITTED": {"rw": "rw", "ro": "ro", "rw_or_ro": "ro", "auto": "ro", "rw_data_or_rw": "rw"},
    "RO by V0": {"ro": "ro", "rw_or_ro": "ro", "auto": "ro"},
    "RO by V1": {"ro": "ro", "rw_or_ro": "ro", "auto": "ro"},
    "RO by a file": {"ro": "ro", "rw_or_ro": "ro", "auto": "ro"},
    "LAYOUT_COMMITTED": {"rw": "rw", "rw_or_ro": "rw", "auto": "rw", "rw_data_or_rw": "rw_data"},
}

LOCK_TYPES = ("rw", "ro", "rw_or_ro", "auto", "rw_data_or_rw")

# (state, has_rw_session, ro_session_count, committed, is_ready, layout_committed, allocations)
REPORTS = {
    "EMPTY": ("EMPTY", False, 0, False, False, False, 0),
    "RW by V0": ("RW", True, 0, False, False, False, 0),
    "RW by V1": ("RW", True, 0, False, False, False, 0),
    "RW by a file": ("RW", True, 0, False, False, False, 0),
    "RW_DATA": ("RW", True, 0, False, False, True, 2),
    "COMMITTED": ("COMMITTED", False, 0, True, True, True, 2),
    "RO by V0": ("RO", False, 1, True, True, True, 2),
    "RO by V1": ("RO", False, 1, True, True, True, 2),
    "RO by a file": ("RO", False, 1, True, True, True, 2),
    "LAYOUT_COMMITTED": ("LAYOUT_COMMITTED", False, 0, False, False, True, 2),
}


class Grants(GmsCase):
    def test_each_lock_type_in_each_state_without_waiting(self):
        for state in self.STATES:
            for lock_type in LOCK_TYPES:
                with self.in_state(state):
                    expected = GRANTS[state].get(lock_type)
                    committed_before = self.probe()["committed"]
                    client = self.v0()
                    client.ask(lock_type, 0)
                    message = client.granted()
                    self.assertEqual(message["granted_lock_type"], expected, lock_type)
                    if expected is None:
                        self.assertEqual(message["committed"], committed_before)
                        client.expect_closed()
                    else:
                        self.assertEqual(message["committed"], expected == "ro")

    def test_each_lock_type_without_a_limit_is_granted_where_it_is_free(self):
        for state in ("EMPTY", "COMMITTED", "LAYOUT_COMMITTED"):
            for lock_type, granted in GRANTS[state].items():
                with self.in_state(state):
                    self.assertEqual(self.v0().lock(lock_type), granted, lock_type)

    def test_answers_of_the_handshake_are_these_bytes(self):
        for state, lock_type, expected in (
            ("EMPTY", "rw", (True, False, "rw")),
            ("EMPTY", "ro", (False, False, None)),
            ("COMMITTED", "ro", (True, True, "ro")),
            ("RO by V0", "rw", (False, True, None)),
            ("LAYOUT_COMMITTED", "rw_data_or_rw", (True, False, "rw_data")),
        ):
            with self.in_state(state):
                client = self.v0()
                client.ask(lock_type, 0)
                fields = dict(zip(("success", "committed", "granted_lock_type"), expected))
                wanted = encode({"type": "handshake_response", **fields})
                self.assertEqual(client.receive()[0], wanted[4:])

    def test_an_older_client_leaves_the_time_out(self):
        self.commit_content()
        client = self.v0()
        client.send("handshake_request", lock_type="ro")
        self.assertEqual(client.granted()["granted_lock_type"], "ro")

    def test_a_writer_begins_with_nothing(self):
        for state in ("COMMITTED", "LAYOUT_COMMITTED"):
            for lock_type in ("rw",) if state == "LAYOUT_COMMITTED" else ("rw", "rw_data_or_rw"):
                with self.in_state(state):
                    writer = self.session(lock_type, granted="rw")
                    self.assertEqual(writer.list(), [])
                    self.assertEqual(writer.keys(), [])
                    self.assertEqual(writer.layout_hash(), "")
                    self.assertFalse(self.probe()["committed"])
                    self.assertFalse(self.probe()["layout_committed"])
                    self.assertEqual(writer.allocate(1)["layout_slot"], 0)
                    writer.close()
                    self.wait_state("EMPTY")

    def test_a_writer_of_the_bytes_finds_everything(self):
        ids = self.seal_content()
        before = self.probe()["memory_layout_hash"]
        writer = self.session("rw_data_or_rw", granted="rw_data")
        self.assertEqual([item["allocation_id"] for item in writer.list()], list(ids))
        self.assertEqual(writer.keys(), ["first", "second"])
        self.assertEqual(writer.layout_hash(), before)
        self.assertNotEqual(before, "")
        writer.close()
        self.wait_state("LAYOUT_COMMITTED")
        self.assertEqual(self.probe()["memory_layout_hash"], before)


class Reports(GmsCase):
    def test_what_is_said_of_each_state(self):
        for state, expected in REPORTS.items():
            with self.in_state(state):
                seen = self.probe()
                wanted = dict(
                    zip(
                        (
                            "state",
                            "has_rw_session",
                            "ro_session_count",
                            "committed",
                            "is_ready",
                            "layout_committed",
                            "allocation_count",
                        ),
                        expected,
                    )
                )
                self.assertEqual({name: seen[name] for name in wanted}, wanted)
                self.assertEqual(seen["waiting_writers"], 0)
                self.assertEqual(seen["memory_layout_hash"] != "", wanted["layout_committed"])

    def test_sessions_are_told_the_same(self):
        for lock_type, state in ("rw", "EMPTY"), ("ro", "COMMITTED"), ("rw_data_or_rw", "LAYOUT_COMMITTED"):
            with self.in_state(state):
                client = self.v0()
                client.lock(lock_type)
                seen, probe = client.lock_state(), self.probe()
                seen.pop("type")
                self.assertEqual(seen, {name: probe[name] for name in seen})
                state_of = client.allocation_state()
                self.assertEqual(state_of["allocation_count"], probe["allocation_count"])
                self.assertEqual(client.layout_hash(), probe["memory_layout_hash"])

    def test_writers_that_wait_are_counted_and_others_are_not(self):
        self.commit_content()
        self.session("ro")
        self.assertEqual(self.probe()["waiting_writers"], 0)
        first = self.waiting("rw")
        self.assertEqual(self.probe()["waiting_writers"], 1)
        self.waiting("rw_data_or_rw")
        self.assertEqual(self.probe()["waiting_writers"], 2)
        self.waiting("ro")
        self.waiting("rw_or_ro")
        self.assertEqual(self.probe()["waiting_writers"], 2)
        first.close()
        wait_until(lambda: self.probe()["waiting_writers"] == 1, "one writer waits")

    def test_uncommitted_allocations_are_counted(self):
        writer = self.session("rw")
        self.fill(writer)
        self.assertEqual(self.probe()["allocation_count"], 2)
        self.assertEqual(self.probe()["memory_layout_hash"], "")

    def test_a_probe_touches_nothing(self):
        self.commit_content()
        reader = self.session("ro")
        with self.logs():
            for _ in range(20):
                self.probe()
                self.events()
        self.assertEqual(reader.lock_state()["ro_session_count"], 1)
        self.waiting("rw").close()
        wait_until(lambda: self.probe()["waiting_writers"] == 0, "no writer waits")


class Waiting(GmsCase):
    def test_a_reader_waits_for_the_commit_and_is_told_so(self):
        writer = self.session("rw")
        self.fill(writer)
        reader = self.waiting("ro")
        reader.expect_silence(0.05)
        self.assertTrue(writer.commit())
        message = reader.granted()
        self.assertEqual((message["granted_lock_type"], message["committed"]), ("ro", True))

    def test_a_reader_waits_on_beyond_an_abort_and_a_seal(self):
        reader = self.waiting("ro")
        for end in ("abort", "seal"):
            writer = self.session("rw")
            writer.allocate(1)
            if end == "seal":
                writer.commit_layout()
            writer.close()
            self.wait_state("LAYOUT_COMMITTED" if end == "seal" else "EMPTY")
            reader.expect_silence(0.05)
        self.session("rw").commit()
        self.assertEqual(reader.granted()["granted_lock_type"], "ro")

    def test_a_reader_waits_on_what_is_only_sealed(self):
        self.seal_content()
        reader = self.v0()
        reader.ask("ro", 50)
        self.assertFalse(reader.granted()["success"])
        reader.expect_closed()

    def test_of_many_rw_or_ro_one_writes_and_all_others_read(self):
        clients = [self.v0() for _ in range(20)]
        for client in clients:
            client.ask("rw_or_ro")
        writer = wait_until(lambda: next((c for c in clients if self.readable(c)), None), "one is granted")
        self.assertEqual(writer.granted()["granted_lock_type"], "rw")
        writer.allocate(1)
        writer.commit()
        for client in clients:
            if client is not writer:
                self.assertEqual(client.granted()["granted_lock_type"], "ro")

    @staticmethod
    def readable(connection):
        try:
            connection.socket.setblocking(False)
            return bool(connection.socket.recv(1, gms_client.socket.MSG_PEEK))
        except BlockingIOError:
            return False

    def test_stores_have_locks_of_their_own(self):
        self.session("rw")
        self.assertEqual(self.v0("kv_cache").lock("rw", 0), "rw")


class Timeouts(GmsCase):
    def test_a_wait_ends_with_its_time_and_no_earlier(self):
        self.session("rw")
        for lock_type in LOCK_TYPES:
            with self.subTest(lock_type=lock_type):
                client = self.v0()
                start = time.monotonic()
                client.ask(lock_type, 200)
                message = client.granted()
                waited = time.monotonic() - start
                self.assertFalse(message["success"])
                self.assertGreaterEqual(waited, 0.199)
                self.assertLess(waited, gms_client.TIMEOUT / 2)
                client.expect_closed()

    def test_committed_is_told_as_it_is_when_the_time_is_over(self):
        for state, committed in ("RW by V0", False), ("LAYOUT_COMMITTED", False), ("RO by V0", True):
            with self.in_state(state):
                client = self.v0()
                client.ask("ro" if state == "LAYOUT_COMMITTED" else "rw", 50)
                message = client.granted()
                self.assertEqual((message["success"], message["committed"]), (False, committed))

    def test_0_and_less_take_what_is_free_and_wait_for_nothing(self):
        for timeout_ms in (0, -1, -(2**63)):
            with self.subTest(timeout_ms=timeout_ms):
                writer = self.session("rw", timeout_ms=timeout_ms)
                self.assertIsNone(self.v0().lock("rw", timeout_ms))
                self.assertIsNone(self.v0().lock("ro", timeout_ms))
                writer.close()
                self.wait_state("EMPTY")

    def test_a_very_long_time_is_one_without_end(self):
        holder = self.session("rw")
        waiters = [self.waiting("rw", timeout_ms=long) for long in (2**31, 2**53, 2**63 - 1)]
        for waiter in waiters:
            waiter.expect_silence(0.02)
        holder.close()
        waiters[0].granted()

    def test_who_did_not_get_it_in_time_does_not_wait_any_more(self):
        holder = self.session("rw")
        self.assertIsNone(self.v0().lock("rw", 50))
        wait_until(lambda: self.probe()["waiting_writers"] == 0, "no writer waits")
        self.assertEqual(self.waiters(), 0)
        holder.close()
        self.wait_state("EMPTY")

    def test_a_reader_is_granted_once_a_waiting_writer_has_given_up(self):
        self.commit_content()
        self.session("ro")
        self.waiting("rw", timeout_ms=300)
        self.assertEqual(self.v0().lock("ro"), "ro")


class Leaving(GmsCase):
    """A waiter that disconnects leaves the queue at once and is never granted the lock."""

    def leave(self, how, lock_type):
        holder = self.session("rw")
        ids = self.fill(holder)
        self.assertEqual(len(ids), 2)
        gone = self.waiting(lock_type)
        with self.logs(("committed", 0)):
            if how == "close":
                gone.close()
            else:
                gone.half_close()
                gone.expect_closed()
            wait_until(lambda: self.waiters() == 0, "the client that left is forgotten")
            self.assertEqual(self.probe()["waiting_writers"], 0)
            holder.commit()
            self.wait_state("COMMITTED")
        self.assertEqual(self.probe()["allocation_count"], 2)
        self.assertEqual(self.v0().lock("ro", 0), "ro")

    def test_a_waiting_writer_that_closes(self):
        self.leave("close", "rw")

    def test_a_waiting_writer_that_half_closes(self):
        self.leave("half-close", "rw")

    def test_a_waiting_successor_that_closes(self):
        self.leave("close", "rw_data_or_rw")

    def test_a_waiting_reader_that_closes(self):
        self.leave("close", "ro")

    def test_a_waiting_rw_or_ro_that_half_closes(self):
        self.leave("half-close", "rw_or_ro")

    def test_a_writer_that_leaves_in_the_moment_of_the_grant_wipes_nothing_it_was_not_granted(self):
        for _ in range(20):
            holder = self.session("rw")
            gone = self.waiting("rw")
            ender = threading.Thread(target=gone.close)
            ender.start()
            holder.close()
            ender.join()
            self.wait_state("EMPTY")
            self.assertEqual(self.session("rw", timeout_ms=2000).list(), [])
            self.close_all()
            self.wait_state("EMPTY")

    def test_a_connection_that_asks_nothing_is_normal(self):
        with self.logs():
            for _ in range(50):
                V0(v0_path()).close()
        self.assertEqual(self.state(), "EMPTY")

    def test_the_next_in_the_queue_comes_at_once(self):
        holder = self.session("rw")
        gone, next_one = self.waiting("rw"), self.waiting("rw")
        gone.close()
        holder.close()
        self.assertEqual(next_one.granted()["granted_lock_type"], "rw")


class Endings(GmsCase):
    """Every end of the connection ends the session."""

    def end(self, client, how):
        if how == "close":
            client.close()
        elif how == "half-close":
            client.half_close()
            client.expect_closed()
        elif how == "garbage":
            client.send_raw(b"\0\0\0\1\xc1")
            client.expect_closed()
        else:
            client.send_raw(b"\0\0\0\x20\x81")
            client.close()

    def test_a_writer_that_ends_leaves_nothing(self):
        for how in "close", "half-close", "garbage", "within a frame":
            with self.subTest(how=how):
                with self.logs(("rw_connected", 0), ("rw_aborted", 0), ("allocations_cleared", 2)):
                    writer = self.session("rw")
                    self.fill(writer)
                    self.end(writer, how)
                    self.wait_state("EMPTY")
                self.assertEqual(self.probe()["allocation_count"], 0)

    def test_a_reader_that_ends_changes_nothing(self):
        self.commit_content()
        for how in "close", "half-close", "garbage", "within a frame":
            with self.subTest(how=how), self.logs():
                reader = self.session("ro")
                self.assertEqual(self.state(), "RO")
                self.end(reader, how)
                self.wait_state("COMMITTED")
        self.assertEqual(self.probe()["allocation_count"], 2)

    def test_a_writer_of_the_bytes_that_ends_keeps_everything(self):
        self.seal_content()
        before = self.probe()
        for how in "close", "half-close", "garbage", "within a frame":
            with self.subTest(how=how):
                with self.logs(("rw_connected", 0), ("rw_disconnected", 2)):
                    self.end(self.session("rw_data_or_rw", granted="rw_data"), how)
                    self.wait_state("LAYOUT_COMMITTED")
                self.assertEqual(self.probe(), before)

    def test_an_answer_that_is_under_way_does_not_keep_a_session(self):
        self.commit_content()
        reader = self.session("ro")
        reader.send("list_allocations_request", tag=None)
        reader.close()
        self.wait_state("COMMITTED")
