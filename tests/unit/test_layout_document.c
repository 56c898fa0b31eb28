/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical encoding, its hash, and the decoding of untrusted documents. */
#include "auto_layout.h"

#include <errno.h>
#include <stdlib.h>

#define FLIP_ROUNDS 100000

/* Written by hand from gmsfs(5), CANONICAL LAYOUT, and the msgpack specification. */
static const uint8_t example[] = {
    0x83,                                                                  /* map of 3 */
    0xa1, 'v',                                                             /* "v": */
    0x01,                                                                  /* 1 */
    0xab, 'a',  'l',  'l',  'o',  'c',  'a',  't',  'i',  'o',  'n',  's', /* "allocations": */
    0x92,                                                                  /* array of 2 */
    0x93, 0x05,                                                            /* [5, */
    0xce, 0x00, 0x20, 0x00, 0x00,                                          /* 2097152, */
    0xa7, 'w',  'e',  'i',  'g',  'h',  't',  's',                         /* "weights"] */
    0x93, 0xcd, 0x01, 0x2c,                                                /* [300, */
    0xce, 0x00, 0x20, 0x00, 0x00,                                          /* 2097152, */
    0xa0,                                                                  /* ""] */
    0xa8, 'm',  'e',  't',  'a',  'd',  'a',  't',  'a',                   /* "metadata": */
    0x92,                                                                  /* array of 2 */
    0x94, 0xa1, 'a',  0xc0, 0x00, 0xc4, 0x00,                              /* ["a", nil, 0, ""] */
    0x94, 0xa3, 'b',  '/',  'c',  0x01, 0xcd, 0x01, 0x00, 0xc4, 0x03, 1,
    2,    3 /* [.., 1, 256, ...] */
};

/* The output of `xxhsum -H2` for these bytes. */
static const uint8_t example_hash[16] = {0x83, 0x3e, 0x7a, 0x9d, 0xd2, 0xea, 0x2b, 0xfa,
                                         0x9c, 0x54, 0xf3, 0x5b, 0x0b, 0x3c, 0xc2, 0x4f};

/* The layout that the example describes, with a gap in its slots. */
static struct layout *example_layout(void)
{
    struct layout *layout = layout_new();
    struct layout_put far = {"b/c", 3, 2, 256, "\1\2\3", 3, 12};
    struct layout_put unbound = {"a", 1, LAYOUT_UNBOUND, 0, NULL, 0, 13};

    require(layout != NULL);
    require(layout_add(layout, 1, "any", "weights", NULL) == 0);
    require(layout_add(layout, 2, NULL, "gone", NULL) == 0);
    require(layout_add(layout, 3, NULL, "", NULL) == 0);
    require(layout_set_memory(layout, 0, 9, 5, 2097152, false) == 0);
    require(layout_set_memory(layout, 2, 8, 300, 2097152, false) == 0);
    require(layout_remove(layout, 1, NULL) == 0);
    require(layout_put(layout, &far) == 0);
    require(layout_put(layout, &unbound) == 0);
    return layout;
}

/* Decodes a copy of exactly this size, so that the sanitizer sees any read beyond it. */
static int decode(const void *bytes, size_t size, uint64_t *culprit)
{
    struct layout_document *document = NULL;
    uint8_t *copy = malloc(size ? size : 1);
    int rc;

    require(copy != NULL);
    memcpy(copy, bytes, size);
    rc = layout_document_decode(copy, size, &document, culprit);
    if (rc == 0) {
        check(document != NULL);
        check(layout_document_count_rows(document) <= size);
        layout_document_free(document);
    }
    free(copy);
    return rc;
}

struct text {
    uint8_t bytes[600];
    size_t size;
};

static void append(struct text *text, const void *bytes, size_t size)
{
    require(text->size + size <= sizeof text->bytes);
    memcpy(text->bytes + text->size, bytes, size);
    text->size += size;
}

