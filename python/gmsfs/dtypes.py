# SPDX-License-Identifier: Apache-2.0
"""Element types: torch's names, which the metadata of a store uses, and NumPy's types for them."""

import importlib
from typing import Any

# name: (bytes of an element, NumPy's type or None, ml_dtypes' type or None, integers of the same
# size).
# float4_e2m1fn_x2 is two elements in a byte; other types of fewer than 8 bits are uint8, as in torch.
_ROWS = {
    "bool": (1, "?", None, None),
    "uint8": (1, "u1", None, None),
    "int8": (1, "i1", None, None),
    "uint16": (2, "u2", None, None),
    "int16": (2, "i2", None, None),
    "uint32": (4, "u4", None, None),
    "int32": (4, "i4", None, None),
    "uint64": (8, "u8", None, None),
    "int64": (8, "i8", None, None),
    "float16": (2, "f2", None, None),
    "bfloat16": (2, None, "bfloat16", "u2"),
    "float32": (4, "f4", None, None),
    "float64": (8, "f8", None, None),
    "complex64": (8, "c8", None, None),
    "complex128": (16, "c16", None, None),
    "float8_e4m3fn": (1, None, "float8_e4m3fn", "u1"),
    "float8_e5m2": (1, None, "float8_e5m2", "u1"),
    "float8_e8m0fnu": (1, None, "float8_e8m0fnu", "u1"),
    "float8_e4m3fnuz": (1, None, "float8_e4m3fnuz", "u1"),
    "float8_e5m2fnuz": (1, None, "float8_e5m2fnuz", "u1"),
    "float4_e2m1fn_x2": (1, None, None, "u1"),
}

_PREFIX = "torch."


def strip(name: str) -> Any:
    return name[len(_PREFIX) :] if name.startswith(_PREFIX) else name


def item_bytes(name: str) -> Any:
    """Bytes of an element of torch's type of that name, or None: unknown."""
    row = _ROWS.get(name)
    return row[0] if row else None


def to_numpy(numpy: Any, name: str) -> Any:
    """NumPy's type; ml_dtypes' where NumPy has none; without that, integers with the same bits."""
    _, native, foreign, bits = _ROWS[name]
    if native:
        return numpy.dtype(native)
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), foreign or ""))
    except (ImportError, AttributeError, TypeError):
        return numpy.dtype(bits)


def from_numpy(dtype: Any) -> Any:
    """Torch's name for a NumPy type, or None. NumPy disagrees with itself about the values of ml_dtypes'
    types of several bytes in the other byte order: None."""
    for name, (size, native, foreign, _) in _ROWS.items():
        if native and dtype.kind != "V" and dtype.newbyteorder("=").str[1:] == _numpy_text(native):
            return name
        if foreign and dtype.name == foreign:
            return name if dtype.isnative or size == 1 else None
    return None


def _numpy_text(native: Any) -> Any:
    return "b1" if native == "?" else native


# Of memoryview: native formats of one letter.
_FORMATS = {
    "?": "bool",
    "B": "uint8",
    "b": "int8",
    "c": "uint8",
    "H": "uint16",
    "h": "int16",
    "I": "uint32",
    "i": "int32",
    "L": "uint64",
    "l": "int64",
    "Q": "uint64",
    "q": "int64",
    "e": "float16",
    "f": "float32",
    "d": "float64",
}


def from_format(text: str, size: int) -> Any:
    name = _FORMATS.get(text.lstrip("@="))
    return name if name and item_bytes(name) == size else None
