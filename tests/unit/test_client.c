/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the pure parts of libgmsfs: mapping table, msgpack, layout decoder, bulk documents,
 * names. */
#include <errno.h>
#include <stdlib.h>

#include "base/key_name.h"
#include "bulk.h"
#include "internal.h"
#include "layout.h"
#include "pack/unpack.h"
#include "tap.h"
#include "vmap.h"

#define MIB ((uint64_t)1 << 20)

static void add_reservation(struct gfs_vmap *map, uintptr_t base, uint64_t size_bytes)
{
    require(gfs_vmap_make_room(map, 1, 0) == 0);
    gfs_vmap_add_reservation(map,
                             &(struct gfs_reservation){.base = base, .size_bytes = size_bytes});
}

static void add_mapping(struct gfs_vmap *map, uintptr_t va, uint64_t aligned_bytes, uint64_t slot)
{
    require(gfs_vmap_make_room(map, 0, 1) == 0);
    gfs_vmap_add_mappings(
        map, &(struct gfs_mapping){.va = va, .aligned_bytes = aligned_bytes, .slot = slot}, 1);
}

TAP_TEST(vmap_empty_finds_nothing)
{
    struct gfs_vmap map = {0};

    check(!gfs_vmap_find_mapping(&map, 0));
    check(!gfs_vmap_find_mapping(&map, UINTPTR_MAX));
    check(!gfs_vmap_find_reservation(&map, 4096));
    check(!gfs_vmap_overlaps(&map, 4096, 4096));
    gfs_vmap_free(&map);
}

TAP_TEST(vmap_finds_by_any_address_inside)
{
    struct gfs_vmap map = {0};

    add_reservation(&map, 64 * MIB, 8 * MIB);
    add_reservation(&map, 32 * MIB, 2 * MIB);
    add_mapping(&map, 68 * MIB, 2 * MIB, 7);
    add_mapping(&map, 64 * MIB, 2 * MIB, 5);
    add_mapping(&map, 32 * MIB, 2 * MIB, 9);
    check_int(map.reservations[0].base, 32 * MIB);
    check_int(map.reservations[0].mappings, 1);
    check_int(map.reservations[1].mappings, 2);
    check_int(gfs_vmap_find_mapping(&map, 64 * MIB)->slot, 5);
    check_int(gfs_vmap_find_mapping(&map, 66 * MIB - 1)->slot, 5);
    check(!gfs_vmap_find_mapping(&map, 66 * MIB));
    check_int(gfs_vmap_find_mapping(&map, 69 * MIB)->slot, 7);
    check(!gfs_vmap_find_mapping(&map, 70 * MIB));
    check(!gfs_vmap_find_mapping(&map, 32 * MIB - 1));
    check_int(gfs_vmap_find_reservation(&map, 72 * MIB - 1)->base, 64 * MIB);
    check(!gfs_vmap_find_reservation(&map, 72 * MIB));
    gfs_vmap_free(&map);
}

TAP_TEST(vmap_overlap_is_exact_at_both_ends)
{
    struct gfs_vmap map = {0};

    add_reservation(&map, 64 * MIB, 16 * MIB);
    add_mapping(&map, 68 * MIB, 4 * MIB, 1);
    check(!gfs_vmap_overlaps(&map, 64 * MIB, 4 * MIB));
    check(gfs_vmap_overlaps(&map, 64 * MIB, 4 * MIB + 1));
    check(gfs_vmap_overlaps(&map, 70 * MIB, 1));
    check(gfs_vmap_overlaps(&map, 64 * MIB, 16 * MIB));
    check(!gfs_vmap_overlaps(&map, 72 * MIB, 8 * MIB));
    gfs_vmap_free(&map);
}

