/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares driver_abi.h and driver_functions.h with NVIDIA's own header, if there is one. Makes no
 * code: a difference is an error of the compiler.
 */
#include "cuda/driver_abi.h"

#if defined(__has_include) && __has_include(<cuda.h>)
#include <cuda.h>

#define SAME_VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
#define SAME_SIZE(ours, theirs)  _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_PLACE(ours, member, theirs, their_member)                                     \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, their_member) &&             \
                       sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->their_member), \
                   #theirs "." #their_member)

/* ---- results ------------------------------------------------------------------------------- */

SAME_VALUE(DRV_SUCCESS, CUDA_SUCCESS);
#define SAME_RESULT(name) SAME_VALUE(DRV_##name, CUDA_ERROR_##name)
SAME_RESULT(INVALID_VALUE);
SAME_RESULT(OUT_OF_MEMORY);
SAME_RESULT(NOT_INITIALIZED);
SAME_RESULT(DEINITIALIZED);
SAME_RESULT(STUB_LIBRARY);
SAME_RESULT(DEVICE_UNAVAILABLE);
SAME_RESULT(NO_DEVICE);
SAME_RESULT(INVALID_DEVICE);
SAME_RESULT(INVALID_CONTEXT);
SAME_RESULT(MAP_FAILED);
SAME_RESULT(ALREADY_MAPPED);
SAME_RESULT(NOT_MAPPED);
SAME_RESULT(ECC_UNCORRECTABLE);
SAME_RESULT(OPERATING_SYSTEM);
SAME_RESULT(INVALID_HANDLE);
SAME_RESULT(ILLEGAL_STATE);
SAME_RESULT(NOT_FOUND);
SAME_RESULT(NOT_READY);
SAME_RESULT(ILLEGAL_ADDRESS);
SAME_RESULT(CONTEXT_IS_DESTROYED);
SAME_RESULT(LAUNCH_FAILED);
SAME_RESULT(NOT_PERMITTED);
SAME_RESULT(NOT_SUPPORTED);
SAME_RESULT(SYSTEM_NOT_READY);
SAME_RESULT(SYSTEM_DRIVER_MISMATCH);
SAME_RESULT(STREAM_CAPTURE_UNSUPPORTED);
SAME_RESULT(STREAM_CAPTURE_INVALIDATED);
SAME_RESULT(STREAM_CAPTURE_UNMATCHED);
SAME_RESULT(STREAM_CAPTURE_ISOLATION);
SAME_RESULT(STREAM_CAPTURE_IMPLICIT);
SAME_RESULT(STREAM_CAPTURE_WRONG_THREAD);
SAME_RESULT(UNKNOWN);

/* ---- other values -------------------------------------------------------------------------- */

#define SAME_ATTRIBUTE(ours, theirs) SAME_VALUE(DRV_ATTRIBUTE_##ours, CU_DEVICE_ATTRIBUTE_##theirs)
SAME_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MAJOR);
SAME_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, COMPUTE_CAPABILITY_MINOR);
SAME_ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT, VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_ATTRIBUTE(POSIX_FILE_DESCRIPTOR, HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_ATTRIBUTE(RDMA_WITH_VIRTUAL_MEMORY, GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
SAME_VALUE(DRV_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(DRV_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
SAME_VALUE(DRV_HANDLE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(DRV_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(DRV_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
SAME_VALUE(DRV_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(DRV_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(DRV_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME_VALUE(DRV_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
SAME_VALUE(DRV_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_VALUE(DRV_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_VALUE(DRV_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME_VALUE(DRV_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME_VALUE(DRV_POINTER_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
SAME_VALUE(DRV_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_VALUE(DRV_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME_VALUE(DRV_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(DRV_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_VALUE(DRV_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(DRV_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_VALUE(DRV_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
SAME_VALUE(DRV_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(DRV_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(DRV_STREAM_DEFAULT, CU_STREAM_DEFAULT);
SAME_VALUE(DRV_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(DRV_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(DRV_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME_VALUE(DRV_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME_VALUE(DRV_HOST_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME_VALUE(DRV_IPC_LAZY_ENABLE_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

/* ---- structures ---------------------------------------------------------------------------- */

SAME_SIZE(struct drv_uuid, CUuuid);
SAME_SIZE(struct drv_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct drv_location, CUmemLocation);
SAME_PLACE(struct drv_location, type, CUmemLocation, type);
SAME_PLACE(struct drv_location, id, CUmemLocation, id);
SAME_SIZE(struct drv_memory_prop, CUmemAllocationProp);
SAME_PLACE(struct drv_memory_prop, type, CUmemAllocationProp, type);
SAME_PLACE(struct drv_memory_prop, requested_handle_types, CUmemAllocationProp,
           requestedHandleTypes);
SAME_PLACE(struct drv_memory_prop, location, CUmemAllocationProp, location);
SAME_PLACE(struct drv_memory_prop, win32_meta_data, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(struct drv_memory_prop, flags, CUmemAllocationProp, allocFlags);
SAME_PLACE(struct drv_memory_prop, flags.compression_type, CUmemAllocationProp,
           allocFlags.compressionType);
SAME_PLACE(struct drv_memory_prop, flags.gpu_direct_rdma_capable, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable);
SAME_PLACE(struct drv_memory_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_SIZE(struct drv_access_desc, CUmemAccessDesc);
SAME_PLACE(struct drv_access_desc, location, CUmemAccessDesc, location);
SAME_PLACE(struct drv_access_desc, flags, CUmemAccessDesc, flags);

/* ---- functions: ours, spelled with their types ---------------------------------------------- */

#define drv_result            cudaError_enum
#define drv_attribute         CUdevice_attribute_enum
#define drv_uuid              CUuuid_st
#define drv_ipc_handle        CUipcMemHandle_st
#define drv_memory_prop       CUmemAllocationProp_st
#define drv_granularity       CUmemAllocationGranularity_flags_enum
#define drv_handle_type       CUmemAllocationHandleType_enum
#define drv_access_desc       CUmemAccessDesc_st
#define drv_pointer_attribute CUpointer_attribute_enum
#define drv_context           CUctx_st
#define drv_stream            CUstream_st
#define drv_event             CUevent_st
#define drv_capture_status    CUstreamCaptureStatus_enum
#define drv_capture_mode      CUstreamCaptureMode_enum

/* NOLINTBEGIN(bugprone-macro-parentheses): they are declarations */
#define DRV_FUNCTION(symbol, parameters)                                                  \
    _Static_assert(                                                                       \
        __builtin_types_compatible_p(__typeof__(&symbol), enum drv_result(*) parameters), \
        #symbol);
#include "cuda/driver_functions.h"
#undef DRV_FUNCTION
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
