# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests with NVIDIA's client: its four kinds behind one interface, objects of shared memory
that are removed at the end, and requests as the clients make them."""

import asyncio
import itertools
import os
import unittest

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

HTTP = os.environ["GMSFS_TEST_HTTP"]
GRPC = os.environ["GMSFS_TEST_GRPC"]
PREFIX = os.environ["GMSFS_TEST_SHM"]

KINDS = {
    "http": (tritonclient.http, HTTP),
    "http.aio": (tritonclient.http.aio, HTTP),
    "grpc": (tritonclient.grpc, GRPC),
    "grpc.aio": (tritonclient.grpc.aio, GRPC),
}

CODES = {400: "INVALID_ARGUMENT", 404: "NOT_FOUND", 500: "INTERNAL", 401: "UNAUTHENTICATED",
         403: "PERMISSION_DENIED", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE"}


NUMBERS = itertools.count()


class Client:
    """Any of the four: calls are plain functions, results of status are dicts by name."""

    def __init__(self, kind, **more):
        self.kind = kind
        self.module, url = KINDS[kind]
        self.is_async = kind.endswith(".aio")
        self.is_grpc = kind.startswith("grpc")
        self.loop = asyncio.new_event_loop() if self.is_async else None
        self.client = self._run(self._make(url, more)) if self.is_async else \
            self.module.InferenceServerClient(url, **more)

    async def _make(self, url, more):
        return self.module.InferenceServerClient(url, **more)

    def _run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    def __getattr__(self, name):
        function = getattr(self.client, name)
        return lambda *a, **k: self._run(function(*a, **k)) if self.is_async else function(*a, **k)

    def close(self):
        if self.is_async:
            self._run(self.client.close())
            self.loop.close()
        else:
            self.client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def status(self, name="", cuda=False):
        call = self.get_cuda_shared_memory_status if cuda else self.get_system_shared_memory_status
        if not self.is_grpc:
            return {row["name"]: row for row in call(name)}
        return {name: {field.name: getattr(row, field.name) for field in row.DESCRIPTOR.fields}
                for name, row in call(name).regions.items()}

    def metadata(self):
        said = self.get_server_metadata()
        return said if not self.is_grpc else \
            {"name": said.name, "version": said.version, "extensions": list(said.extensions)}

    def tensors(self, rows=1):
        """Inputs and outputs without data."""
        inputs = [self.module.InferInput(f"INPUT{i}", [rows, 16], "INT32") for i in range(2)]
        outputs = [self.module.InferRequestedOutput(f"OUTPUT{i}") for i in range(2)]
        return inputs, outputs


class TritonTest(unittest.TestCase):
    """Every test begins without regions, and with names of objects that are its own."""

    def setUp(self):
        self.objects = []
        with Client("http") as client:
            client.unregister_system_shared_memory()
            client.unregister_cuda_shared_memory()
            self.assertEqual(client.status(), {})

    def tearDown(self):
        for handle in self.objects:
            try:
                shm.destroy_shared_memory_region(handle)
            except (shm.SharedMemoryException, FileNotFoundError):
                pass

    def for_each(self):
        """Yields a client of each kind, in a subtest of its own."""
        for kind in KINDS:
            with self.subTest(kind), Client(kind) as client:
                yield client
                client.unregister_system_shared_memory()

    def object(self, name, size):
        """An object of shared memory; its key."""
        key = f"/{PREFIX}-{next(NUMBERS)}-{name}"  # unlike other tests' keys: those may be unlinked late
        handle = shm.create_shared_memory_region(name, key, size)
        self.objects.append(handle)
        return key, handle

    def refused(self, client, status, text, call, *arguments, code=None, **more):
        """The call fails with this text, and with the status of its protocol."""
        with self.assertRaises(InferenceServerException) as caught:
            call(*arguments, **more)
        self.assertEqual(caught.exception.message(), text)
        wanted = f"StatusCode.{code or CODES[status]}" if client.is_grpc else str(status)
        self.assertEqual(caught.exception.status(), wanted)


def values(rows=1, start=0):
    left = np.arange(start, start + rows * 16, dtype=np.int32).reshape(rows, 16)
    return left, np.full((rows, 16), 7, dtype=np.int32)


def is_there(key):
    return os.path.exists("/dev/shm" + key)
