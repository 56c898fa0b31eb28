# SPDX-License-Identifier: Apache-2.0
"""The calls of safetensors.torch and safetensors.numpy with the path of a store. Needs torch. Results are
compared with those of the real package where it is installed."""

import importlib
import inspect
import os
import unittest

import numpy
import torch

import gmsfs
import gmsfs.numpy
import gmsfs.torch
from support import TIMEOUT, StoreCase

ARRAYS = {
    "a": numpy.arange(6, dtype="f4").reshape(2, 3),
    "half": numpy.ones(3, "f2"),
    "empty": numpy.zeros((0, 2), "i8"),
    "scalar": numpy.array(7, "u1"),
}


def theirs(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not there") from None


class Names(StoreCase):
    def test_arguments_are_those_of_safetensors(self):
        for framework, ours in (("torch", gmsfs.torch), ("numpy", gmsfs.numpy)):
            module = theirs(f"safetensors.{framework}")
            for name in ("load_file", "save_file"):
                wanted = inspect.signature(getattr(module, name)).parameters
                found = inspect.signature(getattr(ours, name)).parameters
                given = [one for one in found if one != "timeout"]
                if "backend" not in wanted:
                    given = [one for one in given if one != "backend"]  # safetensors before 0.8
                self.assertEqual(given, list(wanted), f"{framework}.{name}")
                for one, parameter in wanted.items():
                    self.assertEqual(found[one].kind, parameter.kind)
        self.assertIs(gmsfs.numpy.safe_open, gmsfs.safe_open)
        self.assertIs(gmsfs.torch.safe_open, gmsfs.safe_open)

    def test_a_program_for_arrays_gets_from_a_store_what_a_file_gives(self):
        module, file = theirs("safetensors.numpy"), self.file("f.safetensors")
        for ours, at in ((gmsfs.numpy, self.path), (module, file)):
            ours.save_file(tensor_dict=ARRAYS, filename=at, metadata={"k": "v"})
        found, expected = gmsfs.numpy.load_file(filename=self.path), module.load_file(filename=file)
        self.assertEqual(set(found), set(expected))
        for name, array in expected.items():
            self.assertEqual((found[name].dtype, found[name].shape), (array.dtype, array.shape))
            numpy.testing.assert_array_equal(found[name], array)
        with gmsfs.numpy.safe_open(filename=self.path, framework="numpy", device="cpu") as ours:
            with module.safe_open(file, framework="numpy", device="cpu") as other:
                self.assertEqual(ours.keys(), sorted(other.keys()))
                self.assertEqual(ours.metadata(), other.metadata())
                for index in (0, -1, slice(None, None, 2), (slice(None), 1), ...):
                    pieces = ours.get_slice("a")[index], other.get_slice("a")[index]
                    numpy.testing.assert_array_equal(*pieces)
                for name in ARRAYS:
                    pieces = ours.get_slice(name), other.get_slice(name)
                    self.assertEqual(pieces[0].get_shape(), pieces[1].get_shape())
                    self.assertEqual(pieces[0].get_dtype(), pieces[1].get_dtype())

    def test_arrays_are_read_only_and_keep_the_lock(self):
        gmsfs.numpy.save_file(ARRAYS, self.path)
        found = gmsfs.numpy.load_file(self.path)
        self.assertEqual(self.state(), "RO")
        with self.assertRaisesRegex(ValueError, "read-only"):
            found["a"][0, 0] = 1
        kept = found.pop("a")
        found.clear()
        self.assertEqual(self.state(), "RO")
        numpy.testing.assert_array_equal(kept, ARRAYS["a"])
        del kept
        self.wait_until(lambda: self.state() == "COMMITTED", "the lock stayed")

    def test_a_store_is_made_where_the_file_was(self):
        os.rmdir(self.path)
        gmsfs.numpy.save_file(ARRAYS, self.path)
        self.assertEqual(self.state(), "COMMITTED")

    def test_what_is_not_there_is_a_file_that_is_not_there(self):
        for call in (gmsfs.numpy.load_file, gmsfs.torch.load_file, gmsfs.safe_open):
            with self.assertRaises(FileNotFoundError) as caught:
                call(self.path + ".no")
            self.assertIsInstance(caught.exception, gmsfs.NotFound)
            self.assertIn("no such store", str(caught.exception))

    def test_tensors_that_share_memory_or_have_strides_are_stored(self):
        base = torch.arange(6.0).reshape(2, 3)
        gmsfs.torch.save_file({"a": base, "b": base, "turned": base.T}, self.path)
        found = gmsfs.torch.load_file(self.path, backend="mmap", timeout=TIMEOUT)
        self.assertEqual(found["a"].data_ptr(), found["b"].data_ptr())
        self.assertTrue(found["turned"].is_contiguous())
        self.assertTrue(torch.equal(found["turned"], base.T))
        found.clear()
