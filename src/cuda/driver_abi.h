/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_abi - the part of the CUDA Driver API that gmsfs uses, in declarations of its own
 *
 * Names, values, layouts and signatures are facts of the driver's binary interface (CUDA Driver API
 * reference; the interface is the same from driver 11.4 on). They are declared here so that neither
 * a toolkit nor a GPU is needed to build; if <cuda.h> is found, driver_check.c in tests/fake_cuda
 * compares all of them with it at compile time. An enumerator DRV_X is CUDA_ERROR_X, CU_MEM_X and
 * so on.
 *
 * A symbol with a version in its name (_v2) is that version: dlsym(3) returns exactly the symbol of
 * this name.
 */
#ifndef GMSFS_CUDA_DRIVER_ABI_H
#define GMSFS_CUDA_DRIVER_ABI_H

#include <stddef.h>

typedef int drv_device;                 /* an ordinal's handle */
typedef unsigned long long drv_pointer; /* an address in device memory */
typedef unsigned long long drv_memory;  /* a handle to an allocation, of this process */

struct drv_context;
struct drv_stream;
struct drv_event;

struct drv_uuid {
    char bytes[16];
};

struct drv_ipc_handle { /* of memory that another process allocated */
    char bytes[64];
};

enum drv_result {
    DRV_SUCCESS = 0,
    DRV_INVALID_VALUE = 1,
    DRV_OUT_OF_MEMORY = 2,
    DRV_NOT_INITIALIZED = 3,
    DRV_DEINITIALIZED = 4,
    DRV_STUB_LIBRARY = 34,
    DRV_DEVICE_UNAVAILABLE = 46,
    DRV_NO_DEVICE = 100,
    DRV_INVALID_DEVICE = 101,
    DRV_INVALID_CONTEXT = 201,
    DRV_MAP_FAILED = 205,
    DRV_ALREADY_MAPPED = 208,
    DRV_NOT_MAPPED = 211,
    DRV_ECC_UNCORRECTABLE = 214,
    DRV_PEER_ACCESS_UNSUPPORTED = 217,
    DRV_OPERATING_SYSTEM = 304,
    DRV_INVALID_HANDLE = 400,
    DRV_ILLEGAL_STATE = 401,
    DRV_NOT_FOUND = 500,
    DRV_NOT_READY = 600,
    DRV_ILLEGAL_ADDRESS = 700,
    DRV_CONTEXT_IS_DESTROYED = 709,
    DRV_LAUNCH_FAILED = 719,
    DRV_NOT_PERMITTED = 800,
    DRV_NOT_SUPPORTED = 801,
    DRV_SYSTEM_NOT_READY = 802,
    DRV_SYSTEM_DRIVER_MISMATCH = 803,
    DRV_STREAM_CAPTURE_UNSUPPORTED = 900,
    DRV_STREAM_CAPTURE_INVALIDATED = 901,
    DRV_STREAM_CAPTURE_UNMATCHED = 903,
    DRV_STREAM_CAPTURE_ISOLATION = 905,
    DRV_STREAM_CAPTURE_IMPLICIT = 906,
    DRV_STREAM_CAPTURE_WRONG_THREAD = 908,
    DRV_UNKNOWN = 999,
};

enum drv_attribute {
    DRV_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    DRV_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    DRV_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT = 102,
    DRV_ATTRIBUTE_POSIX_FILE_DESCRIPTOR = 103,
    DRV_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY = 110,
};

enum drv_allocation_type {
    DRV_ALLOCATION_PINNED = 1,
};

enum drv_handle_type {
    DRV_HANDLE_NONE = 0,
    DRV_HANDLE_POSIX_FILE_DESCRIPTOR = 1,
};

enum drv_location_type {
    DRV_LOCATION_DEVICE = 1,
};

enum drv_access {
    DRV_ACCESS_NONE = 0,
    DRV_ACCESS_READ = 1,
    DRV_ACCESS_READWRITE = 3,
};

enum drv_granularity {
    DRV_GRANULARITY_MINIMUM = 0,
    DRV_GRANULARITY_RECOMMENDED = 1,
};

enum drv_pointer_attribute {
    DRV_POINTER_CONTEXT = 1,
    DRV_POINTER_MEMORY_TYPE = 2,
    DRV_POINTER_BUFFER_ID = 7, /* unsigned long long; of this process alone, never reused */
    DRV_POINTER_DEVICE_ORDINAL = 9,
    DRV_POINTER_RANGE_START_ADDR = 11,
    DRV_POINTER_RANGE_SIZE = 12,
};

enum drv_memory_type {
    DRV_MEMORY_HOST = 1,
    DRV_MEMORY_DEVICE = 2,
};

enum drv_capture_status {
    DRV_CAPTURE_NONE = 0,
    DRV_CAPTURE_ACTIVE = 1,
    DRV_CAPTURE_INVALIDATED = 2,
};

enum drv_capture_mode {
    DRV_CAPTURE_MODE_GLOBAL = 0,
    DRV_CAPTURE_MODE_THREAD_LOCAL = 1,
    DRV_CAPTURE_MODE_RELAXED = 2,
};

enum {
    DRV_STREAM_DEFAULT = 0, /* waits for the legacy stream, and it for this one */
    DRV_STREAM_NON_BLOCKING = 1,
    DRV_EVENT_DISABLE_TIMING = 2,
    DRV_HOST_ALLOC_PORTABLE = 1,
    DRV_HOST_REGISTER_PORTABLE = 1,
    DRV_HOST_REGISTER_READ_ONLY = 8,
    DRV_IPC_LAZY_ENABLE_PEER_ACCESS = 1,
};

struct drv_location {
    enum drv_location_type type;
    int id;
};

struct drv_memory_prop {
    enum drv_allocation_type type;
    enum drv_handle_type requested_handle_types;
    struct drv_location location;
    void *win32_meta_data;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct drv_access_desc {
    struct drv_location location;
    enum drv_access flags;
};

#endif
