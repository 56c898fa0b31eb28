# SPDX-License-Identifier: Apache-2.0
"""Graph memory: many captured shapes over one set of pages, which a store owns.

    import gmsfs.graphs

    with gmsfs.graphs.GraphPool("/mnt/gms/gpu0/graphs") as pool:
        x = pool.rows(8192, (4096,), torch.bfloat16)
        y = pool.rows(8192, (4096,), torch.bfloat16)
        for n in shapes:
            graph = torch.cuda.CUDAGraph()
            with pool.capture(graph, n):
                y.first(n).copy_(model(x.first(n)))
        x.put(batch, 128)
        pool.replay(128)
        pool.sleep()   # all memory is back on the device; the graphs stay
        pool.wake()

Every shape has addresses of its own; the memory behind them is the same for all, for one graph of a pool
runs at a time. gmsfs-graphs(7) tells all.
"""

import contextlib
import ctypes
import errno
import gc
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from . import abi, errors, graph_handle, graph_rows, graph_turns
from .errors import Leak
from .graph_rows import Rows
from .graph_turns import captures

__all__ = ["Arena", "Block", "Capture", "GraphPool", "Leak", "Rows", "Space", "Stats"]

# Default size of a space's addresses; they cost nothing.
RESERVE_BYTES = 128 << 30
GUARDS = tuple(graph_turns.LAUNCHING)


class Stats(NamedTuple):
    """Numbers of a pool. physical_bytes is memory; torch's "reserved" is addresses only."""

    awake: bool
    shapes: int
    pending: int  # spaces that are freed when the tensors in them are gone
    chunk_bytes: int
    physical_bytes: int  # chunks that the pool holds; 0 asleep
    needed_bytes: int  # of them mapped by a space; asleep: bytes that the next wake needs
    eager_bytes: int  # part of needed_bytes that arenas and rows own
    high_bytes: int  # the highest physical_bytes so far
    mapped_bytes: int  # by all spaces together; 0 asleep
    address_bytes: int  # reserved by all spaces together
    spaces: int
    live: int  # segments that torch, or rows, have
    live_bytes: int
    selected: int  # streams that allocate from a space now
    waiters: int  # others that want the store: their turn, if this pool sleeps


class Block(NamedTuple):
    """A block that a capture left allocated."""

    address: int
    nbytes: int
    holder: str  # the Python object that holds it, in words; "" if none
    place: str  # where it was allocated, if torch recorded that

    def __str__(self) -> str:
        holder = self.holder or "which nothing in Python holds (a library's workspace, say cuBLAS's)"
        place = f", allocated at {self.place}" if self.place else ""
        return f"{self.nbytes} bytes at {self.address:#x}, {holder}{place}"


def _load_torch(path: Any, device: Any) -> Any:
    try:
        from . import with_torch_graphs
    except ImportError as error:
        raise ImportError(
            f"torch cannot be imported ({error}); gmsfs.graphs captures torch's graphs", name="torch"
        ) from error
    return with_torch_graphs.Torch(path, device, graph_handle.library_name())


class _Selecting:
    """A space of the library, and torch's memory pool over it."""

    def __init__(self, pool: Any, reserve_bytes: Any, eager: bool = False) -> None:
        self._pool = pool
        self._space = graph_handle.SpaceHandle(pool._live(), reserve_bytes, eager)
        self._mempool = None

    @property
    def stats(self) -> Any:
        """SpaceStats: base, eager, address_bytes, reached_bytes, live, live_bytes."""
        return self._checked().stats()

    def _checked(self) -> Any:
        if self._space is None:
            raise ValueError(f"{self._pool._path}: this space is freed")
        return self._space

    def _torch_pool(self) -> Any:
        if self._mempool is None:
            self._mempool = self._pool._load().new_mempool()
        return self._mempool

    @contextlib.contextmanager
    def _selected(self, stream: Any) -> Iterator[Any]:
        space = self._checked()
        space.select(stream)
        try:
            yield
        finally:
            space.deselect(stream)


class Space(_Selecting):
    """Addresses of one shape, or of several that are captured into it: GraphPool.space makes one, to be
    joined, and GraphPool.capture."""

    def __init__(self, pool: Any, reserve_bytes: Any, passing: bool = False) -> None:
        super().__init__(pool, reserve_bytes)
        self._captures: List[Any] = []
        self._passing = passing  # goes with the last of its shapes

    @property
    def shapes(self) -> Any:
        return [capture.shape for capture in self._captures]

    def free(self) -> None:
        """Gives the addresses back, of a space that has no shapes (any more)."""
        self._pool._free_space(self)


