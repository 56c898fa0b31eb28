# SPDX-License-Identifier: Apache-2.0
"""Reading tensors that `gmsfs load` put into a store, as NumPy arrays and as bytes."""

import errno
import gc
import os
import sys
import types
from unittest import mock

import numpy

import gmsfs
from gmsfs import memory
from support import TIMEOUT, StoreCase, python


def sample():
    """A tensor of every type that safetensors has, and odd shapes."""
    random = numpy.random.default_rng(5)
    sizes = {
        "BOOL": 1,
        "U8": 1,
        "I8": 1,
        "U16": 2,
        "I16": 2,
        "U32": 4,
        "I32": 4,
        "U64": 8,
        "I64": 8,
        "F16": 2,
        "BF16": 2,
        "F32": 4,
        "F64": 8,
        "C64": 8,
        "F8_E4M3": 1,
        "F8_E5M2": 1,
        "F8_E8M0": 1,
        "F8_E4M3FNUZ": 1,
        "F8_E5M2FNUZ": 1,
    }
    tensors = {}
    for dtype, size in sizes.items():
        data = (
            random.integers(0, 2, 15, dtype=numpy.uint8)
            if dtype == "BOOL"
            else random.bytes(15 * size)
        )
        tensors[f"of.{dtype}"] = (dtype, [3, 5], bytes(data))
    tensors["packed"] = ("F4", [2, 6], random.bytes(6))
    tensors["scalar"] = ("F32", [], random.bytes(4))
    tensors["empty"] = ("F32", [0, 7], b"")
    tensors["large/with a slash"] = ("F32", [1000, 1000], random.bytes(4_000_000))
    return tensors


class Frameworks(StoreCase):
    def test_tensors_are_torch_s_where_the_program_has_imported_it(self):
        asked = []

        class Wrapper:
            def tensors(self, path, buffers, specs):
                return {}

        def wrapper(framework):
            asked.append(framework)
            return Wrapper()

        self.commit_raw({})
        with mock.patch("gmsfs.store._wrapper", wrapper), gmsfs.open(self.path) as store:
            for modules in {"torch": types.ModuleType("torch")}, {}:
                with mock.patch.dict(sys.modules):
                    sys.modules.pop("torch", None)
                    sys.modules.update(modules)
                    store.tensors()
                    store.copy_private()
                    store.tensors("numpy")
        self.assertEqual(asked, ["torch", "torch", "numpy"] + ["numpy"] * 3)


