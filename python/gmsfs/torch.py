# SPDX-License-Identifier: Apache-2.0
"""torch modules in a store, and the calls of safetensors.torch over the path of a store.

    import gmsfs.torch

    shared = gmsfs.torch.publish(model, "/mnt/gms/gpu0/weights")     # in the first process
    shared = gmsfs.torch.attach(model, "/mnt/gms/gpu0/weights")      # in every other, model on "meta"

Parameters are shared: they lie over the store's memory, read-only. Buffers are private copies, for modules
write to them. A call from several threads for one module is the caller's to serialise.
"""

from __future__ import annotations

import json
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional

import torch

from . import abi, metadata as metadata_module, with_torch
from .errors import BadArgument, Mismatch, NoMemory
from .module_attach import Attacher
from .module_guard import Guard
from .module_parts import (
    FINGERPRINT_KEY,
    ModulePlaces,
    Part,
    addresses,
    empty_parameters,
    modules,
    plain_attributes,
    survey,
)
from .opening import find_or_make, open as open_store
from .publish import _full, publish as publish_tensors, write
from .safe import safe_open
from .store import Store

__all__ = [
    "Report",
    "Shared",
    "attach",
    "empty_parameters",
    "load_file",
    "publish",
    "safe_open",
    "save_file",
]


class Report(NamedTuple):
    """Where the tensors of a module are: bytes by name."""

    shared: Dict[str, int]  # over the store's memory
    private: Dict[str, int]  # in memory of this process, plain attributes included
    left: Dict[str, int]  # parameters that were shared, and are replaced, copied (Shared.guard) or gone since

    @property
    def shared_bytes(self) -> int:
        return sum(self.shared.values())

    @property
    def private_bytes(self) -> int:
        return sum(self.private.values())


class Shared:
    """A module with parameters in a store; made by publish() and attach().

    store: the Store, a reader, which is closed when the module is gone, or by close().
    """

    def __init__(self, store: Store, module: Any, parts: List[Part]) -> None:
        self.store = store
        self._module = weakref.ref(module)
        self._sizes = {part.name: part.tensor.nbytes for part in parts if part.is_parameter}
        weakref.finalize(module, store.close).atexit = False

    def __repr__(self) -> str:
        return f"<gmsfs.torch.Shared of {self.store.path}>"

    def report(self) -> Report:
        """Lists the parameters that are shared and private now. A parameter that an engine replaced, or took
        out of the module, after the attach is in `left`. Tensors that share memory are counted under the
        first name."""
        module = self._module()
        if module is None:
            return Report({}, {}, {})
        shared: Dict[str, int] = {}
        private: Dict[str, int] = {}
        inside: Dict[str, int] = {}
        seen = set()
        for name, tensor in _all_tensors(module):
            nbytes = tensor.nbytes
            if self._is_inside(tensor):
                inside[name] = nbytes
            place = (tensor.device, tensor.data_ptr(), nbytes)
            if nbytes and place not in seen:
                seen.add(place)
                (shared if name in inside else private)[name] = nbytes
        left = {name: size for name, size in self._sizes.items() if inside.get(name) != size}
        return Report(shared, private, left)

    def _is_inside(self, tensor: Any) -> bool:
        if tensor.is_meta:
            return False
        return not tensor.numel() or self.buffer_at(tensor.data_ptr()) is not None

    def buffer_at(self, address: int) -> Any:
        """The Buffer of the store that an address lies in, or None."""
        for buffer in self.store._buffers.values():
            if buffer.address <= address < buffer.address + buffer.nbytes:
                return buffer
        return None

    def shared_parts(self) -> List[Part]:
        """The parameters, and the buffers within them, that lie in the store's memory and have bytes."""
        module = self._module()
        parts = survey(modules(module)) if module is not None else []
        return [part for part in parts if part.tensor.numel() and self._is_inside(part.tensor)]

    def sleep(self) -> None:
        """Gives memory and lock back. Addresses stay; touching a parameter faults until wake()."""
        self.store.sleep()

    def wake(self, timeout: Optional[float] = None, strict: bool = True) -> int:
        """Maps the same bytes at the same addresses; see Store.wake. strict: Stale if another commit came
        meanwhile, also one of the same layout."""
        return self.store.wake(timeout, strict)

    def guard(self, private: bool = False) -> Guard:
        """A context in which an operation that is about to write to a shared parameter raises
        gmsfs.ReadOnly with its name, in place of SIGSEGV or a lost CUDA context. Costs some microseconds an
        operation: for tests, and to find the code that writes.

        private: in place of raising, the parameter gets a private copy first, and is in `left` of the
        report; for the start of an engine that processes weights after it loaded them. The end of the context
        raises ReadOnly if a tensor that was made from such a parameter before the write is still alive,
        because it shows the bytes from before."""
        return Guard(self, private)

    def name_at(self, tensor: Any) -> Optional[str]:
        """The parameter's name, or the tensor's address, if it lies in the store's memory."""
        if tensor.is_meta or not self._is_inside(tensor) or not tensor.numel():
            return None
        address = tensor.data_ptr()
        for part in self.shared_parts():
            first, end = addresses(part.tensor)
            if first <= address < end:
                return part.name
        return f"at {address:#x}"

    def close(self) -> None:
        """Gives the lock back; parameters stay valid, but a writer may change their bytes."""
        self.store.close()


