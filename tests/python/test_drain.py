# SPDX-License-Identifier: Apache-2.0
"""Store.on_drain: a holder hears that its store is drained, and leaves."""

import gc
import os
import subprocess
import threading
import time
from unittest import mock

import gmsfs
from support import TIMEOUT, StoreCase


class Drains(StoreCase):
    def setUp(self):
        super().setUp()
        self.commit_raw({})
        self.heard = []
        self.told = threading.Event()

    def hear(self, deadline):
        self.heard.append(deadline)
        self.told.set()

    def info(self):
        with open(os.path.join(self.path, "info"), encoding="ascii") as file:
            return file.read()

    def drain(self, *arguments):
        process = subprocess.Popen(
            [os.environ["GMSFS"], "drain", "-q", *arguments, self.path], stderr=subprocess.PIPE
        )
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def test_a_holder_that_leaves_when_it_is_told_ends_the_drain(self):
        store = gmsfs.open(self.path)

        def leave(deadline):
            self.hear(deadline)
            store.close()

        store.on_drain(leave)
        before = time.time()
        drain = self.drain("--timeout", "60")
        self.assertEqual(drain.wait(TIMEOUT), 0)
        self.assertEqual(len(self.heard), 1)
        self.assertGreaterEqual(self.heard[0], before + 59)

    def test_who_comes_to_know_late_is_told_at_once(self):
        with gmsfs.open(self.path) as store:
            drain = self.drain()
            self.wait_until(lambda: '"draining": true' in self.info(), "it is not drained")
            store.on_drain(self.hear)
            self.assertTrue(self.told.wait(TIMEOUT))
            self.assertEqual(self.heard, [None])
        self.assertEqual(drain.wait(TIMEOUT), 0)

    def test_an_info_of_any_length_is_read_whole(self):
        with mock.patch.object(gmsfs.drain, "_READ_BYTES", 16), gmsfs.open(self.path) as store:
            store.on_drain(self.hear)
            drain = self.drain()
            self.assertTrue(self.told.wait(TIMEOUT))
        self.assertEqual(drain.wait(TIMEOUT), 0)

    def test_each_drain_is_told_and_an_exception_does_not_end_that(self):
        said = []
        threading.excepthook, before = lambda arguments: said.append(arguments.exc_type), threading.excepthook
        self.addCleanup(setattr, threading, "excepthook", before)

        def fail(deadline):
            self.hear(deadline)
            raise RuntimeError("no")

        with gmsfs.open(self.path) as store:
            store.on_drain(fail)
            for times in 1, 2:
                self.told.clear()
                drain = self.drain()
                self.assertTrue(self.told.wait(TIMEOUT))
                drain.kill()
                drain.wait(TIMEOUT)
                self.wait_until(lambda: '"draining": false' in self.info(), "it is drained")
                self.assertEqual(len(self.heard), times)
            self.wait_until(lambda: said == [RuntimeError] * 2, f"said: {said}")

    def test_the_end_of_a_watch_or_of_its_store_ends_the_thread_and_its_files(self):
        def watchers():
            return [thread for thread in threading.enumerate() if thread.name == "gmsfs-drain"]

        before = len(os.listdir("/proc/self/fd"))
        store = gmsfs.open(self.path)
        watch = store.on_drain(self.hear)
        watch.close()
        watch.close()
        self.wait_until(lambda: not watchers(), "its thread lives")
        store.on_drain(self.hear)
        store.close()
        self.wait_until(lambda: not watchers(), "its thread lives")
        store = gmsfs.open(self.path)
        store.on_drain(self.hear)
        del store
        gc.collect()
        self.wait_until(lambda: not watchers(), "its thread lives")
        gc.collect()
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 1)
        self.assertEqual(self.heard, [])

    def test_what_cannot_be_called_and_a_store_that_is_closed_are_refused(self):
        with gmsfs.open(self.path) as store:
            with self.assertRaisesRegex(TypeError, "on_drain"):
                store.on_drain(None)
        with self.assertRaisesRegex(ValueError, "closed"):
            store.on_drain(self.hear)
