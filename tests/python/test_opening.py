# SPDX-License-Identifier: Apache-2.0
"""Stores that are not there yet, and looking at one without its lock."""

import errno
import os
import threading

import gmsfs
from gmsfs import opening
from support import MOUNT, SCRATCH, TIMEOUT, StoreCase


class Opening(StoreCase):
    def test_a_writer_makes_the_store_that_is_not_there(self):
        for mode in ("rw", "rw_or_ro", "rw_data_or_rw"):
            os.rmdir(self.path)
            with gmsfs.open(self.path, mode, timeout=TIMEOUT) as store:
                self.assertEqual(store.mode, "rw")
            self.wait_until(lambda: self.state() == "EMPTY", "the lock stayed")

    def test_publish_makes_the_store_that_is_not_there(self):
        os.rmdir(self.path)
        gmsfs.publish(self.path, {"t": b"1"}, timeout=TIMEOUT)
        self.assertEqual(self.state(), "COMMITTED")

    def test_a_reader_makes_no_store(self):
        os.rmdir(self.path)
        with self.assertRaises(gmsfs.Error) as caught:
            gmsfs.open(self.path, timeout=0)
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        os.mkdir(self.path)

    def test_no_directory_is_made_where_no_mount_is(self):
        path = os.path.join(SCRATCH, "no-store")
        for mode in ("rw", "ro"):
            with self.assertRaisesRegex(gmsfs.NotFound, f"{path}: .* its directory is no gmsfs mount; "):
                gmsfs.open(path, mode, timeout=0)
        self.assertFalse(os.path.exists(path))

    def test_weights_are_not_put_where_a_layout_is_sealed(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"blocks": bytes(100)}, seal=True)
        with self.assertRaisesRegex(gmsfs.Mismatch, f"{self.path}: .*its layout is sealed"):
            opening.open_weights(self.path, TIMEOUT)
        self.assertEqual(self.state(), "LAYOUT_COMMITTED")

    def test_a_name_that_no_store_can_have_is_told(self):
        with self.assertRaises(OSError):
            gmsfs.open(os.path.join(MOUNT, "x" * 300), "rw", timeout=0)


class WaitCommitted(StoreCase):
    def test_it_returns_at_the_commit_and_tells_the_bytes(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(gmsfs.wait_committed(self.path, TIMEOUT)))
        thread.start()
        gmsfs.publish(self.path, {"t": bytes(5000)}, timeout=TIMEOUT)
        thread.join(TIMEOUT)
        self.assertTrue(found[0].committed)
        self.assertGreaterEqual(found[0].total_bytes, 5000)

    def test_it_has_no_lock_and_no_place_in_the_queue(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT):
            with self.assertRaisesRegex(gmsfs.Timeout, "it is RW"):
                gmsfs.wait_committed(self.path, 0.05)
            with open(os.path.join(self.path, "sessions"), encoding="utf-8") as file:
                self.assertNotIn(" waiting ", file.read())

    def test_a_store_that_is_not_there_is_told(self):
        with self.assertRaises(gmsfs.Error) as caught:
            gmsfs.wait_committed(self.path + "-no", 0)
        self.assertEqual(caught.exception.errno, errno.ENOENT)
