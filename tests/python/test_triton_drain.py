# SPDX-License-Identifier: Apache-2.0
"""A region that is unregistered while inferences use it, on a server whose inferences take a while."""

import concurrent.futures
import threading
import time

import numpy as np
import tritonclient.utils.shared_memory as shm

from triton_support import KINDS, Client, TritonTest, values


class Drain(TritonTest):
    def begin(self, kind, connected, go):
        """An inference that is under way once `go` is set, over a connection that is made before."""
        with Client(kind) as client:
            client.is_server_live()
            connected.set()
            go.wait()
            inputs, outputs = client.tensors()
            for i in range(2):
                inputs[i].set_shared_memory("in", 64, offset=64 * i)
                outputs[i].set_shared_memory("out", 64, offset=64 * i)
            client.infer("simple", inputs, outputs=outputs)

    def connect(self, pool, kind):
        """Returns a future of an inference, and a function that starts it and waits until it has most
        probably begun: no client is told when the server holds its regions."""
        connected, go = threading.Event(), threading.Event()
        future = pool.submit(self.begin, kind, connected, go)
        self.assertTrue(connected.wait(30), f"{kind}: not connected")

        def start():
            go.set()
            time.sleep(0.4)
        return future, start

    def prepare(self, client):
        names = []
        for name in ("in", "out"):
            key, handle = self.object(f"{name}{time.monotonic_ns()}", 128)
            client.register_system_shared_memory(name, key, 128)
            names.append(handle)
        return names

    def wait_gone(self, client, name):
        for _ in range(1000):
            if name not in client.status():
                return
            time.sleep(0.01)
        self.fail(f"{name} stays")

    def test_it_stays_until_the_last_request_ends_and_serves_new_ones(self):
        for kind in KINDS:
            with self.subTest(kind), Client("http") as client, \
                    concurrent.futures.ThreadPoolExecutor(2) as pool:
                source, target = self.prepare(client)
                left, right = values()
                shm.set_shared_memory_region(source, [left, right])
                first, start_first = self.connect(pool, kind)
                second, start_second = self.connect(pool, kind)
                start_first()
                client.unregister_system_shared_memory("in")
                self.assertFalse(first.done())
                self.assertIn("in", client.status())
                start_second()
                first.result()
                self.assertFalse(second.done())
                self.assertIn("in", client.status())
                second.result()
                self.wait_gone(client, "in")
                self.assertIn("out", client.status())
                np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.int32, [1, 16], 0),
                                              left + right)
                client.unregister_system_shared_memory()
                self.wait_gone(client, "out")

    def test_a_client_that_leaves_lets_go(self):
        with Client("http") as client:
            self.prepare(client)
            with Client("grpc") as leaver:
                inputs, _ = leaver.tensors()
                inputs[0].set_shared_memory("in", 64)
                inputs[1].set_shared_memory("in", 64)
                leaver.client.async_infer("simple", inputs, callback=lambda result, error: None)
                time.sleep(0.3)
                client.unregister_system_shared_memory("in")
                self.assertIn("in", client.status())
            self.wait_gone(client, "in")
