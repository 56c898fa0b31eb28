/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_functions - every function of the driver that gmsfs calls: its symbol and its parameters
 *
 * To be included where DRV_FUNCTION(symbol, parameters) is defined; all return enum drv_result.
 * clang-format takes the parameters for a product.
 *
 * No include guard: driver.h makes a table of the list, driver.c loads it, and the fake driver of
 * the tests declares its functions from it; driver_check.c there compares it with <cuda.h>.
 */
/* clang-format off */

/* ---- the driver and its devices ------------------------------------------------------------- */

DRV_FUNCTION(cuInit, (unsigned flags))
DRV_FUNCTION(cuDriverGetVersion, (int *version))
DRV_FUNCTION(cuGetErrorName, (enum drv_result result, const char **name))
DRV_FUNCTION(cuGetErrorString, (enum drv_result result, const char **text))
DRV_FUNCTION(cuDeviceGetCount, (int *count))
DRV_FUNCTION(cuDeviceGet, (drv_device *device, int ordinal))
DRV_FUNCTION(cuDeviceGetName, (char *name, int name_bytes, drv_device device))
DRV_FUNCTION(cuDeviceGetUuid_v2, (struct drv_uuid *uuid, drv_device device))
DRV_FUNCTION(cuDeviceGetAttribute, (int *value, enum drv_attribute attribute, drv_device device))
DRV_FUNCTION(cuDeviceGetPCIBusId, (char *id, int id_bytes, drv_device device))
DRV_FUNCTION(cuDeviceGetByPCIBusId, (drv_device *device, const char *id))
DRV_FUNCTION(cuDeviceTotalMem_v2, (size_t *bytes, drv_device device))
DRV_FUNCTION(cuDeviceCanAccessPeer, (int *can, drv_device device, drv_device peer))

/* ---- physical memory: needs no context ------------------------------------------------------ */

DRV_FUNCTION(cuMemGetAllocationGranularity,
             (size_t *bytes, const struct drv_memory_prop *prop, enum drv_granularity which))
DRV_FUNCTION(cuMemCreate, (drv_memory *memory, size_t bytes, const struct drv_memory_prop *prop,
                           unsigned long long flags))
DRV_FUNCTION(cuMemRelease, (drv_memory memory))
DRV_FUNCTION(cuMemExportToShareableHandle, (void *shareable, drv_memory memory,
                                            enum drv_handle_type type, unsigned long long flags))
/* A descriptor is passed by value in the pointer; it stays the caller's. */
DRV_FUNCTION(cuMemImportFromShareableHandle,
             (drv_memory *memory, void *shareable, enum drv_handle_type type))
DRV_FUNCTION(cuMemGetAllocationPropertiesFromHandle,
             (struct drv_memory_prop *prop, drv_memory memory))

/* ---- addresses ------------------------------------------------------------------------------ */

DRV_FUNCTION(cuMemAddressReserve, (drv_pointer *address, size_t bytes, size_t alignment,
                                   drv_pointer hint, unsigned long long flags))
DRV_FUNCTION(cuMemAddressFree, (drv_pointer address, size_t bytes))
DRV_FUNCTION(cuMemMap, (drv_pointer address, size_t bytes, size_t offset, drv_memory memory,
                        unsigned long long flags))
DRV_FUNCTION(cuMemUnmap, (drv_pointer address, size_t bytes))
DRV_FUNCTION(cuMemSetAccess, (drv_pointer address, size_t bytes,
                              const struct drv_access_desc *access, size_t count))
DRV_FUNCTION(cuPointerGetAttribute,
             (void *value, enum drv_pointer_attribute attribute, drv_pointer address))

/* ---- contexts ------------------------------------------------------------------------------- */

