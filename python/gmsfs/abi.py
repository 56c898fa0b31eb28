# SPDX-License-Identifier: Apache-2.0
"""gmsfs.h, gmsfs_memory.h, gmsfs_graph.h and gmsfs_region.h in ctypes: constants, structures and prototypes.

tests/python/test_abi.py holds sizes and offsets against the header.
"""

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

SONAME = "libgmsfs.so.0"
SYMBOL_VERSION = "GMSFS_0.1"

MODE_NONE, MODE_RO, MODE_RW, MODE_RW_OR_RO, MODE_RW_DATA, MODE_RW_DATA_OR_RW = range(6)
MODES = {  # modes to ask for
    "ro": MODE_RO,
    "rw": MODE_RW,
    "rw_or_ro": MODE_RW_OR_RO,
    "rw_data_or_rw": MODE_RW_DATA_OR_RW,
}
GRANTED = {MODE_RO: "ro", MODE_RW: "rw", MODE_RW_DATA: "rw_data"}
STATES = ("EMPTY", "RW", "COMMITTED", "RO", "LAYOUT_COMMITTED")

ACCESS_READ, ACCESS_WRITE = 1, 2
COMMIT_STAY = 1 << 0
COMMIT_GROUP = 1 << 1
COMMIT_IMMUTABLE = 1 << 4
GROUP_BYTES = 16
GROUP_MAX = 256
CONNECT_REPLACE = 1 << 0
RESIDENCY = {"device": 1 << 0, "host": 1 << 1, "disk": 1 << 2}
TIMEOUT_FOREVER = 2**64 - 1
SLOT_NONE = 2**64 - 1
NAME_MAX = 255
KEY_MAX = 255
VALUE_MAX = 1 << 20
TOKEN_BYTES = 16
HASH_TEXT_BYTES = 33
DEVICE_ERROR_BYTES = 256

GRAPH_KEEP = 1 << 0
GRAPH_EAGER = 1 << 0
GRAPH_ORDER, GRAPH_REFUSE = 1, 2
GRAPH_CHUNK_BYTES = 32 << 20

REGION_NAME_MAX = 255
REGION_KEY_MAX = 511
REGION_HANDLE_BYTES = 64
REGION_SELF = 2**32 - 1
REGION_DRAINING, REGION_WRITABLE, REGION_ALLOCATION, REGION_DESCRIPTOR = (1 << i for i in range(4))


class Info(ctypes.Structure):
    _fields_ = [
        ("store_id", c_uint8 * 16),
        ("device_uuid", c_uint8 * 16),
        ("group", c_uint8 * 16),
        ("layout_hash", c_char * HASH_TEXT_BYTES),
        ("state", c_uint),
        ("mode", c_uint),
        ("memory", c_uint),
        ("committed", c_int),
        ("generation", c_uint64),
        ("session", c_uint64),
        ("allocations", c_uint64),
        ("entries", c_uint64),
        ("total_bytes", c_uint64),
        ("granularity_bytes", c_uint64),
        ("readers", c_uint64),
        ("writers_waiting", c_uint64),
        ("sealed", c_int),
        ("residency", c_uint),
        ("moves", c_uint64),
    ]


class MemoryInfo(ctypes.Structure):
    _fields_ = [
        ("shared_bytes", c_uint64),
        ("preserved_bytes", c_uint64),
        ("private_bytes", c_uint64),
    ]


class HandleInfo(ctypes.Structure):
    _fields_ = [
        ("slot", c_uint64),
        ("rank", c_uint64),
        ("size_bytes", c_uint64),
        ("aligned_bytes", c_uint64),
        ("tag", c_char * (NAME_MAX + 1)),
        ("name", c_char * (NAME_MAX + 1)),
    ]


class Mapping(ctypes.Structure):
    _fields_ = [
        ("ptr", c_void_p),
        ("slot", c_uint64),
        ("rank", c_uint64),
        ("size_bytes", c_uint64),
        ("aligned_bytes", c_uint64),
        ("offset", c_uint64),
    ]


class Metadata(ctypes.Structure):
    _fields_ = [
        ("key", c_char_p),
        ("value", c_char_p),
        ("value_bytes", c_size_t),
        ("slot", c_uint64),
        ("offset", c_uint64),
    ]


class LayoutAllocation(ctypes.Structure):
    _fields_ = [
        ("size_bytes", c_uint64),
        ("aligned_bytes", c_uint64),
        ("tag", c_void_p),
    ]


class LayoutEntry(ctypes.Structure):
    _fields_ = [
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("rank", c_uint64),
        ("offset", c_uint64),
        ("value", c_void_p),
        ("value_bytes", c_size_t),
    ]


class Layout(ctypes.Structure):
    _fields_ = [
        ("allocation_count", c_size_t),
        ("entry_count", c_size_t),
        ("allocations", c_void_p),
        ("entries", c_void_p),
        ("hash", c_char * HASH_TEXT_BYTES),
    ]


