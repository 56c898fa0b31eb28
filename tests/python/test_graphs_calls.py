# SPDX-License-Identifier: Apache-2.0
"""The calls that gmsfs.graphs makes to torch, one by one, recorded by a fake torch. test_graphs_torch tests
the same with the real torch."""

import contextlib
import ctypes
import errno
import gc
import importlib
import sys
import types
import weakref
import unittest
from unittest import mock

import gmsfs


class Tensor:
    def __init__(self, address):
        self.address, self.dtype, self.shape = address, "torch.float32", (2, 3)

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address)


class Lazy(Tensor):
    def untyped_storage(self):
        raise NotImplementedError("no storage")


class Allocator:
    pass


class Stand:
    """A module `torch`."""

    def __init__(self):
        self.said = []
        self.allocators = []
        self.end_fails = False
        self.Tensor = Tensor
        self.__version__ = "0"
        self.device = lambda kind, number: types.SimpleNamespace(type=kind, index=number)
        self.live = set()  # blocks of the pool
        self.still_captures = False
        self._C = types.SimpleNamespace(
            _cuda_clearCublasWorkspaces=self.note("clear"),
            _cuda_checkPoolLiveAllocations=lambda device, pool, blocks: blocks == self.live,
            _cuda_endAllocateToPool=self.end_allocating,
            _cuda_releasePool=self.note("release"),
        )
        self.cuda = types.SimpleNamespace(
            init=self.note("init"),
            device=self.scope("device"),
            stream=self.scope("stream"),
            graph=self.scope("graph"),
            use_mem_pool=self.scope("use"),
            empty_cache=self.note("empty"),
            Event=self.event,
            Stream=lambda device: types.SimpleNamespace(cuda_stream=7),
            MemPool=lambda allocator: ("mempool", allocator),
            OutOfMemoryError=MemoryError,
            memory=types.SimpleNamespace(CUDAPluggableAllocator=self.allocator),
        )

    def end_allocating(self, device, pool):
        if not self.still_captures:
            raise RuntimeError("not allocating to that pool")
        self.said.append(f"end of {pool} on {device}")

    def note(self, text):
        return lambda *_, **__: self.said.append(text)

    def scope(self, name):
        @contextlib.contextmanager
        def scope(*arguments, **options):
            self.said.append(f"{name} in")
            self.options = options
            try:
                yield
            finally:
                self.said.append(f"{name} out")
                if name == "graph" and self.end_fails:
                    raise RuntimeError("the capture was invalidated")

        return scope

    def event(self, external):
        assert external
        return types.SimpleNamespace(wait=self.note("wait"), record=self.note("record"))

    def allocator(self, path, alloc, free):
        self.allocator_of = (path, alloc, free)
        made = Allocator()
        self.allocators.append(weakref.ref(made))
        return types.SimpleNamespace(allocator=lambda: made)


