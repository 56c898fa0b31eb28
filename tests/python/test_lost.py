# SPDX-License-Identifier: Apache-2.0
"""After a Store's lock was revoked, every next use of the Store raises an exception."""

import asyncio
import os
import shutil

import gmsfs
from support import TIMEOUT, StoreCase

TOUCHES = {
    "info": lambda store: store.info,
    "memory_info": lambda store: store.memory_info,
    "state": lambda store: store.state,
    "layout_hash": lambda store: store.layout_hash,
    "generation": lambda store: store.generation,
    "mode": lambda store: store.mode,
    "writable": lambda store: store.writable,
    "token": lambda store: store.token,
    "on_drain": lambda store: store.on_drain(print),
    "tensors": lambda store: store.tensors("numpy"),
    "views": lambda store: store.views(),
    "specs": lambda store: store.specs(),
    "buffers": lambda store: store.buffers(),
    "copy_private": lambda store: store.copy_private(framework="numpy"),
    "wake": lambda store: store.wake(TIMEOUT),
    "wake_async": lambda store: asyncio.run(store.wake_async(TIMEOUT)),
    "reallocate": lambda store: store.reallocate(TIMEOUT),
    "reallocate_async": lambda store: asyncio.run(store.reallocate_async(TIMEOUT)),
    "retarget": lambda store: store.retarget(store.path, 0),
    "retarget_async": lambda store: asyncio.run(store.retarget_async(store.path, 0)),
    "set_streams": lambda store: store.set_streams([]),
    "publish": lambda store: store.publish({"t": b"2"}),
    "write": lambda store: store.write({"t": b"2"}),
    "commit": lambda store: store.commit(),
    "commit_layout": lambda store: store.commit_layout(),
    "abort": lambda store: store.abort(),
    "metadata[]": lambda store: store.metadata["t"],
    "metadata[] =": lambda store: store.metadata.__setitem__("key", b""),
    "del metadata[]": lambda store: store.metadata.__delitem__("t"),
    "metadata.get_entry": lambda store: store.metadata.get_entry("t"),
    "metadata.put": lambda store: store.metadata.put("key", b""),
    "metadata.keys_from": lambda store: store.metadata.keys_from(),
    "in metadata": lambda store: list(store.metadata),
    "len(metadata)": lambda store: len(store.metadata),
}
# Usable after the loss: the store's name, state of this process alone, and calls that close.
UNTOUCHED = {"path", "asleep", "metadata", "sleep", "cancel", "close"}


class Lost(StoreCase):
    def revoke(self, session):
        with open(os.path.join(self.path, "abort"), "w", encoding="ascii") as file:
            file.write(f"revoke {session}")

    def assert_all_stale(self, store):
        for _ in range(2):  # also after the library has heard of it
            for name, touch in TOUCHES.items():
                with self.subTest(touch=name), self.assertRaisesRegex(gmsfs.Stale, "revoked or the store"):
                    touch(store)

    def test_the_table_has_all_that_a_store_offers(self):
        public = {name for name in dir(gmsfs.Store) if not name.startswith("_")}
        self.assertEqual(public, UNTOUCHED | public.intersection(TOUCHES))

    def test_a_reader_that_was_revoked_is_told_at_every_touch(self):
        with self.published() as store:
            view = store.views()["t"]
            self.revoke(store.info.session)
            self.assert_all_stale(store)
            self.assertIn("lost", repr(store))
            self.assertEqual(bytes(view), b"1")
            del view

    def test_a_writer_that_was_revoked_is_told_at_every_touch(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.write({"t": b"1"})
            self.revoke(store.info.session)
            self.assert_all_stale(store)

    def test_a_reader_of_a_removed_store_is_told_at_every_touch(self):
        with self.published() as store:
            store.views()
            self.revoke(store.info.session)
            shutil.rmtree(self.path, ignore_errors=True)
            self.wait_until(lambda: not os.path.exists(self.path), "the store is still there")
            self.assert_all_stale(store)
        os.mkdir(self.path)

    def test_who_was_revoked_sleeps_and_wakes(self):
        with self.published() as store:
            view = store.views()["t"]
            self.revoke(store.info.session)
            with self.assertRaises(gmsfs.Stale):
                store.wake(TIMEOUT)
            store.sleep()
            store.wake(TIMEOUT)
            self.assertEqual((store.mode, bytes(view)), ("ro", b"1"))
            del view

    def test_a_safe_open_that_was_revoked_is_told_at_every_touch(self):
        gmsfs.publish(self.path, {"t": b"1"}, {"format": "np"})
        with gmsfs.safe_open(self.path, "np") as file:
            piece = file.get_slice("t")
            self.assertEqual((file.keys(), piece.get_shape()), (["t"], [1]))
            self.revoke(file._store.info.session)
            for touch in (
                file.keys,
                file.offset_keys,
                file.metadata,
                piece.get_shape,
                piece.get_dtype,
                lambda: piece[:],
                lambda: file.get_tensor("t"),
                file.get_tensors,
                lambda: file.get_slice("t"),
            ):
                for _ in range(2):
                    with self.assertRaises(gmsfs.Stale):
                        touch()
