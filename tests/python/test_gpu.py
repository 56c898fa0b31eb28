# SPDX-License-Identifier: Apache-2.0
"""Stores in GPU memory without torch, on the second GPU of the fake driver; its device addresses are
addresses of this process."""

import ctypes
import errno
import os

import gmsfs
from gmsfs import private
from gmsfs.buffers import Writable
from support import TIMEOUT, StoreCase, python

DATA = bytes(range(256)) * 100


class FakeGpu(StoreCase):
    def setUp(self):
        super().setUp()
        self.load({"first": ("U8", [5], b"12345"), "second": ("U8", [len(DATA)], DATA)})

    def test_buffers_say_device_and_address_as_cuda_libraries_ask_for_them(self):
        with gmsfs.open(self.path) as store:
            (buffer,) = store.buffers()
            self.assertEqual(buffer.device, 1)
            self.assertEqual(buffer.__dlpack_device__(), (2, 1))
            interface = buffer.__cuda_array_interface__
            self.assertEqual(interface["data"], (buffer.address, True))
            self.assertEqual((interface["shape"], interface["typestr"]), ((buffer.nbytes,), "|u1"))
            self.assertFalse(Writable(buffer).__cuda_array_interface__["data"][1])
            spec = store.specs()["second"]
            self.assertEqual(ctypes.string_at(buffer.address + spec.offset, spec.nbytes), DATA)
            del buffer

    def test_the_device_is_counted_as_this_process_counts(self):
        program = (
            "import sys, gmsfs\n"
            "with gmsfs.open(sys.argv[1]) as store: print(store.buffers()[0].device)\n"
        )
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        try:
            self.assertEqual(python(program, self.path), "0\n")
        finally:
            del os.environ["CUDA_VISIBLE_DEVICES"]

    def test_a_device_that_this_process_may_not_see_is_said_to_be_so(self):
        program = (
            "import sys, gmsfs\n"
            "with gmsfs.open(sys.argv[1]) as store:\n"
            "    try: store.buffers()\n"
            "    except gmsfs.DeviceError as error: print(error)\n"
        )
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        try:
            self.assertIn("CUDA_VISIBLE_DEVICES", python(program, self.path))
        finally:
            del os.environ["CUDA_VISIBLE_DEVICES"]

    def test_python_itself_does_not_read_gpu_memory(self):
        with gmsfs.open(self.path) as store:
            for use in (store.views, lambda: store.tensors("numpy")):
                with self.assertRaisesRegex(gmsfs.Error, "it is GPU memory") as caught:
                    use()
                self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)

    def test_private_copies_are_of_the_device_and_can_be_written_to(self):
        with gmsfs.open(self.path) as store:
            buffers, specs = store._attach(["second"])
            copies, (spec,) = private.copy(store._live(), buffers, specs)
            copied = copies[spec.rank]
            self.assertEqual((copied.device, copied.__dlpack_device__()), (1, (2, 1)))
            self.assertEqual(copied.__cuda_array_interface__["data"], (copied.address, False))
            self.assertEqual(ctypes.string_at(copied.address + spec.offset, spec.nbytes), DATA)
            ctypes.memset(copied.address, 7, spec.nbytes)
            self.assertEqual(ctypes.string_at(buffers[0].address + specs[0].offset, 4), DATA[:4])
            self.assertGreaterEqual(store.memory_info.private_bytes, len(DATA))
            del copied, copies
            self.assertEqual(store.memory_info.private_bytes, 0)

    def test_a_tag_sleeps_and_wakes_and_memory_is_made_anew_at_its_address(self):
        with gmsfs.open(self.path) as store:
            (buffer,) = store.buffers()
            (tag,) = {info.tag.decode() for info in store._list(store._live())}
            store.sleep(tag=tag)
            with self.assertRaisesRegex(gmsfs.NoLock, "sleeps with tag"):
                store.specs()
            store.wake(tag=tag)
            self.assertIn(DATA, ctypes.string_at(buffer.address, buffer.nbytes))
            store.sleep()
            store.reallocate(TIMEOUT)
            self.assertEqual(store.buffers()[0].address, buffer.address)
            self.assertEqual(ctypes.string_at(buffer.address, buffer.nbytes), bytes(buffer.nbytes))

    def test_publishing_without_torch_is_refused_and_leaves_what_was_there(self):
        program = (
            "import sys, gmsfs\n"
            "sys.modules['torch'] = None\n"  # as if it were not installed
            "try: gmsfs.publish(sys.argv[1], {'t': b'new'})\n"
            "except gmsfs.Error as error: print(error)\n"
        )
        self.assertIn("needs torch to be written", python(program, self.path))
        with gmsfs.open(self.path) as store:
            self.assertEqual(set(store.specs()), {"first", "second"})

    def test_sleep_gives_the_memory_back_and_wake_brings_the_same_addresses(self):
        with gmsfs.open(self.path) as store:
            address = store.buffers()[0].address
            store.sleep()
            store.wake(TIMEOUT)
            self.assertEqual(store.buffers()[0].address, address)
            self.assertEqual(ctypes.string_at(address, 5), b"12345")

    def test_an_error_has_what_the_driver_said(self):
        control = os.path.join(os.environ["GMSFS_FAKE_CUDA"], "control")
        with open(control, encoding="ascii") as file:
            healthy = file.read()
        with gmsfs.open(self.path) as store:
            write(control, healthy + "fail cuMemMap 2 1 1\n")
            try:
                with self.assertRaises(gmsfs.Error) as caught:
                    store.buffers()
            finally:
                write(control, healthy)
            self.assertIn("cuMemMap", caught.exception.device_error)
            self.assertIn("cuMemMap", str(caught.exception))
            self.assertEqual(len(store.buffers()), 1)


def write(path, text):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(path + ".new", path)
