# SPDX-License-Identifier: Apache-2.0
"""Metadata from untrusted writers: never a view beyond its allocation, always a clear error."""

import json
import random
import unittest

import gmsfs
from gmsfs import layout
from support import StoreCase

SIZE = 4096


def value(dtype="torch.uint8", shape=(1,), **more):
    return json.dumps(dict(dtype=dtype, shape=shape, **more)).encode()


def error_of(text, offset=0, size=SIZE):
    """Returns the error for a tensor with this value in an allocation of `size` bytes, or "" if valid."""
    try:
        layout.specs("/store", [layout.Entry("t", 0, offset, text)], [size])
    except gmsfs.BadMetadata as error:
        return str(error)
    return ""


class Values(unittest.TestCase):
    """Without a mount: the decoder alone."""

    def test_a_huge_shape_is_refused(self):
        self.assertIn("reaches beyond its allocation", error_of(value(shape=[1 << 40])))

    def test_a_shape_whose_product_overflows_is_refused(self):
        self.assertIn(
            "more elements than can be counted", error_of(value(shape=[1 << 32, 1 << 32]))
        )
        self.assertIn(
            "more elements than can be counted", error_of(value(shape=[0, 1 << 40, 1 << 40]))
        )
        self.assertIn("whole numbers from 0", error_of(value(shape=[1 << 64])))

    def test_a_negative_dimension_is_refused(self):
        self.assertIn("whole numbers from 0", error_of(value(shape=[-1])))
        self.assertIn("whole numbers from 0", error_of(value(shape=[2, -4, -1])))

    def test_a_dimension_that_is_no_whole_number_is_refused(self):
        for dimension in (1.0, "1", None, True, [1]):
            self.assertIn("whole numbers from 0", error_of(value(shape=[dimension])))

    def test_too_many_dimensions_are_refused(self):
        self.assertIn("65 dimensions", error_of(value(shape=[1] * 65)))

    def test_an_unknown_dtype_is_refused_by_name(self):
        self.assertIn("'int3'", error_of(value(dtype="torch.int3")))
        self.assertIn("'nn'", error_of(value(dtype="torch.nn")))
        self.assertIn("'load'", error_of(value(dtype="load")))

    def test_an_offset_outside_of_the_allocation_is_refused(self):
        self.assertEqual(error_of(value(), SIZE - 1), "")
        self.assertIn("reaches beyond", error_of(value(), SIZE))
        self.assertIn("reaches beyond", error_of(value(), 2**64 - 1))
        self.assertIn("reaches beyond", error_of(value(dtype="float64"), SIZE - 7))

    def test_strides_that_reach_out_are_refused(self):
        self.assertEqual(error_of(value(shape=[2, 2], stride=[SIZE - 2, 1])), "")
        self.assertIn("reaches beyond", error_of(value(shape=[2, 2], stride=[SIZE - 1, 1])))
        self.assertIn("strides reach further", error_of(value(shape=[3], stride=[1 << 62])))
        self.assertIn(
            "strides reach further", error_of(value("float64", shape=[1], stride=[1 << 62]))
        )

    def test_strides_that_are_none_are_refused(self):
        for stride in ([-1], [1, 1], [], "1", [1.5], [True]):
            self.assertIn("strides are not", error_of(value(shape=[2], stride=stride)))

    def test_an_error_names_store_and_tensor(self):
        self.assertTrue(error_of(value(shape=[-1])).startswith("/store: tensor 't': "))


def random_number(dice):
    return dice.choice(
        [
            0,
            1,
            2,
            3,
            7,
            64,
            4095,
            4096,
            4097,
            2**31,
            2**32 - 1,
            2**62,
            2**63 - 1,
            2**63,
            2**64 - 1,
            2**64,
            10**30,
            -1,
            -(2**63),
            1.5,
            True,
            None,
            "x",
            dice.randrange(5000),
        ]
    )


def random_value(dice):
    value = {
        "dtype": dice.choice(
            [
                "torch.float32",
                "uint8",
                "torch.complex128",
                "torch.bool",
                "",
                "torch.",
                "torch.bfloat16",
                "float4_e2m1fn_x2",
                5,
                "torch.float64",
            ]
        ),
        "shape": [random_number(dice) for _ in range(dice.choice([0, 1, 1, 2, 3, 40]))],
    }
    if dice.random() < 0.6:
        value["stride"] = [
            random_number(dice) for _ in range(len(value["shape"]) + dice.choice([0, 0, 0, 1]))
        ]
    if dice.random() < 0.05:
        value = dice.choice(
            [[], "x", 5, {"shape": []}, {"dtype": "uint8"}, {"dtype": "uint8", "shape": {}}]
        )
    text = bytearray(json.dumps(value).encode())
    while dice.random() < 0.1:
        text[dice.randrange(len(text))] = dice.randrange(256)
    return bytes(text)


class Random(StoreCase):
    def test_random_values_never_reach_outside(self):
        dice = random.Random(3)
        accepted = 0
        for _ in range(8_000):
            text, offset = random_value(dice), dice.choice(
                [0, 1, 4095, 4096, 4097, 2**63, dice.randrange(5000)]
            )
            try:
                specs = layout.specs("/store", [layout.Entry("t", 0, offset, text)], [SIZE])
            except gmsfs.BadMetadata:
                continue
            for spec in specs:
                accepted += 1
                self.assertLessEqual(spec.offset + spec.nbytes, SIZE, text)
                if 0 not in spec.shape:
                    last = sum((n - 1) * step for n, step in zip(spec.shape, spec.stride))
                    self.assertEqual(
                        (last + 1) * layout.dtypes.item_bytes(spec.dtype), spec.nbytes, text
                    )
        self.assertGreater(accepted, 40)

    def test_random_values_in_a_store_give_arrays_within_it_or_an_error(self):
        dice = random.Random(4)
        entries = {
            f"t{i:04}": (random_value(dice), dice.choice([0, 1, 4095, dice.randrange(4096)]))
            for i in range(600)
        }
        self.commit_raw(entries, SIZE)
        made = 0
        with gmsfs.open(self.path) as store:
            (buffer,) = store.buffers()
            for name in entries:
                try:
                    array = store.tensors(names=[name])[name]
                except (gmsfs.BadMetadata, KeyError):
                    continue
                made += 1
                if array.size:
                    self.assertGreaterEqual(array.ctypes.data, buffer.address)
                    last = array[tuple(n - 1 for n in array.shape)]
                    self.assertEqual(last.nbytes, array.itemsize)  # touched
                del array
            del buffer
        self.assertGreater(made, 8)


class Whole(StoreCase):
    def test_a_bad_tensor_is_named_and_the_others_can_be_had(self):
        self.commit_raw({"bad": (value(shape=[1 << 40]), 0), "good": (value(shape=[4]), 0)})
        with gmsfs.open(self.path) as store:
            with self.assertRaisesRegex(gmsfs.BadMetadata, "tensor 'bad': it reaches beyond"):
                store.tensors()
            self.assertEqual(list(store.tensors(names=["good"])), ["good"])
