/* SPDX-License-Identifier: Apache-2.0 */
/* text_words - parts that several texts share: ids, hashes, and the device's health */
#include "fs/fs_internal.h"

const char *fs_text_health(enum core_health health)
{
    static const char *const names[] = {
        [CORE_HEALTH_OK] = "ok", [CORE_HEALTH_SUSPECT] = "suspect", [CORE_HEALTH_LOST] = "lost"};

    return names[health];
}

/* Returns the end. printf(3) would take a twelfth of a text's whole time. */
static char *write_hex(char *at, const uint8_t *bytes, unsigned count)
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < count; i++) {
        *at++ = digits[bytes[i] >> 4];
        *at++ = digits[bytes[i] & 15];
    }
    return at;
}

void fs_text_hex(const uint8_t bytes[16], char out[33])
{
    *write_hex(out, bytes, 16) = '\0';
}

void fs_text_uuid(const uint8_t uuid[16], char out[37])
{
    static const unsigned counts[] = {4, 2, 2, 2, 6};
    for (unsigned i = 0, from = 0; i < sizeof counts / sizeof *counts; from += counts[i++]) {
        out = write_hex(out, uuid + from, counts[i]);
        *out++ = '-';
    }
    out[-1] = '\0';
}
