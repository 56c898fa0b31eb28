/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the file of a layout's tensors: its header, its extents, and the reasons why there is none.
 */
#include "layout_fixture.h"

#include "tensor/made_file.h"

#include <stdio.h>
#include <stdlib.h>

#define ALIGNED_BYTES 4096u
#define WALKED_VALUES 3000u

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
    auto_layout *layout = layout_with_memory();
    static const char wanted[] =
        "{\"__metadata__\":{\"a\":\"\\\"\",\"b\":\"\xc3\xa9\"},"
        "\"z\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[5,5]},"
        "\"y\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,1,2],\"data_offsets\":[5,9]},"
        "\"tied\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[9,10]},"
        "\"x\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[10,11]}}";
    struct made_file_facts facts;
    struct file_plan *made;

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
    check_int(made->size_bytes, made->text_bytes + 11);
    check_int(made->text_bytes % 8, 0);
    check_bytes(made->text + 8, strlen(wanted), wanted, strlen(wanted));
    check_int(made->count, 5);
    check(made->extents[0].source == FILE_PLAN_TEXT);
    for (size_t i = 0; i < 5; i++)
        check_int(file_plan_find(made, made->extents[i].at), i);
    check_int(file_plan_find(made, made->size_bytes - 1), 4);
    check_int(file_plan_find(made, made->text_bytes + 4), 1);
    check_int(file_plan_end(made, 4), made->size_bytes);
    check_int(made->extents[2].offset, 64);
    check_int(made->extents[3].offset, 7);
    check_int(made->extents[3].source, layout_at_rank(layout, 1)->serial);
    made_file_free(made);
}

TAP_TEST(a_layout_that_no_file_can_hold_tells_why)
{
    auto_layout *layout = layout_with_memory();
    struct file_plan *made;

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
}

TAP_TEST(a_layout_with_files_of_its_own_has_no_other)
{
    auto_layout *layout = layout_with_memory();
    struct made_file_facts facts;

    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    put_at(layout, "gmsfs:file:a//b", LAYOUT_UNBOUND, 0, "{\"bytes\":0}");
    check_str(reason(layout), "");
    put_at(layout, "gmsfs:file:a", LAYOUT_UNBOUND, 0, "{\"bytes\":0}");
    require(made_file_look(layout, &facts) == 0);
    check_int(facts.size_bytes, 0);
    check(facts.why == NULL);
    check(facts.has_files);
}

/* A header by hand: a key-value, one that lies in memory, a tensor of blocks and one of elements.
 */
TAP_TEST(a_layout_of_a_gguf_file_makes_that_file)
{
    auto_layout *layout = layout_with_memory();
    static const char before[] = "GGUF\3\0\0\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\0aVALUE\4\0\0\0\0\0\0\0long";
    static const char behind[] =
        "\1\0\0\0\0\0\0\0q\1\0\0\0\x20\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0"
        "\1\0\0\0\0\0\0\0f\2\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
        "\0\0\0\0\x40\0\0\0\0\0\0\0";
    const size_t first = sizeof before - 1, second = sizeof behind - 1;
    struct made_file_facts facts;
    struct file_plan *made;

    put_at(layout, "__gguf__", LAYOUT_UNBOUND, 0,
           "{\"alignment\":64,\"keys\":[\"a\",\"lo\\u006eg\"],\"version\":3}");
    put_at(layout, "gguf:a", LAYOUT_UNBOUND, 0, "VALUE");
    put_at(layout, "gguf:long", 1, 100, "{\"bytes\":300,\"format\":\"gguf\"}");
    put_at(layout, "gguf:unnamed", LAYOUT_UNBOUND, 0, "not in the file");
    put_at(layout, "f", 1, 7, "{\"dtype\":\"torch.float32\",\"shape\":[1,2]}");
    put_at(layout, "q", 0, 64, "{\"dtype\":\"torch.uint8\",\"shape\":[18],\"ggml_type\":\"Q4_0\"}");
    require(made_file_look(layout, &facts) == 0);
    check_str(facts.why ? facts.why : "", "");
    check(facts.is_gguf);
    require(made_file_plan(layout, &made) == 0);
    check_int(made->size_bytes, facts.size_bytes);
    check_int(sizeof *made + file_plan_bytes(made), facts.plan_bytes);
    check_int(made->text_bytes, first + second);
    check_bytes(made->text, first, before, first);
    check_bytes(made->text + first, second, behind, second);
    check_int(made->count, 8);
    check_int(file_plan_end(made, 0), first);
    check_int(made->extents[1].source, layout_at_rank(layout, 1)->serial);
    check_int(made->extents[1].offset, 100);
    check_int(file_plan_end(made, 1), first + 300);
    check_int(made->extents[2].offset, first);
    check(made->extents[3].source == FILE_PLAN_ZEROS);
    check_int(made->extents[4].at % 64, 0);
    check_int(made->extents[4].source, layout_at_rank(layout, 0)->serial);
    check_int(made->extents[6].at, made->extents[4].at + 64);
    check_int(made->size_bytes, made->extents[6].at + 64);
    made_file_free(made);
}