TAP_TEST(vmap_thousands_in_any_order_stay_sorted)
{
    struct gfs_vmap map = {0};
    uint64_t at = 1;

    add_reservation(&map, MIB, 4096 * MIB);
    for (int i = 0; i < 4000; i++, at = at * 2053 % 4001)
        add_mapping(&map, at * MIB, MIB, at);
    check_int(map.mapping_count, 4000);
    for (size_t i = 1; i < map.mapping_count; i++)
        check(map.mappings[i - 1].va < map.mappings[i].va);
    for (uint64_t i = 1; i <= 4000; i += 7)
        check_int(gfs_vmap_find_mapping(&map, i * MIB + 17)->slot, i);
    while (map.mapping_count)
        gfs_vmap_remove_mapping(&map, map.mappings + map.mapping_count / 2);
    check_int(map.reservations[0].mappings, 0);
    gfs_vmap_remove_reservation(&map, map.reservations);
    check_int(map.reservation_count, 0);
    gfs_vmap_free(&map);
}

TAP_TEST(vmap_adds_a_block_between_others)
{
    struct gfs_vmap map = {0};
    struct gfs_mapping block[3] = {{.va = 10 * MIB, .aligned_bytes = MIB, .slot = 0},
                                   {.va = 11 * MIB, .aligned_bytes = MIB, .slot = 1},
                                   {.va = 12 * MIB, .aligned_bytes = MIB, .slot = 2}};

    add_reservation(&map, MIB, MIB);
    add_mapping(&map, MIB, MIB, 100);
    add_reservation(&map, 20 * MIB, MIB);
    add_mapping(&map, 20 * MIB, MIB, 101);
    add_reservation(&map, 10 * MIB, 3 * MIB);
    require(gfs_vmap_make_room(&map, 0, 3) == 0);
    check_int(gfs_vmap_make_room(&map, SIZE_MAX, 0), -ENOMEM);
    check_int(gfs_vmap_make_room(&map, 0, SIZE_MAX), -ENOMEM);
    gfs_vmap_add_mappings(&map, block, 3);
    check_int(map.mapping_count, 5);
    check_int(map.mappings[2].slot, 1);
    check_int(gfs_vmap_find_reservation(&map, 11 * MIB)->mappings, 3);
    gfs_vmap_free(&map);
}

#define BLOCK 5

/* Adds a block that is in the table's room already; `below` and `above`: other mappings. */
static void check_block_behind(size_t below, size_t above)
{
    struct gfs_vmap map = {0};
    size_t all = below + above + BLOCK;

    for (size_t i = 0; i < all; i++)
        if (i < below || i >= below + BLOCK) {
            add_reservation(&map, (i + 1) * MIB, MIB);
            add_mapping(&map, (i + 1) * MIB, MIB, i);
        }
    add_reservation(&map, (below + 1) * MIB, BLOCK * MIB);
    require(gfs_vmap_make_room(&map, 0, BLOCK) == 0);
    for (size_t i = 0; i < BLOCK; i++)
        gfs_vmap_behind(&map)[i] = (struct gfs_mapping){
            .va = (below + i + 1) * MIB, .aligned_bytes = MIB, .slot = below + i};
    gfs_vmap_add_mappings(&map, gfs_vmap_behind(&map), BLOCK);
    check_int(map.mapping_count, all);
    for (size_t i = 0; i < all; i++)
        check(map.mappings[i].slot == i && map.mappings[i].va == (i + 1) * MIB);
    check_int(gfs_vmap_find_reservation(&map, (below + 2) * MIB)->mappings, BLOCK);
    gfs_vmap_free(&map);
}

TAP_TEST(vmap_puts_a_block_of_its_room_where_it_belongs)
{
    for (size_t below = 0; below < 4; below++)
        for (size_t above = 0; above < 8; above++)
            check_block_behind(below, above);
}

/* ---- msgpack ------------------------------------------------------------------------------ */

static int is_slot_below(const struct gfs_mapping *mapping, const void *context)
{
    return mapping->slot < *(const uint64_t *)context;
}