/* {"v":1,"metadata":[row, row]} where each row is the bytes given. */
static int decode_rows(const void *first, size_t first_size, const void *second, size_t second_size,
                       uint64_t *culprit)
{
    struct text text = {.size = 0};

    append(&text, "\x82\xa1v\x01\xa8metadata\x92", 14);
    append(&text, first, first_size);
    append(&text, second, second_size);
    return decode(text.bytes, text.size, culprit);
}

#define GOOD_ROW "\x94\xa1k\xc0\x00\xc4\x00", 7

TAP_TEST(encoding_is_the_hand_computed_example_byte_by_byte)
{
    auto_layout *layout = example_layout();
    auto_free uint8_t *bytes = NULL;
    size_t size = 0;

    require(layout_encode(layout, &bytes, &size) == 0);
    check_bytes(bytes, size, example, sizeof example);
}

TAP_TEST(an_empty_layout_encodes_to_its_empty_lists)
{
    auto_layout *layout = layout_new();
    auto_free uint8_t *bytes = NULL;
    size_t size = 0;

    require(layout != NULL);
    require(layout_encode(layout, &bytes, &size) == 0);
    check_bytes(bytes, size,
                "\x83\xa1v\x01\xab"
                "allocations\x90\xa8metadata\x90",
                27);
}

TAP_TEST(the_hash_is_what_xxhsum_prints)
{
    /* `xxhsum -H2` of nothing */
    static const uint8_t nothing[16] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                                        0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    uint8_t hash[16];

    layout_hash(example, sizeof example, hash);
    check_bytes(hash, sizeof hash, example_hash, sizeof example_hash);
    layout_hash("", 0, hash);
    check_bytes(hash, sizeof hash, nothing, sizeof nothing);
}

TAP_TEST(names_slots_and_serials_are_not_in_the_encoding)
{
    auto_layout *layout = example_layout();
    auto_free uint8_t *bytes = NULL;
    size_t size = 0;

    require(layout_rename(layout, 0, "other") == 0);
    require(layout_set_memory(layout, 0, 77, 5, 2097152, false) == 0);
    require(layout_encode(layout, &bytes, &size) == 0);
    check_bytes(bytes, size, example, sizeof example);
}

TAP_TEST(lengths_and_numbers_at_each_boundary_are_in_their_shortest_form)
{
    static const struct {
        uint64_t offset;
        const char *bytes;
        size_t size;
    } forms[] = {
        {127, "\x7f", 1},
        {128, "\xcc\x80", 2},
        {255, "\xcc\xff", 2},
        {256, "\xcd\x01\x00", 3},
        {65535, "\xcd\xff\xff", 3},
        {65536, "\xce\x00\x01\x00\x00", 5},
        {4294967295u, "\xce\xff\xff\xff\xff", 5},
        {4294967296u, "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9},
        {UINT64_MAX, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9},
    };

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct layout *layout = layout_new();
        struct layout_put put = {"k", 1, LAYOUT_UNBOUND, forms[i].offset, NULL, 0, 1};
        uint8_t *bytes = NULL;
        size_t size = 0;

        require(layout && layout_put(layout, &put) == 0);
        require(layout_encode(layout, &bytes, &size) == 0);
        check_bytes(bytes + size - 2 - forms[i].size, forms[i].size, forms[i].bytes, forms[i].size);
        free(bytes);
        layout_free(layout);
    }
}

