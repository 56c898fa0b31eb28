# SPDX-License-Identifier: Apache-2.0
"""GMS V0: the content of a layout and the requests that write it: allocations, bytes, entries and their hash,
and requests for more memory than there is."""

import os
import uuid

import gms_client
from gms_client import owned
from gms_support import PIECE, GmsCase, device, store_file, wait_until


def without_type(message):
    return {name: value for name, value in message.items() if name != "type"}


class Allocations(GmsCase):
    def test_sizes_are_rounded_up_and_kept_as_asked(self):
        writer = self.session("rw")
        for slot, size in enumerate((1, 4096, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE)):
            made = writer.allocate(size, "tag")
            aligned = -(-size // PIECE) * PIECE
            self.assertEqual(
                (made["size"], made["aligned_size"], made["layout_slot"]), (size, aligned, slot)
            )
            self.assertEqual(str(uuid.UUID(made["allocation_id"])), made["allocation_id"])
            self.assertEqual(uuid.UUID(made["allocation_id"]).version, 4)
            found = writer.get(made["allocation_id"])
            self.assertEqual(without_type(found), {**without_type(made), "tag": "tag"})
        state = writer.allocation_state()
        self.assertEqual((state["allocation_count"], state["total_bytes"]), (6, 9 * PIECE))

    def test_sizes_that_are_none(self):
        writer = self.session("rw")
        for size in (0, -1, -(2**31) - 1, -(2**63)):
            self.assert_refused(f"size must be > 0, got {size}", writer.allocate, size)
        self.assertEqual(writer.list(), [])

    def test_a_tag_left_out_is_default(self):
        writer = self.session("rw")
        made = writer.request("allocate_request", size=1)
        self.assertEqual(writer.get(made["allocation_id"])["tag"], "default")

    def test_a_tag_is_a_label_and_nothing_else(self):
        writer = self.session("rw")
        for tag in ("", "weights", "kv_cache", "äöü", "a/b %\n"):
            made = writer.allocate(1, tag)
            self.assertEqual(writer.get(made["allocation_id"])["tag"], tag)
            self.assertEqual([item["tag"] for item in writer.list(tag)], [tag])

    def test_slots_are_not_used_again_and_lists_go_by_them(self):
        writer = self.session("rw")
        ids = [writer.allocate(1, f"tag{i % 2}")["allocation_id"] for i in range(6)]
        for at in (1, 2, 5):
            self.assertTrue(writer.free(ids[at]))
        self.assertEqual(writer.allocate(1, "tag1")["layout_slot"], 6)
        self.assertEqual([item["layout_slot"] for item in writer.list()], [0, 3, 4, 6])
        self.assertEqual([item["layout_slot"] for item in writer.list("tag0")], [0, 4])
        self.assertEqual([item["layout_slot"] for item in writer.list("tag1")], [3, 6])
        self.assertEqual(writer.list("tag"), [])

    def test_slots_and_gaps_are_as_they_were_after_commit_and_seal(self):
        for seal in (False, True):
            with self.subTest(seal=seal):
                writer = self.session("rw")
                ids = [writer.allocate(1)["allocation_id"] for _ in range(3)]
                writer.free(ids[1])
                before = writer.list()
                writer.commit_layout() if seal else writer.commit()
                writer.close()
                self.wait_state("LAYOUT_COMMITTED" if seal else "COMMITTED")
                found = self.session("rw_data_or_rw" if seal else "ro", granted="rw_data" if seal else "ro")
                self.assertEqual(found.list(), before)
                self.assertEqual([item["layout_slot"] for item in before], [0, 2])
                found.close()
                self.wait_state("LAYOUT_COMMITTED" if seal else "COMMITTED")

    def test_ids_are_never_given_again(self):
        seen = set()
        for _ in range(5):
            writer = self.session("rw")
            for _ in range(5):
                name = writer.allocate(1)["allocation_id"]
                self.assertNotIn(name, seen)
                seen.add(name)
                writer.free(name)
            seen.add(writer.allocate(1)["allocation_id"])
            writer.commit()
            writer.close()
        self.assertEqual(len(seen), 30)

    def test_a_list_without_a_tag_is_of_all(self):
        self.commit_content()
        reader = self.session("ro")
        self.assertEqual(reader.request("list_allocations_request")["allocations"], reader.list())

    def test_ids_that_there_are_not(self):
        writer = self.session("rw")
        freed = writer.allocate(1)["allocation_id"]
        self.assertTrue(writer.free(freed))
        for name in ("", "x", freed, freed.upper(), "ä" * 200, "a\0b", "\0", str(uuid.uuid4())):
            self.assert_refused(f"Unknown allocation: {name}", writer.get, name)
            self.assert_refused(f"Unknown allocation: {name}", writer.export, name)
            self.assert_refused(f"Unknown allocation: {name}", writer.put, "k", name, 0, b"")
            self.assertFalse(writer.free(name))
        self.assertEqual(writer.keys(), [])

    def test_ids_of_another_store_are_unknown(self):
        first, _ = self.commit_content()
        writer = self.session("rw", "kv_cache")
        self.assert_refused(f"Unknown allocation: {first}", writer.export, first)
        self.assertFalse(writer.free(first))

    def test_free_takes_the_entries_of_the_allocation_along(self):
        writer = self.session("rw")
        first, _ = self.fill(writer)
        self.assertTrue(writer.free(first))
        self.assertEqual(writer.keys(), ["second"])
        self.assertIsNone(writer.get_entry("first"))

    def test_a_layout_without_anything_can_be_committed(self):
        writer = self.session("rw")
        self.assertTrue(writer.commit())
        writer.expect_closed()
        reader = self.session("ro")
        self.assertEqual(reader.list(), [])
        self.assertNotEqual(reader.layout_hash(), "")
        self.assertTrue(self.probe()["is_ready"])


class Bytes(GmsCase):
    def test_what_the_writer_wrote_is_what_readers_map(self):
        writer = self.session("rw")
        made = writer.allocate(10)
        with owned(writer.export(made["allocation_id"])[1]) as memory:
            self.assertEqual(os.fstat(memory).st_size, PIECE)
            self.assertEqual(os.pread(memory, 64, 0), bytes(64))
            os.pwrite(memory, b"0123456789", 0)
            os.pwrite(memory, b"end", PIECE - 3)
        writer.commit()
        writer.close()
        reader = self.session("ro")
        message, memory = reader.export(made["allocation_id"])
        with owned(memory):
            self.assertEqual(without_type(message), without_type(reader.get(made["allocation_id"])))
            self.assertEqual(os.pread(memory, 10, 0), b"0123456789")
            self.assertEqual(os.pread(memory, 9, PIECE - 3), b"end")

    def test_readers_get_what_cannot_be_written(self):
        first, _ = self.commit_content()
        with owned(self.session("ro").export(first)[1]) as memory:
            with self.assertRaises(OSError):
                os.pwrite(memory, b"x", 0)

    def test_a_successor_finds_and_writes_the_bytes(self):
        writer = self.session("rw")
        first, _ = self.fill(writer)
        with owned(writer.export(first)[1]) as memory:
            os.pwrite(memory, b"before", 0)
        writer.commit_layout()
        with owned(writer.export(first)[1]) as memory:
            os.pwrite(memory, b"sealed", 6)
        writer.close()
        successor = self.session("rw_data_or_rw", granted="rw_data")
        with owned(successor.export(first)[1]) as memory:
            self.assertEqual(os.pread(memory, 12, 0), b"beforesealed")
            os.pwrite(memory, b"later", 12)
        successor.close()
        self.wait_state("LAYOUT_COMMITTED")
        with owned(self.session("rw_data_or_rw", granted="rw_data").export(first)[1]) as memory:
            self.assertEqual(os.pread(memory, 17, 0), b"beforesealedlater")

    def test_each_export_is_a_descriptor_of_its_own(self):
        first, _ = self.commit_content()
        reader = self.session("ro")
        memories = [self.keep_descriptor(reader.export(first)[1]) for _ in range(50)]
        self.assertEqual(len({os.fstat(memory).st_ino for memory in memories}), 1)

    def test_a_descriptor_outlives_the_session(self):
        first, _ = self.commit_content()
        reader = self.session("ro")
        memory = self.keep_descriptor(reader.export(first)[1])
        reader.close()
        self.session("rw").close()
        self.wait_state("EMPTY")
        self.assertEqual(os.fstat(memory).st_size, PIECE)


class Metadata(GmsCase):
    KEYS = ("a", "A", "%", "a/b", ".", "..", ".hidden", "a\0b", "nul\0", "ä", "zz", "\U0001f600", "%2F")

    def test_keys_come_back_as_they_are_in_the_order_of_their_bytes(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        for at, key in enumerate(self.KEYS):
            writer.put(key, first, at, key.encode())
        self.assertEqual(writer.keys(), sorted(self.KEYS, key=str.encode))
        for at, key in enumerate(self.KEYS):
            self.assertEqual(writer.get_entry(key), (first, at, key.encode()))
        writer.commit()
        writer.close()
        self.assertEqual(self.session("ro").keys(), sorted(self.KEYS, key=str.encode))

    def test_the_empty_key_is_one_like_others_or_is_refused(self):
        """It has no spelling as a file name, and a server may say so."""
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        try:
            writer.put("", first, 0, b"value")
        except gms_client.Refused as error:
            self.assertIn("key", str(error).lower())
            self.assertEqual(writer.keys(), [])
            self.assertIsNone(writer.get_entry(""))
        else:
            self.assertEqual(writer.keys(), [""])
            self.assertEqual(writer.get_entry(""), (first, 0, b"value"))

    def test_prefixes(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        for key in ("a", "ab", "abc", "b", "ä", "äb"):
            writer.put(key, first, 0, b"")
        for prefix, found in (
            ("", ["a", "ab", "abc", "b", "ä", "äb"]),
            ("a", ["a", "ab", "abc"]),
            ("ab", ["ab", "abc"]),
            ("abcd", []),
            ("ä", ["ä", "äb"]),
        ):
            self.assertEqual(writer.keys(prefix), found, prefix)
        self.assertEqual(writer.request("metadata_list_request")["keys"], writer.keys())

    def test_lists_of_more_keys_than_a_turn_takes_are_made_side_by_side(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        keys = [f"key.{number:05}" for number in range(5000)]
        for key in ["a", *keys, "z"]:
            writer.put(key, first, 0, b"")
        writer.commit()
        readers = [self.session("ro") for _ in range(3)]
        for prefix, found in (("", ["a", *keys, "z"]), ("key.", keys), ("key.049", keys[4900:])):
            for reader in readers:
                reader.send("metadata_list_request", prefix=prefix)
            for reader in readers:
                answer = reader.result("metadata_list_response")
                self.assertEqual(answer["keys"], found)

    def test_values_are_any_bytes(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        for value in (b"", b"\0", bytes(range(256)), b"x" * 65536, b"y" * (1 << 20)):
            writer.put("key", first, 0, value)
            self.assertEqual(writer.get_entry("key"), (first, 0, value))
        self.assertEqual(writer.keys(), ["key"])

    def test_an_equal_key_is_replaced_whole(self):
        writer = self.session("rw")
        first, second = self.fill(writer)
        writer.put("first", second, 7, b"new")
        self.assertEqual(writer.get_entry("first"), (second, 7, b"new"))
        writer.free(first)
        self.assertEqual(writer.keys(), ["first", "second"])

    def test_errors_in_their_order_store_nothing(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        writer.put("key", first, 0, b"old")
        self.assert_refused("Unknown allocation: x", writer.put, "key", "x", -1, b"new")
        for offset in (-1, -(2**63)):
            text = f"offset_bytes must be >= 0, got {offset}"
            self.assert_refused(text, writer.put, "key", first, offset, b"new")
        for offset in (PIECE, PIECE + 1, 2**63 - 1):
            text = f"offset_bytes {offset} out of range for allocation {first} (aligned_size={PIECE})"
            self.assert_refused(text, writer.put, "key", first, offset, b"new")
        self.assertEqual(writer.get_entry("key"), (first, 0, b"old"))

    def test_an_offset_may_lie_beyond_the_size_within_what_it_is_rounded_to(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        writer.put("key", first, PIECE - 1, b"value")
        self.assertTrue(writer.commit())
        writer.close()
        self.assertEqual(self.session("ro").get_entry("key"), (first, PIECE - 1, b"value"))

    def test_bounds_are_errors_and_the_session_goes_on(self):
        writer = self.session("rw")
        first = writer.allocate(1)["allocation_id"]
        large = (1 << 20) + 1
        for key, value in (("k" * 256, b""), ("/" * 86, b""), ("k" * 100000, b""), ("key", b"v" * large)):
            with self.assertRaises(gms_client.Refused, msg=(key[:10], len(key), len(value))):
                writer.put(key, first, 0, value)
        self.assertEqual(writer.keys(), [])
        writer.put("k" * 255, first, 0, b"v" * (1 << 20))
        self.assertEqual(writer.keys(), ["k" * 255])

    def test_what_there_is_not(self):
        self.commit_content()
        reader = self.session("ro")
        for key in ("x", "", "k" * 100000, "\0"):
            self.assertIsNone(reader.get_entry(key))
        reader.close()
        self.wait_state("COMMITTED")
        writer = self.session("rw")
        self.assertFalse(writer.delete("first"))
        first, _ = self.fill(writer)
        self.assertTrue(writer.delete("first"))
        self.assertFalse(writer.delete("first"))
        self.assertEqual(writer.keys(), ["second"])
        self.assertTrue(writer.free(first))


class Hashes(GmsCase):
    BASE = {"sizes": (4096, PIECE + 1), "tags": ("a", "b"), "entries": (("k", 0, 5, b"v"), ("l", 1, 0, b"w"))}

    def build(self, sizes, tags, entries, gaps=()):
        writer = self.session("rw")
        ids = []
        for at, (size, tag) in enumerate(zip(sizes, tags)):
            if at in gaps:
                writer.free(writer.allocate(1)["allocation_id"])
            ids.append(writer.allocate(size, tag)["allocation_id"])
        for key, at, offset, value in entries:
            writer.put(key, ids[at], offset, value)
        return writer

    def hash_of(self, how="commit", **changes):
        writer = self.build(**{**self.BASE, **changes})
        self.assertEqual(writer.layout_hash(), "")
        self.assertEqual(self.probe()["memory_layout_hash"], "")
        if how == "commit":
            writer.commit()
            found = self.probe()["memory_layout_hash"]
        else:
            found = writer.commit_layout()["memory_layout_hash"]
            self.assertEqual(writer.layout_hash(), found)
            self.assertEqual(self.probe()["memory_layout_hash"], found)
        writer.close()
        self.wait_state("COMMITTED" if how == "commit" else "LAYOUT_COMMITTED")
        self.assertNotEqual(found, "")
        return found

    def test_equal_structure_equal_text(self):
        first = self.hash_of()
        self.assertEqual(self.hash_of(), first, "other ids")
        self.assertEqual(self.hash_of(gaps=(0, 1)), first, "gaps in the slots")
        self.assertEqual(self.hash_of("seal"), first, "sealed")
        entries = self.BASE["entries"]
        self.assertEqual(self.hash_of(entries=entries[::-1]), first, "another order of putting")

    def test_other_structure_other_text(self):
        seen = {self.hash_of()}
        for changes in (
            {"sizes": (4097, PIECE + 1)},
            {"sizes": (PIECE + 1, 4096)},
            {"sizes": (4096, PIECE + 1, 1), "tags": ("a", "b", "c")},
            {"tags": ("b", "a")},
            {"tags": ("ab", "")},
            {"entries": ()},
            {"entries": (("k", 0, 5, b"v"),)},
            {"entries": (("m", 0, 5, b"v"), ("l", 1, 0, b"w"))},
            {"entries": (("k", 1, 5, b"v"), ("l", 1, 0, b"w"))},
            {"entries": (("k", 0, 6, b"v"), ("l", 1, 0, b"w"))},
            {"entries": (("k", 0, 5, b"x"), ("l", 1, 0, b"w"))},
        ):
            found = self.hash_of(**changes)
            self.assertNotIn(found, seen, changes)
            seen.add(found)

    def test_it_is_the_one_that_the_files_tell(self):
        found = self.hash_of()
        self.assertEqual(store_file("weights", "layout_hash"), found + "\n")
        found = self.hash_of("seal")
        self.assertEqual(store_file("weights", "layout_hash"), found + "\n")

    def test_bytes_do_not_count(self):
        first = self.hash_of()
        writer = self.build(**self.BASE)
        with owned(writer.export(writer.list()[0]["allocation_id"])[1]) as memory:
            os.pwrite(memory, b"other bytes", 0)
        writer.commit()
        self.assertEqual(self.probe()["memory_layout_hash"], first)


class OutOfMemory(GmsCase):
    """The mount is small, and its alloc_timeout is 2 s."""

    MORE_THAN_ALL = 1 << 40

    def test_who_waited_in_vain_is_told_and_goes_on(self):
        size = self.MORE_THAN_ALL + 1
        writer = self.session("rw")
        writer.allocate(1)
        with self.logs(("allocation_oom", 1)):
            with self.assertRaises(gms_client.Refused) as caught:
                writer.allocate(size, "much")
            self.assertRegex(
                str(caught.exception),
                rf"^Timed out waiting for GPU memory: requested_size={size}, "
                rf"aligned_size={self.MORE_THAN_ALL + PIECE}, tag=much, waited_sec=[0-9]+\.[0-9]{{3}}"
                rf": the mount has only {device()['total_bytes']} bytes in all$",
            )
        self.assertEqual(writer.allocate(1)["layout_slot"], 1)

    def test_a_size_that_cannot_be_aligned_is_told_as_it_is(self):
        writer = self.session("rw")
        for size in (2**64 - 1, 2**64 - PIECE + 1):
            with self.assertRaises(gms_client.Refused) as caught:
                writer.allocate(size)
            self.assertIn(f"requested_size={size}, aligned_size={2**64}, tag=", str(caught.exception))
        with self.assertRaises(gms_client.Refused) as caught:
            writer.allocate(2**64 - PIECE)
        self.assertIn(f"aligned_size={2**64 - PIECE}, tag=default", str(caught.exception))
        self.assertEqual(writer.allocate(1)["layout_slot"], 0)

    def test_what_others_hold_is_waited_for_and_then_the_text_is_the_protocols_alone(self):
        available = self.fill_device("kv_cache", 0)
        writer = self.session("rw")
        with self.assertRaises(gms_client.Refused) as caught:
            writer.allocate(available, "t")
        self.assertRegex(
            str(caught.exception),
            rf"^Timed out waiting for GPU memory: requested_size={available}, "
            rf"aligned_size={available}, tag=t, waited_sec=(1\.9|[2-9]\.[0-9])[0-9]{{2}}$",
        )

    def test_memory_that_comes_back_is_given(self):
        available = self.fill_device("kv_cache", 0)
        writer = self.session("rw")
        with self.logs(("allocation_oom", 0)):
            writer.send("allocate_request", size=available, tag="t")
            writer.expect_silence(0.1)
            self.holder.close()
            message = writer.result("allocate_response")
        self.assertEqual(message["size"], available)

    def test_others_are_served_meanwhile(self):
        self.commit_content("weights")
        available = self.fill_device("kv_cache", 3 * PIECE)
        self.holder.send("allocate_request", size=available, tag="t")
        reader = self.session("ro")
        for _ in range(20):
            self.assertEqual(len(reader.list()), 2)
        self.assertEqual(self.state("kv_cache"), "RW")
        self.holder.expect_silence(0.02)

    def test_who_goes_away_does_not_wait_any_more(self):
        for how in ("close", "half_close"):
            with self.subTest(how=how):
                self.fill_device("kv_cache", 0)
                writer = self.session("rw")
                writer.send("allocate_request", size=PIECE, tag="t")
                writer.expect_silence(0.05)
                getattr(writer, how)()
                wait_until(lambda: self.state() == "EMPTY", "the session ends before the wait", 1.5)
                self.holder.close()

    def fill_device(self, store, used_bytes):
        """Takes all there is but `used_bytes`, in one allocation; its size."""
        wait_until(lambda: device()["used_bytes"] == used_bytes, "freed memory is back")
        self.holder = self.session("rw", store)
        size = (device()["total_bytes"] - used_bytes) // PIECE * PIECE
        self.holder.allocate(size)
        return size
