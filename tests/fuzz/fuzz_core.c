/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a daemon: a state that decodes encodes to the same bytes, if it is of the present
 * version, is consistent, and records can bring it to its end; other bytes are refused in one line.
 */
#include "fuzz.h"

#include "../unit/core_wind.h"

#define MAGIC_BYTES 8u /* in front of the version */

/* An older state is written as one of the present version. */
static bool is_present_version(const uint8_t *data, size_t size)
{
    const uint8_t *at = data + MAGIC_BYTES;

    return size >= MAGIC_BYTES + 4 &&
           (at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24) == CORE_STATE_VERSION;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct core *core = NULL;
    struct failure failure;
    uint8_t *bytes;
    size_t bytes_size;
    int error = core_decode(data, size, &core, &failure);

    if (error < 0) {
        must((error == -EINVAL || error == -EPROTONOSUPPORT) && !core);
        must(fuzz_is_line(failure.text));
        return 0;
    }
    must(core_check(core, &failure) == 0);
    must(core_encode(core, &bytes, &bytes_size) == 0);
    must(!is_present_version(data, size) || fuzz_same(bytes, bytes_size, data, size));
    must(wind_down(core));
    core_free(core);
    free(bytes);
    return 0;
}
