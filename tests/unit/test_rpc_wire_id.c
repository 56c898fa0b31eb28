/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of allocations on the wire: there and back, and never twice. */
#include "auto_layout.h"

#include "rpc/wire_id.h"

#include <string.h>

static struct core_store store = {
    .uuid = {0xde, 0xad, 0xbe, 0xef, 1, 2, 0xff, 4, 0xff, 6, 7, 8, 9, 10, 11, 12}};

static struct layout *make_layout(void)
{
    struct layout *layout = layout_new();
    uint64_t slot;

    require(layout != NULL);
    require(layout_add(layout, 5, NULL, NULL, &slot) == 0);
    require(layout_add_with_wire_id(layout, 6, NULL, NULL, "allocation-1", &slot) == 0);
    require(layout_add(layout, (UINT64_C(1) << 55) + 3, NULL, NULL, &slot) == 0);
    return layout;
}

static const struct layout_allocation *find(enum message_protocol protocol,
                                            const struct layout *layout, const char *id)
{
    return wire_id_find(protocol, &store, layout, id, strlen(id));
}

TAP_TEST(a_made_id_is_a_uuid_of_version_4_that_leads_back_to_its_allocation)
{
    auto_layout *layout = make_layout();
    char id[WIRE_ID_UUID_BYTES], other[WIRE_ID_UUID_BYTES];

    for (size_t rank = 0; rank < 3; rank += 2) {
        const struct layout_allocation *allocation = layout_at_rank(layout, rank);

        check(wire_id_of(MESSAGE_V0, &store, allocation, id) == id);
        check_int(strlen(id), 36);
        check_int(id[14], '4');
        check(strchr("89ab", id[19]) != NULL);
        check(find(MESSAGE_V0, layout, id) == allocation);
        check(find(MESSAGE_V1, layout, id) == allocation);
    }
    wire_id_of(MESSAGE_V0, &store, layout_at_rank(layout, 0), other);
    check(strcmp(id, other) != 0);
}

TAP_TEST(an_id_that_a_client_chose_is_for_v1_alone_which_may_choose_it_again)
{
    auto_layout *layout = make_layout();
    const struct layout_allocation *chosen = layout_at_rank(layout, 1);
    char id[WIRE_ID_UUID_BYTES];

    check_str(wire_id_of(MESSAGE_V1, &store, chosen, id), "allocation-1");
    check(find(MESSAGE_V1, layout, "allocation-1") == chosen);
    check(find(MESSAGE_V0, layout, "allocation-1") == NULL);
    wire_id_of(MESSAGE_V0, &store, chosen, id);
    check(find(MESSAGE_V0, layout, id) == chosen);
    check(find(MESSAGE_V1, layout, id) == NULL);
}

TAP_TEST(what_is_nobodys_id_finds_nothing)
{
    auto_layout *layout = make_layout();
    char id[WIRE_ID_UUID_BYTES];
    struct core_store another = {.uuid = {1}};

    wire_id_of(MESSAGE_V0, &store, layout_at_rank(layout, 0), id);
    check(wire_id_find(MESSAGE_V0, &another, layout, id, 36) == NULL);
    check(wire_id_find(MESSAGE_V0, &store, layout, id, 35) == NULL);
    check(find(MESSAGE_V0, layout, "") == NULL);
    check(wire_id_find(MESSAGE_V0, &store, layout, "\0", 1) == NULL);
    for (size_t i = 0; i < 36; i++) {
        char was = id[i];

        id[i] = was == '0' ? '1' : '0';
        check(find(MESSAGE_V0, layout, id) == NULL);
        id[i] = was;
    }
    id[0] = (char)('A' + (id[0] % 6)); /* another spelling is another id */
    check(find(MESSAGE_V0, layout, id) == NULL);
}

TAP_TEST(a_uuid_is_read_as_it_is_written_and_nothing_else_is)
{
    const uint8_t bytes[16] = {0, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15};
    uint8_t back[16] = {0};
    char text[WIRE_ID_UUID_BYTES], gpu[WIRE_ID_GPU_BYTES];

    wire_id_format_uuid(bytes, text);
    check_str(text, "00010203-0405-4607-8809-0a0b0c0d0e0f");
    check(wire_id_parse_uuid(text, 36, back));
    check_bytes(back, 16, bytes, 16);
    check(!wire_id_parse_uuid(text, 35, back));
    check(!wire_id_parse_uuid("00010203-0405-4607-8809-0a0b0c0d0e0g", 36, back));
    check(!wire_id_parse_uuid("00010203004050460708809-0a0b0c0d0e0f", 36, back));
    wire_id_format_gpu(bytes, gpu);
    check_str(gpu, "GPU-00010203-0405-4607-8809-0a0b0c0d0e0f");
}