TAP_TEST(vmap_runs_end_at_gaps_reservations_and_strangers)
{
    static const struct {
        uint64_t va, size_bytes;
    } expected[] = {{32, 4}, {40, 2}, {44, 2}, {46, 2}};
    struct gfs_vmap map = {0};
    uint64_t size_bytes, below = 100;
    uintptr_t va;
    size_t at = 0;

    add_reservation(&map, 32 * MIB, 14 * MIB);
    add_reservation(&map, 46 * MIB, 8 * MIB);
    add_mapping(&map, 32 * MIB, 2 * MIB, 0);
    add_mapping(&map, 34 * MIB, 2 * MIB, 1);
    add_mapping(&map, 36 * MIB, 2 * MIB, 100);
    add_mapping(&map, 40 * MIB, 2 * MIB, 3); /* after a gap */
    add_mapping(&map, 44 * MIB, 2 * MIB, 4);
    add_mapping(&map, 46 * MIB, 2 * MIB, 5); /* side by side, but in another reservation */
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        require(gfs_vmap_next_run(&map, &at, is_slot_below, &below, &va, &size_bytes));
        check_int(va, expected[i].va * MIB);
        check_int(size_bytes, expected[i].size_bytes * MIB);
    }
    check(!gfs_vmap_next_run(&map, &at, is_slot_below, &below, &va, &size_bytes));
    gfs_vmap_free(&map);
    at = 0;
    check(!gfs_vmap_next_run(&map, &at, is_slot_below, &below, &va, &size_bytes));
}

TAP_TEST(vmap_run_ends_where_other_devices_have_rights)
{
    static const uint64_t devices[] = {1, 1, 3, 3, 1};
    struct gfs_vmap map = {0};
    uint64_t below = 10, size_bytes = 0;
    uintptr_t va = 0;
    size_t at = 0;

    add_reservation(&map, 32 * MIB, 10 * MIB);
    for (size_t i = 0; i < 5; i++) {
        add_mapping(&map, (32 + 2 * i) * MIB, 2 * MIB, i);
        gfs_vmap_find_mapping(&map, (32 + 2 * i) * MIB)->devices = devices[i];
    }
    for (size_t i = 0; i < 5; i += i == 4 ? 1 : 2) {
        require(gfs_vmap_next_run(&map, &at, is_slot_below, &below, &va, &size_bytes));
        check_int(va, (32 + 2 * i) * MIB);
        check_int(size_bytes, (i == 4 ? 2 : 4) * MIB);
    }
    check(!gfs_vmap_next_run(&map, &at, is_slot_below, &below, &va, &size_bytes));
    gfs_vmap_free(&map);
}

TAP_TEST(msgpack_numbers_take_their_shortest_form_and_come_back)
{
    static const struct {
        uint64_t value;
        size_t size_bytes;
    } cases[] = {{0, 1},          {127, 1},        {128, 2},           {255, 2},
                 {256, 3},        {65535, 3},      {65536, 5},         {UINT32_MAX, 5},
                 {1ull << 32, 9}, {UINT64_MAX, 9}, {UINT64_MAX - 1, 9}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gfs_writer writer = {0};
        struct unpack reader;
        uint64_t back = 1;
        gfs_write_uint(&writer, cases[i].value);
        check_int(writer.size_bytes, cases[i].size_bytes);
        reader = (struct unpack){writer.bytes, writer.bytes + writer.size_bytes};
        check_int(unpack_uint(&reader, &back), 0);
        check(back == cases[i].value);
        check(reader.at == reader.end);
        free(writer.bytes);
    }
}

TAP_TEST(msgpack_lengths_take_their_shortest_form_and_come_back)
{
    static const size_t lengths[] = {0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536, 70000};
    static char filler[70000];

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t length = lengths[i], back = 1;
        struct gfs_writer writer = {0};
        struct unpack reader;
        const char *text;
        const uint8_t *bytes;
        uint32_t count = 1;
        gfs_write_text(&writer, filler, length);
        check_int(writer.size_bytes - length, length < 32      ? 1
                                              : length < 256   ? 2
                                              : length < 65536 ? 3
                                                               : 5);
        gfs_write_binary(&writer, filler, length);
        gfs_write_array(&writer, (uint32_t)length);
        for (size_t j = 0; j < length; j++)
            gfs_write_nil(&writer);
        reader = (struct unpack){writer.bytes, writer.bytes + writer.size_bytes};
        check(unpack_str(&reader, &text, &back) == 0 && back == length);
        check(unpack_bin(&reader, &bytes, &back) == 0 && back == length);
        check(unpack_array(&reader, &count) == 0 && count == length);
        for (size_t j = 0; j < length; j++)
            require(unpack_nil(&reader));
        check(reader.at == reader.end);
        free(writer.bytes);
    }
}

