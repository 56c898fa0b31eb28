# SPDX-License-Identifier: Apache-2.0
"""gmsfs.vllm.ranks: two and four ranks in processes of their own. Needs torch with gloo."""

import json
import os
import signal
import subprocess
import sys

import gmsfs
from support import TIMEOUT, StoreCase

RANK = os.path.join(os.path.dirname(__file__), "../tools/vllm_rank.py")


class Engine:
    """All ranks of an engine, in a session of their own. way: of one of them."""

    count = 0

    def __init__(self, case, rank=0, way=""):
        Engine.count += 1
        meeting = case.file(f"meeting-{os.getpid()}-{Engine.count}")
        ways = [way if each == rank else "" for each in range(case.count)]
        self.process = subprocess.Popen(
            [sys.executable, RANK, meeting, *case.paths, *ways],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        case.engines.append(self)

    def seen(self, count):
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
    count = 2

    def setUp(self):
        super().setUp()
        self.engines = []
        self.paths = [self.path] + [f"{self.path}-{rank}" for rank in range(1, self.count)]
        for path in self.paths[1:]:
            os.mkdir(path)

    def tearDown(self):
        for engine in self.engines:
            engine.kill()
        for self.path in self.paths:
            super().tearDown()

    def assert_seen(self, engine, role):
        """Returns the id of the load that all ranks have."""
        seen = engine.seen(self.count)
        for one in seen:
            self.assertEqual((one["role"], one["same"], one["private"], one["left"]), (role, True, 0, []))
        (load,) = {one["load"] for one in seen}
        self.assertNotEqual(load, "")
        return load

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
        seen = [engine.seen(self.count) for engine in (Engine(self), Engine(self))]
        self.assertEqual(len({one["load"] for engine in seen for one in engine}), 1)
        roles = [{one["role"] for one in engine} for engine in seen]
        self.assertCountEqual(roles, [{"attached"}, {"wrote"}])

    def test_a_rank_that_fails_stops_the_others_and_nothing_is_committed(self):
        for rank in range(self.count):
            with self.subTest(rank):
                said = Engine(self, rank, "fail").seen(self.count)
                self.assertEqual("ValueError: its file is broken", said.pop(rank)["error"])
                for other in said:
                    self.assertIn(f"one failed: rank {rank}: its file is broken", other["error"])
                self.assertEqual(self.committed(), [False] * self.count)
        self.assert_seen(Engine(self), "wrote")

    def test_a_rank_that_dies_stops_the_others_and_nothing_is_committed(self):
        for rank in range(self.count):
            with self.subTest(rank):
                said = Engine(self, rank, "die").seen(self.count - 1)
                self.assertEqual({rank, *(one["rank"] for one in said)}, set(range(self.count)))
                for other in said:
                    self.assertIn("error", other)
                self.assertEqual(self.committed(), [False] * self.count)

    def test_a_mix_of_two_loads_is_loaded_anew(self):
        first = Engine(self)
        load = self.assert_seen(first, "wrote")
        first.kill()
        gmsfs.publish(self.paths[-1], {"x": b"other"}, timeout=TIMEOUT)
        self.assertNotEqual(self.assert_seen(Engine(self), "wrote"), load)


class FourRanks(Ranks):
    count = 4
