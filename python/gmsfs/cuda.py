# SPDX-License-Identifier: Apache-2.0
"""Which of this process's NVIDIA GPUs a store lies on: the driver's ordinals, which torch counts by as
well."""

import ctypes
import errno
from typing import Any, Dict

from . import errors


class _Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 16)]


_found: Dict[bytes, int] = {}  # ordinals stay as the driver's start has made them


def find_ordinal(store: str, uuid: bytes) -> int:
    """The ordinal of the device with this uuid (16 bytes), as CUDA_VISIBLE_DEVICES lets this process
    count them."""
    if uuid not in _found:
        _found[uuid] = _look_for(store, uuid)
    return _found[uuid]


def _look_for(store: str, uuid: bytes) -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise errors.make(errno.ENODEV, store, "libcuda.so.1", str(error)) from None
    count = ctypes.c_int()
    _check(driver, store, "cuInit", 0)
    _check(driver, store, "cuDeviceGetCount", ctypes.byref(count))
    for number in range(count.value):
        device, found = ctypes.c_int(), _Uuid()
        _check(driver, store, "cuDeviceGet", ctypes.byref(device), number)
        _check(driver, store, "cuDeviceGetUuid_v2", ctypes.byref(found), device)
        if bytes(found.bytes) == uuid:
            return number
    raise errors.make(
        errno.ENODEV,
        store,
        "cuDeviceGetUuid_v2",
        f"none of the {count.value} GPUs that this process sees is the store's, "
        f"{uuid.hex()}; look at CUDA_VISIBLE_DEVICES",
    )


def _check(driver: Any, store: str, call: str, *arguments: Any) -> None:
    result = getattr(driver, call)(*arguments)
    if result:
        raise errors.make(errno.ENODEV, store, call, f"the CUDA driver answers {result}")
