# SPDX-License-Identifier: Apache-2.0
"""The pieces of a torch module that a store can hold.

A parameter is stored where it lies in its storage, together with everything else in that storage: views of
one memory stay views of one memory. A buffer is stored as a copy, unless it lies in a parameter's storage.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

import torch

from . import dtypes, layout, metadata as metadata_module
from .errors import BadArgument
from .publish import ALIGNMENT_BYTES, Item, Places

FINGERPRINT_KEY = "gmsfs.fingerprint"
MAX_NAMED = 8  # names in one message


class Part(NamedTuple):
    """A parameter or buffer under one of its names."""

    name: str
    owner: Any  # the module that has it
    leaf: str  # its name there
    tensor: Any
    is_parameter: bool
    persistent: bool  # part of state_dict()


def modules(module: Any) -> List[Tuple[str, Any]]:
    """(prefix of its names, module) of the module and all below it, as often as they have names."""
    found, todo = [], [("", module)]
    while todo:
        prefix, one = at = todo.pop()
        found.append(at)
        if one._modules:
            for leaf, child in reversed(one._modules.items()):
                if child is not None:
                    todo.append((f"{prefix}{leaf}.", child))
    return found


def survey(walked: List[Tuple[str, Any]]) -> List[Part]:
    """All parameters and buffers of modules(), one Part for each name, in the order of the modules."""
    parts = []
    for prefix, owner in walked:
        for leaf, tensor in owner._parameters.items():
            if tensor is not None:
                parts.append(Part(prefix + leaf, owner, leaf, tensor, True, True))
        if not owner._buffers:
            continue
        for leaf, tensor in owner._buffers.items():
            if tensor is not None:
                persistent = leaf not in owner._non_persistent_buffers_set
                parts.append(Part(prefix + leaf, owner, leaf, tensor, False, persistent))
    return parts


class Attribute(NamedTuple):
    """A tensor that a module has as a plain attribute: neither a parameter nor a buffer."""

    name: str
    owner: Any
    leaf: str
    tensor: Any


def plain_attributes(walked: List[Tuple[str, Any]]) -> Iterator[Attribute]:
    """The attributes that are tensors, of all of modules()."""
    others: Set[Any] = set()  # types that are no tensors: there are few, and many attributes
    for prefix, owner in walked:
        if others.issuperset(map(type, vars(owner).values())):
            continue
        for leaf, value in vars(owner).items():
            kind = type(value)
            if kind in others:
                continue
            if isinstance(value, torch.Tensor):
                yield Attribute(prefix + leaf, owner, leaf, value)
            else:
                others.add(kind)


@contextlib.contextmanager
def empty_parameters() -> Iterator[None]:
    """A context in which the parameters of new modules go to the meta device as they are registered.

    Buffers and plain attributes are made as always, so nothing has to compute them again. The Parameter
    objects, their classes and attributes stay. Not for modules that read a parameter's values while they
    are made. Affects all threads of the process.
    """
    register = torch.nn.Module.register_parameter

    def register_empty(module: Any, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        registered = module._parameters[name]
        if registered is None or registered.is_meta:
            return
        empty = torch.empty_like(registered.data, device="meta")
        made = torch.Tensor._make_subclass(type(registered), empty, registered.requires_grad)
        made.__dict__.update(registered.__dict__)
        torch.utils.swap_tensors(registered, made)

    torch.nn.Module.register_parameter = register_empty
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def some(names: List[str]) -> str:
    """Names for a message: the first few, and how many more there are."""
    text = ", ".join(map(repr, names[:MAX_NAMED]))
    return f"{text} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else text


class ModulePlaces(Places):
    """Where the parts of a module go in a store."""

    def __init__(self, path: str, module: Any, fingerprint: bytes, tag: bytes) -> None:
        super().__init__(path)
        self.parts = survey(modules(module))
        self._tag = tag
        self._first: Dict[int, str] = {}  # by id of a tensor: the name that its other names are tied to
        storages: Dict[Any, List[Part]] = {}
        for part in self.parts:
            self._check(part)
            if part.is_parameter and part.tensor.numel():
                storages.setdefault(_storage_of(part.tensor), [])
        copied: Dict[int, List[Part]] = {}
        for part in self.parts:
            shared = storages.get(_storage_of(part.tensor)) if part.tensor.numel() else None
            (copied.setdefault(id(part.tensor), []) if shared is None else shared).append(part)
        for parts in storages.values():
            self.items.append(self._whole(parts))
        self.homed = len(self.items)  # items before this one are the module's own memory
        for parts in copied.values():
            self.items.append(self._copy(parts))
        self.unbound.append((FINGERPRINT_KEY, fingerprint))

    def _fail(self, part: Part, why: str) -> BadArgument:
        kind = "parameter" if part.is_parameter else "buffer"
        return BadArgument(self.path, f"{kind} {part.name!r}", why)

    def _check(self, part: Part) -> None:
        tensor = part.tensor
        if not metadata_module.encode_name(part.name):
            raise self._fail(part, f"a name is {metadata_module.A_NAME}")
        if part.name == FINGERPRINT_KEY:
            raise self._fail(part, "this name means something else in a store; rename it")
        if tensor.is_meta:
            raise self._fail(part, "it is on the meta device and has no bytes; load the module first")
        if tensor.layout != torch.strided or dtypes.item_bytes(_dtype(tensor)) is None:
            raise self._fail(
                part, f"a tensor of {tensor.dtype}, {tensor.layout} cannot be stored; make it dense"
            )
        if has_parts(tensor):
            raise self._fail(
                part,
                f"a {type(tensor).__name__} is made of other tensors and has no memory of its own; publish "
                "the module before it is made so, or its inner tensors by gmsfs.publish",
            )
        if tensor.is_conj() or tensor.is_neg():
            raise self._fail(part, "it is a lazy conjugate or negative; call resolve_conj().resolve_neg()")

    def _value(self, part: Part, stride: Any) -> bytes:
        more: Dict[str, Any] = {}
        first = self._first.setdefault(id(part.tensor), part.name)
        if first != part.name:
            more["tied_to"] = first
        if not part.persistent:
            more["persistent"] = False
        if stride is not None and not part.is_parameter:
            more["shared"] = True
        kind = "parameter" if part.is_parameter else "buffer"
        value: bytes = layout.describe(_dtype(part.tensor), part.tensor.shape, stride, kind, **more)
        return value

    def _whole(self, parts: List[Part]) -> Item:
        """The bytes of one storage from the first that a part has to the last."""
        spans = [_span(part.tensor) for part in parts if part.tensor.numel()]
        start = min(start for start, _ in spans) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        end = max(end for _, end in spans)
        names = [
            (part.name, self._value(part, part.tensor.stride()), _span(part.tensor)[0] - start)
            for part in parts
        ]
        storage = parts[0].tensor.detach().untyped_storage()
        source = torch.empty(0, dtype=torch.uint8, device=storage.device)
        source.set_(storage, start, (end - start,), (1,))
        return Item(source, None, "torch", end - start, names, self._tag)

    def _copy(self, parts: List[Part]) -> Item:
        tensor = parts[0].tensor.detach()
        names = [(part.name, self._value(part, None), 0) for part in parts]
        return Item(tensor, None, "torch", tensor.numel() * tensor.element_size(), names, self._tag)


def _dtype(tensor: Any) -> str:
    name: str = dtypes.strip(str(tensor.dtype))
    return name


def has_parts(tensor: Any) -> bool:
    """Whether it is a subclass that wraps other tensors, such as a DTensor or a quantised weight."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _storage_of(tensor: Any) -> Tuple[str, int]:
    return str(tensor.device), tensor.untyped_storage().data_ptr()


def _span(tensor: Any) -> Tuple[int, int]:
    """The first byte within the storage, and the one behind the last."""
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    if not tensor.numel():
        return start, start
    last = sum((count - 1) * step for count, step in zip(tensor.shape, tensor.stride()))
    return start, start + (last + 1) * size


def addresses(tensor: Any) -> Tuple[int, int]:
    """The address of the first byte, and the one behind the last."""
    start, end = _span(tensor)
    address = tensor.data_ptr()
    return address, address + end - start
