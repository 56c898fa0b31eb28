# SPDX-License-Identifier: Apache-2.0
"""Puts the tensors of a store into a module, after comparing all of them with the module's."""

from __future__ import annotations

import json
import weakref
from collections import defaultdict
from typing import Any, Dict, List, NamedTuple

import torch

from . import dtypes, with_torch
from .errors import Mismatch
from .module_parts import Part, has_parts, modules, plain_attributes, some, survey


class Said(NamedTuple):
    """The parts of an entry's value beside dtype and shape."""

    tied_to: str  # the first name of the same tensor; "" for none
    is_shared: bool  # a buffer that lies in a parameter's memory


NOTHING = Said("", False)


def read_value(value: bytes) -> Said:
    if b'"tied_to"' not in value and b'"shared"' not in value:
        return NOTHING
    members = json.loads(value)
    tied_to = members.get("tied_to")
    return Said(tied_to if isinstance(tied_to, str) else "", members.get("shared") is True)


_swap_impl = getattr(torch._C, "_swap_tensor_impl", None)


def _swap_in(old: Any, tensor: Any) -> bool:
    """Does the work of torch.utils.swap_tensors, for an `old` that only Python refers to and a new
    tensor: class, attributes and object of `old` stay. A model has hundreds of
    them. False: nothing was done."""
    if _swap_impl is None or has_parts(old) or weakref.getweakrefcount(old) or old._use_count() != 1:
        return False
    _swap_impl(old, tensor)
    return True


class Attacher:
    """One attach: check() changes nothing, run() checks and then changes the module."""

    def __init__(self, store: Any, module: Any) -> None:
        self.store = store
        self.module = module
        walked = modules(module)
        self.parts = survey(walked)
        self.attributes = list(plain_attributes(walked))
        self.buffers, specs = store._attach(None)
        self.specs: Dict[str, Any] = {spec.name: spec for spec in specs}
        self.objects: Dict[int, List[Part]] = defaultdict(list)  # by id of a tensor of the module: its names
        for part in self.parts:
            self.objects[id(part.tensor)].append(part)
        entries = store._entries or store._working_entries(self.buffers)
        known = {value: read_value(value) for value in {value for _, _, _, value in entries}}
        self.said = {  # of the few that say something
            key: known[value]
            for key, _, _, value in entries
            if known[value] is not NOTHING and key in self.specs
        }

    def run(self) -> None:
        self.check()
        tensors = with_torch.tensors(self.store.path, self.buffers, self.specs.values())
        self._check_ties(tensors)
        for parts in self.objects.values():
            for part in parts:
                tensor = tensors.get(part.name)
                if tensor is not None:
                    self._put(parts, tensor, part.name)
                    break
        self._tie()
        self._set_attributes()

    def check(self) -> None:
        specs = self.specs
        missing, uncomputed, differing = [], [], []
        dtypes_known: Dict[Any, str] = {}
        fitting = 0  # parts that the store has
        for part in self.parts:
            name, _, _, tensor, _, persistent = part
            spec = specs.get(name)
            if spec is not None:
                fitting += 1
                dtype = dtypes_known.get(tensor.dtype)
                if dtype is None:
                    dtype = dtypes_known[tensor.dtype] = dtypes.strip(str(tensor.dtype))
                if dtype != spec.dtype or tensor.shape != spec.shape:
                    differing.append(
                        f"{name!r} is {spec.dtype}{list(spec.shape)} in the store, "
                        f"{dtype}{list(tensor.shape)} in the module"
                    )
            elif not any(other.name in specs for other in self.objects[id(tensor)]):
                if persistent:
                    missing.append(name)
                elif tensor.is_meta:
                    uncomputed.append(name)
        unexpected: List[str] = []
        if fitting < len(specs):
            known = {part.name for part in self.parts}
            unexpected = [name for name in specs if name not in known]
        words = []
        if missing:
            words.append(f"the store lacks {some(missing)}")
        if unexpected:
            words.append(f"the module has no {some(unexpected)}")
        if differing:
            words.append("; ".join(differing[:8]))
        if words:
            raise Mismatch(
                self.store.path,
                type(self.module).__name__,
                "; ".join(words) + ". Attach a module of the same configuration, or publish this one",
            )
        self._check_attributes()
        if uncomputed:
            raise Mismatch(
                self.store.path,
                type(self.module).__name__,
                f"buffers {some(uncomputed)} are on the meta device and not in the store, which was not "
                "published from a module; make only the parameters on the meta device",
            )

    def _check_ties(self, tensors: Any) -> None:
        """A file may have one tensor twice that the module has once: then both have the same bytes."""
        for parts in self.objects.values():
            if len(parts) == 1:
                continue
            names = [part.name for part in parts if part.name in self.specs]
            for name in names[1:]:
                spec, first = self.specs[name], self.specs[names[0]]
                if (spec.rank, spec.offset) == (first.rank, first.offset):
                    continue
                if not torch.equal(tensors[names[0]], tensors[name]):
                    raise Mismatch(
                        self.store.path,
                        f"{names[0]!r} and {name!r}",
                        "they are one tensor in the module and differ in the store; untie them in the module",
                    )

    def _put(self, parts: List[Part], tensor: Any, name: str) -> None:
        """The store's tensor, which has this name there, under all names of one object of the module."""
        first = parts[0]
        if not first.is_parameter:
            made = tensor if self.said.get(name, NOTHING).is_shared else tensor.clone()
            for part in parts:
                part.owner._buffers[part.leaf] = made
            return
        old = first.tensor
        if not old.is_meta:
            old.data = tensor
            old.requires_grad_(False)
            return
        if _swap_in(old, tensor):
            return
        made = torch.Tensor._make_subclass(type(old), tensor, False)
        made.__dict__.update(old.__dict__)
        try:
            torch.utils.swap_tensors(old, made)  # the object stays for its other holders
        except (RuntimeError, AttributeError):  # weak references to it, or torch before 2.2
            for part in parts:
                part.owner._parameters[part.leaf] = made

    def _tie(self) -> None:
        """Names that were one Parameter in the module that was published are one here as well."""
        if not any(said.tied_to for said in self.said.values()):
            return
        parts = {part.name: part for part in self.parts}
        for part in self.parts:
            first = parts.get(self.said.get(part.name, NOTHING).tied_to)
            if first is None or not (first.is_parameter and part.is_parameter):
                continue
            part.owner._parameters[part.leaf] = first.owner._parameters[first.leaf]

    def _check_attributes(self) -> None:
        left = [
            attribute.name
            for attribute in self.attributes
            if attribute.tensor.is_meta and id(attribute.tensor) not in self.objects
        ]
        if left:
            raise Mismatch(
                self.store.path,
                type(self.module).__name__,
                f"{some(left)}: a plain attribute is on the meta device, and a store has parameters and "
                "buffers alone; make it a buffer, or make only the parameters on the meta device",
            )

    def _set_attributes(self) -> None:
        """An attribute that is a buffer, or was before the parameter was replaced, stays the same tensor."""
        for attribute in self.attributes:
            for part in self.objects.get(id(attribute.tensor), [])[:1]:
                names = part.owner._parameters if part.is_parameter else part.owner._buffers
                setattr(attribute.owner, attribute.leaf, names[part.leaf])