def _all_tensors(module: Any) -> Any:
    walked = modules(module)
    for part in survey(walked):
        yield part.name, part.tensor
    for attribute in plain_attributes(walked):
        yield attribute.name, attribute.tensor


def encode_fingerprint(path: str, fingerprint: Mapping[str, Any]) -> bytes:
    """As the entry gmsfs.fingerprint has it: JSON, an object of strings."""
    for field, value in fingerprint.items():
        if not isinstance(field, str) or not isinstance(value, (str, int, float, bool)):
            raise TypeError(
                f"{path}: fingerprint: {field!r}: fields are strings, their values strings or numbers"
            )
    fields = {field: str(value) for field, value in fingerprint.items()}
    text = json.dumps(fields, separators=(",", ":"), sort_keys=True)
    if len(text) > abi.VALUE_MAX:
        raise BadArgument(path, "fingerprint", f"it is more than {abi.VALUE_MAX} bytes of JSON")
    return text.encode()


def check_fingerprint(store: Store, fingerprint: Optional[Mapping[str, Any]]) -> None:
    """Raises Mismatch for each field that differs, or that one side alone has. None: nothing is compared."""
    if fingerprint is None:
        return
    ours = json.loads(encode_fingerprint(store.path, fingerprint))
    if FINGERPRINT_KEY not in store.metadata:
        raise Mismatch(
            store.path,
            "fingerprint",
            "the store has none, as after 'gmsfs load', whose names are those of files and not always those "
            "of a model; name an empty store, or one that is not there",
        )
    try:
        theirs = json.loads(store.metadata[FINGERPRINT_KEY])
    except ValueError:
        theirs = {}
    theirs = theirs if isinstance(theirs, dict) else {}
    differing = [
        f"{field}: the store has {theirs.get(field)!r}, this process wants {ours.get(field)!r}"
        for field in sorted({*ours, *theirs})
        if ours.get(field) != theirs.get(field)
    ]
    if differing:
        raise Mismatch(
            store.path,
            "fingerprint",
            "; ".join(differing) + ". Use another store, or publish this model anew",
        )


def publish(
    module: Any,
    target: Any,
    *,
    fingerprint: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = None,
    tag: str = "weights",
    chunk_bytes: Optional[int] = None,
) -> Shared:
    """Moves the parameters of a module into a store, commits, and stays on as a reader.

    target: a path: the store is made if it is missing, and publish() waits for its lock; or a Store that is
    the writer. fingerprint: for attach() to compare, a dict of strings and numbers such as model, revision,
    dtype, rank.
    Parameter objects, their classes and attributes stay. Ties and views of one memory stay so. A parameter
    that the store has needs no gradient any more. Buffers go to the store's device, and stay private.
    Memory: the module and one slab of `chunk_bytes`.
    The same module gives the same layout_hash. After any failure nothing is committed, and the module
    can be used: its parameters are private then, some of them in memory of the aborted store.
    """
    made = not isinstance(target, Store)
    store = find_or_make(target) if made else target
    try:
        plan = plan_module(store, module, fingerprint, tag)
        if made:
            _take_writer(store, plan, timeout, chunk_bytes)
        return move_in(store, module, plan, chunk_bytes, lambda: store.commit(stay=True))
    except BaseException:
        if made:
            store.close()
        raise


def plan_module(
    store: Store, module: Any, fingerprint: Optional[Mapping[str, Any]], tag: str
) -> ModulePlaces:
    """Where the parts of a module go; everything that can be wrong with it is found here."""
    encoded = encode_fingerprint(store.path, fingerprint or {})
    return ModulePlaces(store.path, module, encoded, metadata_module.encode_tag(store.path, tag))


