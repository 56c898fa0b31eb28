# SPDX-License-Identifier: Apache-2.0
"""Several stores as one; and one store in parts: private copies, sleep by tag, memory made anew."""

import os
import pathlib

import numpy

import gmsfs
from gmsfs import abi
from support import TIMEOUT, StoreCase, python


class Groups(StoreCase):
    def setUp(self):
        super().setUp()
        self.other = self.path + ".other"
        os.mkdir(self.other)
        self.addCleanup(os.rmdir, self.other)
        self.paths = [self.path, self.other]

    def load(self, *values):
        with gmsfs.open_group(self.paths, "rw", TIMEOUT, reserve_bytes=[1 << 20] * 2) as group:
            for store, value in zip(group, values):
                store.write({"t": value})
            group.commit()
            return group.id

    def test_ranks_are_published_together_and_read_together(self):
        number = self.load(b"one", b"two")
        with gmsfs.open_group(self.paths, timeout=0) as group:
            self.assertEqual([bytes(store.views()["t"]) for store in group], [b"one", b"two"])
            self.assertEqual([store.info.group for store in group], [number] * 2)
            self.assertEqual((len(group), group.writable, group[1].path), (2, False, self.other))

    def test_a_mix_of_two_loads_is_stale_and_the_next_writer_of_both_makes_it_whole(self):
        self.load(b"one", b"two")
        gmsfs.publish(self.path, {"t": b"new"})
        with self.assertRaisesRegex(gmsfs.Stale, "a mix of two loads"):
            gmsfs.open_group(self.paths, timeout=TIMEOUT)
        with gmsfs.open_group(self.paths, "rw_or_ro", TIMEOUT) as group:
            self.assertTrue(group.writable)
            for store in group:
                store.write({"t": b"1"})
            group.commit(stay=True)
            self.assertEqual([store.mode for store in group], ["ro", "ro"])

    def test_all_locks_or_none(self):
        with gmsfs.open(self.other, "rw"):
            with self.assertRaises(gmsfs.WouldBlock):
                gmsfs.open_group(self.paths, "rw", 0)
            with self.assertRaises(gmsfs.Timeout):
                gmsfs.open_group(self.paths, "rw", 0.05)
            gmsfs.open(self.path, "rw", 0).close()

    def test_ctrl_c_ends_the_wait_of_a_group_and_leaves_no_waiter(self):
        program = (
            "import os, signal, sys, threading, time, gmsfs\n"
            "def waiters():\n"
            "    return sum(open(path + '/sessions').read().count(' waiting ') for path in sys.argv[1:])\n"
            "def interrupt():\n"
            "    while not waiters():\n"
            "        time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "threading.Thread(target=interrupt).start()\n"
            "try:\n"
            "    gmsfs.open_group(sys.argv[1:], 'rw')\n"
            "except KeyboardInterrupt:\n"
            "    print(waiters())\n"
        )
        with gmsfs.open(self.path, "rw"), gmsfs.open(self.other, "rw"):
            self.assertEqual(python(program, *self.paths), "0\n")

    def test_what_makes_no_group_is_said(self):
        for paths, arguments, kind, why in (
            ([], {}, ValueError, "1 to 256"),
            (self.paths, {"mode": "w"}, ValueError, "rw_or_ro"),
            (self.paths, {"mode": "rw", "reserve_bytes": [1]}, ValueError, "each of 2 paths"),
            (self.paths, {"mode": "rw", "reserve_bytes": 5}, TypeError, "each of 2 paths, not 5"),
            (self.paths, {"timeout": "x"}, TypeError, "number of seconds"),
            (self.path, {}, TypeError, "paths are several"),
            (pathlib.Path(self.path), {}, TypeError, "paths are several"),
            ([self.path] * 2, {"timeout": 0}, gmsfs.Error, "named twice"),
        ):
            with self.subTest(why=why), self.assertRaisesRegex(kind, why):
                gmsfs.open_group(paths, **arguments)

    def test_a_layout_that_is_refused_is_named_and_nothing_is_published(self):
        with gmsfs.open_group(self.paths, "rw", TIMEOUT) as group:
            for store in group:
                store.write({"t": b"1"})
            slot = group[1].metadata.get_entry("t")[1]
            group[1].metadata.put("far", b"", slot, 1 << 40)
            with self.assertRaisesRegex(gmsfs.Error, "(?s)other.*far"):
                group.commit()
        with gmsfs.Store(self.path) as store:
            self.assertFalse(store.info.committed)


