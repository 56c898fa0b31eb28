# SPDX-License-Identifier: Apache-2.0
"""Sealed layouts: the next process has the tensors of the last one, as it left them."""

import os
import signal
import subprocess
import sys
import unittest

import gmsfs
from support import TIMEOUT, StoreCase

# A writer that makes a sealed tensor `kv` of eight bytes, changes one, and goes on with its memory mapped.
WRITER = (
    "import sys, gmsfs, gmsfs.store\n"
    "store = gmsfs.open(sys.argv[1], 'rw_data_or_rw', timeout=60)\n"
    "print(store.mode, flush=True)\n"
    "if store.mode == 'rw':\n"
    "    store.publish({'kv': memoryview(bytes(range(8)))}, {'made': 'once'}, seal=True)\n"
    "views = store.views()\n"
    "found = bytes(views['kv']).hex()\n"
    "views['kv'][0] += 16\n"
    "print(store.mode, found, flush=True)\n"
    "sys.stdin.read()\n"
)


class Writer:
    """That writer, for the length of a `with`; killed at its end."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = [self.process.stdout.readline().strip() for _ in range(2)]
        return self

    def __exit__(self, *_):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(TIMEOUT)


class Sealed(StoreCase):
    def test_each_writer_finds_what_the_last_one_left_when_it_was_killed(self):
        with Writer(self.path) as writer:
            self.assertEqual(writer.said, ["rw", "rw_data 0001020304050607"])
        with Writer(self.path) as writer:
            self.assertEqual(writer.said, ["rw_data", "rw_data 1001020304050607"])
        with gmsfs.open(self.path, "rw_data_or_rw", timeout=TIMEOUT) as store:
            self.assertEqual(store.mode, "rw_data")
            self.assertEqual(bytes(store.views()["kv"]).hex(), "2001020304050607")

    def test_nobody_else_has_it_as_long_as_a_writer_lives(self):
        with Writer(self.path):
            with self.assertRaisesRegex(gmsfs.WouldBlock, "can write the sealed layout"):
                gmsfs.open(self.path, "rw_data_or_rw", timeout=0)
        gmsfs.open(self.path, "rw_data_or_rw", timeout=TIMEOUT).close()

    def test_who_seals_goes_on_as_the_writer_of_bytes(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"kv": bytes(4)}, seal=True)
            self.assertEqual((store.mode, store.writable, store.state), ("rw_data", True, "RW"))
            self.assertEqual((store.info.committed, store.info.sealed), (False, True))
            self.assertEqual(store.info.layout_hash, store.layout_hash)
            self.assertEqual(store.generation, 1)
            view = store.views()["kv"]
            self.assertFalse(view.readonly)
            view[0] = 7
            for call in (
                store.commit,
                store.commit_layout,
                lambda: store.publish({"x": b"1"}),
                lambda: store.metadata.put("k", b"v"),
            ):
                with self.assertRaises(gmsfs.NoLock):
                    call()
            self.assertFalse(store.abort())
            self.assertEqual(store.mode, "")
            self.assertEqual(self.state(), "LAYOUT_COMMITTED")
        with gmsfs.open(self.path, "rw_data_or_rw", timeout=TIMEOUT) as store:
            self.assertEqual(bytes(store.views()["kv"]), b"\x07\0\0\0")

    def test_what_is_sealed_sleeps_and_wakes_as_it_was(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"kv": bytes(4)}, seal=True)
            view = store.views()["kv"]
            view[0] = 7
            for keep_lock in (True, False):
                store.sleep(keep_lock)
                store.sleep(keep_lock)
                store.wake(TIMEOUT, strict=True)
                self.assertEqual(store.mode, "rw_data")
                view[1] += 1
                self.assertEqual(bytes(view), bytes([7, view[1], 0, 0]))
        self.assertEqual(view[1], 2)

    def test_a_whole_writer_and_a_reader_do_not_adopt(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"kv": bytes(4)}, seal=True)
        with self.assertRaises(gmsfs.WouldBlock):
            gmsfs.open(self.path, timeout=0)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            self.assertEqual((store.info.allocations, store.info.sealed), (0, False))

    def test_staying_and_sealing_exclude_each_other(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            with self.assertRaisesRegex(ValueError, "exclude each other"):
                store.publish({"kv": b"1"}, stay=True, seal=True)
            self.assertEqual(store.mode, "rw")

    def test_sealing_what_is_committed_needs_no_copy(self):
        gmsfs.publish(self.path, {"kv": b"1234"})
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.commit_layout()
            self.assertEqual(bytes(store.views()["kv"]), b"1234")
        self.assertEqual(self.state(), "LAYOUT_COMMITTED")


class Modes(unittest.TestCase):
    def test_rw_data_is_granted_and_not_asked_for(self):
        with self.assertRaisesRegex(ValueError, '"rw_data_or_rw"'):
            gmsfs.open("nowhere", "rw_data")
