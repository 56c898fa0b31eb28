# SPDX-License-Identifier: Apache-2.0
"""gmsfs.safe_open: a store by the words of safetensors.safe_open."""

import os
import struct
from unittest import mock

import numpy

import gmsfs
from support import SCRATCH, StoreCase, command, write_model

NUMBERS = numpy.arange(24, dtype="float32").reshape(4, 6)


class SafeOpen(StoreCase):
    def setUp(self):
        super().setUp()
        model = write_model(
            os.path.join(SCRATCH, self._testMethodName + ".safetensors"),
            {
                "z": ("F32", [4, 6], NUMBERS.tobytes()),
                "a": ("BF16", [2], struct.pack("<2H", 0x3F80, 0x4000)),
            },
            {"format": "pt"},
        )
        command("load", "-q", self.path, model)

    def test_names_and_metadata_are_the_file_s(self):
        with gmsfs.safe_open(self.path, framework="np") as file:
            self.assertEqual(file.keys(), ["a", "z"])
            self.assertEqual(file.offset_keys(), ["z", "a"])
            self.assertEqual(file.metadata(), {"format": "pt"})

    def test_tensors_are_the_memory_itself(self):
        with gmsfs.safe_open(self.path, framework="np") as file:
            first, second = file.get_tensor("z"), file.get_tensor("z")
            numpy.testing.assert_array_equal(first, NUMBERS)
            self.assertTrue(numpy.shares_memory(first, second))
            everything = file.get_tensors()
            self.assertEqual(list(everything), file.offset_keys())
            self.assertTrue(numpy.shares_memory(everything["z"], first))

    def test_it_offers_all_that_the_one_of_safetensors_does(self):
        try:
            import safetensors
        except ImportError:
            self.skipTest("safetensors is not there")
        theirs = {name for name in dir(safetensors.safe_open) if not name.startswith("_")}
        self.assertEqual(theirs - set(dir(gmsfs.safe_open)), set())

    def test_a_slice_knows_shape_and_type_and_gives_pieces(self):
        with gmsfs.safe_open(self.path, framework="np") as file:
            piece = file.get_slice("z")
            self.assertEqual((piece.get_shape(), piece.get_dtype()), ([4, 6], "F32"))
            numpy.testing.assert_array_equal(piece[1:3, 2:], NUMBERS[1:3, 2:])
            self.assertTrue(numpy.shares_memory(piece[:2], file.get_tensor("z")))
            self.assertEqual(file.get_slice("a").get_dtype(), "BF16")

    def test_a_device_may_be_named_as_for_a_file(self):
        for arguments, options in ((("np", "cpu"), {}), (("np",), {"device": "cpu"})):
            with gmsfs.safe_open(self.path, *arguments, **options) as file:
                numpy.testing.assert_array_equal(file.get_tensor("z"), NUMBERS)
        with self.assertRaisesRegex(ValueError, 'device is "cpu", not 0'):
            gmsfs.safe_open(self.path, "np", device=0)

    def test_a_tensor_of_another_device_is_moved_there_and_of_a_slice_that_piece_alone(self):
        moved = []

        class Tensor:
            def __init__(self, said):
                self.said = said

            def __getitem__(self, index):
                return Tensor((self.said, index))

            def to(self, device):
                moved.append((self.said, device))
                return self

        def tensors(store, framework, names):
            self.assertEqual(framework, "torch")
            return {name: Tensor(name) for name in names}

        with mock.patch.object(gmsfs.Store, "tensors", tensors):
            with gmsfs.safe_open(self.path, "pt", device=1) as file:
                file.get_tensor("a")
                file.get_slice("z")[2]
            with gmsfs.safe_open(self.path, "pt") as file:
                file.get_tensor("a")
        self.assertEqual(moved, [("a", 1), (("z", 2), 1)])

    def test_what_is_not_there_is_named(self):
        with gmsfs.safe_open(self.path, framework="np") as file:
            for way in (file.get_tensor, file.get_slice):
                with self.assertRaisesRegex(KeyError, "no tensor is called 'q'"):
                    way("q")
        with self.assertRaisesRegex(ValueError, "framework"):
            gmsfs.safe_open(self.path, framework="tf")

    def test_without_metadata_there_is_none(self):
        gmsfs.publish(self.path, {"t": b"1"})
        with gmsfs.safe_open(self.path, framework="np") as file:
            self.assertIsNone(file.metadata())