class Arena(_Selecting):
    """Memory that nothing else shares, for torch's allocations inside of use() that the program keeps.
    Sleep loses its contents."""

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Takes this thread's torch allocations inside of the `with` from the arena."""
        torch = self._pool._load()
        with torch.device(), self._selected(torch.pointer(torch.current_stream())):
            try:
                with torch.use(self._torch_pool()):
                    yield self
            except Exception as error:
                self._pool._explain(error)
                raise

    def free(self) -> None:
        """Gives it back; Busy while tensors live in it."""
        self._pool._free_arena(self)


class Capture:
    """A captured shape: shape, graph, space, outputs."""

    def __init__(self, shape: Any, graph: Any, space: Any) -> None:
        self.shape = shape
        self.graph = graph
        self.space = space
        self.outputs: List[Any] = []

    def __repr__(self) -> str:
        return f"<gmsfs.graphs.Capture of shape {self.shape!r}>"

    def keep(self, *tensors: Any) -> Any:
        """Declares tensors outputs: they stay until the shape is dropped, and hold the results of their
        graph's last replay until another graph of the pool is replayed. Returns the first."""
        for tensor in tensors:
            try:
                self.space._pool._load().base_of(tensor)
            except AttributeError:
                raise TypeError(
                    f"keep() takes tensors, each by itself, and not a {type(tensor).__name__}"
                ) from None
        self.outputs.extend(tensors)
        return tensors[0] if tensors else None


