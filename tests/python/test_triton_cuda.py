# SPDX-License-Identifier: Apache-2.0
"""CUDA memory of a client's, registered by its handle with NVIDIA's client, on the fake driver or a real
one."""

import base64
import os
import signal
import threading
import time
import unittest

import numpy as np
from tritonclient.utils import InferenceServerException

from cuda_sharer import Sharer
from triton_support import KINDS, Client, TritonTest

BOUND = "failed to register shared memory region 'c': invalid args"
NO_HANDLE = "failed to register shared memory region: invalid args"
FRONT_END = int(os.environ["GMSFS_TEST_TRITON"])
LOG = os.environ["GMSFS_TEST_LOG"]
DEVICES = int(os.environ.get("GMSFS_TEST_DEVICES", "1"))


def helpers():
    """The processes that have CUDA memory open."""
    with open(f"/proc/{FRONT_END}/task/{FRONT_END}/children", encoding="ascii") as file:
        pids = [int(word) for word in file.read().split()]
    return [pid for pid in pids if name_of(pid) == "gmsfs-cuda"]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def wait_until(condition):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it does not come about")


class Cuda(TritonTest):
    def tearDown(self):
        with Client("http") as client:
            client.unregister_cuda_shared_memory()
        super().tearDown()

    def for_each(self):
        for client in super().for_each():
            yield client
            client.unregister_cuda_shared_memory()
            self.assertEqual(client.status(cuda=True), {})

    def infer(self, client, source="in", target="out", offset=64):
        inputs, outputs = client.tensors()
        inputs[0].set_shared_memory(source, 64)
        inputs[1].set_shared_memory(source, 64, offset=offset)
        outputs[0].set_shared_memory(target, 64)
        outputs[1].set_shared_memory(target, 64, offset=64)
        return client.infer("simple", inputs, outputs=outputs)

    def check(self, sharer, target, left, right):
        numbers = [int(word) for word in sharer.ask("read", target).split()]
        np.testing.assert_array_equal(numbers, [*(left + right), *(left - right)])

    def test_cuda_memory_is_among_the_extensions(self):
        for client in self.for_each():
            self.assertIn("cuda_shared_memory", client.metadata()["extensions"])

    def test_bytes_come_from_a_clients_memory_and_go_there(self):
        for client in self.for_each():
            with Sharer() as sharer:
                _, source = sharer.share(128, 5)
                target, result = sharer.share(128)
                client.register_cuda_shared_memory("in", source, 0, 128)
                client.register_cuda_shared_memory("out", result, 0, 128)
                self.assertEqual(client.status(cuda=True), {
                    name: {"name": name, "device_id": 0, "byte_size": 128} for name in ("in", "out")})
                self.assertEqual(client.status("in", cuda=True)["in"]["byte_size"], 128)
                self.infer(client)
                self.check(sharer, target, np.arange(5, 21), np.arange(21, 37))
                client.unregister_cuda_shared_memory("in")
                self.refused(client, 404, "Unable to find shared memory region: 'in'", self.infer, client)

    def test_large_tensors_go_in_parts(self):
        rows = 3000
        with Sharer() as sharer, Client("grpc") as client:
            number, handle = sharer.share(4 * rows * 64, 1)
            client.register_cuda_shared_memory("all", handle, 0, 4 * rows * 64)
            inputs, outputs = client.tensors(rows)
            for i in range(2):
                inputs[i].set_shared_memory("all", rows * 64, offset=i * rows * 64)
                outputs[i].set_shared_memory("all", rows * 64, offset=(2 + i) * rows * 64)
            client.infer("add_sub_large", inputs, outputs=outputs)
            got = np.array(sharer.ask("read", number).split(), dtype=np.int64).reshape(4, -1)
            np.testing.assert_array_equal(got[2], got[0] + got[1])
            np.testing.assert_array_equal(got[3], got[0] - got[1])

    def test_host_and_cuda_regions_go_together(self):
        with Sharer() as sharer, Client("http") as client:
            _, handle = sharer.share(128, 1)
            key, _ = self.object("host", 128)
            client.register_cuda_shared_memory("in", handle, 0, 128)
            client.register_system_shared_memory("out", key, 128)
            self.infer(client)
            with open("/dev/shm" + key, "rb") as file:
                got = np.fromfile(file, dtype=np.int32)
            np.testing.assert_array_equal(got[:16], np.arange(1, 17) + np.arange(17, 33))

    def test_a_handle_that_nobody_made_and_one_byte_too_many_are_refused(self):
        for client in self.for_each():
            with Sharer() as sharer:
                _, handle = sharer.share(64)
                bad = base64.b64encode(b"\x01" * 64)
                register = client.register_cuda_shared_memory
                self.refused(client, 400, NO_HANDLE, register, "c", bad, 0, 64)
                self.refused(client, 400, BOUND, register, "c", handle, 0, 65)
                self.refused(client, 400, BOUND, register, "c", handle, 0, 2 ** 64 - 1)
                self.assertEqual(client.status(cuda=True), {})
                register("c", handle, 0, 64)
                text = "shared memory region 'c' already in manager"
                for wrong in (handle, bad):
                    self.refused(client, 400, text, register, "c", wrong, 0, 64, code="ALREADY_EXISTS")
                key, _ = self.object("c", 64)
                self.refused(client, 400, text, client.register_system_shared_memory, "c", key, 64,
                             code="ALREADY_EXISTS")
                client.unregister_system_shared_memory("c")  # of the other kind: silently nothing
                self.assertIn("c", client.status(cuda=True))

    def test_an_inference_reaches_no_further_than_what_was_registered(self):
        for client in self.for_each():
            with Sharer() as sharer:
                _, handle = sharer.share(4096)
                client.register_cuda_shared_memory("in", handle, 0, 128)
                client.register_cuda_shared_memory("out", handle, 0, 128)
                self.refused(client, 400, "Invalid offset + byte size for shared memory region: 'in'",
                             self.infer, client, offset=96)
                self.refused(client, 400, "Invalid offset for shared memory region: 'in'",
                             self.infer, client, offset=128)

    def test_one_handle_is_opened_once_and_closed_with_its_last_region(self):
        with Sharer() as sharer, Client("http") as client, Client("grpc") as other:
            number, handle = sharer.share(128, 3)
            client.register_cuda_shared_memory("a", handle, 0, 128)
            other.register_cuda_shared_memory("b", handle, 0, 64)
            client.unregister_cuda_shared_memory("a")
            inputs, _ = other.tensors()
            for tensor in inputs:
                tensor.set_shared_memory("b", 64)
            result = other.infer("simple", inputs)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0")[0], 2 * np.arange(3, 19))
            self.assertEqual(len(helpers()), 1)
            other.unregister_cuda_shared_memory("b")
            self.assertEqual(sharer.ask("free", number), "freed")

    @unittest.skipIf(DEVICES < 2, "one device")
    def test_the_device_is_the_handles_and_not_what_the_client_thinks(self):
        for ordinal, thought in ((1, 0), (0, 1), (1, 77)):
            with Sharer(ordinal) as sharer, Client("http") as client:
                number, handle = sharer.share(128, 9)
                target, result = sharer.share(128)
                client.register_cuda_shared_memory("in", handle, thought, 128)
                client.register_cuda_shared_memory("out", result, thought, 128)
                self.assertEqual(client.status(cuda=True)["in"]["device_id"], thought)
                self.infer(client)
                self.check(sharer, target, np.arange(9, 25), np.arange(25, 41))
                client.unregister_cuda_shared_memory()
                sharer.ask("free", number)

    def test_a_region_in_use_is_unregistered_when_the_last_request_ends(self):
        with Sharer() as sharer, Client("http") as client, Client("grpc") as other:
            _, handle = sharer.share(256, 2)
            client.register_cuda_shared_memory("in", handle, 0, 128)
            client.register_cuda_shared_memory("out", handle, 0, 128)
            answers = []
            inputs, _ = other.tensors()
            for tensor in inputs:
                tensor.set_shared_memory("in", 64)
            other.client.async_infer("simple", inputs,
                                     callback=lambda result, error: answers.append(error or result))
            region = os.environ["GMSFS_TEST_REGIONS"] + "/in"

            def is_used():
                with open(region, encoding="utf-8") as file:
                    return '"references": 1' in file.read()
            wait_until(is_used)
            client.unregister_cuda_shared_memory("in")
            self.assertIn("in", client.status(cuda=True))
            self.infer(client, target="in")  # a new one is served, too
            wait_until(lambda: answers)
            np.testing.assert_array_equal(answers[0].as_numpy("OUTPUT0")[0], 2 * np.arange(2, 18))
            wait_until(lambda: "in" not in client.status(cuda=True))

    def test_a_helper_that_dies_is_told_and_its_regions_are_opened_anew(self):
        with Sharer() as sharer:
            _, source = sharer.share(128, 5)
            target, result = sharer.share(128)
            with Client("http") as client:
                client.register_cuda_shared_memory("in", source, 0, 128)
                client.register_cuda_shared_memory("out", result, 0, 128)
            for kind in KINDS:
                with self.subTest(kind), Client(kind) as client:
                    old, = helpers()
                    os.kill(old, signal.SIGKILL)
                    wait_until(lambda: helpers() != [old])
                    self.infer(client)
                    self.check(sharer, target, np.arange(5, 21), np.arange(21, 37))
                    self.assertNotIn(old, helpers())
            with open(LOG, encoding="utf-8") as file:
                self.assertRegex(file.read(), r"CUDA memory of user \d+ open was ended by signal 9")
            sharer.close()  # and without the process that shared it nothing opens
            os.kill(helpers()[0], signal.SIGKILL)
            with Client("grpc") as client:
                wait_until(lambda: not helpers())
                self.refused(client, 400, "the CUDA memory of shared memory region 'in' opens no longer: "
                             "the process that shared it has freed it or ended", self.infer, client)

    def load(self, kind, source, over, seen):
        """Infers until `over` is set. Appends to `seen` each error, None for a right answer."""
        with Client(kind) as client:
            while not over.is_set():
                inputs, outputs = client.tensors()
                for i in range(2):
                    inputs[i].set_shared_memory(source, 64, offset=64 * i)
                try:
                    got = client.infer("simple", inputs, outputs=outputs).as_numpy("OUTPUT0")[0]
                    seen.append(None if list(got) == list(range(26, 58, 2)) else f"{source}: {got}")
                except InferenceServerException as error:
                    seen.append(error.message())
                except BaseException as error:  # told by the test, in its own thread
                    seen.append(repr(error))

    def test_a_helper_that_is_killed_again_and_again_under_load_costs_what_it_was_asked_and_no_more(self):
        over, kills = threading.Event(), 0
        with Sharer() as sharer, Client("http") as client:
            _, handle = sharer.share(128, 5)
            client.register_cuda_shared_memory("in", handle, 0, 128)
            key, _ = self.object("host", 128)
            with open("/dev/shm" + key, "wb") as file:
                np.arange(5, 37, dtype=np.int32).tofile(file)
            client.register_system_shared_memory("host", key, 128)
            before = len(os.listdir(f"/proc/{FRONT_END}/fd"))
            seen = {("in", kind): [] for kind in KINDS} | {("host", "http"): []}
            threads = [threading.Thread(target=self.load, args=(kind, source, over, into))
                       for (source, kind), into in seen.items()]
            for thread in threads:
                thread.start()
            try:
                while kills < 15:
                    done = len(seen["host", "http"])
                    for pid in helpers():
                        os.kill(pid, signal.SIGKILL)
                        kills += 1
                    wait_until(lambda: helpers() and len(seen["host", "http"]) > done)
                wait_until(lambda: all(None in seen["in", kind] for kind in KINDS))
            finally:
                over.set()
                for thread in threads:
                    thread.join()
            self.assertEqual([answer for answer in seen["host", "http"] if answer], [])
            for kind in KINDS:
                self.assertIn(None, seen["in", kind], kind)
                for answer in filter(None, seen["in", kind]):
                    self.assertRegex(answer, "has ended; (ask again|the next request opens it again)")
            self.infer(client, target="in")
            client.unregister_cuda_shared_memory()
            self.assertEqual(client.status(cuda=True), {})
            wait_until(lambda: len(os.listdir(f"/proc/{FRONT_END}/fd")) <= before)

    def test_what_is_removed_in_the_tree_is_closed(self):
        with Sharer() as sharer, Client("http") as client:
            number, handle = sharer.share(128, 5)
            client.register_cuda_shared_memory("in", handle, 0, 128)
            os.unlink(os.environ["GMSFS_TEST_REGIONS"] + "/in")
            self.assertEqual(client.status(cuda=True), {})
            machine = os.environ.get("GMSFS_FAKE_CUDA")
            if machine:
                pid, = helpers()
                wait_until(lambda: machine not in open(f"/proc/{pid}/maps", encoding="utf-8").read())
            sharer.ask("free", number)
