# SPDX-License-Identifier: Apache-2.0
"""gmsfs.graphs once graphs are captured: dropped, asleep and awake in turn with others, launched by many
threads. With graph_fake in torch's place."""

import errno
import os
import random
import signal
import threading
from unittest import mock

import gmsfs
from gmsfs import graph_handle, graphs
from graph_fake import Graph
from graph_support import LARGEST, SHAPES, GraphCase
from support import MOUNT, TIMEOUT, python


class Freeing(GraphCase):
    def test_the_largest_dropped_gives_memory_back_and_a_larger_one_comes_later(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
            with pool.capture(Graph(), 4096) as capture:
                out = capture.keep(self.fake.model(self.at(self.x, 4096)))
            spaces = pool.stats.spaces
            pool.drop(4096)
            self.assertEqual((pool.stats.pending, pool.stats.spaces), (1, spaces))
            del out
            pool.shrink()
            self.assertEqual((pool.stats.pending, pool.stats.spaces), (0, spaces - 1))

    def test_captures_find_the_memory_that_a_pool_has_grown_to(self):
        with self.open_with_buffers() as pool:
            for nbytes in SHAPES:
                self.capture(pool, nbytes)
            high = pool.stats.high_bytes
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
            self.wait_until(lambda: pool.stats.waiters == 1, "no client waits")
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
        self.wait_until(lambda: pool.stats.waiters == 1, "no client waits")
        os.kill(os.getpid(), signal.SIGUSR1)

    def test_a_child_of_fork_has_no_pool(self):
        with self.open_with_buffers() as pool:
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
        with self.open_with_buffers() as pool:
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
        """One thread wakes the pool, another puts it to sleep again: the pool must know that it sleeps."""
        wake = graph_handle.PoolHandle.wake

        def wake_and_lose(handle, timeout):
            wake(handle, timeout)
            other = threading.Thread(target=pool.sleep)
            other.start()
            other.join()

        with self.open_with_buffers() as pool:
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
    """A thread inside a pool's launch(), until the test lets it leave."""

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
    """Returns the results of calls in a child of fork(), in words; SIGALRM ends the child if a call waits."""
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
