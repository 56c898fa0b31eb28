# SPDX-License-Identifier: Apache-2.0
"""gmsfs.graphs captures: the content of a pool, and errors. Uses graph_fake for torch; test_graphs_torch
tests with the real torch."""

import copy
import ctypes
import errno
import os
import pickle
import random
import threading
from unittest import mock

import gmsfs
from gmsfs import graphs
from graph_fake import WORKSPACE, Graph, expected
from graph_support import CHUNK, LARGEST, ROOM, SHAPES, GraphCase
from support import MOUNT, StoreCase, python


class Capturing(GraphCase):
    def test_many_shapes_in_any_order_take_the_memory_of_the_largest(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
            small = self.capture(pool, 4096)
            reached = small.space.stats.reached_bytes
            self.capture(pool, LARGEST)
            self.assertEqual(small.space.stats.reached_bytes, reached)
            self.assertLess(reached, LARGEST)

    def test_the_shapes_of_one_space_go_largest_first_and_need_no_more_than_one(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
            with pool.capture(Graph(), 4096) as capture:
                out = capture.keep(self.fake.model(self.at(self.x, 4096)))
            self.assertEqual(pool[4096].outputs, [out])
            data = random.randbytes(4096)
            self.x.put(memoryview(data))
            pool.replay(4096)
            self.assertEqual(out.bytes(), expected(data))

    def test_a_shape_is_captured_once(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
            with self.assertRaisesRegex(TypeError, "not a tuple"):
                with pool.capture(Graph(), 4096) as capture:
                    capture.keep((self.fake.model(self.at(self.x, 4096)), None))
            self.assertEqual(pool.shapes, [])

    def test_streams_have_spaces_of_their_own(self):
        with self.open_with_buffers() as pool:
            for number, nbytes in enumerate(SHAPES):
                self.capture(pool, nbytes, stream=100 + number % 5)
            self.check(pool, SHAPES)

    def test_captures_of_many_threads_come_one_at_a_time_and_are_right(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        """The end of the capture frees the workspace, and other work may get its memory."""
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.assertRaisesRegex(gmsfs.Error, "no chunks of this pool's size") as caught:
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