/* Reads a plan of values of one byte each, at the offsets of offset_of, as its reader does. Returns
 * the number of extents that were looked at. */
static size_t count_walked(uint64_t (*offset_of)(uint64_t), uint64_t *read_bytes)
{
    struct file_plan plan = {0};
    size_t walked = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < WALKED_VALUES; i++) {
            char *text = file_plan_add_text(&plan, 1);

            if (text)
                *text = 'k';
            file_plan_add_memory(&plan, 7, offset_of(i), 1);
        }
        if (pass == 0)
            require(file_plan_room(&plan) == 0);
    }
    *read_bytes = 0;
    for (size_t index = 1; index < plan.count; index += 2) {
        uint64_t at = plan.extents[index].at;
        struct file_span span = file_plan_span(&plan, index, at, plan.size_bytes);

        require(span.source == 7 && span.bytes > 0);
        walked += span.walked;
        *read_bytes += span.bytes;
        while (index + 2 < plan.count && plan.extents[index + 2].offset >= span.offset &&
               plan.extents[index + 2].offset < span.offset + span.bytes)
            index += 2;
    }
    file_plan_free(&plan);
    return walked;
}

static uint64_t ascend(uint64_t i)
{
    return i;
}

static uint64_t descend(uint64_t i)
{
    return WALKED_VALUES - i;
}

static uint64_t alternate(uint64_t i)
{
    return i % 2 ? 900000 : 0;
}

TAP_TEST(a_read_looks_at_few_extents_in_any_order_of_offsets)
{
    uint64_t read_bytes;

    check(count_walked(ascend, &read_bytes) <= 4 * WALKED_VALUES);
    check_int(read_bytes, WALKED_VALUES);
    check(count_walked(descend, &read_bytes) <= 4 * WALKED_VALUES);
    check_int(read_bytes, WALKED_VALUES);
    check(count_walked(alternate, &read_bytes) <= 4 * WALKED_VALUES);
    check_int(read_bytes, WALKED_VALUES);
}

/* Binds the entry gguf:a with a value of this length, which describes a long value. */
static void put_padded(struct layout *layout, int value_bytes)
{
    static char value[(64 << 10) + 2];

    snprintf(value, sizeof value, "%-*s", value_bytes, "{\"bytes\":96,\"format\":\"gguf\"}");
    put_at(layout, "gguf:a", 0, 4000, value);
}

TAP_TEST(a_bound_value_of_more_than_64_kib_is_not_parsed)
{
    auto_layout *layout = layout_with_memory();

    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    put_at(layout, "__gguf__", LAYOUT_UNBOUND, 0,
           "{\"alignment\":32,\"keys\":[\"a\"],\"version\":3}");
    put_padded(layout, 64 << 10);
    check_str(reason(layout), "");
    put_padded(layout, (64 << 10) + 1);
    check_str(reason(layout), "no value of a file of that format");
}