/* ---- layout ------------------------------------------------------------------------------- */

static void write_layout(struct gfs_writer *writer)
{
    gfs_write_map(writer, 3);
    gfs_write_text(writer, "v", 1);
    gfs_write_uint(writer, 1);
    gfs_write_text(writer, "allocations", 11);
    gfs_write_array(writer, 2);
    gfs_write_array(writer, 3);
    gfs_write_uint(writer, 5000);
    gfs_write_uint(writer, 2 * MIB);
    gfs_write_text(writer, "weights", 7);
    gfs_write_array(writer, 3);
    gfs_write_uint(writer, 6000000000);
    gfs_write_uint(writer, 6001000448);
    gfs_write_text(writer, "", 0);
    gfs_write_text(writer, "metadata", 8);
    gfs_write_array(writer, 2);
    gfs_write_array(writer, 4);
    gfs_write_text(writer, "a\0b", 3);
    gfs_write_nil(writer);
    gfs_write_uint(writer, 0);
    gfs_write_binary(writer, "", 0);
    gfs_write_array(writer, 4);
    gfs_write_text(writer, "layer.0", 7);
    gfs_write_uint(writer, 1);
    gfs_write_uint(writer, 512);
    gfs_write_binary(writer, "{}", 2);
}

/* Keys and values lie in the document: Python copies its bytes at once. */
static void check_order(const struct gmsfs_layout *layout)
{
    const char *at = layout->entries[0].key;

    for (size_t i = 0; i < layout->entry_count; i++) {
        const struct gmsfs_layout_entry *entry = layout->entries + i;

        check(entry->key >= at && (const char *)entry->value >= entry->key + entry->key_bytes);
        at = (const char *)entry->value + entry->value_bytes;
    }
}

TAP_TEST(layout_decodes_allocations_and_entries)
{
    struct gfs_writer writer = {0};
    struct gmsfs_layout *layout = NULL;

    write_layout(&writer);
    require(gfs_layout_decode(writer.bytes, writer.size_bytes, &layout) == 0);
    check_int(layout->allocation_count, 2);
    check_int(layout->allocations[0].size_bytes, 5000);
    check_str(layout->allocations[0].tag, "weights");
    check_int(layout->allocations[1].aligned_bytes, 6001000448);
    check_str(layout->allocations[1].tag, "");
    check_int(layout->entry_count, 2);
    check_bytes(layout->entries[0].key, layout->entries[0].key_bytes, "a\0b", 3);
    check(layout->entries[0].rank == GMSFS_SLOT_NONE);
    check_str(layout->entries[1].key, "layer.0");
    check_int(layout->entries[1].rank, 1);
    check_int(layout->entries[1].offset, 512);
    check_bytes(layout->entries[1].value, layout->entries[1].value_bytes, "{}", 2);
    check_order(layout);
    gmsfs_free_layout(layout);
    gmsfs_free_layout(NULL);
}

/* After every cut and every changed byte: a layout or -EPROTO, and no read outside (ASan). */
TAP_TEST(layout_decoder_survives_every_cut_and_flip)
{
    struct gfs_writer writer = {0};
    struct gmsfs_layout *layout;

    write_layout(&writer);
    for (size_t size = 0; size < writer.size_bytes; size++) {
        uint8_t *copy = malloc(size ? size : 1);
        require(copy != NULL);
        memcpy(copy, writer.bytes, size);
        check_int(gfs_layout_decode(copy, size, &layout), -EPROTO);
    }
    for (size_t at = 0; at < writer.size_bytes * 256; at++) {
        uint8_t *copy = malloc(writer.size_bytes);
        require(copy != NULL);
        memcpy(copy, writer.bytes, writer.size_bytes);
        copy[at / 256] = (uint8_t)at;
        layout = NULL;
        int r = gfs_layout_decode(copy, writer.size_bytes, &layout);
        check(r == 0 || r == -EPROTO);
        gmsfs_free_layout(layout);
    }
    free(writer.bytes);
}

