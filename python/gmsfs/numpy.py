# SPDX-License-Identifier: Apache-2.0
"""The calls of safetensors.numpy over the path of a store in host memory.

    from gmsfs.numpy import load_file, save_file

Arrays lie over the memory of the store and are read-only: change a copy() of them.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from .opening import open as open_store
from .publish import publish as publish_tensors
from .safe import safe_open

__all__ = ["load_file", "safe_open", "save_file"]


def load_file(
    filename: Any, *, backend: str = "mmap", timeout: Optional[float] = None
) -> Dict[str, Any]:
    """In place of safetensors.numpy.load_file, with the path of a store: its arrays by name.

    Nothing is copied. The lock is kept as long as one of the arrays lives. backend: of a file, and without
    meaning for a store.
    """
    return open_store(filename, "ro", timeout).tensors("numpy")


def save_file(
    tensor_dict: Dict[str, Any],
    filename: Any,
    metadata: Optional[Dict[str, str]] = None,
    *,
    timeout: Optional[float] = None,
) -> None:
    """In place of safetensors.numpy.save_file, with the path of a store, which is made if it is not there.
    Arrays that share memory are stored once; one that is not contiguous is stored contiguous."""
    publish_tensors(filename, tensor_dict, metadata, timeout=timeout)
