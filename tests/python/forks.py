# SPDX-License-Identifier: Apache-2.0
"""Engines that run as forks of the test, so that an engine's packages are imported once and it starts in
seconds. Without a GPU, vLLM and SGLang themselves start a new Python for each process.

An engine notes its progress in a file, and waits for orders of the test, which are files as well.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
import traceback

from support import SCRATCH, TIMEOUT, StoreCase


def save_entry_point(directory, line, group):
    """Writes the metadata of an installed package, with the line by which an engine finds its plug-in."""
    info = os.path.join(directory, "gmsfs_test-0.dist-info")
    os.makedirs(info, exist_ok=True)
    with open(os.path.join(info, "METADATA"), "w", encoding="ascii") as file:
        file.write("Metadata-Version: 2.1\nName: gmsfs-test\nVersion: 0\n")
    with open(os.path.join(info, "entry_points.txt"), "w", encoding="ascii") as file:
        file.write(f"[{group}]\n{line}\n")


def prepare(line, group):
    """Makes the plug-in visible; to be called before the engine is imported."""
    directory = os.path.join(SCRATCH, f"plugin-of-{group}")
    save_entry_point(directory, line, group)
    sys.path.insert(0, directory)
    os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")


def fork_always():
    """Makes multiprocessing fork from now on, even if the engine asks for another method."""
    fork = multiprocessing.get_context("fork")
    multiprocessing.get_context = lambda method=None: fork
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda method, force=False: None


def in_child(call, *arguments):
    """Runs a call in a child: it starts threads, and later forks of this process would not have them."""
    child = os.fork()
    if not child:
        try:
            call(*arguments)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise AssertionError(f"{call.__name__} failed")


class Fork:
    """A child of this process with children of its own; it runs serve(*arguments, **options)."""

    def __init__(self, case, *arguments, **options):
        self.case = case
        self.log = case.file(f"engine-{len(case.engines)}.log")
        self.notes = case.file(f"engine-{len(case.engines)}.notes")
        self.has_ended = self.is_killed = False
        self.main = os.fork()
        if not self.main:
            self._run(arguments, options)
        os.setpgid(self.main, self.main)  # as the child does, so that kill() finds the group
        case.engines.append(self)

    def _run(self, arguments, options):
        try:
            os.setpgid(0, 0)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            fork_always()
            self.serve(*arguments, **options)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)

    # ---- in the child and its children ----------------------------------------------------------

    def note(self, name, value):
        with open(self.notes, "ab", 0) as file:
            file.write(json.dumps([name, value]).encode() + b"\n")

    def wait_for(self, order):
        while not os.path.exists(f"{self.notes}.{order}"):
            time.sleep(0.05)

    # ---- in the test ----------------------------------------------------------------------------

    def order(self, name):
        with open(f"{self.notes}.{name}", "wb"):
            pass

    def noted(self, name):
        """Returns all values of this name that the engine noted, in order."""
        try:
            with open(self.notes, encoding="utf-8") as file:
                lines = [json.loads(line) for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []
        return [value for noted, value in lines if noted == name]

    def hear(self, name, count=1):
        """Waits for `count` notes of this name. Returns the last one's value."""
        end = time.monotonic() + TIMEOUT
        while len(self.noted(name)) < count:
            if not self.is_alive() or time.monotonic() > end:
                self.case.fail(f"the engine has no {name}: {self.text()[-4000:]}")
            time.sleep(0.02)
        return self.noted(name)[count - 1]

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def is_alive(self):
        """Returns true if the main process runs; reaps it otherwise."""
        if not self.has_ended:
            self.has_ended = os.waitpid(self.main, os.WNOHANG)[0] != 0
        return not self.has_ended

    def kill(self):
        """kill -9 of every process of it, once: later the group's number may be another's."""
        if self.is_killed:
            return
        self.is_killed = True
        try:
            os.killpg(self.main, signal.SIGKILL)
        except ProcessLookupError:
            pass
        while self.is_alive():
            time.sleep(0.01)


class ForkCase(StoreCase):
    """Kills every engine of a test at its end."""

    def setUp(self):
        super().setUp()
        self.engines = []
        self.addCleanup(self.kill_engines)  # where a setUp() fails there is no tearDown()

    def kill_engines(self):
        for engine in self.engines:
            engine.kill()

    def tearDown(self):
        self.kill_engines()
        super().tearDown()
