# SPDX-License-Identifier: Apache-2.0
"""A store by the words of safetensors.safe_open: one tensor, or a piece of one, at a time."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from . import dtypes
from .errors import BadMetadata
from .metadata import LONG_FORMAT
from .opening import open
from .store import Store

METADATA_KEY = "__metadata__"
FRAMEWORKS = {"pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy"}
# The safetensors names of torch's dtypes, where they are not the upper-case number and letter.
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}


class Slice:
    """A tensor that is not made yet: its shape and dtype, and [...] for a piece of it."""

    def __init__(self, owner: "safe_open", name: str) -> None:
        self._owner = owner
        self._name = name
        owner._spec(name)

    def get_shape(self) -> List[int]:
        return list(self._owner._spec(self._name).shape)

    def get_dtype(self) -> str:
        """As safetensors calls it: "F32"."""
        name = dtypes.strip(self._owner._spec(self._name).dtype)
        return str(_NAMES.get(name, name))

    def __getitem__(self, index: Any) -> Any:
        return self._owner._place(self._owner._tensor(self._name)[index])


class safe_open:
    """`with gmsfs.safe_open(store, framework="pt") as f:` in place of safetensors.safe_open(file, ...).

    Tensors lie over the store's memory, on its device: nothing is copied or read, so a slice costs
    nothing but itself. device: None leaves them there; a torch tensor that is asked for on another one
    is a copy. backend: of a file, and without meaning for a store. timeout: as of gmsfs.open.
    """

    def __init__(
        self,
        filename: Any,
        framework: str = "pt",
        device: Any = None,
        *,
        backend: str = "mmap",
        timeout: Optional[float] = None,
    ) -> None:
        if framework not in FRAMEWORKS:
            raise ValueError(f'framework is "pt" or "np", not {framework!r}')
        self._framework = FRAMEWORKS[framework]
        if self._framework == "numpy" and device not in (None, "cpu"):
            raise ValueError(f'NumPy has arrays of the processor alone: device is "cpu", not {device!r}')
        self._device = device
        self._store: Store = open(filename, "ro", timeout)
        self._specs: Optional[Dict[str, Any]] = None

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._store.close()

    def _all(self) -> Dict[str, Any]:
        """Of a layout that stays as it is, as long as the lock does."""
        if self._specs is None:
            self._specs = self._store.specs()
        else:
            self._store._touch()
        return self._specs

    def _spec(self, name: str) -> Any:
        try:
            return self._all()[name]
        except KeyError:
            raise KeyError(f"{self._store.path}: no tensor is called {name!r}") from None

    def keys(self) -> List[str]:
        """The names, sorted."""
        return sorted(self._all())

    def offset_keys(self) -> List[str]:
        """The names, as they lie in memory."""
        return list(self._all())

    def metadata(self) -> Optional[Dict[str, str]]:
        """__metadata__ of the files that were loaded, or None."""
        try:
            value, slot, offset = self._store.metadata.get_entry(METADATA_KEY)
        except KeyError:
            return None
        found = json.loads(value)
        if slot is not None and isinstance(found, dict) and found.get("format") == LONG_FORMAT:
            found = json.loads(self._read(slot, offset, found["bytes"]))
        return found if isinstance(found, dict) else None

    def _read(self, slot: int, offset: int, nbytes: int) -> bytes:
        """Bytes of an allocation, wherever that is."""
        buffer = next(one for one in self._store.buffers() if one.slot == slot)
        if not 0 <= nbytes <= buffer.nbytes - offset:
            raise BadMetadata(self._store.path, METADATA_KEY, "it reaches beyond its allocation")
        if buffer.device is None:
            return bytes(buffer.view()[offset : offset + nbytes])
        from . import with_torch

        whole = with_torch.base(buffer)
        return bytes(whole[offset : offset + nbytes].cpu().numpy().tobytes())

    def get_tensor(self, name: str) -> Any:
        return self._place(self._tensor(name))

    def get_tensors(self) -> Dict[str, Any]:
        """All of them, by name, as they lie in memory."""
        tensors = self._store.tensors(self._framework)
        return {name: self._place(tensor) for name, tensor in tensors.items()}

    def _tensor(self, name: str) -> Any:
        self._spec(name)
        return self._store.tensors(self._framework, [name])[name]

    def _place(self, tensor: Any) -> Any:
        if self._device is None or self._framework == "numpy":
            return tensor
        return tensor.to(self._device)  # itself, where it is there already

    def get_slice(self, name: str) -> Slice:
        return Slice(self, name)