/* Returns the reason with this entry __gguf__. */
static const char *reason_with(struct layout *layout, const char *order)
{
    put_at(layout, "__gguf__", LAYOUT_UNBOUND, 0, order);
    return reason(layout);
}

TAP_TEST(entries_that_claim_to_be_a_gguf_file_and_lie_tell_why)
{
    auto_layout *layout = layout_with_memory();
    static const char *const wrong[] = {
        "",
        "[]",
        "{}",
        "{\"alignment\":32,\"keys\":[],\"version\":1}",
        "{\"alignment\":32,\"keys\":[],\"version\":4294967299}",
        "{\"alignment\":48,\"keys\":[],\"version\":3}",
        "{\"alignment\":2097152,\"keys\":[],\"version\":3}",
        "{\"alignment\":0,\"keys\":[],\"version\":3}",
        "{\"alignment\":32,\"version\":3}",
        "{\"alignment\":32,\"keys\":[1],\"version\":3}",
        "{\"alignment\":32,\"keys\":[\"a\",],\"version\":3}",
        "{\"alignment\":32,\"keys\":[\"a\"]],\"version\":3}",
        "{\"alignment\":32,\"keys\":[],\"keys\":[],\"version\":3}",
        "{\"alignment\":32,\"alignment\":32,\"keys\":[],\"version\":3}",
        "{\"alignment\":32,\"keys\":[],\"version\":3} x",
    };
    static const char one[] = "{\"alignment\":32,\"keys\":[\"a\"],\"version\":3}";

    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[2]}");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_str(reason_with(layout, wrong[i]), "it does not describe a GGUF file");
    check_str(reason_with(layout, "{\"alignment\":32,\"keys\":[],\"version\":2}"), "");
    check_str(reason_with(layout, one), "it names a key-value that is not there");
    put_at(layout, "gguf:a", 0, 4000, "no value of a file");
    check_str(reason(layout), "no value of a file of that format");
    put_at(layout, "gguf:a", 0, 4000, "{\"bytes\":97,\"format\":\"gguf\"}");
    check_str(reason(layout), "it reaches beyond its allocation");
    put_at(layout, "gguf:a", 0, 4000, "{\"bytes\":18446744073709551615,\"format\":\"gguf\"}");
    check_str(reason(layout), "no value of a file of that format");
    put_at(layout, "gguf:a", 0, 4000, "{\"bytes\":96,\"format\":\"gguf\"}");
    check_str(reason(layout), "");
    check_str(reason_with(layout, "{\"alignment\":32,\"keys\":[\"a\",\"\\u0061\"],\"version\":3}"),
              "it names a key-value twice");
    put_at(layout, "gguf:a", 0, 4000, "no value: the repeated key is refused before it is parsed");
    check_str(reason(layout), "it names a key-value twice");
    check_str(reason_with(layout, "{\"alignment\":32,\"keys\":[\"\\ud800\"],\"version\":3}"),
              "it names a key-value that is not there");
    require(layout_delete(layout, "gguf:a", 6) == 0);
    put_at(layout, "__gguf__", LAYOUT_UNBOUND, 0, "{\"alignment\":32,\"keys\":[],\"version\":2}");
    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.uint8\",\"shape\":[2]}");
    check_str(reason(layout), "its dtype is none that GGUF has");
    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.uint8\",\"shape\":[17],\"ggml_type\":\"Q4_0\"}");
    check_str(reason(layout), "its dtype and shape are not those of its ggml_type");
    put_at(layout, "t", 0, 0, "{\"dtype\":\"torch.int8\",\"shape\":[1,1,1,1,2]}");
    check_str(reason(layout), "it has more than four dimensions");
}