/* ---- bulk --------------------------------------------------------------------------------- */

TAP_TEST(bulk_binds_by_rank)
{
    static const uint64_t slots[] = {2, 5, 9};
    static const struct gmsfs_metadata entries[] = {
        {.key = "k", .value = "v", .value_bytes = 1, .slot = 9, .offset = 300},
        {.key = "u", .slot = GMSFS_SLOT_NONE},
    };
    static const uint8_t expected[] = "\x82\xa1v\x01\xa8metadata\x92"
                                      "\x94\xa1k\x02\xcd\x01\x2c\xc4\x01v"
                                      "\x94\xa1u\xc0\x00\xc4\x00";
    struct gfs_writer writer = {0};
    size_t culprit = 77;

    check_int(gfs_bulk_encode(&writer, entries, 2, slots, 3, &culprit), 0);
    check_bytes(writer.bytes, writer.size_bytes, expected, sizeof expected - 1);
    check_int(culprit, 77);
    free(writer.bytes);
}

TAP_TEST(bulk_names_the_entry_whose_slot_is_gone)
{
    static const uint64_t slots[] = {2, 5, 9};
    static const struct gmsfs_metadata entries[] = {{.key = "k", .slot = 9},
                                                    {.key = "l", .slot = 6}};
    struct gfs_writer writer = {0};
    size_t culprit = 77;

    check_int(gfs_bulk_encode(&writer, entries, 2, slots, 3, &culprit), -EINVAL);
    check_int(culprit, 1);
    free(writer.bytes);
}

static int gather(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct gfs_writer *whole = context;

    if (whole->size_bytes + size_bytes > whole->room_bytes)
        return -EFBIG;
    memcpy(whole->bytes + whole->size_bytes, bytes, size_bytes);
    whole->size_bytes += size_bytes;
    return 0;
}

TAP_TEST(a_document_in_pieces_is_the_same_and_ends_where_a_piece_is_refused)
{
    static uint8_t room[64 << 10], value[10000];
    struct gmsfs_metadata entries[4];
    struct gfs_writer direct = {0}, whole = {.bytes = room, .room_bytes = sizeof room};
    struct gfs_writer pieces = {.drain = gather, .context = &whole, .drain_bytes = 100};
    size_t culprit;

    for (size_t i = 0; i < 4; i++)
        entries[i] = (struct gmsfs_metadata){
            .key = "key", .slot = GMSFS_SLOT_NONE, .value = value, .value_bytes = i * 3000};
    check_int(gfs_bulk_encode(&direct, entries, 4, NULL, 0, &culprit), 0);
    check_int(gfs_bulk_encode(&pieces, entries, 4, NULL, 0, &culprit), 0);
    check_int(gfs_write_end(&pieces), 0);
    check_bytes(whole.bytes, whole.size_bytes, direct.bytes, direct.size_bytes);
    whole.room_bytes = whole.size_bytes + 5000;
    check_int(gfs_bulk_encode(&pieces, entries, 4, NULL, 0, &culprit), -EFBIG);
    check_int(gfs_write_end(&pieces), -EFBIG);
    free(direct.bytes);
    free(pieces.bytes);
}

/* ---- names -------------------------------------------------------------------------------- */

TAP_TEST(keys_become_names_and_back)
{
    static const char *const pairs[][2] = {
        {"a", "a"},     {".a.b", "%2Ea.b"}, {"a/b%c", "a%2Fb%25c"},
        {"..", "%2E."}, {"%2F", "%252F"},   {"\xc3\xa4", "\xc3\xa4"}};
    char name[KEY_NAME_BYTES], key[KEY_NAME_BYTES];
    size_t key_bytes;

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        check_int(key_name_encode(pairs[i][0], name), 0);
        check_str(name, pairs[i][1]);
        check_int(gfs_key_decode(name, key, &key_bytes), 0);
        check_str(key, pairs[i][0]);
        check_int(key_bytes, strlen(key));
    }
    check_int(gfs_key_decode("a%00b", key, &key_bytes), 0);
    check_bytes(key, key_bytes, "a\0b", 3);
}

