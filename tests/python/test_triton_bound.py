# SPDX-License-Identifier: Apache-2.0
"""The time that an unregistered region still serves, on a server with inferences of 20 s and a
--drain-timeout of 1 s."""

import concurrent.futures
import os
import time

from tritonclient.utils import InferenceServerException

from triton_support import KINDS, Client, TritonTest

GONE = "Unable to find shared memory region: 'in'"
REGIONS = os.environ["GMSFS_TEST_REGIONS"]


class Bound(TritonTest):
    def infer(self, kind, name):
        """Returns the answer to an inference on a region, and its duration."""
        start = time.monotonic()
        with Client(kind) as client:
            inputs, _ = client.tensors()
            for tensor in inputs:
                tensor.set_shared_memory(name, 64)
            try:
                client.infer("simple", inputs)
                text = ""
            except InferenceServerException as error:
                text = error.message()
        return text, time.monotonic() - start

    def wait_used(self, name, count):
        for _ in range(1000):
            with open(f"{REGIONS}/{name}", encoding="utf-8") as file:
                if f'"references": {count},' in file.read():
                    return
            time.sleep(0.01)
        self.fail(f"{name} is not used by {count}")

    def check_gone(self, client, start):
        self.assertGreater(time.monotonic() - start, 0.9)
        for _ in range(500):
            if "in" not in client.status():
                break
            time.sleep(0.01)
        self.assertLess(time.monotonic() - start, 8)
        self.assertFalse(os.path.exists(f"{REGIONS}/in"))

    def test_requests_that_use_it_and_new_ones_find_it_no_longer_when_its_time_is_over(self):
        for kind in KINDS:
            with self.subTest(kind), Client("http") as client, \
                    concurrent.futures.ThreadPoolExecutor(2) as pool:
                key, _ = self.object("in", 128)
                client.register_system_shared_memory("in", key, 128)
                first = pool.submit(self.infer, kind, "in")
                self.wait_used("in", 1)
                start = time.monotonic()
                client.unregister_system_shared_memory("in")
                second = pool.submit(self.infer, kind, "in")
                self.wait_used("in", 2)
                for waiting in (first, second):
                    text, took = waiting.result()
                    self.assertEqual(text, GONE)
                    self.assertLess(took, 10)
                self.check_gone(client, start)
                self.assertEqual(self.infer(kind, "in")[0], GONE)
                client.register_system_shared_memory("in", key, 128)
                client.unregister_system_shared_memory()
                self.assertEqual(client.status(), {})

    def test_one_removed_in_the_tree_has_its_time_from_the_next_request_on(self):
        with Client("http") as client, concurrent.futures.ThreadPoolExecutor(2) as pool:
            key, _ = self.object("in", 128)
            client.register_system_shared_memory("in", key, 128)
            first = pool.submit(self.infer, "http", "in")
            self.wait_used("in", 1)
            os.unlink(f"{REGIONS}/in")
            start = time.monotonic()
            self.assertEqual(self.infer("grpc", "in")[0], GONE)
            self.assertEqual(first.result()[0], GONE)
            self.check_gone(client, start)

    def test_regions_that_are_registered_are_used_for_as_long_as_it_takes(self):
        with Client("http") as client, concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name in ("in", "other"):
                key, _ = self.object(name, 128)
                client.register_system_shared_memory(name, key, 128)
            pool.submit(self.infer, "http", "in")
            self.wait_used("in", 1)
            client.unregister_system_shared_memory("in")
            other = pool.submit(self.infer, "grpc", "other")
            text, took = other.result()
            self.assertEqual(text, "")
            self.assertGreater(took, 19)
