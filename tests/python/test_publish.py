# SPDX-License-Identifier: Apache-2.0
"""Publishing: arrays and buffers into a store, as `gmsfs load` would have put them there."""

import array
import ctypes
import errno
import json
import os
import pickle
import struct
import unittest
import unittest.mock

import numpy

import gmsfs
from gmsfs.publish import choose_chunk
from support import TIMEOUT, StoreCase, command, write_model


def sample():
    random = numpy.random.default_rng(7)
    return {
        "b.weight": random.standard_normal((300, 40)).astype("f4"),
        "a.weight": random.integers(-100, 100, (7, 3, 2), dtype="i8"),
        "half": random.standard_normal(513).astype("f2"),
        "flag": numpy.array([True, False, True]),
        "scalar": numpy.array(3.5),
        "empty": numpy.zeros((0, 4), "u2"),
        "complex": numpy.array([1 + 2j], "c8"),
    }


SAFETENSORS = {
    "float32": "F32",
    "int64": "I64",
    "float16": "F16",
    "bool": "BOOL",
    "float64": "F64",
    "uint16": "U16",
    "complex64": "C64",
}


def as_model(arrays):
    return {
        name: (SAFETENSORS[data.dtype.name], list(data.shape), data.tobytes())
        for name, data in arrays.items()
    }


