# SPDX-License-Identifier: Apache-2.0
"""Waits for a lock in an event loop and in threads, and their end before the lock came."""

import asyncio
import os
import threading
from unittest import mock

import gmsfs
from support import MOUNT, TIMEOUT, StoreCase, python


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


class Waits(StoreCase):
    def waiters(self):
        return read(self.path, "sessions").count(" waiting ")

    async def until(self, condition):
        end = asyncio.get_running_loop().time() + TIMEOUT
        while not condition():
            self.assertLess(asyncio.get_running_loop().time(), end)
            await asyncio.sleep(0.01)

    async def cancel_when_it_waits(self, task):
        await self.until(self.waiters)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual(self.waiters(), 0)


class Async(Waits):
    def test_the_event_loop_goes_on_while_a_lock_is_waited_for(self):
        async def main():
            writer = await gmsfs.open_async(self.path, "rw", timeout=TIMEOUT, reserve_bytes=1 << 20)
            task = asyncio.create_task(gmsfs.open_async(self.path))
            await self.until(self.waiters)
            writer.publish({"t": b"1"})
            with await task as store:
                self.assertEqual((store.mode, bytes(store.views()["t"])), ("ro", b"1"))
            writer.close()

        asyncio.run(main())

    def test_a_cancelled_task_leaves_no_waiter(self):
        async def main():
            with gmsfs.open(self.path, "rw"):
                await self.cancel_when_it_waits(asyncio.create_task(gmsfs.open_async(self.path, "rw")))
            gmsfs.open(self.path, "rw", timeout=0).close()

        asyncio.run(main())

    def test_time_that_is_over_without_the_lock_leaves_no_waiter(self):
        async def main():
            with gmsfs.open(self.path, "rw"):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(gmsfs.open_async(self.path, "rw"), 0.05)
                self.assertEqual(self.waiters(), 0)
                with self.assertRaises(gmsfs.Timeout):
                    await gmsfs.open_async(self.path, "rw", timeout=0.05)
                with self.assertRaises(gmsfs.WouldBlock):
                    await gmsfs.open_async(self.path, "rw", timeout=0)

        asyncio.run(main())

    def test_a_revoked_wait_is_canceled(self):
        async def main():
            with gmsfs.open(self.path, "rw"):
                task = asyncio.create_task(gmsfs.open_async(self.path, "rw"))
                await self.until(self.waiters)
                with open(os.path.join(self.path, "sessions"), encoding="utf-8") as file:
                    line = next(line for line in file if " waiting " in line)
                with open(os.path.join(self.path, "abort"), "w", encoding="ascii") as file:
                    file.write(f"revoke {line.split()[0]}")
                with self.assertRaises(gmsfs.Canceled):
                    await task

        asyncio.run(main())

    def test_waking_waits_in_the_event_loop_and_a_cancelled_one_sleeps_on(self):
        async def main():
            with self.published() as store:
                view = store.views()["t"]
                store.sleep()
                with gmsfs.open(self.path, "rw"):
                    await self.cancel_when_it_waits(asyncio.create_task(store.wake_async()))
                    self.assertTrue(store.asleep)
                moves = await store.wake_async(TIMEOUT)
                self.assertEqual(await store.wake_async(), moves)
                self.assertEqual(bytes(view), b"1")
                del view

        asyncio.run(main())


    def test_a_group_waits_in_the_event_loop_and_a_cancelled_one_leaves_no_waiter(self):
        other = self.make_other()

        async def main():
            paths = [self.path, other]
            with gmsfs.open(self.path, "rw"):
                await self.cancel_when_it_waits(asyncio.create_task(gmsfs.open_group_async(paths, "rw")))
                task = asyncio.create_task(gmsfs.open_group_async(paths, "rw", TIMEOUT))
                await self.until(self.waiters)
            (await task).close()
            with gmsfs.open(other, "rw"), self.assertRaises(gmsfs.Timeout):
                await gmsfs.open_group_async(paths, "rw", 0.05)

        asyncio.run(main())

    def test_retargeting_waits_in_the_event_loop_and_a_cancelled_one_leaves_no_waiter(self):
        other = self.make_other()

        async def main():
            gmsfs.publish(self.path, {"t": b"1"})
            gmsfs.publish(other, {"t": b"2"})
            with gmsfs.open(other) as store:
                view = store.views()["t"]
                with gmsfs.open(self.path, "rw"):
                    await self.cancel_when_it_waits(asyncio.create_task(store.retarget_async(self.path)))
                    self.assertEqual(store.path, other)
                    task = asyncio.create_task(store.retarget_async(self.path))
                    await self.until(self.waiters)
                await task
                self.assertEqual((store.path, bytes(view)), (self.path, b"1"))
                del view

        asyncio.run(main())

    def test_a_tag_wakes_in_a_coroutine(self):
        async def main():
            gmsfs.publish(self.path, {"t": b"1"}, tag="weights")
            with gmsfs.open(self.path) as store:
                view = store.views()["t"]
                store.sleep(tag="weights")
                self.assertEqual(await store.wake_async(tag="weights"), store.info.moves)
                self.assertEqual(bytes(view), b"1")
                del view

        asyncio.run(main())


