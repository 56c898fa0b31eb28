/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc - cyclic redundancy checks that servers promise
 *
 * For sum_check.c. Pure, from any thread. Source of facts: the catalogue of parametrised CRC
 * algorithms (reveng), whose check values are the unit test's. All are reflected, and begin and end
 * inverted.
 */
#ifndef GMSFS_SOURCE_CRC_H
#define GMSFS_SOURCE_CRC_H

#include <stddef.h>
#include <stdint.h>

enum crc_kind {
    CRC_32,     /* CRC-32/ISO-HDLC */
    CRC_32C,    /* CRC-32/ISCSI */
    CRC_64NVME, /* CRC-64/NVME */
    CRC_KINDS,
};

/* Returns the check of the bytes summed before and these; of no bytes it is 0. */
uint64_t crc_add(enum crc_kind kind, uint64_t before, const uint8_t *bytes, size_t count);

#endif
