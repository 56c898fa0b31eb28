/* SPDX-License-Identifier: Apache-2.0 */
#include "source/crc.h"

#include <endian.h>
#include <pthread.h>
#include <string.h>

#define SLICES 8u /* bytes at a time */

typedef uint64_t crc_table[SLICES][256];

static const struct kind {
    uint64_t polynomial, ones; /* reflected; all bits */
} kinds[CRC_KINDS] = {
    [CRC_32] = {0xedb88320u, UINT32_MAX},
    [CRC_32C] = {0x82f63b78u, UINT32_MAX},
    [CRC_64NVME] = {UINT64_C(0x9a6c9329ac4bc9b5), UINT64_MAX},
};

static crc_table tables[CRC_KINDS];
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* table[n][b]: what the byte b becomes with n bytes behind it. */
static void make_table(uint64_t polynomial, crc_table table)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t value = byte;

        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? polynomial : 0);
        table[0][byte] = value;
    }
    for (unsigned slice = 1; slice < SLICES; slice++)
        for (unsigned byte = 0; byte < 256; byte++) {
            const uint64_t value = table[slice - 1][byte];

            table[slice][byte] = value >> 8 ^ table[0][value & 0xff];
        }
}

static void make_tables(void)
{
    for (unsigned kind = 0; kind < CRC_KINDS; kind++)
        make_table(kinds[kind].polynomial, tables[kind]);
}

uint64_t crc_add(enum crc_kind kind, uint64_t before, const uint8_t *bytes, size_t count)
{
    uint64_t value = before ^ kinds[kind].ones, word;

    pthread_once(&made, make_tables);
    for (; count >= SLICES; bytes += SLICES, count -= SLICES) {
        memcpy(&word, bytes, SLICES);
        word = le64toh(word) ^ value;
        value = 0;
        for (unsigned slice = 0; slice < SLICES; slice++)
            value ^= tables[kind][SLICES - 1 - slice][word >> 8 * slice & 0xff];
    }
    for (; count > 0; bytes++, count--)
        value = value >> 8 ^ tables[kind][0][(value ^ *bytes) & 0xff];
    return value ^ kinds[kind].ones;
}