def move_in(
    store: Store, module: Any, plan: ModulePlaces, chunk_bytes: Optional[int], commit: Callable[[], None]
) -> Shared:
    """The part of publish() behind the lock; commit() ends it, and an exception of it aborts."""
    homes = _Homes(plan)
    write(store, plan, chunk_bytes, commit, homes.adopt)
    homes.finish()
    return Shared(store, module, plan.parts)


def _take_writer(store: Store, plan: Any, timeout: Optional[float], chunk_bytes: Optional[int]) -> None:
    plan.place(store.info, chunk_bytes)
    store._live().call("gmsfs_set_connect_flags", abi.CONNECT_REPLACE)
    try:
        store._live().connect(abi.MODE_RW, timeout, plan.aligned_bytes)
    except NoMemory as error:
        raise _full(error, plan.aligned_bytes) from None


class _Homes:
    """Points the parameters at their bytes in the store, slab by slab."""

    def __init__(self, plan: ModulePlaces) -> None:
        self._parts = plan.parts
        self._tensors = {part.name: part.tensor for part in plan.parts}
        self._shared = {id(item.names) for item in plan.items[: plan.homed]}
        self._moved: Dict[int, Any] = {}

    def adopt(self, buffer: Any, items: Any) -> None:
        storage = with_torch._storage(with_torch.base(buffer))
        for item, offset in items:
            if id(item.names) in self._shared:
                self._move(item, storage[offset : offset + item.nbytes])
        if storage.device.type == "cuda":
            torch.cuda.empty_cache()  # so that the next slab finds the memory that this one frees

    def _move(self, item: Any, storage: Any) -> None:
        for name, _, within in item.names:
            tensor = self._tensors[name]
            if id(tensor) in self._moved:
                continue
            home = torch.empty(0, dtype=tensor.dtype, device=storage.device)
            home.set_(storage, within // tensor.element_size(), tensor.shape, tensor.stride())
            tensor.data = home
            self._moved[id(tensor)] = tensor

    def finish(self) -> None:
        """Of a module that was on another device than the store, the buffers follow the parameters."""
        for tensor in self._moved.values():
            tensor.requires_grad_(False)
        for device in {tensor.device for tensor in self._moved.values()}:
            for part in self._parts:
                if not part.is_parameter and part.tensor.device != device:
                    part.owner._buffers[part.leaf] = part.tensor.to(device)


def attach(
    module: Any,
    target: Any,
    *,
    fingerprint: Optional[Mapping[str, Any]] = None,
    timeout: Optional[float] = None,
) -> Shared:
    """Puts the tensors of a store into a module: parameters without a copy, buffers as private copies.

    module: made on the meta device, or with parameters of any contents. Names, shapes and dtypes are held
    against the store's, both ways: a missing, surplus or different one raises gmsfs.Mismatch by name,
    and the module is as it was. Ties are as they were in the module that was published. A buffer that is
    not persistent comes from the store, or stays as the module has it.
    target: a path: attach() waits for a commit there; or a Store that is a reader.
    """
    made = not isinstance(target, Store)
    store = open_store(target, "ro", timeout) if made else target
    try:
        check_fingerprint(store, fingerprint)
        attacher = Attacher(store, module)
        attacher.run()
    except BaseException:
        if made:
            store.close()
        raise
    return Shared(store, module, attacher.parts)


def load_file(
    filename: Any, device: Any = None, *, backend: str = "mmap", timeout: Optional[float] = None
) -> Dict[str, Any]:
    """In place of safetensors.torch.load_file, with the path of a store: its tensors by name.

    Nothing is copied unless `device` is one on which the store is not. The lock is kept as long as one of
    the tensors lives. backend: of a file, and without meaning for a store.
    """
    tensors: Dict[str, Any] = open_store(filename, "ro", timeout).tensors("torch")
    if device is None:
        return tensors
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def save_file(
    tensors: Dict[str, Any],
    filename: Any,
    metadata: Optional[Dict[str, str]] = None,
    *,
    timeout: Optional[float] = None,
) -> None:
    """In place of safetensors.torch.save_file, with the path of a store, which is made if it is not there.
    Tensors that share memory are stored once; one that is not contiguous is stored contiguous."""
    publish_tensors(filename, tensors, metadata, timeout=timeout)