DRV_FUNCTION(cuDevicePrimaryCtxRetain, (struct drv_context **context, drv_device device))
DRV_FUNCTION(cuDevicePrimaryCtxRelease_v2, (drv_device device))
DRV_FUNCTION(cuDevicePrimaryCtxGetState, (drv_device device, unsigned *flags, int *active))
DRV_FUNCTION(cuCtxGetCurrent, (struct drv_context **context))
DRV_FUNCTION(cuCtxSetCurrent, (struct drv_context *context))
DRV_FUNCTION(cuCtxPushCurrent_v2, (struct drv_context *context))
DRV_FUNCTION(cuCtxPopCurrent_v2, (struct drv_context **context))
DRV_FUNCTION(cuCtxGetDevice, (drv_device *device))
DRV_FUNCTION(cuCtxSynchronize, (void))

/* ---- streams and events --------------------------------------------------------------------- */

DRV_FUNCTION(cuStreamCreate, (struct drv_stream **stream, unsigned flags))
DRV_FUNCTION(cuStreamDestroy_v2, (struct drv_stream *stream))
DRV_FUNCTION(cuStreamSynchronize, (struct drv_stream *stream))
DRV_FUNCTION(cuStreamQuery, (struct drv_stream *stream))
DRV_FUNCTION(cuStreamWaitEvent,
             (struct drv_stream *stream, struct drv_event *event, unsigned flags))
DRV_FUNCTION(cuStreamIsCapturing, (struct drv_stream *stream, enum drv_capture_status *status))
DRV_FUNCTION(cuThreadExchangeStreamCaptureMode, (enum drv_capture_mode *mode))
DRV_FUNCTION(cuEventCreate, (struct drv_event **event, unsigned flags))
DRV_FUNCTION(cuEventDestroy_v2, (struct drv_event *event))
DRV_FUNCTION(cuEventRecord, (struct drv_event *event, struct drv_stream *stream))
DRV_FUNCTION(cuEventQuery, (struct drv_event *event))
DRV_FUNCTION(cuEventSynchronize, (struct drv_event *event))

/* ---- moving bytes: needs a context ---------------------------------------------------------- */

DRV_FUNCTION(cuMemAlloc_v2, (drv_pointer *address, size_t bytes))
DRV_FUNCTION(cuMemFree_v2, (drv_pointer address))
DRV_FUNCTION(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))
DRV_FUNCTION(cuMemGetAddressRange_v2, (drv_pointer *start, size_t *bytes, drv_pointer address))
DRV_FUNCTION(cuIpcOpenMemHandle_v2,
             (drv_pointer *address, struct drv_ipc_handle handle, unsigned flags))
DRV_FUNCTION(cuIpcCloseMemHandle, (drv_pointer address))
DRV_FUNCTION(cuMemHostAlloc, (void **address, size_t bytes, unsigned flags))
DRV_FUNCTION(cuMemFreeHost, (void *address))
DRV_FUNCTION(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned flags))
DRV_FUNCTION(cuMemHostUnregister, (void *address))
DRV_FUNCTION(cuMemcpyHtoD_v2, (drv_pointer to, const void *from, size_t bytes))
DRV_FUNCTION(cuMemcpyDtoH_v2, (void *to, drv_pointer from, size_t bytes))
DRV_FUNCTION(cuMemcpyDtoD_v2, (drv_pointer to, drv_pointer from, size_t bytes))
DRV_FUNCTION(cuMemcpyHtoDAsync_v2,
             (drv_pointer to, const void *from, size_t bytes, struct drv_stream *stream))
DRV_FUNCTION(cuMemcpyDtoHAsync_v2,
             (void *to, drv_pointer from, size_t bytes, struct drv_stream *stream))
DRV_FUNCTION(cuMemcpyDtoDAsync_v2,
             (drv_pointer to, drv_pointer from, size_t bytes, struct drv_stream *stream))
DRV_FUNCTION(cuMemsetD8_v2, (drv_pointer to, unsigned char value, size_t count))
DRV_FUNCTION(cuMemsetD32_v2, (drv_pointer to, unsigned value, size_t count))

/* clang-format on */