TAP_TEST(keys_and_values_at_each_length_survive_encoding_and_decoding)
{
    static const size_t value_sizes[] = {0, 1, 255, 256, 65535, 65536, LAYOUT_MAX_VALUE_BYTES};
    static const size_t key_sizes[] = {1, 31, 32, 254, 255, 16, 8};
    static char key[256], value[LAYOUT_MAX_VALUE_BYTES];
    auto_layout *layout = layout_new();
    struct layout_document *document = NULL;
    struct layout_cursor cursor;
    struct layout_row row;
    auto_free uint8_t *bytes = NULL;
    uint64_t culprit;
    size_t size = 0;

    require(layout != NULL);
    memset(value, 0x5a, sizeof value);
    for (size_t i = 0; i < 7; i++) {
        struct layout_put put = {key, key_sizes[i], LAYOUT_UNBOUND, i, value, value_sizes[i], i};
        memset(key, 'a' + (int)i, sizeof key);
        require(layout_put(layout, &put) == 0);
    }
    require(layout_encode(layout, &bytes, &size) == 0);
    require(layout_document_decode(bytes, size, &document, &culprit) == 0);
    require(layout_document_count_rows(document) == 7);
    layout_cursor_first(&cursor, layout);
    for (size_t i = 0; i < 7; i++) {
        const struct layout_entry *entry = layout_cursor_next(&cursor);
        layout_document_row(document, i, &row);
        check_bytes(row.key, row.key_bytes, entry->key, entry->key_bytes);
        check_bytes(row.value, row.value_bytes, entry->value, entry->value_bytes);
        check_int(row.offset, i);
    }
    layout_document_free(document);
}

TAP_TEST(the_example_decodes_to_its_parts)
{
    struct layout_document *document = NULL;
    uint64_t culprit, size_bytes, aligned_bytes;
    struct layout_row row;
    const char *tag;
    size_t tag_bytes;

    require(layout_document_decode(example, sizeof example, &document, &culprit) == 0);
    check(layout_document_has_allocations(document));
    check_int(layout_document_count_allocations(document), 2);
    layout_document_allocation(document, 0, &size_bytes, &aligned_bytes, &tag, &tag_bytes);
    check_int(size_bytes, 5);
    check_int(aligned_bytes, 2097152);
    check_bytes(tag, tag_bytes, "weights", 7);
    layout_document_allocation(document, 1, &size_bytes, &aligned_bytes, &tag, &tag_bytes);
    check_int(size_bytes, 300);
    check_int(tag_bytes, 0);
    check_int(layout_document_count_rows(document), 2);
    layout_document_row(document, 0, &row);
    check_bytes(row.key, row.key_bytes, "a", 1);
    check(row.rank == LAYOUT_UNBOUND);
    check_int(row.value_bytes, 0);
    layout_document_row(document, 1, &row);
    check_bytes(row.key, row.key_bytes, "b/c", 3);
    check_int(row.rank, 1);
    check_int(row.offset, 256);
    check_bytes(row.value, row.value_bytes, "\1\2\3", 3);
    layout_document_free(document);
}

TAP_TEST(a_bulk_document_needs_no_allocations)
{
    static const char bulk[] = "\x82\xa1v\x01\xa8metadata\x91\x94\xa1k\x05\x00\xc4\x00";
    struct layout_document *document = NULL;
    uint64_t culprit;

    require(layout_document_decode(bulk, sizeof bulk - 1, &document, &culprit) == 0);
    check(!layout_document_has_allocations(document));
    check_int(layout_document_count_rows(document), 1);
    layout_document_free(document);
}

/* {"v":1, "metadata": [[key, nil, index, b""]...]} with keys of one byte. */
static struct layout_put *take_puts(const char *keys, size_t *count)
{
    static struct text text; /* that the puts point into */
    struct layout_document *document = NULL;
    struct layout_put *puts;
    uint64_t culprit;
    char head[] = "\x82\xa1v\x01\xa8metadata\x90";

    text.size = 0;
    head[13] = (char)(0x90 + strlen(keys));
    append(&text, head, 14);
    for (char i = 0; keys[(int)i]; i++) {
        const char row[] = {'\x94', '\xa1', keys[(int)i], '\xc0', i, '\xc4', 0};
        append(&text, row, sizeof row);
    }
    require(layout_document_decode(text.bytes, text.size, &document, &culprit) == 0);
    puts = layout_document_take_puts(document, count);
    check_int(layout_document_count_rows(document), 0);
    layout_document_free(document);
    return puts;
}

