/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part_name - finds the files that are parts of one model, by their names
 *
 * Pure. Reads names such as STEM-00002-of-00005.safetensors, with any number of digits and leading
 * zeros, counted from 1 or from 0. Only this module knows which parts a model must have. A file of
 * another name is a complete set of its own. Used to search a directory (find.c) and to check a
 * user's paths (open.c). Opens no file.
 */
#ifndef GMSFS_MODEL_PART_NAME_H
#define GMSFS_MODEL_PART_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for every text of this module. */
#define PART_TEXT_BYTES 2048u

struct part_name {
    const char *name;  /* as given, with its directory if it has one; owned by the caller */
    size_t stem_bytes; /* length of the text before the number; the whole name if no part */
    size_t tail_at;    /* offset of the text after the count, ".safetensors" */
    uint32_t number;   /* as in the name */
    uint32_t count;    /* parts of the model; 0 if the file is no part */
    uint32_t digits;   /* of the number if it has leading zeros, else 1 */
};

/* Reads a name or a path, and points into it. Files of two directories are never one set. */
struct part_name part_name_read(const char *path);

/* Returns true if the name or path ends with the suffix. */
bool part_name_ends_with(const char *path, const char *suffix);

/* Compares for qsort(3): by set, then number, then name. */
int part_name_compare(const void *left, const void *right);

/* Counts the names of the set that begins a sorted list; at least 1 unless the list is empty. */
size_t part_set_length(const struct part_name *parts, size_t count);

/* Returns true if every part of the sorted set is there once. */
bool part_set_is_whole(const struct part_name *set, size_t length);

/* Writes 'STEM-*-of-00005.safetensors', which a shell expands to the set, without quotes. */
void part_set_pattern(const struct part_name *set, char text[PART_TEXT_BYTES]);

/*
 * Writes the reason why the sorted set is incomplete, as the end of a sentence: which parts `lack`
 * ("are missing", "are not named"), bounded, or which are duplicates or do not belong to it.
 */
void part_set_fault(const struct part_name *set, size_t length, const char *lack,
                    char text[PART_TEXT_BYTES]);

#endif
