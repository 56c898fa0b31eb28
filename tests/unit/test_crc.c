/* SPDX-License-Identifier: Apache-2.0 */
/* Tests checks against the values of the catalogue and of RFC 3720. */
#include "source/crc.h"

#include "tap.h"

#define BYTES 300u

static const struct vector {
    enum crc_kind kind;
    uint64_t of_digits; /* "123456789" */
} vectors[] = {
    {CRC_32, 0xcbf43926},
    {CRC_32C, 0xe3069283},
    {CRC_64NVME, UINT64_C(0xae8b14860a799888)},
};

TAP_TEST(digits_have_the_catalogues_values)
{
    const uint8_t *digits = (const uint8_t *)"123456789";

    for (size_t i = 0; i < CRC_KINDS; i++) {
        check(crc_add(vectors[i].kind, 0, digits, 9) == vectors[i].of_digits);
        check(crc_add(vectors[i].kind, 0, digits, 0) == 0);
        for (size_t first = 0; first <= 9; first++)
            check(crc_add(vectors[i].kind, crc_add(vectors[i].kind, 0, digits, first),
                          digits + first, 9 - first) == vectors[i].of_digits);
    }
}

/* RFC 3720, B.4 */
TAP_TEST(words_have_the_values_of_iscsi)
{
    uint8_t bytes[32];

    memset(bytes, 0, sizeof bytes);
    check_int(crc_add(CRC_32C, 0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    check_int(crc_add(CRC_32C, 0, bytes, sizeof bytes), 0x62a8ab43);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    check_int(crc_add(CRC_32C, 0, bytes, sizeof bytes), 0x46dd794e);
}

TAP_TEST(bytes_in_steps_of_any_length_and_place_have_one_value)
{
    uint8_t bytes[BYTES];

    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 7);
    for (unsigned kind = 0; kind < CRC_KINDS; kind++) {
        const uint64_t whole = crc_add((enum crc_kind)kind, 0, bytes, BYTES);

        for (size_t step = 1; step < 40; step++) {
            uint64_t value = 0;

            for (size_t at = 0; at < BYTES; at += step)
                value = crc_add((enum crc_kind)kind, value, bytes + at,
                                BYTES - at < step ? BYTES - at : step);
            check(value == whole);
        }
    }
}
