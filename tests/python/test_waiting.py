# SPDX-License-Identifier: Apache-2.0
"""Waits for a lock in an event loop and in threads, and their end before the lock came."""

import asyncio
import os
import threading

import gmsfs
from support import TIMEOUT, StoreCase


class Waits(StoreCase):
    def waiters(self):
        with open(os.path.join(self.path, "sessions"), encoding="utf-8") as file:
            return file.read().count(" waiting ")

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
            gmsfs.publish(self.path, {"t": b"1"})
            with gmsfs.open(self.path) as store:
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
                self.wait_until(self.waiters, "nobody waits")
                store.cancel()
                thread.join(TIMEOUT)
                self.assertEqual(self.waiters(), 0)
        self.assertIsInstance(caught[0], gmsfs.Canceled)
        self.assertIn("cancel()", str(caught[0]))

    def test_a_store_that_is_closed_waits_no_more(self):
        gmsfs.publish(self.path, {"t": b"1"})
        with gmsfs.open(self.path) as store:
            store.sleep()
            with gmsfs.open(self.path, "rw"):
                thread = threading.Thread(target=lambda: self.assertRaises(gmsfs.Error, store.wake))
                thread.start()
                self.wait_until(self.waiters, "nobody waits")
                store.close()
                thread.join(TIMEOUT)
                self.assertFalse(thread.is_alive())
                self.assertEqual(self.waiters(), 0)
