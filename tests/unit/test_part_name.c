/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which parts a model must have, by the names of its files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/part_name.h"
#include "tap.h"

#define MOST_PARTS 12u
#define NAME_BYTES 96u

static void check_name(const char *name, uint32_t number, uint32_t count, const char *pattern)
{
    struct part_name part = part_name_read(name);
    char text[PART_TEXT_BYTES];

    check_int(part.number, number);
    check_int(part.count, count);
    part_set_pattern(&part, text);
    check_str(text, pattern);
}

TAP_TEST(parts_are_read_with_any_number_of_digits)
{
    check_name("model-00002-of-00005.safetensors", 2, 5, "model-*-of-00005.safetensors");
    check_name("model-00002-of-000163.safetensors", 2, 163, "model-*-of-000163.safetensors");
    check_name("model-7-of-62.safetensors", 7, 62, "model-*-of-62.safetensors");
    check_name("m.Q4_K-00001-of-00002.gguf", 1, 2, "m.Q4_K-*-of-00002.gguf");
    check_name("model-00001-of-00002.fp16.safetensors", 1, 2, "model-*-of-00002.fp16.safetensors");
    check_name("a-1-of-2-00001-of-00003.gguf", 1, 3, "a-1-of-2-*-of-00003.gguf");
    check_name("m_1_of_3.safetensors", 1, 3, "m_*_of_3.safetensors");
    check_name("d-1-of-2.d/m-00003-of-00004.gguf", 3, 4, "d-1-of-2.d/m-*-of-00004.gguf");
}

TAP_TEST(other_names_are_no_parts)
{
    static const char *const names[] = {"model.safetensors",
                                        "best-of-2.gguf",
                                        "-of-3.gguf",
                                        "1-of-3.gguf",
                                        "a-1-of-0.gguf",
                                        "a-1-of-.gguf",
                                        "a-1-of-3-bits.gguf",
                                        "a-1of3.gguf",
                                        "a1-of-3.gguf",
                                        "a-1-of-3",
                                        "",
                                        "d-1-of-2.d/model.gguf",
                                        "a-1-of-1234567890.gguf"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_name(names[i], 0, 0, names[i]);
}

/* ---- all sets of parts --------------------------------------------------------------------- */

struct set {
    char names[MOST_PARTS][NAME_BYTES];
    struct part_name parts[MOST_PARTS];
    size_t length;
};

/* Makes the parts first + bit of `bits`, in an arbitrary order. */
static void make_set(struct set *set, const char *format, uint32_t bits, uint32_t first,
                     uint32_t count)
{
    set->length = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bit = (i * 5 + 3) % count; /* no count below is a multiple of 5 */
        if (!(bits & 1u << bit))
            continue;
        snprintf(set->names[set->length], NAME_BYTES, format, first + bit, count);
        set->parts[set->length] = part_name_read(set->names[set->length]);
        set->length++;
    }
    qsort(set->parts, set->length, sizeof(set->parts[0]), part_name_compare);
}

static void check_all_sets(const char *format, uint32_t first, uint32_t count)
{
    uint32_t whole = (1u << count) - 1;
    struct set set;

    for (uint32_t bits = 1; bits <= whole; bits++) {
        make_set(&set, format, bits, first, count);
        check_int(part_set_length(set.parts, set.length), set.length);
        if (!check_int(part_set_is_whole(set.parts, set.length), bits == whole))
            return;
        for (size_t i = 0; i < set.length; i++)
            check(i == 0 || set.parts[i - 1].number < set.parts[i].number);
    }
}

TAP_TEST(a_set_is_whole_if_and_only_if_every_part_is_there)
{
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 11};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        for (uint32_t first = 0; first < 2; first++) {
            check_all_sets("model-%05u-of-%05u.safetensors", first, counts[i]);
            check_all_sets("model-%05u-of-%06u.safetensors", first, counts[i]);
            check_all_sets("model-%u-of-%u.gguf", first, counts[i]);
        }
}

/* Every missing part is named, or counted if there are many. */
TAP_TEST(the_parts_that_are_missing_are_named)
{
    char text[PART_TEXT_BYTES], name[NAME_BYTES];
    struct set set;

    for (uint32_t bits = 1; bits < 1u << 7; bits++) {
        size_t missing = 7 - (size_t)__builtin_popcount(bits), named = 0;
        make_set(&set, "m-%05u-of-%06u.gguf", bits, 1, 7);
        part_set_fault(set.parts, set.length, "are missing", text);
        for (uint32_t bit = 0; bit < 7 && missing > 0; bit++) {
            snprintf(name, sizeof(name), "'m-%05u-of-000007.gguf'", bit + 1);
            check(!(strstr(text, name) && bits & 1u << bit));
            named += strstr(text, name) != NULL;
        }
        check_int(named, missing < 4 ? missing : 4);
        snprintf(name, sizeof(name), " and %zu more", missing - named);
        check_int(strstr(text, name) != NULL, missing > named);
    }
}

static void check_pair(const char *left, const char *right, bool is_one_set, const char *fault)
{
    struct part_name parts[] = {part_name_read(left), part_name_read(right)};
    char text[PART_TEXT_BYTES];

    qsort(parts, 2, sizeof(parts[0]), part_name_compare);
    check_int(part_set_length(parts, 2), is_one_set ? 2 : 1);
    if (!is_one_set)
        return;
    check(!part_set_is_whole(parts, 2));
    part_set_fault(parts, 2, "are missing", text);
    if (!check(strstr(text, fault) != NULL))
        fprintf(stderr, "#   it said: %s\n", text);
}

TAP_TEST(a_part_that_is_there_twice_or_has_no_place_is_named)
{
    check_pair("m-1-of-2.gguf", "m-01-of-2.gguf", true, "are both part 1 of 2");
    check_pair("m-1-of-2.gguf", "m-3-of-2.gguf", true, "'m-3-of-2.gguf' has a number");
    check_pair("m-0-of-2.gguf", "m-2-of-2.gguf", true, "'m-2-of-2.gguf' has a number");
}

TAP_TEST(sets_of_other_stems_counts_endings_or_directories_are_apart)
{
    check_pair("m-1-of-2.gguf", "n-2-of-2.gguf", false, "");
    check_pair("m-1-of-2.gguf", "m-2-of-3.gguf", false, "");
    check_pair("m-1-of-2.gguf", "m-2-of-2.safetensors", false, "");
    check_pair("a/m-1-of-2.gguf", "b/m-2-of-2.gguf", false, "");
    check_pair("m.gguf", "m-1-of-2.gguf", false, "");
}

TAP_TEST(texts_are_bounded)
{
    char name[4 * PART_TEXT_BYTES], text[PART_TEXT_BYTES];
    struct part_name part;

    memset(name, 'x', sizeof(name));
    strcpy(name + sizeof(name) - 32, "-00001-of-999999999.safetensors");
    part = part_name_read(name);
    check_int(part.count, 999999999);
    part_set_pattern(&part, text);
    check(strlen(text) < sizeof(text));
    part_set_fault(&part, 1, "are missing", text);
    check(strlen(text) < sizeof(text));
}