class Interrupts(Waits):
    """Ctrl-C at the steps of a wait in the main thread, as Python may raise it there."""

    def interrupted_wake(self, start, cancel):
        with self.published() as store:
            store.sleep()
            with gmsfs.open(self.path, "rw"):
                with mock.patch.object(threading.Thread, "start", start):
                    with mock.patch.object(gmsfs.handle.Handle, "cancel", cancel):
                        with self.assertRaises(KeyboardInterrupt):
                            store.wake()
                self.assertEqual(self.waiters(), 0)
            store.wake(TIMEOUT)

    def test_an_interrupt_as_the_thread_starts_leaves_no_waiter(self):
        really, cancel = threading.Thread.start, gmsfs.handle.Handle.cancel

        def start(thread):
            really(thread)
            self.wait_until(self.waiters, "no client waits")
            raise KeyboardInterrupt

        self.interrupted_wake(start, cancel)

    def test_an_interrupt_before_the_thread_has_begun_waits_for_nothing(self):
        def start(thread):
            raise KeyboardInterrupt

        self.interrupted_wake(start, gmsfs.handle.Handle.cancel)

    def test_a_thread_that_begins_after_the_interrupt_waits_for_nothing(self):
        really, threads = threading.Thread.start, []

        def start(thread):
            threads.append(thread)
            raise KeyboardInterrupt

        self.interrupted_wake(start, gmsfs.handle.Handle.cancel)
        really(threads[0])
        threads[0].join(TIMEOUT)
        self.assertFalse(threads[0].is_alive())

    def test_a_second_interrupt_while_the_wait_is_ended_leaves_no_waiter(self):
        really, cancel = threading.Thread.start, gmsfs.handle.Handle.cancel
        interrupts = [KeyboardInterrupt, KeyboardInterrupt]

        def start(thread):
            really(thread)
            self.wait_until(self.waiters, "no client waits")
            raise KeyboardInterrupt

        def interrupted(handle):
            if interrupts:
                raise interrupts.pop()
            cancel(handle)

        self.interrupted_wake(start, interrupted)
        self.assertEqual(interrupts, [])

    def interrupted_attempt(self, answer):
        """answer(call, gate) in the main thread is interrupted while call() waits, for the gate to be set
        and 0 to come; the thread of the call."""
        really, begun, gate, threads = threading.Thread.start, threading.Event(), threading.Event(), []

        def start(thread):
            threads.append(thread)
            really(thread)
            begun.wait()
            raise KeyboardInterrupt

        def call():
            begun.set()
            gate.wait()
            return 0

        with mock.patch.object(threading.Thread, "start", start):
            with self.assertRaises(KeyboardInterrupt):
                answer(call, gate)
        return gate, threads[0]

    def test_what_does_not_end_in_time_is_left_alone_and_undone_when_it_ends(self):
        undone = []
        gate, _ = self.interrupted_attempt(
            lambda call, gate: gmsfs.handle.interruptible(
                call, lambda: undone.append(None), gate.is_set, 0.05
            )
        )
        self.assertEqual(undone, [])
        gate.set()
        self.wait_until(lambda: undone, "the result was not undone")

    def test_what_comes_all_the_same_is_undone_once_before_the_interrupt_is_raised(self):
        raised, undone = threading.Event(), []

        class Done(threading.Event):  # holds the thread after it has set the event
            def set(self):
                super().set()
                raised.wait(TIMEOUT)

        def answer(call, gate):
            attempt = gmsfs.handle._Attempt(call)
            attempt._done = Done()
            attempt.answer(lambda: undone.append(None), gate.set)

        _, thread = self.interrupted_attempt(answer)
        self.assertEqual(undone, [None])
        raised.set()
        thread.join(TIMEOUT)
        self.assertEqual(undone, [None])

    def test_where_no_thread_can_start_the_call_is_made_all_the_same(self):
        with mock.patch.object(threading.Thread, "start", mock.Mock(side_effect=RuntimeError)):
            self.assertEqual(gmsfs.handle.interruptible(lambda: 7, None, None), 7)