class GraphStats(ctypes.Structure):
    _fields_ = [
        ("awake", c_int),
        ("chunk_bytes", c_uint64),
        ("physical_bytes", c_uint64),
        ("needed_bytes", c_uint64),
        ("eager_bytes", c_uint64),
        ("high_bytes", c_uint64),
        ("mapped_bytes", c_uint64),
        ("address_bytes", c_uint64),
        ("spaces", c_uint64),
        ("live", c_uint64),
        ("live_bytes", c_uint64),
        ("selected", c_uint64),
        ("waiters", c_uint64),
    ]


class GraphSpaceStats(ctypes.Structure):
    _fields_ = [
        ("base", c_void_p),
        ("eager", c_int),
        ("address_bytes", c_uint64),
        ("reached_bytes", c_uint64),
        ("live", c_uint64),
        ("live_bytes", c_uint64),
    ]


class RegionInfo(ctypes.Structure):
    _fields_ = [
        ("id", c_uint64),
        ("offset", c_uint64),
        ("byte_size", c_uint64),
        ("device_id", c_int64),
        ("references", c_uint64),
        ("registered_ms", c_uint64),
        ("kind", c_uint32),
        ("uid", c_uint32),
        ("flags", c_uint32),
        ("memory", c_uint32),
        ("raw_handle", c_uint8 * REGION_HANDLE_BYTES),
        ("name", c_char * (REGION_NAME_MAX + 1)),
        ("key", c_char * (REGION_KEY_MAX + 1)),
    ]


class RegionRequest(ctypes.Structure):
    _fields_ = [
        ("kind", c_uint),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("groups", POINTER(c_uint32)),
        ("group_count", c_size_t),
        ("name", c_char_p),
        ("key", c_char_p),
        ("fd", c_int),
        ("offset", c_uint64),
        ("byte_size", c_uint64),
        ("device_id", c_int64),
        ("raw_handle", c_char_p),
        ("raw_handle_bytes", c_size_t),
    ]


HANDLE = c_void_p
REGIONS = c_void_p
REGION = c_void_p
POOL = c_void_p
SPACE = c_void_p
TOKEN = c_uint8 * TOKEN_BYTES