TAP_TEST(keys_have_one_spelling_and_a_bound)
{
    static const char *const wrong[] = {"", "a%2Eb", "%2f", "%41", "%", "%2", "a%"};
    char name[KEY_NAME_BYTES], key[KEY_NAME_BYTES], longest[257];
    size_t key_bytes;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_int(gfs_key_decode(wrong[i], key, &key_bytes), -EINVAL);
    memset(longest, 'x', 256);
    longest[256] = 0;
    check_int(key_name_encode(longest, name), -EINVAL);
    check_int(key_name_encode(longest + 1, name), 0);
    longest[100] = '/';
    check_int(key_name_encode(longest + 1, name), -EINVAL);
    check_int(key_name_encode("", name), -EINVAL);
    check_int(key_name_encode(NULL, name), -EINVAL);
}

TAP_TEST(tokens_are_32_hex_digits)
{
    uint8_t token[GMSFS_TOKEN_BYTES], back[GMSFS_TOKEN_BYTES];
    char text[GMSFS_TOKEN_TEXT_BYTES];

    for (int i = 0; i < 16; i++)
        token[i] = (uint8_t)(i * 17);
    gmsfs_token_format(token, text);
    check_str(text, "00112233445566778899aabbccddeeff");
    check_int(gmsfs_token_parse(text, back), 0);
    check_bytes(back, 16, token, 16);
    check_int(gmsfs_token_parse("00112233445566778899AABBCCDDEEFF", back), 0);
    check_int(gmsfs_token_parse("00112233445566778899aabbccddeef", back), -EINVAL);
    check_int(gmsfs_token_parse("00112233445566778899aabbccddeefg", back), -EINVAL);
    check_int(gmsfs_token_parse(NULL, back), -EINVAL);
}

/* ---- calls without a mount ------------------------------------------------------------------ */

TAP_TEST(open_refuses_a_path_that_is_no_store)
{
    gmsfs_t *handle = NULL;

    check_int(gmsfs_open("/proc/self/nothing", &handle), -ENOENT);
    check_int(gmsfs_open("/etc/passwd", &handle), -ENOTDIR);
    check_int(gmsfs_open("/", &handle), -ENOTTY);
    check_int(gmsfs_open(NULL, &handle), -EINVAL);
    check(handle == NULL);
}

TAP_TEST(calls_without_a_handle_are_refused)
{
    void *ptr = NULL;

    check_int(gmsfs_connect(NULL, GMSFS_MODE_RO, 0), -EINVAL);
    check_int(gmsfs_create_mapping(NULL, 1, NULL, NULL, &ptr), -EINVAL);
    check_int(gmsfs_remap_all_vas(NULL, 0, 0), -EINVAL);
    check_int(gmsfs_resolve(NULL, &ptr, NULL, NULL), -EINVAL);
    check_int(gmsfs_granted_lock(NULL), GMSFS_MODE_NONE);
    check_int(gmsfs_total_bytes(NULL), 0);
    gmsfs_close(NULL);
}

/* Without a handle no daemon is asked, and no byte is at the value's address. */
TAP_TEST(values_beyond_the_bound_are_refused_before_anything_is_looked_at)
{
    static const size_t beyond[] = {GMSFS_VALUE_MAX + 1, (size_t)1 << 31, SIZE_MAX / 2,
                                    SIZE_MAX - 1, SIZE_MAX};
    struct gmsfs_metadata entries[2] = {{.key = "small", .slot = GMSFS_SLOT_NONE},
                                        {.key = "large", .value = (void *)1}};
    size_t culprit;

    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        entries[1].value_bytes = beyond[i];
        culprit = 77;
        check_int(gmsfs_metadata_put(NULL, entries + 1), -EFBIG);
        check_int(gmsfs_metadata_put_many(NULL, entries, 2, &culprit), -EFBIG);
        check_int(culprit, 1);
    }
    entries[1].key = "";
    check_int(gmsfs_metadata_put(NULL, entries + 1), -EINVAL);
    entries[1] = (struct gmsfs_metadata){.key = "none", .value_bytes = SIZE_MAX};
    check_int(gmsfs_metadata_put(NULL, entries + 1), -EINVAL);
}
