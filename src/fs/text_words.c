/* SPDX-License-Identifier: Apache-2.0 */
/* text_words - what several texts say: ids, hashes, and the device's health */
#include "fs/fs_internal.h"

#include <stdio.h>

const char *fs_text_health(enum core_health health)
{
    static const char *const names[] = {
        [CORE_HEALTH_OK] = "ok", [CORE_HEALTH_SUSPECT] = "suspect", [CORE_HEALTH_LOST] = "lost"};

    return names[health];
}

void fs_text_hex(const uint8_t bytes[16], char out[33])
{
    for (unsigned i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void fs_text_uuid(const uint8_t uuid[16], char out[37])
{
    char hex[33];
    fs_text_hex(uuid, hex);
    snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}