class Calls(unittest.TestCase):
    def setUp(self):
        self.stand = Stand()
        sys.modules.pop("gmsfs.with_torch_graphs", None)
        patch = mock.patch.dict(sys.modules, {"torch": self.stand})
        patch.start()
        self.addCleanup(patch.stop)
        self.module = importlib.import_module("gmsfs.with_torch_graphs")
        self.torch = self.module.Torch("/m/store", 1, "libgmsfs.so.0")
        self.mempool = types.SimpleNamespace(id=(0, 5))
        self.stand.said.clear()

    def capturing(self):
        return self.torch.capturing("graph", self.mempool, "stream", "global")

    def test_the_allocator_is_made_of_the_librarys_two_functions(self):
        self.assertEqual(
            self.stand.allocator_of, ("libgmsfs.so.0", "gmsfs_graph_alloc", "gmsfs_graph_dealloc")
        )
        self.assertEqual(self.torch.new_mempool(), ("mempool", self.stand.allocators[0]()))

    def test_the_allocator_is_one_and_stays_when_nothing_of_gmsfs_does(self):
        """torch may keep only the allocator's address, and may free its memory as late as Python's exit."""
        other = self.module.Torch("/m/other", 1, "libgmsfs.so.0")
        self.assertEqual(len(self.stand.allocators), 1)
        vars(self.module).clear()
        del self.torch, self.module, other
        sys.modules.pop("gmsfs.with_torch_graphs")
        gc.collect()
        self.assertIsNotNone(self.stand.allocators[0]())

    def test_a_capture_waits_first_and_records_last_in_the_pool_that_it_is_told(self):
        with self.capturing():
            self.stand.said.append("work")
        self.assertEqual(
            self.stand.said,
            ["stream in", "graph in", "wait", "work", "record", "graph out", "stream out"],
        )
        self.assertEqual(
            self.stand.options, {"pool": (0, 5), "stream": "stream", "capture_error_mode": "global"}
        )

    def test_what_went_wrong_in_a_capture_is_what_is_told(self):
        self.stand.end_fails = True
        with self.assertRaisesRegex(ValueError, "mine"):
            with self.capturing():
                raise ValueError("mine")
        self.assertEqual(self.stand.said, ["stream in", "graph in", "wait", "graph out", "stream out"])

    def test_an_end_that_fails_is_told_and_the_stream_left(self):
        self.stand.end_fails = True
        with self.assertRaisesRegex(RuntimeError, "invalidated"):
            with self.capturing():
                pass
        self.assertEqual(self.stand.said[-1], "stream out")

    def test_blocks_in_use_are_told_with_their_place(self):
        frames = [
            {"filename": "/lib/torch/functional.py", "line": 1},
            {"filename": "/me/model.py", "line": 9},
        ]
        blocks = [
            {"size": 512, "requested_size": 500, "state": "inactive"},
            {"size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames},
            {"size": 512, "state": "active_allocated", "frames": []},
            {"size": 512, "state": "active_awaiting_free"},
        ]
        self.stand.cuda.memory_snapshot = lambda pool: [{"address": 4096, "blocks": blocks}]
        self.assertEqual(
            list(self.torch.allocated(self.mempool)),
            [(4608, 1000, "/me/model.py:9"), (5632, 512, "")],
        )

    def test_a_snapshot_takes_no_reference_from_the_numbers_of_a_pool(self):
        """torch gives each of them back once too often."""
        number, given_back = 123456789, ctypes.pythonapi.Py_DecRef
        self.mempool.id = (0, number)

        def snapshot(pool):
            for one in pool:
                given_back(ctypes.py_object(one))
            return []

        self.stand.cuda.memory_snapshot = snapshot
        before = sys.getrefcount(number)
        self.assertEqual(list(self.torch.allocated(self.mempool)), [])
        self.assertEqual(sys.getrefcount(number), before)

    def test_blocks_are_looked_for_only_where_some_are_in_use_that_should_not_be(self):
        self.stand.live = {4096}
        self.assertTrue(self.torch.has_nothing_but(self.mempool, {4096}))
        self.assertFalse(self.torch.has_nothing_but(self.mempool, set()))

    def test_what_a_failed_capture_leaves_is_undone_once(self):
        self.torch.abandon(self.mempool)
        self.assertEqual(self.stand.said, [])
        self.stand.still_captures = True
        self.torch.abandon(self.mempool)
        self.assertEqual(self.stand.said, ["end of (0, 5) on 1", "release"])

    def test_who_holds_a_block_is_told_by_name(self):
        lazy, cache, bare = Lazy(3), {"mask": Tensor(4096)}, [Tensor(8192)]
        self.assertEqual(
            self.torch.holder(4096), "torch.float32 tensor of shape (2, 3), called 'mask'"
        )
        self.assertIn("tensor of shape (2, 3)", self.torch.holder(8192))
        self.assertEqual(self.torch.holder(12288), "")
        del lazy, cache, bare

    def test_host_memory_and_an_old_torch_are_said_to_be_so(self):
        with self.assertRaisesRegex(gmsfs.Error, "host memory") as caught:
            self.module.Torch("/m/store", None, "libgmsfs.so.0")
        self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
        del self.stand.cuda.MemPool
        with self.assertRaisesRegex(ImportError, "too old"):
            self.module.Torch("/m/store", 1, "libgmsfs.so.0")
