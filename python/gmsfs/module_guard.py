# SPDX-License-Identifier: Apache-2.0
"""Finds what is about to write to a shared parameter, before the process or its CUDA context is lost."""

from __future__ import annotations

import errno
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from .errors import ReadOnly


class Guard(TorchDispatchMode):  # type: ignore[misc] # torch is not typed
    """A context; see gmsfs.torch.Shared.guard."""

    def __init__(self, shared: Any) -> None:
        super().__init__()
        self._shared = shared

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (list, tuple)) else (given,):
                self._check(func, tensor)
        return func(*args, **kwargs)

    def _check(self, func: Any, tensor: Any) -> None:
        name = self._shared.name_at(tensor) if hasattr(tensor, "data_ptr") else None
        if name is not None:
            raise ReadOnly(
                errno.EACCES,
                self._shared.store.path,
                f"{func} on {name!r}",
                "it is shared and read-only; clone() it first, or publish what the operation makes of it",
            )
