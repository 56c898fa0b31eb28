# SPDX-License-Identifier: Apache-2.0
"""Published values equal numpy.asarray(x).tolist(), also where several arrays share their memory."""

import itertools

import numpy

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

import gmsfs
from support import StoreCase

TYPES = "? u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 c8 c16".split()
ORDERS = "<>"


def views_of(array):
    """Returns {name: array} of views of one memory of 96 elements."""
    square = array.reshape(8, 12)
    window = numpy.lib.stride_tricks.sliding_window_view(array[:16], 9)
    return {
        "whole": array,
        "again": array[:],
        "square": square,
        "turned": square.T,
        "fortran": array.reshape(8, 12, order="F"),
        "backwards": array[::-1],
        "every third": square[::2, ::3],
        "from the second": array[1:],
        "one row": square[:1],
        "one column": square[:, :1],
        "repeated": numpy.broadcast_to(array[:5], (3, 5)),
        "overlapping": window,
        "cube": array.reshape(2, 4, 12).transpose(2, 0, 1)[:, ::-1],
        "one": array[3:4],
        "scalar": array[3],
        "no dimension": array[3:4].reshape(()),
        "none": array[:0],
        "none of many": square[:, :0],
    }


def all_names(memory):
    """Returns the same bytes as arrays of every type, byte order and view, aligned and off by one byte."""
    made = {}
    dtypes = [numpy.dtype(order + kind) for kind, order in itertools.product(TYPES, ORDERS)]
    if ml_dtypes:
        dtypes += [numpy.dtype(ml_dtypes.bfloat16), numpy.dtype(ml_dtypes.float8_e4m3fn)]
    for dtype in dtypes:
        for start in (0, 1):
            array = numpy.frombuffer(memory, dtype, 96, start)
            for name, view in views_of(array).items():
                made[f"{dtype.str} {dtype.name} {name} {start}"] = view
    return made


class Values(StoreCase):
    def check(self, arrays, **how):
        gmsfs.publish(self.path, arrays, **how)
        with gmsfs.open(self.path) as store:
            tensors = store.tensors(framework="numpy")
            self.assertEqual(set(tensors), set(arrays))
            for name, given in arrays.items():
                wanted, found = numpy.asarray(given), tensors[name]
                self.assertEqual(found.shape, wanted.shape, name)
                self.assertEqual(found.dtype, wanted.dtype.newbyteorder("="), name)
                # as text, for a NaN is not equal to itself
                self.assertEqual(repr(found.tolist()), repr(wanted.tolist()), name)
            del tensors, found

    def test_every_name_of_one_memory_has_the_values_that_it_had(self):
        random = numpy.random.default_rng(11)
        memory = random.integers(0, 2, 96 * 16 + 1, "u1")  # 0 and 1 only: a bool has no other values
        self.check(all_names(memory))
        self.check(all_names(random.integers(0, 2, 96 * 16 + 1, "u1")), chunk_bytes=1 << 14)

    def test_any_bits_come_back_whatever_the_order_of_the_names(self):
        random = numpy.random.default_rng(12)
        memory = random.integers(0, 256, 96 * 16 + 1, "u1")
        names = {name: view for name, view in all_names(memory).items() if "bool" not in name}
        for turn in range(2):
            order = list(names)
            random.shuffle(order)
            with self.subTest(turn=turn):
                self.check({name: names[name] for name in order})

    def test_views_of_one_type_and_place_are_stored_once(self):
        array = numpy.arange(1 << 18, dtype="<f4")
        same = {"a": array, "b": array[:], "c": array.view("<f4"), "big": array.view(">f4")}
        self.check(same)
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.info.total_bytes, 2 << 20)

    def test_subclasses_without_a_mask_are_arrays(self):
        class Named(numpy.ndarray):
            pass

        array = numpy.arange(6.0).reshape(2, 3)
        self.check({"named": array.view(Named), "plain": array, "turned": array.T.view(Named)})

    def test_what_has_no_value_in_a_store_is_refused_by_name(self):
        values = numpy.array([1.0, -999.0, 3.0])
        refused = {
            "masked": numpy.ma.array(values, mask=[0, 1, 0]),
            "without a mask": numpy.ma.array(values),
            "masked scalar": numpy.ma.masked,
            "hard": numpy.ma.array(values, mask=True, hard_mask=True)[1:],
            "objects": numpy.array([1, None], object),
            "object scalar": numpy.array(None),
            "fields": numpy.zeros(3, "f4,i4"),
            "one field": numpy.zeros(3, [("x", "f4")]),
            "text": numpy.array(["a"]),
            "bytes": numpy.array([b"a"]),
            "days": numpy.array(["2026-01-01"], "M8[D]"),
            "spans": numpy.zeros(3, "m8[s]"),
            "long": numpy.zeros(3, "g"),
            "void": numpy.zeros(3, "V4"),
        }
        if ml_dtypes:
            bfloat = numpy.zeros(3, ml_dtypes.bfloat16)
            refused["swapped"] = bfloat.view(bfloat.dtype.newbyteorder())
        gmsfs.publish(self.path, {"old": b"1"})
        for name, array in refused.items():
            with self.subTest(name):
                with self.assertRaisesRegex(gmsfs.BadArgument, f"tensor '{name}'"):
                    gmsfs.publish(self.path, {"fine": values, name: array}, timeout=0)
        with gmsfs.open(self.path) as store:
            self.assertEqual(list(store.views()), ["old"])
