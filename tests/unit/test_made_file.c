/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the file of a layout's tensors: its header, its extents, and the reasons why there is none.
 */
#include "layout_fixture.h"

#include "tensor/made_file.h"

#include <stdlib.h>

#define ALIGNED_BYTES 4096u

static uint64_t next_serial = 500;

static struct layout *layout_with_memory(void)
{
    struct layout *layout = layout_with(2);

    for (uint64_t slot = 0; slot < 2; slot++)
        require(layout_set_memory(layout, slot, slot + 1, ALIGNED_BYTES, ALIGNED_BYTES, false) ==
                0);
    return layout;
}

static void put_at(struct layout *layout, const char *key, uint64_t slot, uint64_t offset,
                   const char *value)
{
    struct layout_put one = make_put(key, slot, value, next_serial++);

    one.offset = offset;
    require(layout_put(layout, &one) == 0);
}

/* Returns the reason; "" if there is a file. */
static const char *reason(const struct layout *layout)
{
    struct made_file_facts facts;

    require(made_file_look(layout, &facts) == 0);
    check(!facts.has_files);
    check_int(facts.size_bytes == 0, facts.why != NULL);
    return facts.why ? facts.why : "";
}

TAP_TEST(tensors_follow_each_other_as_they_lie)
{
    struct layout *layout = layout_with_memory();
    static const char wanted[] =
        "{\"__metadata__\":{\"a\":\"\\\"\",\"b\":\"\xc3\xa9\"},"
        "\"z\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[5,5]},"
        "\"y\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[5,9]},"
        "\"tied\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[9,10]},"
        "\"x\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[10,11]}}";
    struct made_file_facts facts;
    struct made_file *made;

    put_at(layout, "x", 1, 7, "{\"dtype\":\"torch.int8\",\"shape\":[]}");
    put_at(layout, "tied", 1, 7, "{\"shape\":[],\"dtype\":\"torch.int8\"}");
    put_at(layout, "y", 0, 64, "{\"dtype\":\"torch.bfloat16\",\"shape\":[1,1,1,1,2]}");
    put_at(layout, "none", 0, 9, "{\"dtype\":\"torch.float32\",\"shape\":[0,3]}");
    put_at(layout, "z", 0, 0, " { \"dtype\" : \"torch.uint8\", \"shape\" : [ 5 ], \"more\": {} }");
    put_at(layout, "other", 0, 0, "{\"shape\":[1]}");
    put_at(layout, "unbound", LAYOUT_UNBOUND, 0, "{\"dtype\":\"torch.int8\",\"shape\":[]}");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0, "{ \"a\" : \"\\u0022\", \"b\":\"\\u00e9\" }");
    require(made_file_look(layout, &facts) == 0);
    require(made_file_plan(layout, &made) == 0);
    check_int(made->size_bytes, facts.size_bytes);
    check_int(made->size_bytes, made->header_bytes + 11);
    check_int(made->header_bytes % 8, 0);
    check_bytes(made->header + 8, strlen(wanted), wanted, strlen(wanted));
    check_int(made->count, 4);
    for (size_t i = 0; i < 4; i++)
        check_int(made_file_find(made, made->extents[i].at), i);
    check_int(made_file_find(made, made->size_bytes - 1), 3);
    check_int(made_file_find(made, made->header_bytes + 4), 0);
    check_int(made_file_end(made, 3), made->size_bytes);
    check_int(made->extents[1].offset, 64);
    check_int(made->extents[2].offset, 7);
    check_int(made->extents[2].serial, layout_at_rank(layout, 1)->serial);
    made_file_free(made);
    layout_free(layout);
}

TAP_TEST(a_layout_that_no_file_can_hold_tells_why)
{
    struct layout *layout = layout_with_memory();
    struct made_file *made;

    check_str(reason(layout), "it has no tensors");
    put_at(layout, "t", 0, 4095, "{\"dtype\":\"torch.int8\",\"shape\":[1]}");
    check_str(reason(layout), "");
    put_at(layout, "t", 0, 4095, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    check_str(reason(layout), "it reaches beyond its allocation's size");
    check_int(made_file_plan(layout, &made), -EINVAL);
    check(made == NULL);
    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.nothing\",\"shape\":[2]}");
    check_str(reason(layout), "its dtype is none that safetensors has");
    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0, "{\"a\":\"1\"} x");
    check_str(reason(layout), "it is not a JSON object of at most 1,024 strings");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0, "{\"a\":\"\\ud800\"}");
    check_str(reason(layout), "it is not a JSON object of at most 1,024 strings");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0,
           "{\"b\":\"1\",\"a\":\"1\",\"ab\":\"1\",\"\\u0062\":\"2\"}");
    check_str(reason(layout), "it is not a JSON object of at most 1,024 strings");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0,
           "{\"b\":\"1\",\"a\":\"1\",\"ab\":\"1\",\"B\":\"1\"}");
    check_str(reason(layout), "");
    put_at(layout, "__metadata__", LAYOUT_UNBOUND, 0, "{}");
    check_str(reason(layout), "");
    layout_free(layout);
}

TAP_TEST(a_layout_with_files_of_its_own_has_no_other)
{
    struct layout *layout = layout_with_memory();
    struct made_file_facts facts;

    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    put_at(layout, "gmsfs:file:a//b", LAYOUT_UNBOUND, 0, "{\"bytes\":0}");
    check_str(reason(layout), "");
    put_at(layout, "gmsfs:file:a", LAYOUT_UNBOUND, 0, "{\"bytes\":0}");
    require(made_file_look(layout, &facts) == 0);
    check_int(facts.size_bytes, 0);
    check(facts.why == NULL);
    check(facts.has_files);
    layout_free(layout);
}
