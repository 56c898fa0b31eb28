# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of gmsfs.graphs: pools over memory that this process can touch, with graph_fake for
torch."""

import os
import random
from unittest import mock

import numpy

import gmsfs
from gmsfs import graph_rows, graphs
from graph_fake import Fake, Graph, Tensor, expected
from support import MOUNT, TIMEOUT, StoreCase

CHUNK = 2 << 20
LARGEST = 3 * CHUNK
SHAPES = [LARGEST * part // 24 for part in range(1, 25)]
ROOM = 64 << 20
ON_GPU = "GMSFS_TEST_ORDINAL" in os.environ  # a fake GPU; its addresses are addresses of this process


class Interface:
    def __init__(self, segment):
        self.segment = segment
        self.__array_interface__ = segment.interface(False)


def by_address(segment, name, shape):
    """Returns an array over GPU memory, which NumPy alone refuses."""
    return numpy.asarray(Interface(segment)).view(name).reshape(shape)


class GraphCase(StoreCase):
    def setUp(self):
        super().setUp()
        self.fake = Fake(int(os.environ.get("GMSFS_TEST_ORDINAL", "0")), ON_GPU)
        self.patch(graphs, "_load_torch", lambda path, device: self.fake)
        if ON_GPU:
            self.patch(graph_rows, "_by_numpy", by_address)
        self.pools = []

    def patch(self, *arguments):
        patch = mock.patch.object(*arguments)
        patch.start()
        self.addCleanup(patch.stop)

    def tearDown(self):
        while self.pools:
            self.pools.pop().close()
        super().tearDown()

    def open(self, **options):
        options = {"chunk_bytes": CHUNK, "reserve_bytes": ROOM, "timeout": TIMEOUT, **options}
        self.pools.append(graphs.GraphPool(self.path, **options))
        return self.pools[-1]

    def buffers(self, pool):
        """An input and an output, of the largest shape; as the fake's tensors, of any size."""
        self.x, self.y = (pool.rows(LARGEST, dtype="uint8", framework="numpy") for _ in "xy")
        return self.x, self.y

    def open_with_buffers(self):
        pool = self.open()
        self.buffers(pool)
        return pool

    def at(self, rows, nbytes):
        return Tensor(rows.all.__array_interface__["data"][0], nbytes)

    def capture(self, pool, nbytes, **options):
        with pool.capture(options.pop("graph", None) or Graph(), nbytes, **options) as capture:
            out = self.fake.model(self.at(self.x, nbytes))
            self.fake.copy(self.at(self.y, nbytes), out)
            del out
        return capture

    def check(self, pool, shapes, rounds=1):
        """Replays in random order, with changing inputs, and compares with eager work."""
        for _ in range(rounds):
            for nbytes in random.sample(list(shapes), len(shapes)):
                data = (random.randbytes(4099) * (nbytes // 4099 + 1))[:nbytes]
                self.x.put(memoryview(data))
                pool.replay(nbytes)
                self.assertEqual(self.at(self.y, nbytes).bytes(), expected(data), nbytes)

    def used(self):
        with open(os.path.join(MOUNT, "device"), encoding="ascii") as file:
            return gmsfs.store.json.load(file)["used_bytes"]
