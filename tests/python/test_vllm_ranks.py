# SPDX-License-Identifier: Apache-2.0
"""gmsfs.vllm.ranks: two ranks in processes of their own. Needs torch with gloo."""

import json
import os
import signal
import subprocess
import sys
import unittest

import gmsfs
from support import TIMEOUT, StoreCase

RANK = os.path.join(os.path.dirname(__file__), "../tools/vllm_rank.py")


class Engine:
    """Two ranks in a session of their own; ways: by rank."""

    count = 0

    def __init__(self, case, rank0="", rank1=""):
        Engine.count += 1
        meeting = case.file(f"meeting-{os.getpid()}-{Engine.count}")
        self.process = subprocess.Popen(
            [sys.executable, RANK, meeting, *case.paths, rank0, rank1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        case.engines.append(self)

    def seen(self, count=2):
        """Returns the reports of `count` ranks, sorted by rank."""
        lines = [self.process.stdout.readline() for _ in range(count)]
        return sorted(map(json.loads, lines), key=lambda one: one["rank"])

    def kill(self):
        """kill -9 of all at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Ranks(StoreCase):
    def setUp(self):
        super().setUp()
        self.engines = []
        self.paths = [self.path, self.path + "-1"]
        os.mkdir(self.paths[1])

    def tearDown(self):
        for engine in self.engines:
            engine.kill()
        for self.path in self.paths:
            super().tearDown()

    def assert_seen(self, engine, role):
        """Returns the id of the load that both ranks have."""
        first, second = engine.seen()
        for one in (first, second):
            self.assertEqual((one["role"], one["same"], one["private"], one["left"]), (role, True, 0, []))
        self.assertEqual(first["load"], second["load"])
        self.assertNotEqual(first["load"], "")
        return first["load"]

    def committed(self):
        found = []
        for path in self.paths:
            store = gmsfs.Store(path)
            found.append(store.info.committed)
            store.close()
        return found

    def test_ranks_write_together_and_the_next_engine_attaches_while_they_run_and_after_their_death(self):
        first = Engine(self)
        load = self.assert_seen(first, "wrote")
        second = Engine(self)
        self.assertEqual(self.assert_seen(second, "attached"), load)
        first.kill()
        second.kill()
        self.assertEqual(self.assert_seen(Engine(self), "attached"), load)

    def test_engines_that_start_at_once_have_one_writer(self):
        first, second = Engine(self), Engine(self)
        seen = [*first.seen(), *second.seen()]
        self.assertEqual(len({one["load"] for one in seen}), 1)
        self.assertEqual(sorted(one["role"] for one in seen), ["attached", "attached", "wrote", "wrote"])
        self.assertEqual(seen[0]["role"], seen[1]["role"])

    def test_a_rank_that_fails_stops_the_others_and_nothing_is_committed(self):
        for rank, other in ((0, 1), (1, 0)):
            with self.subTest(rank):
                said = Engine(self, **{f"rank{rank}": "fail"}).seen()
                self.assertEqual("ValueError: its file is broken", said[rank]["error"])
                self.assertIn(f"one failed: rank {rank}: its file is broken", said[other]["error"])
                self.assertEqual(self.committed(), [False, False])
        self.assert_seen(Engine(self), "wrote")

    def test_a_rank_that_dies_stops_the_others_and_nothing_is_committed(self):
        for rank in range(2):
            with self.subTest(rank):
                (said,) = Engine(self, **{f"rank{rank}": "die"}).seen(1)
                self.assertEqual(said["rank"], 1 - rank)
                self.assertIn("error", said)
                self.assertEqual(self.committed(), [False, False])

    def test_a_mix_of_two_loads_is_loaded_anew(self):
        first = Engine(self)
        load = self.assert_seen(first, "wrote")
        first.kill()
        gmsfs.publish(self.paths[1], {"x": b"other"}, timeout=TIMEOUT)
        self.assertNotEqual(self.assert_seen(Engine(self), "wrote"), load)


if __name__ == "__main__":
    unittest.main()
