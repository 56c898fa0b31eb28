/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/payload.h"

#include "gmsfs_abi.h"

#include <errno.h>
#include <string.h>

int payload_decode(const void *in, size_t in_bytes, void *out, size_t known)
{
    const uint8_t *bytes = in;
    for (size_t i = known; i < in_bytes; i++) {
        if (bytes[i])
            return -E2BIG;
    }
    size_t given = in_bytes < known ? in_bytes : known;
    if (given)
        memcpy(out, bytes, given);
    if (given < known)
        memset((uint8_t *)out + given, 0, known - given);
    return 0;
}

unsigned payload_get_number(unsigned command)
{
    return _IOC_TYPE(command) == _IOC_TYPE(GMSFS_IOC_INFO) ? _IOC_NR(command) : 0;
}