class Publishing(StoreCase):
    def test_what_is_published_is_read_again(self):
        arrays = sample()
        gmsfs.publish(self.path, arrays)
        with gmsfs.open(self.path) as store:
            for name, found in store.tensors().items():
                self.assertEqual(found.dtype, arrays[name].dtype)
                numpy.testing.assert_array_equal(found, arrays[name])
            del found

    def test_gmsfs_verify_and_ls_and_save_understand_it(self):
        arrays = sample()
        model = write_model(self.file("m.safetensors"), as_model(arrays))
        gmsfs.publish(self.path, arrays, {"format": "np"})
        command("verify", "-q", self.path, model)
        self.assertRegex(command("ls", self.path), r"b\.weight.*float32")
        saved = self.file("saved.safetensors")
        command("save", "-q", self.path, saved)
        command("verify", "-q", self.path, saved)
        with open(saved, "rb") as file:
            self.assertIn(b'"__metadata__":{"format":"np"}', file.read(4096))

    def test_the_layout_hash_is_that_of_gmsfs_load(self):
        arrays = sample()
        model = write_model(
            self.file("m.safetensors"), as_model(arrays), {"format": "pt", "ä": "ö"}
        )
        command("load", "-q", self.path, model)
        with gmsfs.open(self.path) as store:
            loaded = store.layout_hash
        gmsfs.publish(self.path, arrays, {"ä": "ö", "format": "pt"})
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.layout_hash, loaded)

    def test_metadata_of_any_size_is_that_of_gmsfs_load_and_save(self):
        arrays = sample()
        long = {"ss_tag_frequency": "ä\n" * (1 << 19), "format": "pt"}
        model = write_model(self.file("m.safetensors"), as_model(arrays), long)
        command("load", "-q", self.path, model)
        with gmsfs.open(self.path) as store:
            loaded = store.layout_hash
        gmsfs.publish(self.path, arrays, long)
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.layout_hash, loaded)
        command("verify", "-q", self.path, model)
        with gmsfs.safe_open(self.path) as file:
            self.assertEqual(file.metadata(), long)
            self.assertNotIn("__metadata__", file.keys())
        saved = self.file("saved.safetensors")
        command("save", "-q", self.path, saved)
        with open(saved, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            self.assertEqual(json.loads(file.read(size))["__metadata__"], long)

    def test_chunks_make_the_allocations_that_gmsfs_load_makes(self):
        arrays = {
            f"t{i}": numpy.full(size, i, "u1")
            for i, size in enumerate([900, 5000, 40, 0, 1000, 300] + 17 * [2000] + [6000])
        }
        model = write_model(
            self.file("m.safetensors"),
            {name: ("U8", list(data.shape), data.tobytes()) for name, data in arrays.items()},
        )
        command("load", "-q", "--chunk", "2048", self.path, model)
        with gmsfs.open(self.path) as store:
            loaded = store.layout_hash, store.info.allocations
        gmsfs.publish(self.path, arrays, chunk_bytes=2048)
        with gmsfs.open(self.path) as store:
            self.assertEqual((store.layout_hash, store.info.allocations), loaded)

    def test_the_chunk_grows_with_the_model(self):
        self.assertEqual(choose_chunk(0), 64 << 20)
        self.assertEqual(choose_chunk(64 * (64 << 20) + 64), 128 << 20)
        self.assertEqual(choose_chunk(1 << 60), 2 << 30)

    def test_arrays_that_lie_askew_or_in_foreign_order_arrive_straight(self):
        whole = numpy.arange(24, dtype="f4").reshape(4, 6)
        askew = {"t": whole.T, "s": whole[::2, ::3], "big": whole.astype(">f4")}
        gmsfs.publish(self.path, askew)
        with gmsfs.open(self.path) as store:
            for name, found in store.tensors().items():
                numpy.testing.assert_array_equal(found, askew[name])
            del found

    def test_buffers_are_published_without_any_framework(self):
        gmsfs.publish(
            self.path, {"bytes": b"hello", "floats": array.array("f", [1, 2, 3]), "none": b""}
        )
        with gmsfs.open(self.path) as store:
            self.assertEqual(
                {name: bytes(view) for name, view in store.views().items()},
                {"bytes": b"hello", "floats": array.array("f", [1, 2, 3]).tobytes(), "none": b""},
            )
            self.assertEqual(store.specs()["floats"].dtype, "float32")

    def test_buffers_that_are_made_one_by_one_stay_apart(self):
        class Lazy(dict):
            def items(self):
                return ((f"t{i}", memoryview(bytes([i]) * 1000)) for i in range(50))

        gmsfs.publish(self.path, Lazy())
        with gmsfs.open(self.path) as store:
            for name, view in store.views().items():
                self.assertEqual(bytes(view), bytes([int(name[1:])]) * 1000, name)
            del view

    def test_one_memory_under_two_names_is_stored_once(self):
        tied = numpy.ones(1 << 20, "f4")
        gmsfs.publish(self.path, {"embed": tied, "head": tied})
        with gmsfs.open(self.path) as store:
            arrays = store.tensors()
            self.assertEqual(arrays["embed"].ctypes.data, arrays["head"].ctypes.data)
            self.assertEqual(store.info.total_bytes, 4 << 20)
            del arrays

    def test_it_replaces_what_was_there(self):
        gmsfs.publish(self.path, {"old": b"1"})
        gmsfs.publish(self.path, {"new": b"2"})
        with gmsfs.open(self.path) as store:
            self.assertEqual(list(store.views()), ["new"])
            self.assertEqual(store.generation, 2)

    def test_nothing_at_all_can_be_published(self):
        gmsfs.publish(self.path, {})
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.tensors(), {})

    def test_an_error_half_way_leaves_the_store_as_it_was(self):
        gmsfs.publish(self.path, {"old": b"1"})
        names = gmsfs.metadata  # which let one pass that the store refuses
        unlike = unittest.mock.patch.object(names, "encode_name", names.encode_text)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            with unlike, self.assertRaisesRegex(gmsfs.Error, "does not take the entry of '////"):
                store.publish({"new": b"2", "/" * 100: b"3"})
            self.assertEqual(store.mode, "")
        with gmsfs.open(self.path) as store:
            self.assertEqual(
                {name: bytes(view) for name, view in store.views().items()}, {"old": b"1"}
            )

    def read_info(self):
        with open(os.path.join(self.path, "info"), encoding="utf-8") as file:
            return json.load(file)

    def test_what_is_immutable_stays_in_the_hands_of_its_writer_and_readers(self):
        gmsfs.publish(self.path, {"w": numpy.arange(100)}, immutable=True)
        with gmsfs.open(self.path) as store:
            numpy.testing.assert_array_equal(store.tensors()["w"], numpy.arange(100))
            host = store.info.memory == "host"
        self.assertEqual(self.read_info()["immutable"], True)
        self.assertEqual(self.read_info()["mappable"], host)
        with gmsfs.open(self.path, "rw") as store:
            store.publish({"w": numpy.arange(7)}, immutable=True, stay=True)
            numpy.testing.assert_array_equal(store.tensors()["w"], numpy.arange(7))
        self.assertEqual(self.read_info()["mappable"], host)

    def test_a_plain_publish_replaces_what_was_immutable(self):
        gmsfs.publish(self.path, {"old": b"1"}, immutable=True)
        gmsfs.publish(self.path, {"new": b"2"})
        self.assertEqual(self.read_info()["immutable"], False)

    def test_a_seal_cannot_be_immutable(self):
        with gmsfs.open(self.path, "rw") as store:
            self.assertRaises(ValueError, store.publish, {}, seal=True, immutable=True)

    def test_a_store_that_only_reads_cannot_publish(self):
        gmsfs.publish(self.path, {"old": b"1"})
        with gmsfs.open(self.path) as store:
            with self.assertRaisesRegex(gmsfs.NoLock, 'open it with mode="rw"'):
                store.publish({"new": b"2"})

    def test_what_cannot_be_a_tensor_is_refused_before_the_lock_is_taken(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT):
            self.refuse_what_cannot_be_a_tensor()
        self.assertEqual(self.state(), "EMPTY")

    def refuse_what_cannot_be_a_tensor(self):
        for tensors in (
            {"": b"1"},
            {"n" * 256: b"1"},
            {"/" * 86: b"1"},
            {"." + "%" * 85: b"1"},
            {"a\0b": b"1"},
            {"__metadata__": b"1"},
            {"t": numpy.array(["text"])},
            {"\udcff": b"1"},
        ):
            with self.assertRaises(gmsfs.BadArgument) as caught:
                gmsfs.publish(self.path, tensors, timeout=0)
            self.assertEqual(caught.exception.errno, errno.EINVAL, tensors)
            self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(str(pickle.loads(pickle.dumps(caught.exception))), str(caught.exception))
        for metadata in ({"key": "\udcff"}, {"key": "x" * 100_000_000}):
            with self.assertRaisesRegex(gmsfs.BadArgument, "__metadata__"):
                gmsfs.publish(self.path, {}, metadata, timeout=0)
        for tag in ("a\0b", "x" * 256, "\udcff"):
            with self.assertRaisesRegex(gmsfs.BadArgument, "a tag is a string"):
                gmsfs.publish(self.path, {}, tag=tag, timeout=0)
        for arguments in (([b"1"],), (None,), (object(),), ({}, ["a"])):
            with self.assertRaisesRegex(TypeError, f"{self.path}: .* dict"):
                gmsfs.publish(self.path, *arguments, timeout=0)

    def test_what_is_of_another_type_is_a_type_error_and_ends_no_session(self):
        one = {"t": b"1"}
        wrong = (
            ({"t": 5},),
            ({5: b"1"},),
            (one, {"key": 5}),
            (one, {5: "value"}),
            (one, None, {"tag": 5}),
            (one, None, {"tag": {"t": b"x"}}),
            (one, None, {"chunk_bytes": "1M"}),
        )
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            for tensors, *rest in wrong:
                named = rest[1] if len(rest) > 1 else {}
                for call in (store.publish, store.write):
                    with self.assertRaisesRegex(TypeError, ".* (string|number|buffer)"):
                        call(tensors, *rest[:1], **named)
            with self.assertRaisesRegex(ValueError, "chunk_bytes is a whole number from 1"):
                store.publish(one, chunk_bytes=0)
            for slot, offset in ((-1, 0), (2**64 - 1, 0), (None, -1), (None, 2**64)):
                with self.assertRaisesRegex(ValueError, "is a whole number from 0"):
                    store.metadata.put("key", b"value", slot, offset)
            with self.assertRaisesRegex(TypeError, "a tag is a string"):
                store.sleep(tag=5)
            store.publish(one)
        with self.assertRaisesRegex(TypeError, "paths are several"):
            gmsfs.open_group(self.path)
        with gmsfs.open(self.path, timeout=TIMEOUT) as store:
            with self.assertRaisesRegex(TypeError, "names are several"):
                store.views("t")
            store.sleep()
            with self.assertRaisesRegex(TypeError, "timeout is a number"):
                store.wake(timeout="1")

    def test_more_than_the_device_has_is_said_and_changes_nothing(self):
        gmsfs.publish(self.path, {"old": b"1"})
        large = numpy.zeros(300 << 20, "u1")
        told = rf"{self.path}: .*: {large.nbytes} bytes needed, \d+ free of \d+; .*gmsfs status"
        with self.assertRaisesRegex(gmsfs.NoMemory, told):
            gmsfs.publish(self.path, {"t": large}, timeout=0)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            with self.assertRaisesRegex(gmsfs.NoMemory, told):
                store.publish({"t": large})
        self.assertEqual(self.state(), "COMMITTED")

    def test_the_first_of_many_engines_loads_and_all_go_on_as_readers(self):
        for expected in ("rw", "ro"):
            with gmsfs.open(self.path, "rw_or_ro", timeout=TIMEOUT) as store:
                self.assertEqual(store.mode, expected)
                if store.writable:
                    store.publish(sample(), stay=True)
                self.assertEqual(store.mode, "ro")
                found = store.tensors()["half"]
                numpy.testing.assert_array_equal(found, sample()["half"])
                del found


