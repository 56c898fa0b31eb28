# SPDX-License-Identifier: Apache-2.0
"""A store that leaves its device while Python's users of it sleep."""

import os

import numpy

import gmsfs
from support import TIMEOUT, StoreCase


class PlacesTest(StoreCase):
    def order(self, word, residency):
        with open(os.path.join(self.path, "residency"), "w", encoding="ascii") as file:
            file.write(word)
        with gmsfs.Store(self.path) as store:
            self.wait_until(lambda: store.info.residency == residency, f"it is not at {residency}")

    def test_wake_waits_for_the_device_and_tells_how_often_the_place_changed(self):
        gmsfs.publish(self.path, {"a": numpy.arange(3000)}, timeout=TIMEOUT)
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.info.residency, ("device",))
            array = store.tensors("numpy")["a"]
            address = array.ctypes.data
            store.sleep()
            before = store.wake(TIMEOUT)
            self.assertEqual(before, store.info.moves)
            store.sleep()
            self.order("host", ("host",))
            after = store.wake(TIMEOUT, strict=True)
            self.assertEqual(after, before + 2)
            self.assertIn("device", store.info.residency)
            self.assertEqual(array.ctypes.data, address)
            numpy.testing.assert_array_equal(array, numpy.arange(3000))

    def test_bytes_that_cannot_come_to_the_device_are_said_to_be_what_lacks(self):
        other = self.make_other()
        gmsfs.publish(self.path, {"a": numpy.arange(3000)}, timeout=TIMEOUT)
        self.order("host", ("host",))
        left = os.statvfs(self.path)
        while left.f_bfree < left.f_blocks:  # its memory is still being freed
            left = os.statvfs(self.path)
        with gmsfs.open(other, "rw", TIMEOUT, reserve_bytes=left.f_bavail * left.f_frsize):
            with self.assertRaisesRegex(gmsfs.Timeout, "did not come to the device; 'gmsfs promote'"):
                gmsfs.open(self.path, timeout=0.05)

    def test_retarget_shows_another_store_in_the_same_arrays(self):
        other = self.make_other()
        gmsfs.publish(self.path, {"a": numpy.arange(3000)}, {"scale": "of the first"}, timeout=TIMEOUT)
        gmsfs.publish(other, {"a": numpy.arange(3000) + 1}, {"scale": "of the other"}, timeout=TIMEOUT)
        with gmsfs.open(self.path) as store:
            array = store.tensors("numpy")["a"]
            address = array.ctypes.data
            self.assertEqual(store.retarget(other, 0), store.info.moves)
            numpy.testing.assert_array_equal(array, numpy.arange(3000) + 1)
            self.assertEqual(store.tensors("numpy")["a"].ctypes.data, address)
            self.assertTrue(any(b"of the other" in value for value in store.metadata.values()))
            with gmsfs.Store(self.path) as first:
                self.assertEqual(first.info.readers, 0)
            self.order("host", ("host",))
            with self.assertRaises(gmsfs.WouldBlock):
                store.retarget(self.path, 0)
            numpy.testing.assert_array_equal(array, numpy.arange(3000) + 1)
            store.sleep()
            store.retarget(self.path, TIMEOUT)
            self.assertFalse(store.asleep)
            numpy.testing.assert_array_equal(array, numpy.arange(3000))
            self.assertIn(self.path, repr(store))

    def test_retarget_refuses_another_shape_and_says_so(self):
        other = self.make_other()
        gmsfs.publish(self.path, {"a": numpy.arange(3000)}, timeout=TIMEOUT)
        gmsfs.publish(other, {"a": numpy.arange(3000.0)}, timeout=TIMEOUT)
        with gmsfs.open(self.path) as store:
            array = store.tensors("numpy")["a"]
            with self.assertRaisesRegex(gmsfs.Stale, "another shape"):
                store.retarget(other, TIMEOUT)
            numpy.testing.assert_array_equal(array, numpy.arange(3000))

    def test_publish_replaces_a_demoted_store_without_bringing_it_back(self):
        gmsfs.publish(self.path, {"a": numpy.arange(3000)}, timeout=TIMEOUT)
        self.order("host", ("host",))
        with gmsfs.Store(self.path) as store:
            moves = store.info.moves
        gmsfs.publish(self.path, {"b": numpy.ones(7)}, timeout=TIMEOUT)
        with gmsfs.open(self.path, timeout=0) as store:
            self.assertEqual(store.info.residency, ("device",))
            self.assertEqual(store.info.moves, moves)
            numpy.testing.assert_array_equal(store.tensors("numpy")["b"], numpy.ones(7))
