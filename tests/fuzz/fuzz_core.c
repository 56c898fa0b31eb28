/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a daemon: what decodes encodes to the same bytes, holds, and can be brought to its
 * end by records; what does not is refused in one line.
 */
#include "fuzz.h"

#include "../unit/core_wind.h"

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
    must(fuzz_same(bytes, bytes_size, data, size));
    must(wind_down(core));
    core_free(core);
    free(bytes);
    return 0;
}
