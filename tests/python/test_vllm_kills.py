# SPDX-License-Identifier: Apache-2.0
"""kill -9 of each process of a real vLLM engine at each of ten moments: the store is empty or whole, and
the next engine generates the same tokens as with vLLM's own loader."""

import os
import signal
import time

from forks import ForkCase, in_child
from support import TIMEOUT, command
from test_vllm import save_model
from vllm_forks import WORKER, Engine

LIMIT_SECONDS = TIMEOUT / 60
WRITES = ("it has the lock", "it has allocated", "it is copying", "it is about to commit", "it has committed")


def has_ended(pid):
    """Returns true if a process has ended, even if its parent has not reaped it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Case(ForkCase):
    def holders(self):
        """Processes that hold the store's lock, or wait for it."""
        with open(os.path.join(self.path, "sessions"), encoding="ascii") as file:
            return [int(line.split()[3]) for line in file]


class Interrupt(Case):
    def test_ctrl_c_ends_a_start_that_waits(self):
        model = self.file("llama")
        in_child(save_model, "llama", model)
        first = Engine(self, model, self.path, "it has the lock")
        first.hear("stopped")
        second = Engine(self, model, self.path)
        worker = second.hear("worker 0")
        self.wait_until(lambda: worker in self.holders(), "the second engine does not wait")
        start = time.monotonic()
        os.killpg(second.main, signal.SIGINT)  # as a terminal sends it
        self.wait_until(lambda: worker not in self.holders(), "a waiter is left")
        self.assertLess(time.monotonic() - start, LIMIT_SECONDS)
        self.wait_until(lambda: has_ended(second.core()), "the engine core goes on")
        if second.is_alive():  # vLLM 0.32 passes over the first one while it waits for its engine core
            os.kill(second.main, signal.SIGINT)
        self.wait_until(lambda: not second.is_alive(), f"it goes on: {second.text()[-4000:]}")
        first.order("go on")
        first.hear("tokens")


class Kills(Case):
    def setUp(self):
        super().setUp()
        self.model = self.file("llama")
        in_child(save_model, "llama", self.model)
        self.expected = self.run_engine("")
        self.assertEqual(self.run_engine(self.path), self.expected)
        self.whole = command("sum", self.path)

    def run_engine(self, store):
        engine = Engine(self, self.model, store)
        tokens = engine.hear("tokens")
        engine.kill()
        return tokens

    def empty(self):
        super().tearDown()
        os.mkdir(self.path)

    def kill_one(self, engine, victim):
        pids = {"main": engine.main, "core": engine.core(), "worker": engine.hear("worker 0")}
        os.kill(pids[victim], signal.SIGKILL)

    def end_others(self, engine, victim):
        """vLLM ends the others, but for those of a dead main process, which go on: they are killed once they
        do not write."""
        worker = engine.hear("worker 0")
        engine.order("go on")
        if victim == "main":
            self.wait_until(lambda: self.state() != "RW", f"{worker} writes: {engine.text()[-4000:]}")
            engine.kill()
        self.wait_until(lambda: worker not in self.holders(), f"{worker} is left: {engine.text()[-4000:]}")
        engine.kill()

    def check(self, engine, victim):
        """Returns the store's state after the kill."""
        self.kill_one(engine, victim)
        self.end_others(engine, victim)
        state = self.state()
        self.assertIn(state, ("EMPTY", "COMMITTED"))
        self.assertEqual(self.holders(), [])
        if state == "COMMITTED":
            self.assertEqual(command("sum", self.path), self.whole)
        following = Engine(self, self.model, self.path)
        self.assertEqual(following.hear("tokens"), self.expected)
        role = "attached" if state == "COMMITTED" else "loaded and published"
        self.assertIn(f"gmsfs: {role} ", following.text())
        following.kill()
        self.assertEqual(command("sum", self.path), self.whole)
        return state

    def check_writer(self, victim):
        """At each moment of an engine that loads and publishes."""
        for moment in WRITES:
            with self.subTest(moment):
                self.empty()
                engine = Engine(self, self.model, self.path, moment)
                engine.hear("stopped")
                state = self.check(engine, victim)
                if victim == "worker":
                    self.assertEqual(state, "COMMITTED" if moment == "it has committed" else "EMPTY")

    def check_reader(self, victim):
        """At each moment of an engine that attaches."""
        with self.subTest("it has attached"):
            engine = Engine(self, self.model, self.path, "it has attached")
            engine.hear("stopped")
            self.check(engine, victim)
        with self.subTest("it has generated"):
            engine = Engine(self, self.model, self.path)
            engine.hear("tokens")
            self.check(engine, victim)
        with self.subTest("it is asleep"):
            engine = Engine(self, self.model, self.path, worker_cls=WORKER)
            engine.hear("asleep")
            self.assertEqual(self.holders(), [])
            self.check(engine, victim)
        with self.subTest("it is waking"):
            engine = Engine(self, self.model, self.path, "it is waking", worker_cls=WORKER)
            engine.hear("asleep")
            engine.order("wake")
            engine.hear("stopped")
            self.check(engine, victim)

    def check_waiter(self, victim):
        """While another engine loads, which goes on."""
        self.empty()
        first = Engine(self, self.model, self.path, "it has the lock")
        first.hear("stopped")
        second = Engine(self, self.model, self.path)
        worker = second.hear("worker 0")
        self.wait_until(lambda: worker in self.holders(), "the second engine does not wait")
        self.kill_one(second, victim)
        if victim == "worker":
            self.wait_until(lambda: worker not in self.holders(), "a waiter is left")
        first.order("go on")  # the worker of another victim waits on
        self.end_others(second, victim)
        self.assertEqual(first.hear("tokens"), self.expected)
        self.check(first, victim)

    def check_all(self, victim):
        self.check_writer(victim)
        self.check_reader(victim)
        self.check_waiter(victim)

    def test_a_worker(self):
        self.check_all("worker")

    def test_an_engine_core(self):
        self.check_all("core")

    def test_the_main_process(self):
        self.check_all("main")