# name: (result, parameters). All that this package calls.
PROTOTYPES = {
    "gmsfs_open": (c_int, (c_char_p, POINTER(HANDLE))),
    "gmsfs_close": (None, (HANDLE,)),
    "gmsfs_set_streams": (c_int, (HANDLE, POINTER(c_void_p), c_size_t)),
    "gmsfs_device_error": (c_int, (HANDLE, c_char_p)),
    "gmsfs_connect": (c_int, (HANDLE, c_uint, c_uint64)),
    "gmsfs_connect_reserve": (c_int, (HANDLE, c_uint, c_uint64, c_uint64)),
    "gmsfs_connect_start": (c_int, (HANDLE, c_uint, c_uint64, c_uint64, POINTER(c_int))),
    "gmsfs_connect_continue": (c_int, (HANDLE,)),
    "gmsfs_cancel": (c_int, (HANDLE,)),
    "gmsfs_connect_group": (c_int, (POINTER(HANDLE), c_size_t, c_uint, c_uint64)),
    "gmsfs_connect_group_reserve": (
        c_int,
        (POINTER(HANDLE), c_size_t, c_uint, c_uint64, POINTER(c_uint64)),
    ),
    "gmsfs_commit_group": (c_int, (POINTER(HANDLE), c_size_t, c_uint, c_void_p)),
    "gmsfs_join": (c_int, (HANDLE, TOKEN)),
    "gmsfs_disconnect": (c_int, (HANDLE,)),
    "gmsfs_commit": (c_int, (HANDLE, c_uint, c_void_p)),
    "gmsfs_commit_layout": (c_int, (HANDLE,)),
    "gmsfs_abort": (c_int, (HANDLE, POINTER(c_int))),
    "gmsfs_granted_lock": (c_uint, (HANDLE,)),
    "gmsfs_is_unmapped": (c_int, (HANDLE,)),
    "gmsfs_generation": (c_uint64, (HANDLE,)),
    "gmsfs_session_token": (c_int, (HANDLE, TOKEN)),
    "gmsfs_get_info": (c_int, (HANDLE, POINTER(Info), c_size_t)),
    "gmsfs_read_layout": (c_int, (HANDLE, POINTER(POINTER(Layout)), c_size_t, c_size_t)),
    "gmsfs_free_layout": (None, (POINTER(Layout),)),
    "gmsfs_allocate_handle": (c_int, (HANDLE, c_uint64, c_char_p, c_char_p, POINTER(c_uint64))),
    "gmsfs_list_handles": (
        c_int,
        (HANDLE, c_char_p, POINTER(POINTER(HandleInfo)), POINTER(c_size_t), c_size_t),
    ),
    "gmsfs_clear_all_handles": (c_int, (HANDLE,)),
    "gmsfs_set_connect_flags": (c_int, (HANDLE, c_uint)),
    "gmsfs_metadata_put": (c_int, (HANDLE, POINTER(Metadata))),
    "gmsfs_metadata_put_many": (c_int, (HANDLE, POINTER(Metadata), c_size_t, POINTER(c_size_t))),
    "gmsfs_metadata_get": (
        c_int,
        (
            HANDLE,
            c_char_p,
            POINTER(c_uint64),
            POINTER(c_uint64),
            POINTER(c_void_p),
            POINTER(c_size_t),
        ),
    ),
    "gmsfs_metadata_list": (
        c_int,
        (HANDLE, c_char_p, POINTER(POINTER(c_char_p)), POINTER(c_size_t)),
    ),
    "gmsfs_metadata_delete": (c_int, (HANDLE, c_char_p)),
    "gmsfs_attach_mapping": (c_int, (HANDLE, c_uint64, c_uint, POINTER(c_void_p))),
    "gmsfs_attach_all": (
        c_int,
        (HANDLE, c_uint, POINTER(POINTER(Mapping)), POINTER(c_size_t), c_size_t),
    ),
    "gmsfs_destroy_mapping": (c_int, (HANDLE, c_void_p)),
    "gmsfs_unmap_all_vas": (c_int, (HANDLE, c_uint)),
    "gmsfs_remap_all_vas": (c_int, (HANDLE, c_uint64, c_int)),
    "gmsfs_unmap_tag": (c_int, (HANDLE, c_char_p)),
    "gmsfs_remap_tag": (c_int, (HANDLE, c_char_p)),
    "gmsfs_reallocate_all_handles": (c_int, (HANDLE,)),
    "gmsfs_copy_private": (c_int, (HANDLE, c_void_p, c_uint64, POINTER(c_void_p))),
    "gmsfs_free_private": (c_int, (HANDLE, c_void_p)),
    "gmsfs_memory_info": (c_int, (HANDLE, POINTER(MemoryInfo), c_size_t)),
    "gmsfs_resolve": (c_int, (HANDLE, c_void_p, POINTER(c_uint64), POINTER(c_uint64))),
    "gmsfs_retarget": (c_int, (HANDLE, c_char_p, c_uint64)),
    "gmsfs_graph_open": (c_int, (c_char_p, c_uint64, POINTER(POOL))),
    "gmsfs_graph_close": (None, (POOL,)),
    "gmsfs_graph_handle": (c_void_p, (POOL,)),
    "gmsfs_graph_wake": (c_int, (POOL, c_uint64)),
    "gmsfs_graph_sleep": (c_int, (POOL, c_uint)),
    "gmsfs_graph_grow": (c_int, (POOL, c_uint64)),
    "gmsfs_graph_shrink": (c_int, (POOL, POINTER(c_uint64))),
    "gmsfs_graph_get_stats": (c_int, (POOL, POINTER(GraphStats), c_size_t)),
    "gmsfs_graph_space_new": (c_int, (POOL, c_uint64, c_uint, POINTER(SPACE))),
    "gmsfs_graph_space_free": (c_int, (SPACE,)),
    "gmsfs_graph_space_get_stats": (c_int, (SPACE, POINTER(GraphSpaceStats), c_size_t)),
    "gmsfs_graph_space_alloc": (c_int, (SPACE, c_uint64, POINTER(c_void_p))),
    "gmsfs_graph_space_dealloc": (c_int, (SPACE, c_void_p)),
    "gmsfs_graph_select": (c_int, (SPACE, c_void_p)),
    "gmsfs_graph_deselect": (c_int, (POOL, c_void_p)),
    "gmsfs_graph_alloc_error": (c_int, ()),
    "gmsfs_graph_enter": (c_int, (POOL, c_void_p, c_int)),
    "gmsfs_graph_leave": (c_int, (POOL, c_void_p)),
    "gmsfs_regions_open": (c_int, (c_char_p, POINTER(REGIONS))),
    "gmsfs_regions_cancel": (c_int, (REGIONS,)),
    "gmsfs_regions_close": (None, (REGIONS,)),
    "gmsfs_region_register": (c_int, (REGIONS, POINTER(RegionRequest), POINTER(c_uint))),
    "gmsfs_region_unregister": (c_int, (REGIONS, c_uint32, c_uint, c_char_p)),
    "gmsfs_region_unregister_all": (c_int, (REGIONS, c_uint32, c_uint, POINTER(c_uint64))),
    "gmsfs_region_get": (
        c_int,
        (REGIONS, c_uint32, c_uint, c_char_p, POINTER(RegionInfo), c_size_t),
    ),
    "gmsfs_region_list": (
        c_int,
        (REGIONS, c_uint32, c_uint, POINTER(POINTER(RegionInfo)), POINTER(c_size_t), c_size_t),
    ),
    "gmsfs_region_list_free": (None, (POINTER(RegionInfo),)),
    "gmsfs_region_open": (c_int, (REGIONS, c_uint32, c_char_p, POINTER(REGION), POINTER(c_uint))),
    "gmsfs_region_close": (None, (REGION,)),
    "gmsfs_region_info": (POINTER(RegionInfo), (REGION,)),
    "gmsfs_region_descriptor": (c_int, (REGION,)),
    "gmsfs_region_read": (c_int, (REGION, c_uint64, c_void_p, c_size_t, POINTER(c_uint))),
    "gmsfs_region_write": (c_int, (REGION, c_uint64, c_void_p, c_size_t, POINTER(c_uint))),
}