class Writing(StoreCase):
    def test_a_writer_changes_arrays_in_place_and_commits(self):
        gmsfs.publish(self.path, {"t": numpy.zeros(4, "f4")})
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            tensor = store.tensors()["t"]
            tensor[:] = 7
            store.commit()
            del tensor
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.views()["t"].cast("f").tolist(), [7.0] * 4)
            self.assertEqual(store.generation, 2)

    def test_who_stays_as_a_reader_has_what_others_of_the_session_allocated(self):
        self.commit_raw({"t": (b'{"dtype":"uint8","shape":[4]}', 0)})
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.views()
            with gmsfs.open(self.path, token=store.token) as worker:
                slot = ctypes.c_uint64()
                worker._live().call(
                    "gmsfs_allocate_handle", 4096, b"raw", None, ctypes.byref(slot)
                )
                worker.metadata.put("u", b'{"dtype":"uint8","shape":[8]}', slot.value)
            store.commit(stay=True)
            self.assertEqual(list(store.views()), ["t", "u"])

    def test_leaving_without_commit_aborts(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.metadata["key"] = b"value"
        self.assertEqual(self.state(), "EMPTY")

    def test_abort_says_whether_the_old_layout_is_back(self):
        gmsfs.publish(self.path, {"t": b"1"})
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.metadata["key"] = b"value"
            self.assertTrue(store.abort())
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.tensors()  # mapped for writing
            self.assertFalse(store.abort())
        self.assertEqual(self.state(), "EMPTY")

    def test_a_commit_that_is_refused_says_which_entry(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"t": b"1"}, stay=True)
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.metadata.put("stray", b"{}", 0 + store.buffers()[0].slot, 1 << 40)
            with self.assertRaisesRegex(gmsfs.Error, "stray"):
                store.commit()

    def test_metadata_is_a_mapping(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.metadata["b"] = b"\x00\xff"
            store.metadata["a/x"] = b""
            self.assertEqual(list(store.metadata), ["a/x", "b"])
            self.assertEqual(dict(store.metadata), {"a/x": b"", "b": b"\x00\xff"})
            self.assertEqual(store.metadata.keys_from("a"), ["a/x"])
            self.assertIsNone(store.metadata.get("c"))
            del store.metadata["b"]
            self.assertNotIn("b", store.metadata)
            with self.assertRaises(KeyError):
                del store.metadata["b"]
            self.assertEqual(len(store.metadata), 1)
            store.commit()
        with open(os.path.join(self.path, "metadata", "a%2Fx"), "rb") as file:
            self.assertEqual(file.read(), b"")

    def test_what_cannot_be_metadata_is_refused(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            for value in (5, "text", None):
                with self.assertRaises(TypeError):
                    store.metadata["key"] = value
            for key in ("", "x" * 256, "/" * 86, "a\0b", "\udcff"):
                with self.assertRaisesRegex(gmsfs.Error, "a key is a string"):
                    store.metadata[key] = b""
            store.metadata["/" * 85] = b""
            del store.metadata["/" * 85]
            with self.assertRaisesRegex(TypeError, "a key is a string"):
                store.metadata[5] = b""
            with self.assertRaisesRegex(gmsfs.Error, "at most 1 MiB") as caught:
                store.metadata["key"] = bytes((1 << 20) + 1)
            self.assertEqual(caught.exception.errno, errno.EFBIG)
            self.assertEqual(list(store.metadata), [])

    def test_a_worker_joins_the_writer_by_its_token(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            with gmsfs.open(self.path, token=store.token) as worker:
                worker.metadata["from"] = b"the worker"
            self.assertEqual(store.metadata["from"], b"the worker")
        with self.assertRaises(gmsfs.Error):
            gmsfs.open(self.path, token="00" * 16)
