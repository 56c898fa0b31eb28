/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's memory that other devices may touch: what the fake driver says of rights. */
#include "memory_cuda_fixture.h"

static enum drv_result set_rights(uintptr_t va, drv_device device, enum drv_access access)
{
    struct drv_access_desc desc = {.location = {.type = DRV_LOCATION_DEVICE, .id = device},
                                   .flags = access};

    return cu->cuMemSetAccess(va, PIECE, &desc, 1);
}

static enum drv_result read_byte_by(drv_device device, uintptr_t va)
{
    struct drv_context *context;
    enum drv_result result;
    unsigned char byte;

    require(cu->cuDevicePrimaryCtxRetain(&context, device) == DRV_SUCCESS);
    cu->cuCtxPushCurrent_v2(context);
    result = cu->cuMemcpyDtoH_v2(&byte, va, 1);
    cu->cuCtxPopCurrent_v2(&context);
    cu->cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

/* ---- the fake driver ------------------------------------------------------------------------ */

/* As two H200s do it, driver 580. */
TAP_TEST(rights_are_each_devices_own_and_stay_until_they_are_set_again)
{
    drv_memory imported;
    drv_pointer va;
    int fd;

    begin("devices 2\n");
    fd = create_exported();
    require(cu->cuMemImportFromShareableHandle(&imported, (void *)(intptr_t)fd,
                                               DRV_HANDLE_POSIX_FILE_DESCRIPTOR) == DRV_SUCCESS);
    require(cu->cuMemAddressReserve(&va, PIECE, 0, 0, 0) == DRV_SUCCESS);
    require(cu->cuMemMap(va, PIECE, 0, imported, 0) == DRV_SUCCESS);
    check_int(set_rights(va, 0, DRV_ACCESS_READWRITE), DRV_SUCCESS);
    check_int(rights_of(1, va), DRV_ACCESS_NONE);
    check_int(read_byte_by(1, va), DRV_INVALID_VALUE);
    check_int(set_rights(va, 1, DRV_ACCESS_READ), DRV_SUCCESS);
    check_int(read_byte_by(1, va), DRV_SUCCESS);
    check_int(write_byte_by(1, va), DRV_INVALID_VALUE);
    check_int(write_byte_by(0, va), DRV_SUCCESS);
    check_int(set_rights(va, 1, DRV_ACCESS_READWRITE), DRV_SUCCESS);
    check_int(set_rights(va, 0, DRV_ACCESS_READ), DRV_SUCCESS);
    check_int(write_byte_by(0, va), DRV_INVALID_VALUE);
    check_int(write_byte_by(1, va), DRV_SUCCESS);
    check_int(cu->cuMemUnmap(va, PIECE), DRV_SUCCESS);
    check_int(cu->cuMemMap(va, PIECE, 0, imported, 0), DRV_SUCCESS);
    check_int(rights_of(1, va), DRV_ACCESS_NONE);
    check_int(cu->cuMemUnmap(va, PIECE), DRV_SUCCESS);
    check_int(cu->cuMemAddressFree(va, PIECE), DRV_SUCCESS);
    check_int(cu->cuMemRelease(imported), DRV_SUCCESS);
    close(fd);
    fake_cuda_remove();
}
