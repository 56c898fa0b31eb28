/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_arguments - shared by the operations of gmsctl: their state, and words as numbers and
 * bytes
 *
 * For gmsctl.c and its headers alone; bad words end the program with status 2.
 */
#ifndef TOOLS_GMSCTL_ARGUMENTS_H
#define TOOLS_GMSCTL_ARGUMENTS_H

#include "gmsfs_abi.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES       4096
#define MAX_DESCRIPTORS 8192

static struct {
    int files[MAX_FILES], file_count, fd; /* `fd` is the one in use */
    int socket;
    int memory[MAX_DESCRIPTORS], memory_count; /* received */
    uint8_t drain_token[16];                   /* of the last drained store */
    uint8_t token[16], ticket[16], layout[16]; /* the last ones */
} s = {.fd = -1, .socket = -1};

struct bytes {
    uint8_t *data;
    size_t size;
};

static void die(const char *what, const char *argument)
{
    fprintf(stderr, "gmsctl: %s: %s\n", what, argument);
    exit(2);
}

static uint64_t number(const char *text)
{
    char *end;
    if (strcmp(text, "none") == 0 || strcmp(text, "forever") == 0)
        return UINT64_MAX;
    errno = 0;
    uint64_t value = text[0] == '-' ? (uint64_t)strtoll(text, &end, 0) : strtoull(text, &end, 0);
    if (errno || end == text || *end)
        die("not a number", text);
    return value;
}

static size_t from_hex(const char *text, uint8_t *out, size_t room)
{
    size_t size = strlen(text) / 2;
    for (size_t i = 0; i < size && i < room; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1)
            die("not hex", text);
        out[i] = (uint8_t)value;
    }
    return size;
}

static struct bytes bytes_of(const char *text)
{
    struct bytes bytes = {.size = strlen(text)};
    if (strncmp(text, "fill:", 5) == 0)
        bytes.size = number(text + 5);
    bytes.data = malloc(bytes.size + 1);
    if (!bytes.data)
        die("no memory for", text);
    if (strncmp(text, "hex:", 4) == 0)
        bytes.size = from_hex(text + 4, bytes.data, bytes.size);
    else if (strncmp(text, "fill:", 5) == 0)
        memset(bytes.data, 'v', bytes.size);
    else
        memcpy(bytes.data, text, bytes.size);
    return bytes;
}

static void id_of(const char *text, const uint8_t last[16], uint8_t id[16])
{
    if (strcmp(text, "last") == 0)
        memcpy(id, last, 16);
    else if (strlen(text) != 32 || from_hex(text, id, 16) != 16)
        die("not 32 hex digits", text);
}

static void print_hex(const char *label, const uint8_t *data, size_t size)
{
    printf("%s", label);
    for (size_t i = 0; i < size; i++)
        printf("%02x", data[i]);
}

static const char *mode_name(uint32_t mode)
{
    static const char *const names[] = {"NONE", "RO", "RW", "RW_OR_RO", "RW_DATA"};
    return mode < sizeof names / sizeof names[0] ? names[mode] : "?";
}

static uint32_t mode_of(const char *text)
{
    static const char *const names[] = {"none", "ro", "rw", "auto", "rw_data", "data"};
    for (uint32_t mode = 0; mode < sizeof names / sizeof names[0]; mode++)
        if (strcmp(text, names[mode]) == 0)
            return mode;
    return (uint32_t)number(text);
}

static int result(long value)
{
    return value < 0 ? -errno : 0;
}

#endif
