/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frozen_file - bytes kept in tests/data, by name
 *
 * A name stands at the start of a line, and its bytes below it, in hex, indented. For
 * test_core_frozen.c.
 */
#ifndef GMSFS_TESTS_UNIT_FROZEN_FILE_H
#define GMSFS_TESTS_UNIT_FROZEN_FILE_H

#include "tap.h"

#include <ctype.h>
#include <stdlib.h>

#define FROZEN_MAX_BYTES  65536u
#define FROZEN_LINE_BYTES 48u

struct frozen {
    char name[64];
    uint8_t bytes[FROZEN_MAX_BYTES];
    size_t size;
};

static void frozen_write(FILE *file, const char *name, const uint8_t *bytes, size_t size)
{
    fprintf(file, "%s\n", name);
    for (size_t i = 0; i < size; i++) {
        bool ends = (i + 1) % FROZEN_LINE_BYTES == 0 || i + 1 == size;
        fprintf(file, "%s%02x%s", i % FROZEN_LINE_BYTES ? "" : "    ", bytes[i], ends ? "\n" : "");
    }
}

static void frozen_take_line(struct frozen *frozen, const char *line)
{
    unsigned byte;

    for (line += strspn(line, " "); sscanf(line, "%2x", &byte) == 1; line += 2) {
        require(frozen->size < FROZEN_MAX_BYTES);
        frozen->bytes[frozen->size++] = (uint8_t)byte;
    }
}

/* Reads the next one; false: none. `line` is kept between calls, and empty at first. */
static bool frozen_read(FILE *file, char line[256], struct frozen *frozen)
{
    if (line[0] == '\0' && !fgets(line, 256, file))
        return false;
    *frozen = (struct frozen){0};
    require(sscanf(line, "%63s", frozen->name) == 1);
    while (fgets(line, 256, file)) {
        if (line[0] != ' ')
            return true;
        frozen_take_line(frozen, line);
    }
    line[0] = '\0';
    return true;
}

#endif
