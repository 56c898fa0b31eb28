#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver and NVML as GMS clients use them, by ctypes: a descriptor that came over a socket is
imported, mapped and given access. Also prints these libraries' facts about a GPU, for a shell:

  gms_cuda.py uuid ORDINAL         the driver's, as GPU-…
  gms_cuda.py nvml-uuid INDEX      NVML's, by which V0's clients find their socket
  gms_cuda.py nvml-used INDEX      bytes of the GPU that all processes hold
  gms_cuda.py granularity ORDINAL  in bytes, to which clients round sizes
"""

import ctypes
import sys
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_ulonglong, c_void_p

READ, READ_WRITE = 1, 3
_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE, _MINIMUM = 1, 1, 1, 0


class DriverError(Exception):
    """A call that failed; str() has its name and the driver's for the error."""


class _Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 16)]


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("win32", c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", c_int)]


_PARAMETERS = {
    "cuInit": (c_uint,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuMemGetAllocationGranularity": (c_void_p, c_void_p, c_int),
    "cuMemImportFromShareableHandle": (c_void_p, c_void_p, c_int),
    "cuMemRelease": (c_uint64,),
    "cuMemAddressReserve": (c_void_p, c_size_t, c_size_t, c_uint64, c_ulonglong),
    "cuMemAddressFree": (c_uint64, c_size_t),
    "cuMemMap": (c_uint64, c_size_t, c_size_t, c_uint64, c_ulonglong),
    "cuMemUnmap": (c_uint64, c_size_t),
    "cuMemSetAccess": (c_uint64, c_size_t, c_void_p, c_size_t),
    "cuMemcpyHtoD_v2": (c_uint64, ctypes.c_char_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
}


def format_uuid(raw):
    """16 bytes as NVML writes them."""
    text = raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Driver:
    """One device of this process, with its primary context current in the thread that made this."""

    def __init__(self, ordinal=0, context=True):
        self._library = ctypes.CDLL("libcuda.so.1")
        self._calls = {}
        for name, parameters in _PARAMETERS.items():
            call = getattr(self._library, name)
            call.argtypes = parameters
            call.restype = c_int
            self._calls[name] = call
        device = c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", byref(device), ordinal)
        self.device = device.value
        self._access = {
            flags: _Access(_Location(_ON_DEVICE, self.device), flags) for flags in (READ, READ_WRITE)
        }
        if context:
            made = c_void_p()
            self.call("cuDevicePrimaryCtxRetain", byref(made), self.device)
            self.call("cuCtxSetCurrent", made)

    def call(self, name, *arguments):
        result = self._calls[name](*arguments)
        if result:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(c_int(result), byref(text))
            raise DriverError(f"{name}: {(text.value or b'error %d' % result).decode()}")

    def uuid(self):
        found = _Uuid()
        self.call("cuDeviceGetUuid_v2", byref(found), self.device)
        return format_uuid(bytes(found.bytes))

    def granularity(self):
        found = c_size_t()
        wanted = _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, self.device))
        self.call("cuMemGetAllocationGranularity", byref(found), byref(wanted), _MINIMUM)
        return found.value

    def import_memory(self, descriptor):
        """The handle; the descriptor stays the caller's."""
        handle = c_uint64()
        self.call("cuMemImportFromShareableHandle", byref(handle), descriptor, _POSIX_DESCRIPTOR)
        return handle.value

    def release(self, handle):
        self.call("cuMemRelease", handle)

    def reserve(self, count):
        address = c_uint64()
        self.call("cuMemAddressReserve", byref(address), count, 0, 0, 0)
        return address.value

    def free_address(self, address, count):
        self.call("cuMemAddressFree", address, count)

    def map(self, address, count, handle):
        self.call("cuMemMap", address, count, 0, handle, 0)

    def unmap(self, address, count):
        self.call("cuMemUnmap", address, count)

    def set_access(self, address, count, access):
        self.call("cuMemSetAccess", address, count, byref(self._access[access]), 1)

    def write(self, address, data):
        self.call("cuMemcpyHtoD_v2", address, data, len(data))

    def read(self, address, count):
        into = ctypes.create_string_buffer(count)
        self.call("cuMemcpyDtoH_v2", into, address, count)
        return into.raw


class Mapping:
    """Memory behind a descriptor, at an address; the descriptor stays the caller's."""

    def __init__(self, driver, descriptor, count, access):
        self.driver = driver
        self.bytes = count
        self.handle = driver.import_memory(descriptor)
        self.address = driver.reserve(count)
        driver.map(self.address, count, self.handle)
        driver.set_access(self.address, count, access)

    def write(self, offset, data):
        self.driver.write(self.address + offset, data)

    def read(self, offset, count):
        return self.driver.read(self.address + offset, count)

    def close(self):
        self.driver.unmap(self.address, self.bytes)
        self.driver.free_address(self.address, self.bytes)
        self.driver.release(self.handle)


class _NvmlMemory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class Nvml:
    """A GPU of the machine by NVML's index, which CUDA_VISIBLE_DEVICES does not change."""

    def __init__(self, index=0):
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._device = c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(self._device))

    def _call(self, name, *arguments):
        result = getattr(self._library, name)(*arguments)
        if result:
            raise DriverError(f"{name}: error {result}")

    def uuid(self):
        text = (c_char * 96)()
        self._call("nvmlDeviceGetUUID", self._device, text, c_uint(len(text)))
        return text.value.decode()

    def used(self):
        found = _NvmlMemory()
        self._call("nvmlDeviceGetMemoryInfo", self._device, byref(found))
        return found.used


SAYS = {
    "uuid": lambda number: Driver(number, context=False).uuid(),
    "granularity": lambda number: Driver(number, context=False).granularity(),
    "nvml-uuid": lambda number: Nvml(number).uuid(),
    "nvml-used": lambda number: Nvml(number).used(),
}


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in SAYS:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(SAYS[arguments[0]](int(arguments[1])))
    except (DriverError, OSError) as error:
        print("gms_cuda.py:", error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
