/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a GPU's memory that other devices may access: the fake driver's rights, and the devices to
 * which libgmsfs grants them. */
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

/* Two H200s behave so with driver 580. */
TAP_TEST(rights_are_each_devices_own_and_stay_until_they_are_set_again)
{
    drv_memory imported;
    drv_pointer va;
    int fd;

    begin("devices 3\n");
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

/* ---- libgmsfs ------------------------------------------------------------------------------- */

/* Lets further devices access mapped memory from now on. */
static void name_devices(struct gfs_memory *memory, const drv_device *devices, size_t count)
{
    struct drv_uuid uuid;

    for (size_t i = 0; i < count; i++) {
        require(cu->cuDeviceGetUuid_v2(&uuid, devices[i]) == DRV_SUCCESS);
        memcpy(memory->wishes.devices[i], uuid.bytes, sizeof memory->wishes.devices[i]);
    }
    memory->wishes.device_count = count;
}

TAP_TEST(rights_are_changed_for_the_devices_let_in_at_mapping)
{
    struct gfs_range range = {0};
    auto_memory memory = make_memory(0, "devices 3\n");
    int fd;

    name_devices(&memory, (const drv_device[]){1, 0, 1}, 3);
    fd = create_exported();
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_WRITE);
    close(fd);
    check_int(write_byte_by(1, range.base), DRV_SUCCESS);
    name_devices(&memory, (const drv_device[]){2}, 1);
    check_int(gfs_memory_protect(&memory, range.base, PIECE, GMSFS_ACCESS_READ, range.devices), 0);
    check_int(rights_of(0, range.base), DRV_ACCESS_READ);
    check_int(rights_of(1, range.base), DRV_ACCESS_READ);
    check_int(rights_of(2, range.base), DRV_ACCESS_NONE);
    check_int(gfs_memory_protect(&memory, range.base, PIECE, GMSFS_ACCESS_WRITE, range.devices), 0);
    check_int(write_byte_by(1, range.base), DRV_SUCCESS);
    check_int(rights_of(2, range.base), DRV_ACCESS_NONE);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&scope);
}
