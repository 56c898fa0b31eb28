# SPDX-License-Identifier: Apache-2.0
"""gmsfs.graphs over memory that this process can touch, with graph_fake in torch's place. What torch itself
does with it is test_graphs_torch."""

import copy
import ctypes
import errno
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import unittest
from unittest import mock

import numpy

import gmsfs
from gmsfs import graph_handle, graph_rows, graphs
from graph_fake import WORKSPACE, Fake, Graph, Tensor, expected
from support import MOUNT, TIMEOUT, StoreCase, python

CHUNK = 2 << 20
LARGEST = 3 * CHUNK
SHAPES = [LARGEST * part // 24 for part in range(1, 25)]
ROOM = 64 << 20
ON_GPU = "GMSFS_TEST_ORDINAL" in os.environ  # a fake one, whose addresses are of this process

BY_NUMPY = graph_rows._by_numpy


class Interface:
    def __init__(self, segment):
        self.segment = segment
        self.__array_interface__ = segment.interface(False)


def by_address(segment, name, shape):
    """What NumPy does not do with GPU memory."""
    return numpy.asarray(Interface(segment)).view(name).reshape(shape)


class GraphCase(StoreCase):
    def setUp(self):
        super().setUp()
        self.fake = Fake(int(os.environ.get("GMSFS_TEST_ORDINAL", "0")), ON_GPU)
        self.patch(graphs, "_load_torch", lambda path, device: self.fake)
        if ON_GPU:
            self.patch(graph_rows, "_by_numpy", by_address)
        self.pools = []

    def patch(self, *what):
        patch = mock.patch.object(*what)
        patch.start()
        self.addCleanup(patch.stop)

    def tearDown(self):
        while self.pools:
            self.pools.pop().close()
        super().tearDown()

    def open(self, **options):
        options = {"chunk_bytes": CHUNK, "reserve_bytes": ROOM, "timeout": TIMEOUT, **options}
        self.pools.append(graphs.GraphPool(self.path, **options))
        return self.pools[-1]

    def buffers(self, pool):
        """An input and an output, of the largest shape; as the fake's tensors, of any size."""
        self.x, self.y = (pool.rows(LARGEST, dtype="uint8", framework="numpy") for _ in "xy")
        return self.x, self.y

    def at(self, rows, nbytes):
        return Tensor(rows.all.__array_interface__["data"][0], nbytes)

    def capture(self, pool, nbytes, **options):
        with pool.capture(options.pop("graph", None) or Graph(), nbytes, **options) as capture:
            out = self.fake.model(self.at(self.x, nbytes))
            self.fake.copy(self.at(self.y, nbytes), out)
            del out
        return capture

    def check(self, pool, shapes, rounds=1):
        """Replays in any order, with inputs that change, give what eager work does."""
        for _ in range(rounds):
            for nbytes in random.sample(list(shapes), len(shapes)):
                data = (random.randbytes(4099) * (nbytes // 4099 + 1))[:nbytes]
                self.x.put(memoryview(data))
                pool.replay(nbytes)
                self.assertEqual(self.at(self.y, nbytes).bytes(), expected(data), nbytes)

    def used(self):
        with open(os.path.join(MOUNT, "device"), encoding="ascii") as file:
            return gmsfs.store.json.load(file)["used_bytes"]


class Capturing(GraphCase):
    def test_many_shapes_in_any_order_take_the_memory_of_the_largest(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in random.sample(SHAPES, len(SHAPES)):
                self.capture(pool, nbytes)
            self.assertEqual(sorted(pool.shapes), SHAPES)
            self.assertIn(LARGEST, pool)
            stats = pool.stats
            largest = max(one.space.stats.reached_bytes for one in map(pool.__getitem__, SHAPES))
            self.assertEqual(stats.physical_bytes, largest + stats.eager_bytes)
            self.assertGreater(stats.mapped_bytes, 4 * stats.physical_bytes)
            self.assertEqual((stats.shapes, stats.pending, stats.selected), (24, 0, 0))
            self.assertEqual(stats.address_bytes, 25 * ROOM)
            self.check(pool, SHAPES, 2)

    def test_a_space_maps_no_more_than_its_shape_reached(self):
        with self.open() as pool:
            self.buffers(pool)
            small = self.capture(pool, 4096)
            reached = small.space.stats.reached_bytes
            self.capture(pool, LARGEST)
            self.assertEqual(small.space.stats.reached_bytes, reached)
            self.assertLess(reached, LARGEST)

    def test_the_shapes_of_one_space_go_largest_first_and_need_no_more_than_one(self):
        with self.open() as pool:
            self.buffers(pool)
            space = pool.space()
            for nbytes in reversed(SHAPES):
                self.capture(pool, nbytes, space=space)
            self.assertEqual(space.shapes, SHAPES[::-1])
            alone = self.capture(pool, LARGEST - 1)
            self.assertEqual(space.stats.reached_bytes, alone.space.stats.reached_bytes)
            stats = pool.stats
            self.assertEqual(
                stats.mapped_bytes, 2 * space.stats.reached_bytes + stats.eager_bytes
            )
            self.check(pool, [*SHAPES, LARGEST - 1])
            with self.assertRaisesRegex(gmsfs.Busy, "drop"):
                space.free()
            for nbytes in SHAPES:
                pool.drop(nbytes)
            space.free()
            self.check(pool, [LARGEST - 1])
            with self.assertRaisesRegex(ValueError, "freed"):
                self.capture(pool, LARGEST, space=space)

    def test_pieces_of_one_shape_hand_outputs_on_within_their_space(self):
        with self.open() as pool:
            self.buffers(pool)
            with pool.capture(Graph(), (LARGEST, "first")) as first:
                middle = first.keep(self.fake.model(self.at(self.x, LARGEST)))
            self.capture(pool, 4096)  # in between, in memory that is the same
            with pool.capture(Graph(), (LARGEST, "second"), space=first.space):
                out = self.fake.model(middle)
                self.fake.copy(self.at(self.y, LARGEST), out)
                del out
            data = random.randbytes(LARGEST)
            self.x.put(memoryview(data))
            pool.replay((LARGEST, "first"))
            pool.replay((LARGEST, "second"))
            self.assertEqual(self.at(self.y, LARGEST).bytes(), expected(data, 6))
            pool.drop((LARGEST, "first"))  # the space stays for the second
            self.assertEqual(first.space.shapes, [(LARGEST, "second")])

    def test_outputs_that_are_kept_hold_what_the_last_replay_wrote(self):
        with self.open() as pool:
            self.buffers(pool)
            with pool.capture(Graph(), 4096) as capture:
                out = capture.keep(self.fake.model(self.at(self.x, 4096)))
            self.assertEqual(pool[4096].outputs, [out])
            data = random.randbytes(4096)
            self.x.put(memoryview(data))
            pool.replay(4096)
            self.assertEqual(out.bytes(), expected(data))

    def test_a_shape_is_captured_once(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            with self.assertRaisesRegex(ValueError, "4096 is captured; drop"):
                self.capture(pool, 4096)
            self.check(pool, [4096])

    def test_a_graph_is_of_one_shape_and_one_that_was_captured_elsewhere_is_not_harmed(self):
        other = os.path.join(MOUNT, self._testMethodName + "-other")
        with self.open() as pool, graphs.GraphPool(other, CHUNK, reserve_bytes=ROOM) as second:
            self.buffers(pool)
            capture = self.capture(pool, 4096)
            with self.assertRaisesRegex(ValueError, "that of shape 4096"):
                self.capture(pool, 8192, graph=capture.graph)
            with self.assertRaisesRegex(RuntimeError, "captured already"):
                self.capture(second, 8192, graph=capture.graph)
            self.assertEqual((second.shapes, second.stats.spaces), ([], 0))
            self.check(pool, [4096])
        os.rmdir(other)

    def test_a_capture_joins_spaces_of_its_own_pool_alone(self):
        other = os.path.join(MOUNT, self._testMethodName + "-other")
        with self.open() as pool, graphs.GraphPool(other, CHUNK, reserve_bytes=ROOM) as second:
            self.buffers(pool)
            for space in (second.space(), pool.arena()):
                with self.assertRaisesRegex(ValueError, "no Space of this pool"):
                    self.capture(pool, 4096, space=space)
        del second, space
        os.rmdir(other)

    def test_what_is_kept_are_tensors(self):
        with self.open() as pool:
            self.buffers(pool)
            with self.assertRaisesRegex(TypeError, "not a tuple"):
                with pool.capture(Graph(), 4096) as capture:
                    capture.keep((self.fake.model(self.at(self.x, 4096)), None))
            self.assertEqual(pool.shapes, [])

    def test_streams_have_spaces_of_their_own(self):
        with self.open() as pool:
            self.buffers(pool)
            for number, nbytes in enumerate(SHAPES):
                self.capture(pool, nbytes, stream=100 + number % 5)
            self.check(pool, SHAPES)

    def test_captures_of_many_threads_come_one_at_a_time_and_are_right(self):
        with self.open() as pool:
            self.buffers(pool)
            go, problems = threading.Barrier(4), []

            def capture(mine):
                go.wait()
                try:
                    for nbytes in SHAPES[mine::4]:
                        self.capture(pool, nbytes, stream=100 + mine)
                except BaseException as error:
                    problems.append(error)

            threads = [threading.Thread(target=capture, args=(mine,)) for mine in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(problems, [])
            self.assertEqual(self.fake.most_under_way, 1)
            self.check(pool, SHAPES)

    def test_what_would_disturb_a_capture_is_refused_inside_of_it_and_the_capture_goes_on(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 8192)
            space = pool.space()
            with pool.capture(Graph(), 4096):
                for call in (
                    pool.sleep,
                    pool.shrink,
                    pool.close,
                    space.free,
                    lambda: pool.drop(8192),
                    lambda: self.capture(pool, 12288),
                ):
                    with self.assertRaises(gmsfs.Busy):
                        call()
                out = self.fake.model(self.at(self.x, 4096))
                self.fake.copy(self.at(self.y, 4096), out)
                del out
            self.check(pool, [4096, 8192])


class Leaks(GraphCase):
    def test_a_tensor_that_stays_is_named_and_the_capture_undone(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 8192)
            kept, before = [], pool.stats
            with self.assertRaisesRegex(gmsfs.errors.Leak, "a tensor of 5000 bytes") as caught:
                with pool.capture(Graph(), 4096):
                    kept.append(self.fake.empty(5000))
            (block,) = caught.exception.blocks
            self.assertEqual((block.address, block.nbytes), (kept[0].address, 5000))
            self.assertEqual((caught.exception.shape, caught.exception.errno), (4096, errno.EINVAL))
            self.assertIn("keep()", str(caught.exception))
            self.assertNotIn(4096, pool)
            self.assertEqual((pool.stats.pending, pool.stats.spaces), (1, before.spaces + 1))
            kept.clear()
            pool.shrink()
            self.assertEqual(pool.stats, before._replace(high_bytes=pool.stats.high_bytes))
            self.capture(pool, 4096)
            self.check(pool, [4096, 8192])

    def test_a_workspace_that_stays_is_found(self):
        with self.open() as pool:
            self.buffers(pool)
            self.fake.leave_workspaces = True
            with self.assertRaisesRegex(gmsfs.errors.Leak, "131072 bytes.*nothing in Python holds"):
                self.capture(pool, 4096)
            self.fake.leave_workspaces = False
            self.capture(pool, 4096)
            self.check(pool, [4096])

    def test_without_the_audit_a_workspace_that_stays_gives_wrong_bytes(self):
        """That the test above, and the rest of this file, can fail."""
        with self.open() as pool, mock.patch.object(pool, "_audit"):
            self.buffers(pool)
            self.fake.leave_workspaces = True
            self.capture(pool, 4096)
            self.capture(pool, LARGEST)
            with self.assertRaises(AssertionError):
                self.check(pool, [LARGEST], 2)

    def test_a_workspace_of_earlier_work_on_the_stream_is_not_in_the_graph(self):
        """The end of the capture lets it go, and then it is somebody else's."""
        with self.open() as pool:
            self.buffers(pool)
            arena = pool.arena()
            with arena.use():
                self.fake.state.stream = self.fake.capture_stream()
                self.fake.product(self.at(self.x, 4096))
                self.fake.state.stream = 0
            self.capture(pool, 4096)
            with arena.use():
                held = self.fake.empty(WORKSPACE)
            ctypes.memset(held.address, 1, WORKSPACE)
            self.check(pool, [4096])
            self.assertEqual(held.bytes(), bytes([1]) * WORKSPACE)
            del held

    def test_tensors_in_cycles_are_collected_first(self):
        with self.open() as pool:
            self.buffers(pool)
            gc_was = gmsfs.graphs.gc.isenabled()
            gmsfs.graphs.gc.disable()
            try:
                with pool.capture(Graph(), 4096):
                    ring = [self.fake.empty(5000)]
                    ring.append(ring)
                    del ring
            finally:
                if gc_was:
                    gmsfs.graphs.gc.enable()
            self.assertIn(4096, pool)

    def test_a_leak_in_a_joined_space_leaves_the_shapes_that_are_in_it(self):
        with self.open() as pool:
            self.buffers(pool)
            space, kept = pool.space(), []
            self.capture(pool, LARGEST, space=space)
            with self.assertRaises(gmsfs.errors.Leak):
                with pool.capture(Graph(), 4096, space=space):
                    kept.append(self.fake.empty(5000))
            self.assertEqual(space.shapes, [LARGEST])
            kept.clear()
            self.capture(pool, 4096, space=space)
            self.check(pool, [LARGEST, 4096])

    def test_a_leak_can_be_sent_on(self):
        leak = gmsfs.errors.Leak("/m/s", 8, [graphs.Block(4096, 12, "", "model.py:3")])
        again = pickle.loads(pickle.dumps(leak))
        self.assertEqual((str(again), again.blocks), (str(leak), leak.blocks))
        self.assertIn("allocated at model.py:3", str(again))


class Failures(GraphCase):
    def test_an_exception_inside_undoes_the_capture_and_comes_through(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 8192)
            before = pool.stats
            with self.assertRaisesRegex(RuntimeError, "mine"):
                with pool.capture(Graph(), 4096):
                    self.fake.model(self.at(self.x, 4096))
                    raise RuntimeError("mine")
            pool.shrink()
            self.assertEqual(pool.stats, before._replace(high_bytes=pool.stats.high_bytes))
            self.capture(pool, 4096)
            self.check(pool, [4096, 8192])

    def test_a_full_device_ends_a_capture_and_harms_no_other(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in (4096, LARGEST // 2):
                self.capture(pool, nbytes)
            before = pool.stats
            self.wait_until(lambda: self.used() == before.physical_bytes, "other memory is in use")
            other = os.path.join(MOUNT, self._testMethodName + "-full")
            os.mkdir(other)
            try:
                with gmsfs.open(other, "rw") as store:
                    slot = ctypes.c_uint64()
                    with open(os.path.join(MOUNT, "device"), encoding="ascii") as file:
                        free = gmsfs.store.json.load(file)["total_bytes"] - self.used()
                    store._live().call(
                        "gmsfs_allocate_handle",
                        free - CHUNK,
                        b"",
                        None,
                        ctypes.byref(slot),
                    )
                    with self.assertRaisesRegex(RuntimeError, "out of memory"):
                        self.capture(pool, LARGEST)
                    gmsfs.graphs.gc.collect()
                    pool.shrink()
                    self.assertEqual(pool.stats, before._replace(high_bytes=pool.stats.high_bytes))
                    self.check(pool, [4096, LARGEST // 2])
            finally:
                os.rmdir(other)
            self.capture(pool, LARGEST)
            self.check(pool, [4096, LARGEST // 2, LARGEST])

    def test_addresses_that_are_used_up_are_no_lack_of_memory(self):
        with self.open(reserve_bytes=2 * CHUNK) as pool:
            with self.assertRaisesRegex(gmsfs.Error, "reserve_bytes") as caught:
                with pool.capture(Graph(), 4096):
                    self.fake.empty(3 * CHUNK)
            self.assertEqual(caught.exception.errno, errno.ENOSPC)

    def test_a_store_of_other_things_is_refused(self):
        self.load({"t": ("U8", [3], b"abc")})
        with self.assertRaisesRegex(gmsfs.Error, "no chunk of this pool's size") as caught:
            graphs.GraphPool(self.path, CHUNK)
        self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_a_directory_that_is_no_store_is_refused(self):
        with self.assertRaises(gmsfs.Error) as caught:
            graphs.GraphPool("/tmp", CHUNK)
        self.assertEqual(caught.exception.errno, errno.ENOTTY)

    def test_words_that_make_no_sense_are_refused(self):
        with self.assertRaisesRegex(ValueError, "guard"):
            graphs.GraphPool(self.path, guard="none")
        with self.assertRaises(ValueError):
            graphs.GraphPool(self.path, timeout=-1)

    def test_what_is_closed_says_so(self):
        pool = self.open()
        arena, space = pool.arena(), pool.space()
        pool.close()
        pool.close()
        for call in (
            pool.wake,
            pool.sleep,
            pool.shrink,
            lambda: pool.rows(1),
            lambda: pool.stats,
            arena.free,
            space.free,
        ):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()
        self.assertIn("closed", repr(pool))

    def test_a_pool_is_neither_copied_nor_sent(self):
        with self.open() as pool:
            for use in (copy.copy, pickle.dumps):
                with self.assertRaisesRegex(TypeError, "neither copied nor sent"):
                    use(pool)


class Freeing(GraphCase):
    def test_the_largest_dropped_gives_memory_back_and_a_larger_one_comes_later(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in (4096, LARGEST // 2, LARGEST // 4):
                self.capture(pool, nbytes)
            physical = used = pool.stats.physical_bytes
            self.wait_until(lambda: self.used() == used, "other memory is in use")
            freed = pool.drop(LARGEST // 2)
            self.assertGreater(freed, 0)
            self.assertEqual(pool.stats.physical_bytes, physical - freed)
            self.wait_until(lambda: self.used() == used - freed, "the device did not get it back")
            self.check(pool, [4096, LARGEST // 4])
            self.capture(pool, LARGEST)
            self.check(pool, [4096, LARGEST // 4, LARGEST])
            self.assertEqual(pool.drop(4096), 0)
            with self.assertRaises(KeyError):
                pool.drop(4096)

    def test_outputs_in_use_hold_their_space_until_they_are_gone(self):
        with self.open() as pool:
            self.buffers(pool)
            with pool.capture(Graph(), 4096) as capture:
                out = capture.keep(self.fake.model(self.at(self.x, 4096)))
            spaces = pool.stats.spaces
            pool.drop(4096)
            self.assertEqual((pool.stats.pending, pool.stats.spaces), (1, spaces))
            del out
            pool.shrink()
            self.assertEqual((pool.stats.pending, pool.stats.spaces), (0, spaces - 1))

    def test_captures_find_the_memory_that_a_pool_has_grown_to(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in SHAPES:
                self.capture(pool, nbytes)
            high = pool.stats.high_bytes
        with self.open() as pool:
            self.buffers(pool)
            pool.grow(high)
            self.assertEqual(pool.stats.physical_bytes, high)
            for nbytes in SHAPES:
                self.capture(pool, nbytes)
            self.assertEqual(pool.stats.physical_bytes, high)
            self.check(pool, SHAPES)
            with self.assertRaises(gmsfs.errors.NoMemory):
                pool.grow(1 << 60)
            pool.sleep()
            with self.assertRaises(gmsfs.errors.NoLock):
                pool.grow(high)

    def test_a_shape_is_dropped_asleep(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in (4096, LARGEST):
                self.capture(pool, nbytes)
            pool.sleep()
            self.assertEqual(pool.drop(LARGEST), 0)
            pool.wake(TIMEOUT)
            stats = pool.stats
            self.assertEqual(
                stats.physical_bytes, pool[4096].space.stats.reached_bytes + stats.eager_bytes
            )
            self.check(pool, [4096])

    def test_closing_gives_memory_and_lock_back(self):
        self.wait_until(lambda: self.used() == 0, "another test's memory is in use")
        pool = self.open()
        self.buffers(pool)
        self.capture(pool, LARGEST)
        self.assertEqual(self.state(), "RW")
        pool.close()
        self.wait_until(lambda: self.used() == 0, "the device did not get it back")
        self.assertEqual(self.state(), "EMPTY")


class Sleeping(GraphCase):
    def test_graphs_are_right_after_sleep_and_what_others_wrote_meanwhile(self):
        with self.open() as pool:
            self.buffers(pool)
            for nbytes in random.sample(SHAPES, len(SHAPES)):
                self.capture(pool, nbytes)
            bases = [pool[nbytes].space.stats.base for nbytes in SHAPES]
            physical = pool.stats.physical_bytes
            for _ in range(2):
                pool.sleep()
                self.assertTrue(pool.asleep)
                self.assertEqual(pool.stats.physical_bytes, 0)
                self.wait_until(lambda: self.used() == 0, "the device did not get it back")
                python(WRITE_EVERYWHERE, MOUNT, self._testMethodName)
                pool.wake(TIMEOUT)
                self.assertEqual(pool.stats.physical_bytes, physical)
                self.assertEqual([pool[nbytes].space.stats.base for nbytes in SHAPES], bases)
                self.check(pool, SHAPES)

    def test_asleep_nothing_is_captured_launched_or_allocated(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            arena = pool.arena()
            pool.sleep()
            pool.sleep()
            for call in (
                lambda: pool.replay(4096),
                lambda: self.x.put(bytes(4096)),
                lambda: self.capture(pool, 8192),
                lambda: pool.rows(10),
                lambda: pool.launch().__enter__(),
            ):
                with self.assertRaisesRegex(gmsfs.NoLock, "wake"):
                    call()
            with self.assertRaisesRegex(gmsfs.NoLock, "wake"):
                with arena.use():
                    self.fake.empty(10)
            self.assertEqual(pool.stats.waiters, 0)
            pool.wake(TIMEOUT)
            self.check(pool, [4096])

    def test_a_pool_may_be_opened_asleep(self):
        with self.open(asleep=True) as pool:
            self.assertTrue(pool.asleep)
            self.assertIn("asleep", repr(pool))
            pool.wake(0)
            self.assertFalse(pool.asleep)
            with self.assertRaisesRegex(gmsfs.Busy, "it is awake"):
                pool.wake(0)

    def test_one_store_serves_two_pools_in_turn(self):
        one, two = self.open(), self.open(asleep=True)
        buffers = {}
        with self.assertRaises(gmsfs.WouldBlock):
            two.wake(0)
        with self.assertRaises(gmsfs.Timeout):
            two.wake(0.05)
        for pool, other in ((one, two), (two, one)) * 3:
            if pool.asleep:
                pool.wake(TIMEOUT)
            if pool not in buffers:
                buffers[pool] = self.buffers(pool)
                for nbytes in (4096, LARGEST):
                    self.capture(pool, nbytes)
            self.x, self.y = buffers[pool]
            self.check(pool, [4096, LARGEST])
            pool.sleep(keep=True)
            self.assertEqual(self.state(), "COMMITTED")
            self.assertEqual(self.used(), max(one.stats.needed_bytes, two.stats.needed_bytes))

    def test_it_is_told_that_somebody_waits_for_the_turn(self):
        with self.open() as pool:
            other = self.open(asleep=True)
            thread = threading.Thread(target=other.wake, args=(TIMEOUT,))
            thread.start()
            self.wait_until(lambda: pool.stats.waiters == 1, "nobody seems to wait")
            pool.sleep()
            thread.join()
            self.assertFalse(other.asleep)

    def test_a_wait_for_the_turn_that_is_interrupted_leaves_the_queue_at_once(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        one, two = self.open(), self.open(asleep=True)
        before = signal.signal(signal.SIGUSR1, interrupt)
        timer = threading.Timer(0, lambda: None)
        try:
            timer = threading.Thread(target=self.interrupt_the_wait_of, args=(one,))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                two.wake()
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, before)
        self.assertEqual((one.stats.waiters, two.asleep), (0, True))
        one.sleep()
        two.wake(TIMEOUT)

    def interrupt_the_wait_of(self, pool):
        self.wait_until(lambda: pool.stats.waiters == 1, "nobody seems to wait")
        os.kill(os.getpid(), signal.SIGUSR1)

    def test_killed_awake_it_leaves_no_memory_and_killed_after_keep_the_memory_waits(self):
        for keep, state in ((False, "EMPTY"), (True, "COMMITTED")):
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, self.path, str(CHUNK), str(int(keep))],
                stdout=subprocess.PIPE,
            )
            self.assertEqual(process.stdout.readline(), b"held\n")
            process.kill()
            process.wait()
            process.stdout.close()
            self.wait_until(lambda: self.state() == state, f"the store did not become {state}")
            self.wait_until(lambda: self.used() == keep * 4 * CHUNK, "other memory is in use")
        with self.open() as pool:
            self.assertEqual(pool.stats.physical_bytes, 4 * CHUNK)
            self.buffers(pool)
            self.capture(pool, LARGEST)
            self.check(pool, [LARGEST])

    def test_a_child_of_fork_has_no_pool(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                said = []
                for call in (pool.sleep, pool.wake, pool.shrink):
                    try:
                        call()
                    except gmsfs.Error as error:
                        said.append(errno.errorcode[error.errno])
                os.write(write, " ".join(said).encode())
                os._exit(0)
            os.close(write)
            with open(read, encoding="ascii") as pipe:
                self.assertEqual(pipe.read(), "ECHILD ECHILD ECHILD")
            os.waitpid(child, 0)
            self.check(pool, [4096])


class Launching(GraphCase):
    def test_threads_that_launch_take_turns(self):
        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            inside, most = [], []
            graph = pool[4096].graph
            graph.launched = [lambda: (inside.append(1), most.append(len(inside)), inside.pop())]

            def launch():
                for _ in range(200):
                    pool.replay(4096)

            threads = [threading.Thread(target=launch) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual((len(most), max(most)), (800, 1))

    def test_sleep_waits_for_who_launches(self):
        for guard in graphs.GUARDS:
            with self.subTest(guard), self.open(guard=guard) as pool:
                with pool.launch():
                    thread = threading.Thread(target=pool.sleep)
                    thread.start()
                    thread.join(0.05)
                    self.assertTrue(thread.is_alive())
                    self.assertFalse(pool.asleep)
                thread.join()
                self.assertTrue(pool.asleep)

    def test_to_stand_still_is_an_error(self):
        for guard in graphs.GUARDS:
            with self.subTest(guard), self.open(guard=guard) as pool:
                with pool.launch():
                    for call in (
                        pool.sleep,
                        pool.shrink,
                        pool.close,
                        lambda: pool.launch().__enter__(),
                        lambda: pool.capture(Graph(), 1).__enter__(),
                    ):
                        with self.assertRaisesRegex(gmsfs.Error, "launch") as caught:
                            call()
                        self.assertEqual(caught.exception.errno, errno.EDEADLK)
                pool.sleep()

    def test_a_second_launch_is_refused_if_so_wanted(self):
        with self.open(guard="refuse") as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            refused = []

            def launch():
                try:
                    pool.replay(4096)
                except gmsfs.Busy as error:
                    refused.append(str(error))

            with pool.launch():
                thread = threading.Thread(target=launch)
                thread.start()
                thread.join()
            self.assertEqual(len(refused), 1)
            self.assertIn("another graph of the pool", refused[0])
            self.check(pool, [4096])

    def test_what_frees_waits_for_a_thread_that_launches_by_itself(self):
        for guard in graphs.GUARDS:
            pool = self.open(guard=guard)
            self.buffers(pool)
            graph = Graph()
            for free in (lambda: pool.drop(4096), pool.close):
                if 4096 not in pool:
                    self.capture(pool, 4096, graph=graph)
                with self.subTest(guard=guard), Inside(pool) as inside:
                    freeing = threading.Thread(target=free, daemon=True)
                    freeing.start()
                    freeing.join(0.2)
                    self.assertTrue(graph.launched)  # it is not reset yet
                    inside.leave()
                    freeing.join(TIMEOUT / 6)
                    self.assertFalse(freeing.is_alive())
                    self.assertFalse(graph.launched)

    def test_a_pool_that_was_put_to_sleep_while_it_woke_launches_nothing(self):
        """Two threads: the one that wakes it is told so when the other has put it to sleep again."""
        wake = graph_handle.PoolHandle.wake

        def wake_and_lose(handle, timeout):
            wake(handle, timeout)
            other = threading.Thread(target=pool.sleep)
            other.start()
            other.join()

        with self.open() as pool:
            self.buffers(pool)
            self.capture(pool, 4096)
            pool.sleep()
            with mock.patch.object(graph_handle.PoolHandle, "wake", wake_and_lose):
                pool.wake(TIMEOUT)
            self.assertTrue(pool.asleep)
            with self.assertRaises(gmsfs.NoLock):
                pool.replay(4096)

    def test_a_child_of_fork_waits_for_no_thread_of_its_parent(self):
        for guard in graphs.GUARDS:
            with self.subTest(guard=guard), self.open(guard=guard) as pool:
                self.buffers(pool)
                self.capture(pool, 4096)
                with Inside(pool):
                    said = in_child(
                        lambda: pool.replay(4096),
                        pool.sleep,
                        lambda: pool.drop(4096),
                        lambda: pool.rows(1, framework="numpy"),
                        pool.close,
                    )
                self.assertEqual(said, "ECHILD ECHILD ECHILD ECHILD None")
                self.check(pool, [4096])


class Inside:
    """A thread that is inside of launch() of a pool, until it is told to leave."""

    def __init__(self, pool):
        self.pool = pool
        self.entered, self.left = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.launch, daemon=True)

    def launch(self):
        with self.pool.launch():
            self.entered.set()
            self.left.wait()

    def leave(self):
        self.left.set()
        self.thread.join(TIMEOUT)

    def __enter__(self):
        self.thread.start()
        self.entered.wait()
        return self

    def __exit__(self, *_):
        self.leave()


def in_child(*calls):
    """What a child of fork() is told, in words; it ends by SIGALRM if it waits."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        for call in calls:
            said = "None"
            try:
                call()
            except gmsfs.Error as error:
                said = errno.errorcode[error.errno]
            except BaseException as error:
                said = type(error).__name__
            os.write(write, f"{said} ".encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="ascii") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said.strip()


class Staying(GraphCase):
    def test_padding_is_cleared_and_slices_lie_where_the_whole_does(self):
        with self.open() as pool:
            rows = pool.rows(8, (3,), "float32", framework="numpy")
            self.assertEqual((rows.all.shape, rows.all.dtype.name, len(rows)), ((8, 3), "float32", 8))
            self.assertEqual(rows.all.any(), False)
            rows.put([[1, 2, 3]] * 8)
            first = rows.put([[4, 5, 6]] * 2, 5)
            self.assertEqual(first.tolist(), [[4, 5, 6]] * 2 + [[0, 0, 0]] * 3)
            self.assertEqual(rows.all[5:].tolist(), [[1, 2, 3]] * 3)
            where = rows.all.__array_interface__["data"][0]
            self.assertEqual(rows.first(4).__array_interface__["data"][0], where)
            for wrong in (
                lambda: rows.put([[1, 2, 3]] * 3, 2),
                lambda: rows.first(9),
                lambda: rows.first(-1),
            ):
                with self.assertRaises(ValueError):
                    wrong()

    def test_rows_share_no_memory_with_graphs_and_go_with_their_last_holder(self):
        with self.open() as pool:
            self.buffers(pool)
            eager = pool.stats.eager_bytes
            self.assertEqual(eager, 2 * LARGEST)
            self.capture(pool, LARGEST)
            more = pool.rows(LARGEST, dtype="uint8", framework="numpy").first(10)
            live = pool.stats.live
            more[:] = 7
            pool.replay(LARGEST)
            self.assertEqual(more.tolist(), [7] * 10)
            del more
            self.assertEqual(pool.stats.live, live - 1)
            pool.shrink()
            self.assertEqual(pool.stats.eager_bytes, eager)

    def test_rows_and_their_pool_go_in_one_cycle(self):
        for _ in range(20):
            pool = self.open()
            ring = [pool, pool.rows(10, framework="numpy")]
            ring.append(ring)
            self.pools.clear()
            pool.close()
            del pool, ring
            graphs.gc.collect()

    def test_rows_outlive_the_pool_without_memory(self):
        pool = self.open()
        rows = pool.rows(10, framework="numpy")
        pool.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            rows.put([1])
        self.assertEqual(self.state(), "EMPTY")
        del rows

    def test_rows_that_make_no_sense_are_refused(self):
        with self.open() as pool:
            if ON_GPU:
                patch = mock.patch.object(graph_rows, "_by_numpy", BY_NUMPY)
                with patch, self.assertRaisesRegex(gmsfs.Error, "it is GPU memory"):
                    pool.rows(3, framework="numpy")
            for wrong in (
                {"count": 0},
                {"count": 3, "dtype": "float31"},
                {"count": 3, "shape": (0,)},
                {"count": 3, "framework": "jax"},
            ):
                with self.assertRaises(ValueError):
                    pool.rows(**{"framework": "numpy", **wrong})
            with self.assertRaisesRegex(gmsfs.Error, "reserve_bytes"):
                pool.rows(2 * ROOM, dtype="uint8", framework="numpy")
            self.assertEqual(pool.stats.live, 0)

    def test_what_an_arena_holds_is_disturbed_by_no_replay(self):
        with self.open() as pool:
            self.buffers(pool)
            arena = pool.arena()
            with arena.use():
                cache = self.fake.empty(LARGEST)
            self.fake.copy(cache, self.at(self.x, LARGEST))
            self.capture(pool, LARGEST)
            self.check(pool, [LARGEST])
            self.assertEqual(cache.bytes(), bytes(LARGEST))
            eager, physical = pool.stats.eager_bytes, pool.stats.physical_bytes
            with self.assertRaises(gmsfs.Busy):
                arena.free()
            with self.assertRaises(gmsfs.Busy):
                arena.free()
            del cache
            arena.free()
            arena.free()
            self.assertEqual(pool.stats.eager_bytes, eager - LARGEST)
            pool.shrink()
            self.assertEqual(pool.stats.physical_bytes, physical - LARGEST)

    def test_a_workspace_that_lies_in_an_arena_does_not_keep_it(self):
        with self.open() as pool:
            self.buffers(pool)
            arena = pool.arena()
            with arena.use():
                out = self.fake.product(self.at(self.x, 4096))
            del out
            arena.free()
            self.assertEqual(pool.stats.live, 2)  # x and y

    def test_rows_are_not_made_inside_of_a_capture(self):
        with self.open() as pool:
            self.buffers(pool)
            with pool.capture(Graph(), 4096):
                with self.assertRaisesRegex(gmsfs.Busy, "inside of capture"):
                    pool.rows(10, framework="numpy")
            self.assertEqual(pool.stats.live, 2)

    def test_an_arena_is_used_by_several_threads_at_once(self):
        with self.open() as pool:
            arena = pool.arena()
            entered, left = threading.Barrier(2), threading.Event()

            def first():
                with arena.use():
                    entered.wait()
                left.set()

            thread = threading.Thread(target=first)
            thread.start()
            with arena.use():  # on the same stream
                entered.wait()
                left.wait()
                held = self.fake.empty(CHUNK)
            thread.join()
            self.assertEqual(pool.stats.selected, 0)
            self.assertEqual(arena.stats.live_bytes, CHUNK)
            del held

    def test_a_stream_allocates_from_one_place_at_a_time(self):
        with self.open() as pool:
            one, two = pool.arena(), pool.arena()
            with one.use():
                with self.assertRaisesRegex(gmsfs.Busy, "another space"):
                    with two.use():
                        pass
            with two.use():
                pass


class Bare(StoreCase):
    def test_without_torch_it_is_said_what_is_missing(self):
        program = (
            "import sys, gmsfs.graphs\n"
            "sys.modules['torch'] = None\n"
            "with gmsfs.graphs.GraphPool(sys.argv[1]) as pool:\n"
            "    try:\n"
            "        with pool.capture(None, 1): pass\n"
            "    except ImportError as error: print(error)\n"
            "    print(pool.stats.spaces)\n"
        )
        said = python(program, self.path).splitlines()
        self.assertIn("torch cannot be imported", said[0])
        self.assertEqual(said[1], "0")

    def test_the_store_is_made_for_its_owner_alone_and_shows_the_pool(self):
        path = self.path + "-new"
        with graphs.GraphPool(path) as pool:
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o700)
            pool.space()
            with open(os.path.join(path, "metadata", "gmsfs.graph"), encoding="ascii") as file:
                said = gmsfs.store.json.load(file)
            self.assertEqual((said["chunk_bytes"], said["spaces"]), (32 << 20, 1))
            self.assertEqual(said["address_bytes"], graphs.RESERVE_BYTES)
        del pool
        os.rmdir(path)


WRITE_EVERYWHERE = """
import ctypes, json, os, sys, gmsfs
path = os.path.join(sys.argv[1], sys.argv[2] + "-others")
os.mkdir(path)
with open(os.path.join(sys.argv[1], "device")) as file:
    size = json.load(file)["total_bytes"]
with gmsfs.open(path, "rw") as store:
    slot = ctypes.c_uint64()
    store._live().call("gmsfs_allocate_handle", size // 2, b"", None, ctypes.byref(slot))
    (buffer,) = store.buffers()
    ctypes.memset(buffer.address, 0xFF, buffer.nbytes)
os.rmdir(path)
"""

HOLD = """
import sys, time, gmsfs.graphs
from gmsfs import graph_handle
chunk = int(sys.argv[2])
pool = gmsfs.graphs.GraphPool(sys.argv[1], chunk)
segment = graph_handle.SpaceHandle(pool._live(), 4 * chunk).alloc(4 * chunk)
if int(sys.argv[3]):
    pool.sleep(keep=True)
print("held", flush=True)
time.sleep(1000)
"""


if __name__ == "__main__":
    unittest.main()
