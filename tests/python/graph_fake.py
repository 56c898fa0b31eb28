# SPDX-License-Identifier: Apache-2.0
"""A fake of the parts of torch that gmsfs.graphs uses, over pool memory that this process can touch.

Like torch, the fake gets segments from the library's two functions, caches blocks in memory pools, keeps a
pool's segments while a graph or a tensor uses them, and gives each stream a workspace at its first matrix
product, from the pool that is current then. A graph is the list of its launches; a replay runs them again
at the same addresses. Wrong memory behind an address therefore shows as wrong bytes.
"""

import contextlib
import ctypes
import gc
import threading

from gmsfs import library

SEGMENT = 64 << 10
WORKSPACE = 128 << 10
TABLE = bytes((37 * value + 11) % 256 for value in range(256))


class OutOfMemory(RuntimeError):
    pass


def pair():
    lib = library.get()
    lib.gmsfs_graph_alloc.restype = ctypes.c_void_p
    lib.gmsfs_graph_alloc.argtypes = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    lib.gmsfs_graph_dealloc.restype = None
    lib.gmsfs_graph_dealloc.argtypes = (
        ctypes.c_void_p,
        ctypes.c_ssize_t,
        ctypes.c_int,
        ctypes.c_void_p,
    )
    return lib.gmsfs_graph_alloc, lib.gmsfs_graph_dealloc


class Cache:
    """The cache of one memory pool, as in torch; each block is a whole segment."""

    def __init__(self, fake):
        self.fake = fake
        self.users = 1  # the MemPool, and each graph that was captured in it
        self.segments = {}  # address: bytes
        self.live = {}  # address: bytes asked for

    def take(self, nbytes, stream):
        need = -(-nbytes // SEGMENT) * SEGMENT
        fits = [
            (size, address)
            for address, size in self.segments.items()
            if address not in self.live and size >= need
        ]
        if fits:
            address = min(fits)[1]
        else:
            address = self.fake.alloc(need, self.fake.device_number, stream)
            if not address:
                raise OutOfMemory(f"out of memory: {need} bytes")
            self.segments[address] = need
        self.live[address] = nbytes
        return address

    def trim(self):
        if self.users == 0:
            for address in [one for one in self.segments if one not in self.live]:
                self.fake.dealloc(address, self.segments.pop(address), self.fake.device_number, 0)


class MemPool:
    def __init__(self, fake):
        self.cache = Cache(fake)
        fake.caches.append(self.cache)

    def __del__(self):
        self.cache.users -= 1
        self.cache.trim()


class Tensor:
    """nbytes bytes of a block, or of memory that this fake does not own (cache=None)."""

    def __init__(self, address, nbytes, cache=None):
        self.address, self.nbytes, self.cache = address, nbytes, cache

    def __del__(self):
        if self.cache:
            del self.cache.live[self.address]

    def bytes(self):
        return ctypes.string_at(self.address, self.nbytes)


class Graph:
    def __init__(self):
        self.launched = []
        self.cache = None

    def replay(self):
        for launch in self.launched:
            launch()

    def reset(self):
        self.launched = []
        if self.cache:
            self.cache.users -= 1
            self.cache.trim()
            self.cache = None


class Fake:
    """In place of gmsfs.with_torch_graphs.Torch."""

    def __init__(self, device_number=0, on_gpu=False):
        self.alloc, self.dealloc = pair()
        self.device_number = device_number
        self.driver = ctypes.CDLL("libcuda.so.1") if on_gpu else None
        self.caches = []
        self.workspaces = {}  # stream: a tensor
        self.state = threading.local()
        self.leave_workspaces = False
        self.abandoned = 0  # captures
        self.under_way = 0  # captures
        self.most_under_way = 0

    # ---- called by gmsfs.graphs ---------------------------------------------------------------

    def device(self):
        return contextlib.nullcontext()

    def ready_thread(self):
        if self.driver:
            context = ctypes.c_void_p()
            self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.device_number)
            self.driver.cuCtxSetCurrent(context)

    def capture_stream(self):
        return 1

    def current_stream(self):
        return getattr(self.state, "stream", 0)

    def pointer(self, stream):
        return stream

    def new_mempool(self):
        return MemPool(self)

    @contextlib.contextmanager
    def use(self, mempool):
        before = getattr(self.state, "cache", None)
        self.state.cache = mempool.cache
        try:
            yield
        finally:
            self.state.cache = before

    @contextlib.contextmanager
    def capturing(self, graph, mempool, stream, capture_error_mode):
        if graph.launched:
            raise RuntimeError("this graph is captured already")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        before = self.current_stream()
        self.state.stream, self.state.graph = stream, graph
        graph.cache = mempool.cache
        graph.cache.users += 1
        try:
            with self.use(mempool):
                yield
        finally:
            self.state.stream, self.state.graph = before, None
            self.under_way -= 1

    def reset(self, graph):
        graph.reset()

    def abandon(self, mempool):
        self.abandoned += 1

    def clear_workspaces(self):
        if not self.leave_workspaces:
            self.workspaces.clear()

    def empty_cache(self):
        for cache in self.caches:
            cache.trim()

    def is_out_of_memory(self, error):
        return isinstance(error, OutOfMemory)

    def base_of(self, tensor):
        return tensor.address

    def has_nothing_but(self, mempool, addresses):
        return {one[0] for one in self.allocated(mempool)} == addresses

    def allocated(self, mempool):
        return [(address, nbytes, "") for address, nbytes in mempool.cache.live.items()]

    def holder(self, address):
        for one in gc.get_objects():
            if type(one) is Tensor and one.address == address and one not in self.workspaces.values():
                return f"a tensor of {one.nbytes} bytes"
        return ""

    # ---- called by a model --------------------------------------------------------------------

    def empty(self, nbytes):
        cache = self.state.cache
        return Tensor(cache.take(nbytes, self.current_stream()), nbytes, cache)

    def _launch(self, launch):
        graph = getattr(self.state, "graph", None)
        if graph is None:
            launch()
        else:
            graph.launched.append(launch)

    def copy(self, there, here):
        to, at, nbytes = there.address, here.address, here.nbytes
        self._launch(lambda: ctypes.memmove(to, at, nbytes))

    def product(self, x):
        """Another tensor, made of x by way of the stream's workspace: its first half is cleared, and x
        is needed after that."""
        stream = self.current_stream()
        if stream not in self.workspaces:
            self.workspaces[stream] = self.empty(WORKSPACE)
        scratch, out = self.workspaces[stream].address, self.empty(x.nbytes)
        at, to, nbytes = x.address, out.address, x.nbytes

        def launch():
            ctypes.memset(scratch, 0xEE, WORKSPACE)
            made = ctypes.string_at(at, nbytes).translate(TABLE)
            ctypes.memmove(to, made, nbytes)

        self._launch(launch)
        return out

    def model(self, x, depth=3):
        for _ in range(depth):
            x = self.product(x)
        return x


def expected(data, depth=3):
    for _ in range(depth):
        data = data.translate(TABLE)
    return data
