# SPDX-License-Identifier: Apache-2.0
"""Each of the four kinds of NVIDIA's client alone: regions, inference on them, and every error text that
Triton's own tests match."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import tritonclient.utils.shared_memory as shm

from triton_support import PREFIX, Client, TritonTest, is_there, values

TOO_MUCH = 2**64 - 32


class Health(TritonTest):
    def test_server_and_models_are_live_and_ready(self):
        for client in self.for_each():
            self.assertTrue(client.is_server_live())
            self.assertTrue(client.is_server_ready())
            self.assertTrue(client.is_model_ready("simple"))
            self.assertTrue(client.is_model_ready("add_sub_large", "1"))
            self.assertFalse(client.is_model_ready("simple", "2"))
            self.assertFalse(client.is_model_ready("other"))

    def test_metadata_name_what_is_served(self):
        for client in self.for_each():
            said = client.metadata()
            self.assertEqual(said["name"], "gmsfs")
            self.assertEqual(said["extensions"], ["system_shared_memory"])


class Regions(TritonTest):
    def test_what_is_registered_is_listed_until_it_is_unregistered(self):
        key, _ = self.object("a", 128)
        for client in self.for_each():
            client.register_system_shared_memory("b", key, 64, offset=64)
            client.register_system_shared_memory("a", key, 128)
            self.assertEqual(client.status(), {
                "a": {"name": "a", "key": key, "offset": 0, "byte_size": 128},
                "b": {"name": "b", "key": key, "offset": 64, "byte_size": 64}})
            if not client.is_grpc:  # its map has no order
                self.assertEqual(list(client.status()), ["a", "b"])
            self.assertEqual(list(client.status("b")), ["b"])
            client.unregister_system_shared_memory("a")
            self.assertEqual(list(client.status()), ["b"])
            client.unregister_system_shared_memory()
            self.assertEqual(client.status(), {})

    def test_a_name_is_the_same_in_both_protocols_whatever_is_in_it(self):
        key, _ = self.object("a", 64)
        for name in ("in a/b é%", "%20", "a?b#c", "name/register", "\u20ac\U0001f600", ".", "x" * 200):
            with Client("http") as http, Client("grpc") as grpc:
                http.register_system_shared_memory(name, key, 64)
                self.assertEqual(list(grpc.status(name)), [name])
                self.assertEqual(list(http.status(name)), [name])
                grpc.unregister_system_shared_memory(name)
                self.assertEqual(http.status(), {})

    def test_a_name_is_taken_until_it_is_unregistered(self):
        key, _ = self.object("a", 64)
        for client in self.for_each():
            client.register_system_shared_memory("a", key, 64)
            for again in (key, "/gone", key + "x"):
                self.refused(client, 400, "shared memory region 'a' already in manager",
                             client.register_system_shared_memory, "a", again, 64, code="ALREADY_EXISTS")
            client.unregister_system_shared_memory("a")
            client.register_system_shared_memory("a", key, 64)

    def test_keys_that_name_no_object(self):
        for client in self.for_each():
            for key in ("/", "///"):
                self.refused(client, 400, "cannot register shared memory region 'a' - invalid shm key "
                             f"'{key}'", client.register_system_shared_memory, "a", key, 64)
            for key in ("triton_python_backend_shm_region_1", "//triton_python_backend_shm_region_"):
                self.refused(client, 400, f"cannot register shared memory region 'a' with key '{key}' as the "
                             "key contains the reserved prefix 'triton_python_backend_shm_region_'",
                             client.register_system_shared_memory, "a", key, 64)
            for key in (f"/{PREFIX}-gone", "gone", "/.", "/..", "/" + "x" * 300):
                self.refused(client, 500, f"Unable to open shared memory region: '{key}'",
                             client.register_system_shared_memory, "a", key, 64)
            self.assertEqual(client.status(), {})

    def test_a_region_lies_within_its_object(self):
        key, _ = self.object("a", 128)
        for client in self.for_each():
            for offset, size in ((0, 129), (64, 65), (128, 1), (2**40, 1), (0, 2**64 - 1), (0, TOO_MUCH),
                                 (2**63, 2**63), (2**64 - 1, 2), (0, 0)):
                self.refused(client, 400, "failed to register shared memory region 'a': invalid args",
                             client.register_system_shared_memory, "a", key, size, offset=offset)
            self.assertEqual(client.status(), {})

    def test_unknown_names(self):
        for client in self.for_each():
            self.refused(client, 404, "Unable to find system shared memory region: 'a'", client.status, "a")
            self.refused(client, 404, "Unable to find system shared memory region: '100% \u00e9\U0001f600'",
                         client.status, "100% \u00e9\U0001f600")
            self.refused(client, 404, "Unable to find cuda shared memory region: 'a'", client.status, "a",
                         cuda=True)
            client.unregister_system_shared_memory("a")
            client.unregister_cuda_shared_memory("a")
            client.unregister_cuda_shared_memory()
            self.assertEqual(client.status(cuda=True), {})

    def test_unregistering_the_other_kind_leaves_a_region(self):
        key, _ = self.object("a", 64)
        for client in self.for_each():
            client.register_system_shared_memory("a", key, 64)
            client.unregister_cuda_shared_memory("a")
            client.unregister_cuda_shared_memory()
            self.assertEqual(list(client.status()), ["a"])

    def test_where_no_gpu_is_no_cuda_region_is_registered(self):
        for client in self.for_each():
            self.assertEqual(client.metadata()["extensions"], ["system_shared_memory"])
            handle = b"A" * 86 + b"=="
            self.refused(client, 400, "failed to register CUDA shared memory region: 'a': no CUDA device",
                         client.register_cuda_shared_memory, "a", handle, 0, 64)

    def test_handles_have_64_bytes(self):
        for client in self.for_each():
            text = "failed to register shared memory region: invalid args" if client.is_grpc else \
                "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t"
            for handle in (b"AAAA", b"", b"A" * 92):
                self.refused(client, 400, text, client.register_cuda_shared_memory, "a", handle, 0, 64)

    def test_a_region_outlives_the_name_of_its_object_and_whoever_attaches_to_it(self):
        key, handle = self.object("a", 64)
        with Client("http") as client:
            client.register_system_shared_memory("a", key, 64)
            # A process that attaches unlinks the name when it ends (its resource tracker).
            subprocess.run([sys.executable, "-c", "import sys\nfrom multiprocessing.shared_memory import "
                            "SharedMemory\nSharedMemory(sys.argv[1])", key.strip("/")], check=True,
                           stderr=subprocess.DEVNULL)
            if is_there(key):
                os.unlink("/dev/shm" + key)
            left, right = values()
            shm.set_shared_memory_region(handle, [left])
            inputs, _ = client.tensors()
            inputs[0].set_shared_memory("a", 64)
            inputs[1].set_data_from_numpy(right)
            np.testing.assert_array_equal(client.infer("simple", inputs).as_numpy("OUTPUT0"), left + right)

    def test_a_region_outlives_its_client_that_is_killed_with_the_name_and_all(self):
        program = """if True:
            import sys, numpy
            import tritonclient.utils.shared_memory as shm
            from triton_support import Client, values
            handle = shm.create_shared_memory_region("dying", sys.argv[1], 128)
            shm.set_shared_memory_region(handle, list(values()))
            with Client(sys.argv[2]) as client:
                client.register_system_shared_memory("dying", sys.argv[1], 128)
                print("registered", flush=True)
                sys.stdin.read()"""
        for client in self.for_each():
            key = f"/{PREFIX}-dying-{client.kind}"
            dying = subprocess.Popen([sys.executable, "-c", program, key, client.kind], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(dying.stdout.readline(), "registered\n")
            dying.kill()
            dying.wait()
            dying.stdin.close()
            dying.stdout.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink("/dev/shm" + key)
            self.assertEqual(list(client.status()), ["dying"])
            inputs, _ = client.tensors()
            inputs[0].set_shared_memory("dying", 64)
            inputs[1].set_shared_memory("dying", 64, offset=64)
            left, right = values()
            np.testing.assert_array_equal(client.infer("simple", inputs).as_numpy("OUTPUT0"), left + right)
            client.unregister_system_shared_memory("dying")
            self.assertEqual(client.status(), {})


class Inference(TritonTest):
    def regions(self, client, size=128):
        self.counter = getattr(self, "counter", 0) + 1
        made = []
        for name in ("in", "out"):
            key, handle = self.object(f"{name}{self.counter}", size)
            client.register_system_shared_memory(name, key, size)
            made.append(handle)
        return made

    def placed(self, client, size=64, offset=64, rows=1):
        inputs, outputs = client.tensors(rows)
        for i in range(2):
            inputs[i].set_shared_memory("in", size, offset=i * offset)
            outputs[i].set_shared_memory("out", size, offset=i * offset)
        return inputs, outputs

    def check(self, handle, left, right, offset=64):
        shape = list(left.shape)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.int32, shape, 0), left + right)
        np.testing.assert_array_equal(shm.get_contents_as_numpy(handle, np.int32, shape, offset),
                                      left - right)

    def test_inputs_and_outputs_lie_in_regions(self):
        for client in self.for_each():
            source, target = self.regions(client)
            left, right = values(start=np.iinfo(np.int32).max - 8)
            shm.set_shared_memory_region(source, [left, right])
            inputs, outputs = self.placed(client)
            with np.errstate(over="ignore"):
                result = client.infer("simple", inputs, outputs=outputs, request_id="q")
                self.check(target, left, right)
            said = result.get_response()
            if client.is_grpc:
                self.assertEqual((said.id, said.model_version, list(said.raw_output_contents)),
                                 ("q", "1", [b"", b""]))
            else:
                self.assertEqual(said["id"], "q")
                self.assertEqual(said["outputs"][0]["parameters"],
                                 {"shared_memory_region": "out", "shared_memory_byte_size": 64})

    def test_some_in_regions_and_some_not(self):
        for client in self.for_each():
            source, target = self.regions(client)
            left, right = values()
            shm.set_shared_memory_region(source, [left])
            inputs, outputs = client.tensors()
            inputs[0].set_shared_memory("in", 64)
            inputs[1].set_data_from_numpy(right)
            outputs[1].set_shared_memory("out", 64)
            result = client.infer("simple", inputs, outputs=outputs)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), left + right)
            np.testing.assert_array_equal(shm.get_contents_as_numpy(target, np.int32, [1, 16], 0),
                                          left - right)

    def test_tensors_in_the_request_alone_as_bytes_and_as_json(self):
        left, right = values(8)
        for client in self.for_each():
            inputs, outputs = client.tensors(8)
            for tensor, data in zip(inputs, (left, right)):
                if client.is_grpc:
                    tensor.set_data_from_numpy(data)
                else:
                    tensor.set_data_from_numpy(data, binary_data=False)
            if not client.is_grpc:
                outputs = [client.module.InferRequestedOutput(f"OUTPUT{i}", binary_data=bool(i))
                           for i in range(2)]
            for wanted in (outputs, None):
                result = client.infer("simple", inputs, outputs=wanted)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), left + right)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), left - right)

    def test_a_megabyte_of_each(self):
        rows = 16384
        size = rows * 64
        left, right = values(rows)
        for client in self.for_each():
            source, target = self.regions(client, 2 * size)
            shm.set_shared_memory_region(source, [left, right])
            inputs, outputs = self.placed(client, size, size, rows)
            client.infer("add_sub_large", inputs, outputs=outputs)
            self.check(target, left, right, size)
            inputs[0].set_data_from_numpy(left)
            result = client.infer("add_sub_large", inputs)
            np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), left - right)

    def test_memory_is_checked_before_the_model_is_looked_for(self):
        for client in self.for_each():
            self.regions(client)
            inputs, outputs = self.placed(client)
            for offset, size, text in (
                    (128, 1, "Invalid offset for shared memory region: 'in'"),
                    (2**32, 64, "Invalid offset for shared memory region: 'in'"),
                    (65, 64, "Invalid offset + byte size for shared memory region: 'in'"),
                    (0, 129, "Invalid offset + byte size for shared memory region: 'in'")):
                inputs[0].set_shared_memory("in", size, offset=offset)
                self.refused(client, 400, text, client.infer, "no_such_model", inputs)
            inputs[0].set_shared_memory("gone", 64)
            self.refused(client, 404, "Unable to find shared memory region: 'gone'", client.infer,
                         "no_such_model", inputs)
            inputs[0].set_shared_memory("in", 64)
            outputs[1].set_shared_memory("gone", 64)
            self.refused(client, 404, "Unable to find shared memory region: 'gone'", client.infer, "simple",
                         inputs, outputs=outputs)

    def test_sums_that_overflow(self):
        for client in self.for_each():
            if client.is_grpc:
                continue # its client sends sizes as int64, and has no such number
            self.regions(client)
            inputs, _ = self.placed(client)
            inputs[0].set_shared_memory("in", TOO_MUCH, offset=64)
            self.refused(client, 400, f"Integer overflow detected: byte_size ({TOO_MUCH}) + offset (64) "
                         "exceeds maximum value (18446744073709551615) for region 'in'", client.infer,
                         "simple", inputs)

    def test_sizes_and_models_that_do_not_fit(self):
        for client in self.for_each():
            self.regions(client)
            inputs, outputs = self.placed(client)
            inputs[0].set_shared_memory("in", 128)
            self.refused(client, 400, "input byte size mismatch for input 'INPUT0' for model 'simple'. "
                         "Expected 64, got 128", client.infer, "simple", inputs)
            inputs, outputs = self.placed(client)
            self.refused(client, 404, "Request for unknown model: 'other' is not found", client.infer,
                         "other", inputs)
            self.refused(client, 400, "expected 2 inputs but got 1 inputs for model 'simple'", client.infer,
                         "simple", inputs[:1])
            wide, _ = client.tensors(9)
            for tensor in wide:
                tensor.set_data_from_numpy(np.zeros((9, 16), np.int32))
            self.refused(client, 400, "inference request batch-size must be <= 8 for 'simple'", client.infer,
                         "simple", wide)
            outputs[0].set_shared_memory("out", 63)
            with self.assertRaisesRegex(Exception, "should be at least 64 bytes to hold the results"):
                client.infer("simple", inputs, outputs=outputs)

    def test_memory_that_shrank_is_an_error_of_its_request(self):
        for client in self.for_each():
            source, target = self.regions(client)
            inputs, outputs = self.placed(client)
            for handle, name in ((target, "out"), (source, "in")):
                os.truncate(f"/dev/shm/{handle._mpsm_handle.name.strip('/')}", 32)
                self.refused(client, 400, f"the object of shared memory region '{name}' is smaller than when "
                             "it was registered", client.infer, "simple", inputs, outputs=outputs)
            self.assertTrue(client.is_server_live())

    def test_a_client_may_be_used_by_several_at_a_time(self):
        with Client("grpc") as client:
            left, right = values()
            inputs, _ = client.tensors()
            inputs[0].set_data_from_numpy(left)
            inputs[1].set_data_from_numpy(right)
            done = []
            for i in range(200):
                client.client.async_infer("simple", inputs, request_id=str(i),
                                          callback=lambda result, error: done.append((result, error)))
            self.assertTrue(client.is_server_live())
            for _ in range(1000):
                if len(done) == 200:
                    break
                client.is_server_live()
            self.assertEqual(len(done), 200)
            for result, error in done:
                self.assertIsNone(error)
                np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), left + right)