static void check_puts(const char *keys, const char *sorted, const char *order)
{
    size_t count = 0;
    struct layout_put *puts = take_puts(keys, &count);

    require(count == strlen(sorted));
    for (size_t i = 0; i < count; i++) {
        size_t index = (size_t)(order[i] - '0');
        check_bytes(puts[i].key, puts[i].key_bytes, sorted + i, 1);
        check_int(puts[i].serial, index);
        check_int(puts[i].offset, index);
    }
    free(puts);
}

TAP_TEST(rows_become_puts_in_order_of_their_keys_and_say_where_they_stood)
{
    check_puts("", "", "");
    check_puts("abc", "abc", "012");
    check_puts("cba", "abc", "210");
    check_puts("bdacb", "abbcd", "20431"); /* the last `b` comes behind the first */
    check_puts("aab", "aab", "012");
    check_puts("zaaaaaaaa", "aaaaaaaaz", "123456780");
}

TAP_TEST(forms_that_are_not_the_shortest_are_accepted)
{
    static const char loose[] = "\xdf\0\0\0\2" /* map 32 */
                                "\xda\0\x08metadata"
                                "\xdd\0\0\0\1" /* array 32 */
                                "\xdc\0\4"     /* array 16 */
                                "\xdb\0\0\0\1k"
                                "\xd3\0\0\0\0\0\0\0\3" /* int 64 */
                                "\xcf\0\0\0\0\0\0\0\4" /* uint 64 */
                                "\xc6\0\0\0\2hi"       /* bin 32 */
                                "\xd9\1v\xd0\1";       /* str 8, int 8 */
    struct layout_document *document = NULL;
    struct layout_row row;
    uint64_t culprit;

    require(layout_document_decode(loose, sizeof loose - 1, &document, &culprit) == 0);
    layout_document_row(document, 0, &row);
    check_bytes(row.key, row.key_bytes, "k", 1);
    check_int(row.rank, 3);
    check_int(row.offset, 4);
    check_bytes(row.value, row.value_bytes, "hi", 2);
    layout_document_free(document);
}

TAP_TEST(a_wrong_map_is_the_documents_fault)
{
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {
        {"", 0},
        {"\x80", 1},
        {"\x90", 1},
        {"\xc0", 1},
        {"\x81\xa1v\x01", 4},                                  /* no metadata */
        {"\x81\xa8metadata\x90", 11},                          /* no version */
        {"\x82\xa1v\x02\xa8metadata\x90", 14},                 /* another version */
        {"\x82\xa1v\xc3\xa8metadata\x90", 14},                 /* true */
        {"\x82\xa1v\x01\xa8metadata\x90\x00", 15},             /* trailing byte */
        {"\x83\xa1v\x01\xa8metadata\x90\xa1x\x00", 17},        /* unknown key */
        {"\x83\xa1v\x01\xa1v\x01\xa8metadata\x90", 17},        /* "v" twice */
        {"\x83\xa1v\x01\xa8metadata\x90\xa8metadata\x90", 24}, /* "metadata" twice */
        {"\x82\xa1v\x01\xa8metadata\x80", 14},                 /* a map for the list */
        {"\x82\xc4\x01v\x01\xa8metadata\x90", 15},             /* bin for a key */
        {"\x82\x01\x01\xa8metadata\x90", 13},                  /* number for a key */
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t culprit = 5;
        if (!check_int(decode(bad[i].bytes, bad[i].size, &culprit), -EINVAL))
            fprintf(stderr, "#   case %zu\n", i);
        check(culprit == UINT64_MAX);
    }
}