class PrivateCopies(StoreCase):
    def test_copies_can_be_written_to_and_the_store_stays_as_it_is(self):
        gmsfs.publish(self.path, {"a": numpy.arange(4.0), "b": numpy.zeros((0, 3)), "c": numpy.ones(2)})
        with gmsfs.open(self.path) as store:
            shared = store.tensors("numpy")
            copies = store.copy_private(["a", "b"], "numpy")
            copies["a"][:] = 7
            self.assertEqual(sorted(copies), ["a", "b"])
            self.assertEqual(copies["b"].shape, (0, 3))
            numpy.testing.assert_array_equal(shared["a"], numpy.arange(4.0))
            store.sleep()
            numpy.testing.assert_array_equal(copies["a"], [7] * 4)
            store.wake(TIMEOUT)
            del shared, copies

    def test_they_are_counted_and_go_with_the_last_that_uses_them(self):
        gmsfs.publish(self.path, {"a": numpy.zeros(1 << 16)})
        with gmsfs.open(self.path) as store:
            shared = store.buffers()[0].nbytes
            self.assertEqual(store.memory_info, (shared, 0, 0))
            part = store.copy_private(framework="numpy")["a"][3:5]
            self.assertGreaterEqual(store.memory_info.private_bytes, part.nbytes << 10)
            store.sleep()
            self.assertEqual(store.memory_info[:2], (0, shared))
            store.wake(TIMEOUT)
            del part
            self.assertEqual(store.memory_info, (shared, 0, 0))

    def test_they_outlive_their_store(self):
        gmsfs.publish(self.path, {"a": numpy.arange(4.0)})
        with gmsfs.open(self.path) as store:
            copied = store.copy_private(framework="numpy")["a"]
        del store
        copied += 1
        numpy.testing.assert_array_equal(copied, [1, 2, 3, 4])

    def test_what_is_tied_stays_tied(self):
        both = numpy.arange(4.0)
        gmsfs.publish(self.path, {"a": both, "tied": both})
        with gmsfs.open(self.path) as store:
            copies = store.copy_private(framework="numpy")
            copies["a"][0] = 9
            self.assertEqual(copies["tied"][0], 9)
            del copies


class Tags(StoreCase):
    def fill(self):
        """Two allocations, of tags "weights" and "kv"; the writer is a reader then."""
        store = gmsfs.open(self.path, "rw", timeout=TIMEOUT)
        for rank, tag in enumerate((b"weights", b"kv")):
            slot = abi.c_uint64()
            store._live().call("gmsfs_allocate_handle", 64, tag, None, abi.ctypes.byref(slot))
            value = b'{"dtype":"torch.uint8","shape":[64]}'
            store.metadata.put(tag.decode(), value, slot.value, 0)
            store.views()[tag.decode()][:] = bytes([rank + 1]) * 64
        return store

    def test_what_is_published_with_tags_sleeps_by_them(self):
        tensors = {"a": numpy.ones(8), "k": numpy.full(8, 2.0), "b": numpy.full(8, 3.0)}
        gmsfs.publish(self.path, tensors, tag={"k": "kv"})
        with gmsfs.open(self.path) as store:
            specs = store.specs()
            self.assertEqual(specs["a"].rank, specs["b"].rank)
            found = store.tensors("numpy")
            store.sleep(tag="kv")
            self.assertEqual((found["a"][0], found["b"][7]), (1, 3))
            with self.assertRaisesRegex(gmsfs.NoLock, "'k' sleeps with tag 'kv'"):
                store.tensors("numpy")
            store.wake(tag="kv")
            numpy.testing.assert_array_equal(found["k"], tensors["k"])
            del found
        with self.assertRaisesRegex(ValueError, "no tensor is called 'x'"):
            gmsfs.publish(self.path, tensors, tag={"x": "kv"})

    def test_one_tag_sleeps_and_the_rest_stays(self):
        with self.fill() as store:
            store.commit(stay=True)
            views = store.views()
            address = store.buffers()[1].address
            store.sleep(tag="kv")
            store.sleep(tag="kv")
            self.assertEqual((store.mode, store.asleep, views["weights"][0]), ("ro", False, 1))
            self.assertGreater(store.memory_info.preserved_bytes, 0)
            self.assertEqual(store.views(["weights"])["weights"][0], 1)
            with self.assertRaisesRegex(gmsfs.NoLock, "'kv' sleeps with tag 'kv'"):
                store.views()
            store.wake(tag="kv")
            store.wake(tag="kv")
            self.assertEqual((store.buffers()[1].address, views["kv"][0]), (address, 2))
            store.sleep(tag="kv")
            store.wake()  # all that sleeps
            self.assertEqual((store.memory_info.preserved_bytes, views["kv"][63]), (0, 2))
            store.sleep(tag="no such")
            store.sleep(tag="")
            with self.assertRaisesRegex(gmsfs.BadArgument, "a tag is a string"):
                store.sleep(tag="a\0b")
            del views

    def test_no_memory_that_sleeps_is_given_out(self):
        with self.fill() as store:
            store.commit(stay=True)
            store.views()
            store.sleep(tag="kv")
            with self.assertRaisesRegex(gmsfs.NoLock, "allocation 1 sleeps with tag 'kv'"):
                store.buffers()
            store.wake(tag="kv")
            self.assertEqual([buffer.view()[0] for buffer in store.buffers()], [1, 2])
            store.sleep(keep_lock=True)
            for give in store.buffers, store.views, store.tensors, store.specs:
                with self.assertRaisesRegex(gmsfs.NoLock, "it sleeps"):
                    give()
            store.wake()
            self.assertEqual(store.views()["kv"][63], 2)

    def test_memory_is_made_anew_at_the_same_addresses(self):
        with self.fill() as store:
            store.commit(stay=True)
            views = store.views()
            with self.assertRaisesRegex(gmsfs.Error, "does not sleep"):
                store.reallocate()
            store.sleep()
            store.reallocate(TIMEOUT)
            self.assertEqual((store.mode, store.asleep), ("rw", False))
            self.assertEqual([bytes(view) for view in views.values()], [bytes(64)] * 2)
            self.assertEqual(len(store.metadata), 0)
            buffers = store.buffers()
            self.assertEqual([buffer.rank for buffer in buffers], [0, 1])
            buffers[1].view()[:4] = b"anew"
            store.metadata.put("kv", b'{"dtype":"torch.uint8","shape":[64]}', buffers[1].slot, 0)
            store.commit()
            del views, buffers
        with gmsfs.open(self.path) as store:
            self.assertEqual(bytes(store.views()["kv"][:5]), b"anew\0")