class Memory(Waits):
    """Waits for memory that another store takes."""

    def allocs_waiting(self):
        return "\ngmsfs_allocs_waiting 0\n" not in read(MOUNT, "metrics")

    def take(self):
        """Opens a writer of another store that reserves all memory."""
        path = self.path + ".all"
        os.mkdir(path)
        self.addCleanup(os.rmdir, path)
        self.wait_until(lambda: os.statvfs(MOUNT).f_bfree == os.statvfs(MOUNT).f_blocks, "some is in use")
        left = os.statvfs(MOUNT)
        return gmsfs.open(path, "rw", 0, reserve_bytes=left.f_bavail * left.f_frsize)

    def test_ctrl_c_ends_the_wait_of_who_publishes(self):
        program = (
            "import os, signal, sys, threading, time, gmsfs\n"
            "def waits():\n"
            "    return '\\ngmsfs_allocs_waiting 0\\n' not in open(sys.argv[2]).read()\n"
            "def interrupt():\n"
            "    while not waits():\n"
            "        time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "with gmsfs.open(sys.argv[1], 'rw') as store:\n"
            "    threading.Thread(target=interrupt).start()\n"
            "    try:\n"
            "        store.publish({'t': b'1'})\n"
            "    except KeyboardInterrupt:\n"
            "        print('interrupted, waits:', waits())\n"
        )
        with self.take():
            said = python(program, self.path, os.path.join(MOUNT, "metrics"))
        self.assertEqual(said, "interrupted, waits: False\n")

    async def reallocate_in_vain(self, reallocate):
        """The memory of a store that sleeps has become another one's."""
        with self.published() as store:
            view = store.views()["t"]
            store.sleep()
            gmsfs.publish(self.path, {})
            with self.take():
                await reallocate(store)
                self.assertEqual((self.allocs_waiting(), store.asleep, store.mode), (False, True, ""))
            await store.reallocate_async(TIMEOUT)
            self.assertEqual((store.mode, bytes(view)), ("rw", b"\0"))
            del view

    def test_a_cancelled_reallocation_waits_no_more_and_sleeps_on(self):
        async def reallocate(store):
            task = asyncio.create_task(store.reallocate_async())
            await self.until(self.allocs_waiting)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(self.reallocate_in_vain(reallocate))

    def test_ctrl_c_ends_the_wait_of_a_reallocation(self):
        really = threading.Thread.start

        def start(thread):
            really(thread)
            self.wait_until(self.allocs_waiting, "no client waits")
            raise KeyboardInterrupt

        async def reallocate(store):
            with mock.patch.object(threading.Thread, "start", start):
                with self.assertRaises(KeyboardInterrupt):
                    store.reallocate()

        asyncio.run(self.reallocate_in_vain(reallocate))


class Threads(Waits):
    def test_another_threads_wait_is_cancelled(self):
        gmsfs.publish(self.path, {"t": b"1"})
        caught = []

        def wake(store):
            try:
                store.wake()
            except gmsfs.Error as error:
                caught.append(error)

        with gmsfs.open(self.path) as store:
            store.sleep()
            with gmsfs.open(self.path, "rw"):
                thread = threading.Thread(target=wake, args=(store,))
                thread.start()
                self.wait_until(self.waiters, "no client waits")
                store.cancel()
                thread.join(TIMEOUT)
                self.assertEqual(self.waiters(), 0)
        self.assertIsInstance(caught[0], gmsfs.Canceled)
        self.assertIn("cancel()", str(caught[0]))

    def test_a_store_that_is_closed_waits_no_more(self):
        with self.published() as store:
            store.sleep()
            with gmsfs.open(self.path, "rw"):
                thread = threading.Thread(target=lambda: self.assertRaises(gmsfs.Error, store.wake))
                thread.start()
                self.wait_until(self.waiters, "no client waits")
                store.close()
                thread.join(TIMEOUT)
                self.assertFalse(thread.is_alive())
                self.assertEqual(self.waiters(), 0)