TAP_TEST(a_wrong_row_is_named_as_the_culprit)
{
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {
        {"\x93\xa1k\xc0\x00\xc4\x00", 7},                                  /* three fields */
        {"\x95\xa1k\xc0\x00\xc4\x00\xc0", 8},                              /* five */
        {"\x94\xa0\xc0\x00\xc4\x00\xc0", 7},                               /* empty key */
        {"\x94\xa1\xff\xc0\x00\xc4\x00", 7},                               /* not UTF-8 */
        {"\x94\xc4\x01k\xc0\x00\xc4\x00", 8},                              /* bin key */
        {"\x94\xa1k\xc2\x00\xc4\x00", 7},                                  /* rank false */
        {"\x94\xa1k\xff\x00\xc4\x00", 7},                                  /* rank -1 */
        {"\x94\xa1k\xce\x00\x01\x00\x00\x00\xc4\x00", 11},                 /* rank 65536 */
        {"\x94\xa1k\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x00\xc4\x00", 15}, /* rank 2^64-1 */
        {"\x94\xa1k\xc0\xc0\xc4\x00", 7},                                  /* offset nil */
        {"\x94\xa1k\xc0\xd3\xff\xff\xff\xff\xff\xff\xff\xff\xc4\x00", 15}, /* offset -1 */
        {"\x94\xa1k\xc0\xca\x00\x00\x00\x00\xc4\x00", 11},                 /* offset a float */
        {"\x94\xa1k\xc0\x00\xa0\x00", 7},                                  /* str value */
        {"\x94\xa1k\xc0\x00\xc4\x09\x00", 8},          /* value beyond the end */
        {"\x94\xa1k\xc0\x00\xc6\xff\xff\xff\xff", 10}, /* by far */
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t culprit = UINT64_MAX;
        if (!check_int(decode_rows(GOOD_ROW, bad[i].bytes, bad[i].size, &culprit), -EINVAL))
            fprintf(stderr, "#   case %zu\n", i);
        check_int(culprit, 1);
    }
}

TAP_TEST(a_key_too_long_for_a_file_name_is_named_as_such)
{
    struct text row = {.size = 0};
    uint64_t culprit = UINT64_MAX;

    append(&row, "\x94\xd9\x56", 3); /* 86 slashes are 258 bytes when escaped */
    for (int i = 0; i < 86; i++)
        append(&row, "/", 1);
    append(&row, "\xc0\x00\xc4\x00", 4);
    check_int(decode_rows(row.bytes, row.size, GOOD_ROW, &culprit), -ENAMETOOLONG);
    check_int(culprit, 0);
}

TAP_TEST(a_value_beyond_its_bound_is_refused)
{
    static uint8_t bytes[LAYOUT_MAX_VALUE_BYTES + 64];
    static const char head[] = "\x82\xa1v\x01\xa8metadata\x91\x94\xa1k\xc0\x00\xc6\x00\x10\x00\x00";
    uint64_t culprit;

    memcpy(bytes, head, sizeof head - 1);
    check_int(decode(bytes, sizeof head - 1 + LAYOUT_MAX_VALUE_BYTES, &culprit), 0);
    bytes[sizeof head - 2] = 1;
    check_int(decode(bytes, sizeof head + LAYOUT_MAX_VALUE_BYTES, &culprit), -EINVAL);
    check_int(culprit, 0);
}

TAP_TEST(a_rank_beyond_the_documents_allocations_is_refused)
{
    uint8_t bytes[sizeof example];
    uint64_t culprit;

    memcpy(bytes, example, sizeof example);
    bytes[sizeof example - 9] = 2; /* the rank of "b/c" */
    check_int(decode(bytes, sizeof bytes, &culprit), -EINVAL);
    check_int(culprit, 1);
}

TAP_TEST(a_wrong_allocation_is_the_documents_fault)
{
    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {
        {"\x91\x92\x05\x06\xa0", 5},     /* two fields */
        {"\x91\x93\x05\x04\xa0\xa0", 6}, /* costs less than its size */
        {"\x91\x93\x05\xff\xa0\xa0", 6}, /* negative */
        {"\x91\x93\x05\x06\xa1\xff", 6}, /* tag not UTF-8 */
        {"\x91\x93\x05\x06\xa1\x00", 6}, /* NUL in a tag */
        {"\x91\x93\x05\x06\xc4\x00", 6}, /* tag bin */
        {"\x91\x05\xa0\xa0\xa0\xa0", 6}, /* no list */
        {"\xdd\xff\xff\xff\xff\x93", 6}, /* more than there are bytes */
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct text text = {.size = 0};
        uint64_t culprit = 5;

        append(&text,
               "\x83\xa1v\x01\xab"
               "allocations",
               16);
        append(&text, bad[i].bytes, bad[i].size);
        append(&text, "\xa8metadata\x90", 10);
        if (!check_int(decode(text.bytes, text.size, &culprit), -EINVAL))
            fprintf(stderr, "#   case %zu\n", i);
        check(culprit == UINT64_MAX);
    }
}