class Reading(StoreCase):
    def test_arrays_have_the_bytes_of_the_file(self):
        tensors = sample()
        self.load(tensors)
        with gmsfs.open(self.path) as store:
            arrays = store.tensors()
            self.assertEqual(set(arrays), set(tensors))
            for name, (_, _, data) in tensors.items():
                self.assertEqual(arrays[name].tobytes(), data, name)
            del arrays

    def test_arrays_have_the_shapes_and_types_of_the_file(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            arrays = store.tensors()
            self.assertEqual(arrays["of.F32"].dtype, numpy.float32)
            self.assertEqual(arrays["of.BOOL"].dtype, numpy.bool_)
            self.assertEqual(arrays["of.C64"].dtype, numpy.complex64)
            try:
                import ml_dtypes

                bfloat16 = ml_dtypes.bfloat16
            except ImportError:
                bfloat16 = numpy.uint16
            self.assertEqual(arrays["of.BF16"].dtype, bfloat16)
            self.assertEqual(arrays["of.F32"].shape, (3, 5))
            self.assertEqual(arrays["scalar"].shape, ())
            self.assertEqual(arrays["empty"].shape, (0, 7))
            self.assertEqual(arrays["packed"].shape, (2, 3))
            del arrays

    def test_views_have_the_bytes_without_any_framework(self):
        tensors = sample()
        self.load(tensors)
        with gmsfs.open(self.path) as store:
            for name, view in store.views().items():
                self.assertEqual(bytes(view), tensors[name][2], name)
                self.assertTrue(view.readonly)
            del view
        program = (
            "import sys, gmsfs\n"
            "with gmsfs.open(sys.argv[1]) as store:\n"
            "    print(len(store.views()), 'numpy' in sys.modules, 'torch' in sys.modules)\n"
        )
        self.assertEqual(python(program, self.path).split(), [str(len(tensors)), "False", "False"])

    def test_a_framework_that_is_not_there_is_named_with_the_way_out(self):
        self.load(sample())
        program = (
            "import sys, gmsfs\n"
            "sys.modules['numpy'] = None\n"
            "with gmsfs.open(sys.argv[1]) as store:\n"
            "    try: store.tensors()\n"
            "    except ImportError as error: print(error.name, error)\n"
        )
        self.assertRegex(python(program, self.path), r"^numpy .*views\(\)")
        with gmsfs.open(self.path) as store:
            with self.assertRaisesRegex(ValueError, '"torch" or "numpy"'):
                store.tensors("jax")

    def test_a_reader_cannot_write_to_an_array(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            array = store.tensors()["of.F32"]
            self.assertFalse(array.flags.writeable)
            with self.assertRaises(ValueError):
                array[0, 0] = 1
            with self.assertRaises(ValueError):
                array.flags.writeable = True
            del array

    def test_an_array_outlives_the_store_and_the_memory_goes_with_it(self):
        tensors = sample()
        self.load(tensors)
        with gmsfs.open(self.path) as store:
            array = store.tensors()["large/with a slash"][10:]
        address = array.ctypes.data
        self.assertEqual(self.state(), "COMMITTED")
        gc.collect()
        self.assertEqual(array.tobytes(), tensors["large/with a slash"][2][40_000:])
        self.assertTrue(mapped(address))
        del array
        self.assertFalse(mapped(address))

    def test_a_store_that_nobody_closed_keeps_its_lock_as_long_as_its_arrays(self):
        self.load(sample())
        array = gmsfs.open(self.path).tensors()["of.F32"]
        self.assertEqual(self.state(), "RO")
        del array
        self.assertEqual(self.state(), "COMMITTED")

    def test_an_exception_that_unwinds_frees_the_arrays_and_stays_what_it_is(self):
        self.load(sample())
        for _ in range(20):
            with self.assertRaises(ZeroDivisionError):
                [
                    gmsfs.open(self.path, timeout=TIMEOUT).tensors(),
                    gmsfs.open(self.path).views(),
                    1 // 0,
                ]
        self.assertEqual(self.state(), "COMMITTED")

    def test_all_calls_give_the_same_memory(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            first, second = store.tensors(), store.tensors()
            self.assertEqual(first["of.F32"].ctypes.data, second["of.F32"].ctypes.data)
            del first, second

    def test_names_choose_tensors(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            self.assertEqual(list(store.tensors(names=["scalar"])), ["scalar"])
            with self.assertRaisesRegex(KeyError, "no-such"):
                store.tensors(names=["scalar", "no-such"])

    def test_specs_say_where_each_tensor_lies(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            spec = store.specs()["large/with a slash"]
            self.assertEqual(
                (spec.dtype, spec.shape, spec.stride), ("float32", (1000, 1000), (1000, 1))
            )
            self.assertEqual(spec.nbytes, 4_000_000)
            buffer = store.buffers()[spec.rank]
            array = store.tensors(names=[spec.name])[spec.name]
            self.assertEqual(array.ctypes.data, buffer.address + spec.offset)
            del buffer, array

    def test_entries_that_are_no_tensors_are_left_out(self):
        self.commit_raw(
            {
                "text": (b"hello", 0),
                "number": (b"5", 0),
                "list": (b"[1]", 0),
                "other": (b'{"dtype":1,"shape":[2]}', 0),
                "binary": (b"\xff\x00", 0),
                "twice": (b'{"dtype":"uint8","dtype":"int8","shape":[2]}', 0),
                "deep": (b"[" * 100_000, 0),
                "uint": (b'{"dtype":"uint8","shape":[2]}', 0),
                "without a value": (b"", 0),
            }
        )
        with gmsfs.open(self.path) as store:
            self.assertEqual(list(store.tensors()), ["uint"])

    def test_an_array_may_lie_at_any_offset(self):
        self.commit_raw({"odd": (b'{"dtype":"torch.float64","shape":[3]}', 13)})
        with gmsfs.open(self.path) as store:
            array = store.tensors()["odd"]
            self.assertFalse(array.flags.aligned)
            self.assertEqual(array.tolist(), [0.0, 0.0, 0.0])
            del array

    def test_strides_are_followed(self):
        self.commit_raw({"t": (b'{"dtype":"torch.uint8","shape":[4,2],"stride":[1,4]}', 0)})
        with gmsfs.open(self.path) as store:
            array = store.tensors()["t"]
            self.assertEqual(array.strides, (1, 4))
            self.assertEqual(store.specs()["t"].nbytes, 8)
            del array

    def test_memory_of_a_newer_daemon_is_refused_with_a_reason(self):
        self.assertEqual(memory.name_of(0), "host")
        self.assertEqual(memory.name_of(7), "7")
        with self.assertRaisesRegex(OSError, "of kind 7, and this package knows host, cuda") as caught:
            memory.find(self.path, memory.name_of(7))
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)

    def test_dlpack_hands_on_the_same_memory(self):
        self.load(sample())
        with gmsfs.open(self.path) as store:
            buffer = store.buffers()[0]
            self.assertEqual(buffer.__dlpack_device__(), (1, 0))
            if numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":
                array = numpy.from_dlpack(buffer)
                self.assertEqual(array.ctypes.data, buffer.address)
                self.assertFalse(array.flags.writeable)
                del array
            del buffer

    def test_several_processes_read_at_once(self):
        self.load(sample())
        program = (
            "import sys, gmsfs\n"
            "with gmsfs.open(sys.argv[1]) as store: print(store.info.readers)\n"
        )
        with gmsfs.open(self.path) as store:
            self.assertEqual(python(program, self.path).strip(), "2")
            self.assertEqual(store.info.readers, 1)


def mapped(address):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            low, high = (int(text, 16) for text in line.split()[0].split("-"))
            if low <= address < high:
                return True
    return False


class Looking(StoreCase):
    def test_the_store_tells_what_the_files_tell(self):
        self.load({"t": ("U8", [4], b"abcd")}, {"format": "pt"})
        with gmsfs.open(self.path) as store:
            with open(os.path.join(self.path, "layout_hash"), encoding="ascii") as file:
                self.assertEqual(store.layout_hash, file.read().strip())
            self.assertEqual((store.state, store.mode, store.generation), ("RO", "ro", 1))
            info = store.info
            self.assertEqual(
                (info.memory, info.committed, info.allocations, info.entries), ("host", True, 1, 2)
            )
            self.assertEqual(store.metadata["__metadata__"], b'{"format":"pt"}')
