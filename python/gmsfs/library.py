# SPDX-License-Identifier: Apache-2.0
"""Finding libgmsfs: where GMSFS_LIBRARY says, beside this file, where a wheel has it, or by its soname."""

import ctypes
import os
import threading
from typing import Any

from . import abi
from .errors import LibraryError

_lock = threading.Lock()
_library = None

libc = ctypes.CDLL(None)
libc.free.argtypes = (ctypes.c_void_p,)
libc.free.restype = None


def get() -> Any:
    """The library, opened at the first call."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _open(_find())
    return _library


def _find() -> Any:
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), abi.SONAME)
    return os.environ.get("GMSFS_LIBRARY") or (beside if os.path.exists(beside) else abi.SONAME)


def _open(name: str) -> Any:
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise LibraryError(
            f"cannot open {name}: {error}; install libgmsfs0, or name the file in the "
            "environment variable GMSFS_LIBRARY"
        ) from None
    _check_version(library, name)
    for symbol, (result, parameters) in abi.PROTOTYPES.items():
        try:
            function = getattr(library, symbol)
        except AttributeError:
            raise LibraryError(
                f"{name} has no {symbol}: it is older than this package; install both "
                "of the same version"
            ) from None
        function.restype, function.argtypes = result, parameters
    return library


def _check_version(library: Any, name: str) -> None:
    """A file by another name (GMSFS_LIBRARY) could be of another soname."""
    libc.dlvsym.restype = ctypes.c_void_p
    libc.dlvsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    if not libc.dlvsym(library._handle, b"gmsfs_open", abi.SYMBOL_VERSION.encode()):
        raise LibraryError(
            f"{name} is not {abi.SONAME}: it has no gmsfs_open of {abi.SYMBOL_VERSION}; "
            "install libgmsfs and this package of the same version"
        )