TAP_TEST(a_document_cut_short_at_any_byte_is_refused)
{
    uint64_t culprit;

    for (size_t size = 0; size < sizeof example; size++) {
        if (!check_int(decode(example, size, &culprit), -EINVAL))
            fprintf(stderr, "#   at %zu\n", size);
    }
    check_int(decode(example, sizeof example, &culprit), 0);
}

TAP_TEST(claimed_counts_allocate_nothing_that_the_bytes_cannot_hold)
{
    uint64_t culprit;

    check_int(decode("\x82\xa1v\x01\xa8metadata\xdd\xff\xff\xff\xff", 18, &culprit), -EINVAL);
    check(culprit == UINT64_MAX);
    check_int(decode("\xdf\xff\xff\xff\xff\xa1v\x01", 8, &culprit), -EINVAL);
}

TAP_TEST(more_rows_than_entries_may_be_are_a_bound)
{
    size_t rows = LAYOUT_MAX_ENTRIES + 1, size = 18 + rows * 7;
    auto_free uint8_t *bytes = malloc(size);
    uint64_t culprit;

    require(bytes != NULL);
    memcpy(bytes, "\x82\xa1v\x01\xa8metadata\xdd\x00\x10\x00\x01", 18);
    for (size_t i = 0; i < rows; i++)
        memcpy(bytes + 18 + i * 7, GOOD_ROW);
    check_int(decode(bytes, size, &culprit), -ENOSPC);
    check(culprit == UINT64_MAX);
    bytes[17] = 0;
    check_int(decode(bytes, size - 7, &culprit), 0);
}

TAP_TEST(deep_nesting_ends_at_the_first_wrong_level)
{
    static uint8_t bytes[1 << 20];
    uint64_t culprit;

    memset(bytes, 0x91, sizeof bytes);
    check_int(decode(bytes, sizeof bytes, &culprit), -EINVAL);
    memset(bytes, 0x81, sizeof bytes);
    check_int(decode(bytes, sizeof bytes, &culprit), -EINVAL);
    memset(bytes, 0x94, sizeof bytes);
    memcpy(bytes, "\x82\xa1v\x01\xa8metadata\x91", 14);
    check_int(decode(bytes, sizeof bytes, &culprit), -EINVAL);
    check_int(culprit, 0);
}

TAP_TEST(flipped_bits_never_crash_and_never_break_the_bounds)
{
    uint8_t bytes[sizeof example];
    int accepted = 0;

    srand(424242);
    for (int round = 0; round < FLIP_ROUNDS; round++) {
        int flips = 1 + rand() % 4;
        uint64_t culprit;
        int rc;

        memcpy(bytes, example, sizeof bytes);
        for (int i = 0; i < flips; i++)
            bytes[(size_t)rand() % sizeof bytes] ^= (uint8_t)(1 << rand() % 8);
        rc = decode(bytes, sizeof bytes, &culprit);
        require(rc == 0 || rc == -EINVAL || rc == -ENAMETOOLONG || rc == -ENOSPC);
        require(culprit == UINT64_MAX || culprit < sizeof bytes);
        accepted += rc == 0;
    }
    check(accepted > 0 && accepted < FLIP_ROUNDS);
}

TAP_TEST(random_bytes_never_crash)
{
    uint8_t bytes[64];

    srand(99);
    for (int round = 0; round < FLIP_ROUNDS; round++) {
        size_t size = (size_t)rand() % sizeof bytes;
        uint64_t culprit;

        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)rand();
        require(decode(bytes, size, &culprit) < 0);
    }
}
