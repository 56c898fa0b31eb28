# SPDX-License-Identifier: Apache-2.0
"""The use of torch by gmsfs.graphs: streams, memory pools, captures, and the holders of blocks. Imported
only for captures and for allocations by torch."""

import contextlib
import ctypes
import errno
import gc
from typing import Any, Dict, Iterator

import torch

from . import errors


_allocators: Dict[Any, Any] = {}


def _make_allocator(library_name: Any) -> Any:
    """The library's two functions, by their symbols: nothing is compiled, and torch opens the library of
    ctypes. Made once and never freed: some versions of torch keep a bare pointer to it for as long as a
    tensor lives in memory that came from it, at Python's end too."""
    made = _allocators.get(library_name)
    if made is None:
        made = torch.cuda.memory.CUDAPluggableAllocator(
            library_name, "gmsfs_graph_alloc", "gmsfs_graph_dealloc"
        ).allocator()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        _allocators[library_name] = made
    return made


class Torch:
    """torch on one GPU. Tests of graphs.py that need no GPU have another class with these methods."""

    def __init__(self, path: Any, device: Any, library_name: Any) -> None:
        if device is None:
            raise errors.make(
                errno.EOPNOTSUPP, path, "torch.cuda", "it is host memory, which CUDA graphs cannot use"
            )
        self._device = torch.device("cuda", device)
        self._stream = None
        torch.cuda.init()
        try:
            with self.device():
                self._event = torch.cuda.Event(external=True)
                self._event.record()
            self._allocator = _make_allocator(library_name)
            torch.cuda.MemPool, torch._C._cuda_clearCublasWorkspaces
            torch._C._cuda_checkPoolLiveAllocations
        except (AttributeError, TypeError) as error:
            raise ImportError(
                f"torch {torch.__version__} is too old for gmsfs.graphs ({error}); it needs memory pools and "
                "external events",
                name="torch",
            ) from error

    def device(self) -> Any:
        """The device as the current one, for a `with`."""
        return torch.cuda.device(self._device)

    def ready_thread(self) -> None:
        """Makes the device's context this thread's, which torch does at a thread's first work."""
        self.current_stream().query()

    def capture_stream(self) -> Any:
        """The default stream for captures."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        return self._stream

    def current_stream(self) -> Any:
        return torch.cuda.current_stream(self._device)

    def pointer(self, stream: Any) -> Any:
        return stream.cuda_stream

    def new_mempool(self) -> Any:
        return torch.cuda.MemPool(self._allocator)

    def use(self, mempool: Any) -> Any:
        """This thread's allocations come from it, for a `with`."""
        return torch.cuda.use_mem_pool(mempool, self._device)

    @contextlib.contextmanager
    def capturing(self, graph: Any, mempool: Any, stream: Any, capture_error_mode: Any) -> Iterator[Any]:
        """Captures the launches inside into the graph, which runs after every earlier graph of the pool: all
        wait for one event, and record it."""
        # torch leaves the capture's stream as the current one where the end of a capture fails.
        with torch.cuda.stream(stream):
            scope = torch.cuda.graph(
                graph, pool=mempool.id, stream=stream, capture_error_mode=capture_error_mode
            )
            scope.__enter__()
            try:
                self._event.wait()
                yield
                self._event.record()
            except BaseException as error:
                # The error inside the capture says more than a failure to end it.
                with contextlib.suppress(RuntimeError):
                    scope.__exit__(type(error), error, error.__traceback__)
                raise
            scope.__exit__(None, None, None)

    def reset(self, graph: Any) -> None:
        graph.reset()

    def abandon(self, mempool: Any) -> None:
        """Cleans up after torch (before 2.12) for a capture that CUDA has ended: torch would count it as
        running, and abort at the end of the pool. If nothing was left, torch says so."""
        with contextlib.suppress(RuntimeError, AttributeError):
            torch._C._cuda_endAllocateToPool(self._device.index, mempool.id)
            torch._C._cuda_releasePool(self._device.index, mempool.id)

    def clear_workspaces(self) -> None:
        """cuBLAS keeps for each stream the workspace that its first product there took: of a capture, from
        the space. Cleared, every capture takes one of its own."""
        torch._C._cuda_clearCublasWorkspaces()

    def empty_cache(self) -> None:
        """Gives back memory that torch holds of ended pools."""
        torch.cuda.empty_cache()

    def is_out_of_memory(self, error: Any) -> Any:
        return isinstance(error, torch.cuda.OutOfMemoryError)

    def base_of(self, tensor: Any) -> Any:
        """Where the block begins in which it lies."""
        return tensor.untyped_storage().data_ptr()

    def has_nothing_but(self, mempool: Any, addresses: Any) -> Any:
        """Are these all blocks in use? Costs nothing beside a snapshot; False: ask allocated()."""
        return torch._C._cuda_checkPoolLiveAllocations(self._device.index, mempool.id, addresses)

    def allocated(self, mempool: Any) -> Iterator[Any]:
        """(address, bytes, where it was allocated or "") of every block in use."""
        for segment in _snapshot(mempool.id):
            address = segment["address"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    yield address, block.get("requested_size", block["size"]), _place(block)
                address += block["size"]

    def holder(self, address: int) -> Any:
        """The Python object that holds the block at this address, in words; "" for none."""
        for tensor in gc.get_objects():
            try:
                if issubclass(type(tensor), torch.Tensor) and self.base_of(tensor) == address:
                    return _describe(tensor)
            except (RuntimeError, NotImplementedError, ReferenceError):
                continue  # tensors without storage, proxies
        return ""


def _snapshot(pool_id: Any) -> Any:
    """torch lets go of a reference to each number of the id that it was never given (pytorch#196366): beyond
    256 pools, these are freed while in use. So each call gives it one."""
    for number in pool_id:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(number))
    return torch.cuda.memory_snapshot(pool_id)


def _place(block: Any) -> Any:
    """torch knows it where its memory history is recorded."""
    for frame in block.get("frames") or ():
        if frame["filename"].endswith(".py") and "/torch/" not in frame["filename"]:
            return f"{frame['filename']}:{frame['line']}"
    return ""


def _describe(tensor: Any) -> Any:
    text = f"{tensor.dtype} tensor of shape {tuple(tensor.shape)}"
    for holder in gc.get_referrers(tensor):
        if isinstance(holder, dict):
            for key, value in list(holder.items()):
                if value is tensor and isinstance(key, str):
                    return f"{text}, called {key!r}"
    return text
