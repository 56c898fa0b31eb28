# SPDX-License-Identifier: Apache-2.0
"""A store's metadata as a mapping of str to bytes."""

import ctypes
import errno
from typing import Any, MutableMapping, Optional, Tuple

from . import abi, library
from .arguments import whole_number
from .errors import BadArgument, Error

# The rule for a key, and for a tensor's name.
A_NAME = f"a string of 1 to {abi.KEY_MAX} bytes of UTF-8, without NUL; / and % and a dot in front are three"

LONG_FORMAT = "safetensors"  # of a value that lies in an allocation, for no entry has room for it


def encode_key(store: Any, key: Any) -> Any:
    """A key as the library takes it: a C string."""
    if not isinstance(key, str):
        raise TypeError(f"{store}: a key is a string, not {key!r}")
    encoded = encode_name(key)
    if not encoded:
        raise BadArgument(store, f"key {key!r}", f"a key is {A_NAME}")
    return encoded


def encode_name(text: Any) -> Any:
    """As encode_text, of a key, which names a file too; None if it cannot be one."""
    encoded = encode_text(text)
    if encoded is None:
        return None
    escapes = encoded.count(b"/") + encoded.count(b"%") + encoded.startswith(b".")
    return encoded if len(encoded) + 2 * escapes <= abi.NAME_MAX else None


def encode_text(text: Any, most: Any = abi.KEY_MAX) -> Any:
    """As a C string of 1 to `most` bytes; None if it cannot be one (a lone surrogate is no UTF-8)."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return None
    return encoded if 0 < len(encoded) <= most and b"\0" not in encoded else None


def encode_tag(store: Any, tag: Any) -> Any:
    """A tag as the library takes it; "" for none."""
    if not isinstance(tag, str):
        raise TypeError(f"{store}: a tag is a string, not {tag!r}")
    encoded = b"" if tag == "" else encode_text(tag)
    if encoded is None:
        raise BadArgument(
            store,
            f"tag {tag!r}",
            f"a tag is a string of at most {abi.KEY_MAX} bytes of UTF-8, without NUL",
        )
    return encoded


class Metadata(MutableMapping[str, bytes]):
    """store.metadata: get, put and delete entries. Reading needs no lock, changing the writer's."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get_entry(self, key: str) -> Tuple[bytes, Optional[int], int]:
        """(value, slot, offset); slot is None where the entry is bound to no allocation."""
        found: Tuple[bytes, Optional[int], int] = self.find(self._store._touch(), key)
        return found

    def find(self, handle: Any, key: Any) -> Any:
        """As get_entry, for a Handle after a check of its session."""
        slot, offset = ctypes.c_uint64(), ctypes.c_uint64()
        value, value_bytes = ctypes.c_void_p(), ctypes.c_size_t()
        try:
            handle.call(
                "gmsfs_metadata_get",
                encode_key(handle.path, key),
                ctypes.byref(slot),
                ctypes.byref(offset),
                ctypes.byref(value),
                ctypes.byref(value_bytes),
            )
        except Error as error:
            if error.errno == errno.ENOENT:
                raise KeyError(key) from None
            raise
        try:
            found = ctypes.string_at(value, value_bytes.value)
        finally:
            library.libc.free(value)
        return found, None if slot.value == abi.SLOT_NONE else slot.value, offset.value

    def put(self, key: Any, value: Any, slot: Any = None, offset: int = 0) -> None:
        """Sets an entry, bound to an allocation where a slot is given."""
        handle = self._store._touch()
        value = bytes(memoryview(value))  # of a number, bytes() would make as many zeros
        entry = abi.Metadata(
            encode_key(handle.path, key),
            value,
            len(value),
            abi.SLOT_NONE if slot is None else whole_number("slot", slot, 0, abi.SLOT_NONE - 1),
            whole_number("offset", offset, 0, 2**64 - 1),
        )
        handle.call("gmsfs_metadata_put", ctypes.byref(entry))

    def keys_from(self, prefix: str = "") -> Any:
        """The keys that begin with `prefix`, in bytewise order."""
        handle = self._store._touch()
        keys, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_size_t()
        handle.call(
            "gmsfs_metadata_list",
            encode_key(handle.path, prefix) if prefix else b"",
            ctypes.byref(keys),
            ctypes.byref(count),
        )
        try:
            return [keys[i].decode() for i in range(count.value)]
        finally:
            library.libc.free(ctypes.cast(keys, ctypes.c_void_p))

    def __getitem__(self, key: str) -> bytes:
        return self.get_entry(key)[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: str) -> None:
        handle = self._store._touch()
        try:
            handle.call("gmsfs_metadata_delete", encode_key(handle.path, key))
        except Error as error:
            if error.errno == errno.ENOENT:
                raise KeyError(key) from None
            raise

    def __iter__(self) -> Any:
        return iter(self.keys_from())

    def __len__(self) -> int:
        return int(self._store.info.entries)
