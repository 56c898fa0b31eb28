# SPDX-License-Identifier: Apache-2.0
"""GMS V1 checkpoints: their conditions, the requests refused during one, and their ends."""

import os
import uuid

import gms_client
from gms_client import owned
from gms_support import FENCED, PIECE, UUID4, GmsCase, refusal_v1, v1_path


class Checkpoints(GmsCase):
    """Both stores share one checkpoint state; both sockets report it."""

    def ask(self, method, *arguments, store="weights"):
        with gms_client.V1(v1_path(store)) as client:
            return getattr(client, method)(*arguments)

    def refused(self, text, method, *arguments):
        for store in "weights", "kv_cache":
            self.assert_refused(text, lambda at=store: self.ask(method, *arguments, store=at))

    def prepare(self):
        self.commit_content_v1()
        state, token = self.ask("prepare_checkpoint")
        self.assertEqual(state, "checkpoint_ready")
        self.assertRegex(token, UUID4)
        return token

    def test_what_prepare_needs_in_its_order(self):
        self.refused("weights must be committed before checkpoint", "prepare_checkpoint")
        writer = self.session_v1("rw")
        other = self.session_v1("rw", "kv_cache")
        self.refused("weights has active or waiting sessions", "prepare_checkpoint")
        writer.close()
        self.wait_state("EMPTY")
        self.refused("kv_cache has active or waiting sessions", "prepare_checkpoint")
        other.commit()
        other.close()
        self.wait_state("COMMITTED", "kv_cache")
        self.refused("weights must be committed before checkpoint", "prepare_checkpoint")
        writer = self.session_v1("rw")
        writer.commit()
        writer.close()
        self.wait_state("COMMITTED")
        self.refused("kv_cache must not be committed before checkpoint", "prepare_checkpoint")
        self.make_empty("kv_cache")
        self.refused("weights must contain committed allocations", "prepare_checkpoint")
        self.commit_content_v1()
        self.seal_content("kv_cache")
        self.refused("kv_cache must be empty before checkpoint", "prepare_checkpoint")
        self.make_empty("kv_cache")
        self.assertEqual(self.ask("prepare_checkpoint")[0], "checkpoint_ready")

    def test_sessions_and_waiting_writers_of_any_kind_are_in_the_way(self):
        self.commit_content_v1()
        text = "weights has active or waiting sessions"
        for holder in (lambda: self.session_v1("ro"), lambda: self.session("ro"), self.file_reader):
            held = holder()
            self.refused(text, "prepare_checkpoint")
            held.close()
            self.wait_state("COMMITTED")

    def file_reader(self):
        shell = self.shell()
        shell.do("exec 3<$S/lock")
        return shell

    def test_prepare_again_answers_the_same(self):
        token = self.prepare()
        for store in "weights", "kv_cache":
            self.assertEqual(self.ask("prepare_checkpoint", store=store), ("checkpoint_ready", token))
            self.assertEqual(self.ask("checkpoint_state", store=store), ("checkpoint_ready", token))

    def test_nobody_is_let_in_meanwhile(self):
        token = self.prepare()
        for store in "weights", "kv_cache":
            for lock_type in "rw", "ro", "rw_or_ro":
                client = self.v1(store)
                client.ask(lock_type)
                self.assertEqual(client.receive()[0], refusal_v1(FENCED))
                client.expect_closed()
                client = self.v0(store)
                client.ask(lock_type, 1000)
                self.assert_refused(FENCED, client.granted)
                client.expect_closed()
        self.assertEqual(self.probe()["state"], "COMMITTED")
        self.ask("abort_checkpoint", token)
        self.assertEqual(self.session_v1("ro").list(), [("a", PIECE), ("b", PIECE)])

    def test_readers_that_wait_are_turned_away(self):
        self.commit_content_v1()
        waiters = [self.waiting_v1("ro", "kv_cache"), self.waiting("ro", "kv_cache")]
        self.ask("prepare_checkpoint")
        for waiter in waiters:
            self.assert_refused(FENCED, waiter.granted)
            waiter.expect_closed()

    def test_files_are_turned_away_with_enodev(self):
        token = self.prepare()
        shell = self.shell()
        shell.begin("exec 3<$S/lock")
        text, status = shell.finish()
        self.assertNotEqual(status, 0)
        self.assertIn("No such device", text)
        self.assertIn("COMMITTED", shell.do("cat $S/state"))
        self.ask("complete_restore", token)
        shell.do("exec 3<$S/lock")

    def test_abort_and_complete_lift_it_and_touch_no_allocation(self):
        for end in "abort_checkpoint", "complete_restore":
            with self.subTest(end=end):
                token = self.prepare()
                for _ in range(2):  # the same again succeeds
                    self.assertEqual(self.ask(end, token, store="kv_cache"), ("serving", None))
                self.assertEqual(self.ask("checkpoint_state"), ("serving", None))
                self.assertEqual(self.probe()["allocation_count"], 2)

    def test_tokens_that_are_not_the_one(self):
        token = self.prepare()
        for end in "abort_checkpoint", "complete_restore":
            self.refused("checkpoint token must not be empty", end, "")
            for wrong in ("x", token.upper(), token + " ", str(uuid.uuid4())):
                self.refused("checkpoint token does not match the prepared checkpoint", end, wrong)
        self.assertEqual(self.ask("checkpoint_state"), ("checkpoint_ready", token))

    def test_what_is_over_is_stale(self):
        stale = "checkpoint token is stale or already resolved"
        token = self.prepare()
        self.ask("abort_checkpoint", token)
        self.refused(stale, "complete_restore", token)
        self.refused(stale, "abort_checkpoint", "x")
        self.refused("checkpoint token must not be empty", "abort_checkpoint", "")
        second = self.ask("prepare_checkpoint")[1]
        self.assertNotEqual(second, token)
        self.refused("checkpoint token does not match the prepared checkpoint", "abort_checkpoint", token)
        self.ask("complete_restore", second)
        self.refused(stale, "abort_checkpoint", second)
        self.refused(stale, "abort_checkpoint", token)

    def test_identity_and_bytes_are_the_same_after_it(self):
        client = self.v1()
        client.ask("rw")
        identity = client.granted()
        client.allocate("a", PIECE)
        with owned(client.export("a")) as memory:
            os.pwrite(memory, b"kept", 0)
        client.commit()
        client.close()
        self.wait_state("COMMITTED")
        token = self.ask("prepare_checkpoint")[1]
        self.ask("complete_restore", token)
        reader = self.v1()
        self.assertEqual(reader.lock("ro", [identity["server_nonce"], identity["gpu_uuid"]]), "ro")
        with owned(reader.export("a")) as memory:
            self.assertEqual(os.pread(memory, 4, 0), b"kept")