class GraphPool:
    """Graph memory in the store at `path`, a directory directly below a mount, made where it is missing.

    chunk_bytes: 0: 32 MiB. reserve_bytes: addresses of each space, unless it says otherwise.
    guard: for a launch while another graph of the pool runs: "order": it runs after that; "refuse": Busy.
    timeout: seconds for the store's lock, as in gmsfs.open. asleep: does not take it.
    Calls may come from any thread. In a child of fork() the pool is dead (ECHILD).
    """

    def __init__(
        self,
        path: Any,
        chunk_bytes: int = 0,
        *,
        reserve_bytes: Any = RESERVE_BYTES,
        guard: str = "order",
        timeout: Optional[float] = None,
        asleep: bool = False,
    ) -> None:
        if guard not in GUARDS:
            raise ValueError(f'guard is "order" or "refuse", not {guard!r}')
        self._handle: Any = graph_handle.PoolHandle(path, chunk_bytes)
        self._path = self._handle.path
        self._reserve_bytes = reserve_bytes
        self._torch: Any = None
        self._lock = threading.RLock()  # of the fields below
        self._shapes: Dict[Any, Any] = {}
        self._pending: List[Any] = []  # spaces that are not free yet
        self._rows: Any = None  # the eager space of all rows
        self._launching = graph_turns.LAUNCHING[guard](self)
        self._forked = False
        graph_turns.pools.add(self)
        if guard == "refuse" and self._handle.device is not None:
            self._load()
        if not asleep:
            self.wake(timeout)

    def __repr__(self) -> str:
        if self._handle is None:
            what = "closed"
        else:
            what = "asleep" if self.asleep else "awake"
        return f"<gmsfs.graphs.GraphPool {self._path}: {what}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self._path}: a GraphPool is neither copied nor sent to another process; open the store there, "
            "to take turns"
        )

    def __enter__(self) -> Any:
        self._live()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _renew(self) -> None:
        """In a child of fork(): every call is to say ECHILD, and none to wait for a thread of the parent."""
        self._forked = True
        self._lock = threading.RLock()
        self._launching.renew()

    def _live(self) -> Any:
        if self._handle is None:
            raise ValueError(f"{self._path} is closed")
        return self._handle

    def _check_awake(self, call: str) -> None:
        """Asks no mount: for calls of every batch. Touching memory of a sleeping pool would end the process,
        or its CUDA context."""
        if self._launching.asleep:
            self._live().stats()  # of a pool that is closed, or of fork()'s parent, that is said
            raise errors.make(errno.ENOLCK, self._path, call, "the pool sleeps; wake() it first")

    def _load(self) -> Any:
        with self._lock:
            if self._torch is None:
                self._torch = _load_torch(self._path, self._live().device)
            return self._torch

    def close(self) -> None:
        """Ends the pool: its graphs are reset, its memory and the lock go back. Rows and tensors of it are
        not to be touched any more."""
        if self._forked:
            self._handle = None  # graphs and device are the parent's
        if self._handle is None:
            return
        with captures.taken(self._path), self._launching.held_off(), self._lock:
            if self._handle is None:
                return
            handle, self._handle = self._handle, None
            self._launching.asleep = True
            for capture in self._shapes.values():
                self._forget(capture)
            self._shapes.clear()
            self._pending.clear()
            handle.fall_asleep()

    # ---- looking ------------------------------------------------------------------------------

    @property
    def path(self) -> Any:
        return self._path

    @property
    def asleep(self) -> Any:
        return not self._live().stats().awake

    @property
    def stats(self) -> Any:
        raw = self._live().stats()
        return Stats(raw.awake, len(self._shapes), len(self._pending), *raw[1:])

    @property
    def shapes(self) -> Any:
        """All that are captured, as they were."""
        return list(self._shapes)

    def __contains__(self, shape: Any) -> bool:
        return shape in self._shapes

    def __getitem__(self, shape: Any) -> Any:
        """The Capture."""
        return self._shapes[shape]

    # ---- capturing ----------------------------------------------------------------------------

    def space(self, reserve_bytes: Any = None) -> Any:
        """A Space that several shapes may be captured into, one after the other: those known beforehand,
        the largest first, or the pieces of one shape. It stays until its free()."""
        return Space(self, reserve_bytes or self._reserve_bytes)

    @contextlib.contextmanager
    def capture(
        self,
        graph: Any,
        shape: Any,
        *,
        space: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
    ) -> Iterator[Any]:
        """Captures the launches inside the `with` into `graph`, a torch.cuda.CUDAGraph, as `shape` (any key).

        Gives a Capture; its keep() takes outputs; other tensors made inside must be gone at the end, or
        the capture is undone and Leak raised. space: a Space to join; without, one of its own.
        stream: to capture on, or one of the pool's choice. Captures of a process come one at a time.
        """
        self._launching.check()
        with captures.taken(self._path):
            handle = self._live()
            if self.asleep:
                raise handle.error("gmsfs_graph_alloc", errno.ENOLCK)
            self._check_new(graph, shape, space)
            torch = self._load()
            self._reap()
            joined = space or Space(self, self._reserve_bytes, passing=True)
            capture = Capture(shape, graph, joined)
            begun = False
            try:
                with torch.device():
                    stream = stream or torch.capture_stream()
                    torch.clear_workspaces()
                    with joined._selected(torch.pointer(stream)), torch.capturing(
                        graph, joined._torch_pool(), stream, capture_error_mode
                    ):
                        begun = True
                        yield capture
                    torch.clear_workspaces()
                self._audit(capture)
            except BaseException as error:
                self._undo(capture, begun)
                self._explain(error)
                raise
            with self._lock:
                self._live()
                joined._captures.append(capture)
                self._shapes[shape] = capture

    def _check_new(self, graph: Any, shape: Any, space: Any) -> None:
        if shape in self._shapes:
            raise ValueError(f"{self._path}: shape {shape!r} is captured; drop() it first")
        for other in self._shapes.values():
            if other.graph is graph:
                raise ValueError(
                    f"{self._path}: this graph is that of shape {other.shape!r}; each shape needs a "
                    "CUDAGraph of its own"
                )
        if space is not None and (not isinstance(space, Space) or space._pool is not self):
            raise ValueError(f"{self._path}: space is no Space of this pool; make one by its space()")

    def _audit(self, capture: Any) -> None:
        """Finds blocks that stay allocated without keep(): replays of other shapes overwrite them."""
        left = self._find_left(capture)
        if left:
            gc.collect()  # tensors in cycles
            left = self._find_left(capture)
        if left:
            holder = self._torch.holder
            raise Leak(
                self._path,
                capture.shape,
                [Block(address, nbytes, holder(address), place) for address, nbytes, place in left],
            )

    def _find_left(self, capture: Any) -> Any:
        beside = [*capture.space._captures, capture]
        kept = {self._torch.base_of(tensor) for one in beside for tensor in one.outputs}
        if self._torch.has_nothing_but(capture.space._mempool, kept):
            return []
        blocks = self._torch.allocated(capture.space._mempool)
        return [block for block in blocks if block[0] not in kept]

    def _undo(self, capture: Any, begun: Any) -> None:
        with self._lock:
            self._forget(capture, begun, failed=True)
            self._reap()

    def _explain(self, error: Any) -> None:
        """torch knows one reason for having no memory: that there is none."""
        if self._torch is None or not self._torch.is_out_of_memory(error):
            return
        reason = self._handle.alloc_error() if self._handle else None
        if reason is not None:
            raise reason from error

    def grow(self, nbytes: int) -> None:
        """Allocates memory until the pool has nbytes: captures then find it, and do not wait for an
        allocation. stats.high_bytes of an earlier run tells how many. shrink() gives back the excess."""
        self._live().call("gmsfs_graph_grow", nbytes)

    # ---- freeing ------------------------------------------------------------------------------

    def drop(self, shape: Any, shrink: bool = True) -> Any:
        """Resets the shape's graph and frees its space, if it is alone in it. The bytes that came back.

        Other shapes keep their addresses and stay valid. The space of outputs that are still referenced is
        freed with them."""
        with captures.taken(self._path), self._launching.held_off(), self._lock:
            self._live()
            self._forget(self._shapes.pop(shape))
            self._reap()
            return self._shrink() if shrink else 0

    def shrink(self) -> Any:
        """Gives back the memory that no shape needs. The bytes that came back."""
        with captures.taken(self._path), self._launching.held_off(), self._lock:
            self._live()
            self._reap()
            return self._shrink()

    def _shrink(self) -> Any:
        handle = self._live()
        if self.asleep:
            return 0
        freed = ctypes.c_uint64()
        handle.call("gmsfs_graph_shrink", ctypes.byref(freed))
        return freed.value

    def _forget(self, capture: Any, begun: bool = True, failed: bool = False) -> None:
        """Ends the graph first, which releases torch's memory pool. Without `begun` it may be captured
        elsewhere, and is left alone."""
        space = capture.space
        if begun and self._torch is not None:
            with contextlib.suppress(RuntimeError):  # a graph with a failed capture may have no end
                self._torch.reset(capture.graph)
            if failed and space._mempool is not None:
                self._torch.abandon(space._mempool)
        capture.outputs.clear()
        if capture in space._captures:
            space._captures.remove(capture)
        if space._passing and not space._captures:
            self._condemn(space)

    def _condemn(self, space: Any) -> None:
        space._mempool = None
        if space._space is not None:
            self._pending.append(space._space)
            space._space = None

    def _reap(self) -> None:
        """Frees the spaces that tensors were still in when they were to go."""
        with self._lock:
            if self._handle is None or not self._pending:
                return
            if any(space.stats().live for space in self._pending) and self._torch is not None:
                self._torch.clear_workspaces()
                self._torch.empty_cache()
            for space in list(self._pending):
                try:
                    space.free()
                except errors.Busy:
                    continue
                self._pending.remove(space)

    def _free_space(self, space: Any) -> None:
        with captures.taken(self._path), self._launching.held_off(), self._lock:
            self._live()
            if space._captures:
                raise errors.make(
                    errno.EBUSY, self._path, "free", f"shapes {space.shapes} are in it; drop() them first"
                )
            self._condemn(space)
            self._reap()

    def _free_arena(self, arena: Any) -> None:
        with captures.taken(self._path), self._launching.held_off(), self._lock:
            self._live()
            if arena._space is None:
                return
            arena._mempool = None
            if self._torch is not None:
                self._torch.clear_workspaces()
                self._torch.empty_cache()
            arena._space.free()
            arena._space = None

    # ---- replaying ----------------------------------------------------------------------------

    def launch(self) -> Any:
        """For a `with` in which the thread launches graphs of the pool by itself. Threads take turns; on
        the device too, but with guard="refuse" the `with` is Busy while another graph runs."""
        return self._launching

    def replay(self, shape: Any) -> None:
        """Launches the shape's graph on the current stream."""
        graph = self._shapes[shape].graph
        with self._launching:
            graph.replay()

    # ---- sleeping -----------------------------------------------------------------------------

    def sleep(self, keep: bool = False) -> None:
        """Waits for the device's work, then gives back all memory and the lock. Graphs and addresses stay;
        the contents are lost, also those of arenas and rows. keep: leaves the memory in the store, for
        the next pool, which can read it."""
        with self._launching.held_off():
            handle = self._live()
            before, self._launching.asleep = self._launching.asleep, True
            try:
                handle.call("gmsfs_graph_sleep", abi.GRAPH_KEEP if keep else 0)
            except errors.Busy:
                self._launching.asleep = before  # nothing has changed
                raise

    def wake(self, timeout: Optional[float] = None) -> None:
        """Takes the store's lock and maps every space at its addresses: graphs may be launched again."""
        handle = self._live()
        handle.wake(timeout)
        with self._launching.held_off():  # another thread may have put it to sleep again
            self._launching.asleep = not handle.stats().awake

    # ---- arenas and rows ----------------------------------------------------------------------

    def arena(self, reserve_bytes: Any = None) -> Any:
        """Makes an Arena: memory for torch's allocations that the program keeps."""
        return Arena(self, reserve_bytes or self._reserve_bytes, eager=True)

    def rows(
        self,
        count: int,
        shape: Any = (),
        dtype: str = "float32",
        framework: Optional[str] = None,
    ) -> Any:
        """Rows: a buffer of `count` rows of this shape, cleared, of which captures use the first ones. Not
        inside of a capture, which would clear it at every replay."""
        captures.check(self._path)
        with self._lock:
            handle = self._live()
            if self._rows is None:
                self._rows = graph_handle.SpaceHandle(handle, self._reserve_bytes, eager=True)
            made = graph_rows.make(self._rows, count, shape, dtype, framework)
            return Rows(made, self)
