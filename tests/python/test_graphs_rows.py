# SPDX-License-Identifier: Apache-2.0
"""gmsfs.graphs keeps memory that graphs share: rows and arenas. Uses graph_fake for torch."""

import threading
from unittest import mock

import gmsfs
from gmsfs import graph_rows, graphs
from graph_fake import Graph
from graph_support import CHUNK, LARGEST, ON_GPU, ROOM, GraphCase

BY_NUMPY = graph_rows._by_numpy


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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
            arena = pool.arena()
            with arena.use():
                out = self.fake.product(self.at(self.x, 4096))
            del out
            arena.free()
            self.assertEqual(pool.stats.live, 2)  # x and y

    def test_rows_are_not_made_inside_of_a_capture(self):
        with self.open_with_buffers() as pool:
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
