/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a graph pool: values read from it, and texts that are none. */
#include "fs/graph_entry.h"
#include "tap.h"

#include <stdlib.h>

static bool read_text(const char *text, struct fs_graph *graph)
{
    size_t size = strlen(text);
    char *exact = malloc(size + 1); /* of its size: a byte too far is found by the sanitizers */
    bool good;

    require(exact != NULL);
    memcpy(exact, text, size);
    good = fs_graph_read(exact, size, graph);
    free(exact);
    return good;
}

TAP_TEST(entry_of_a_pool_is_read)
{
    struct fs_graph graph = {0};

    check(read_text("{\"chunk_bytes\":33554432,\"spaces\":24,\"address_bytes\":9223372036854775807,"
                    "\"high_bytes\":0,\"later\":[1]}",
                    &graph));
    check_int(graph.chunk_bytes, 33554432);
    check_int(graph.spaces, 24);
    check_int(graph.address_bytes, INT64_MAX);
    check_int(graph.high_bytes, 0);
}

TAP_TEST(anything_else_is_no_graph)
{
    static const char *const others[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"chunk_bytes\":1,\"spaces\":1,\"address_bytes\":1}",
        "{\"chunk_bytes\":1,\"spaces\":-1,\"address_bytes\":1,\"high_bytes\":1}",
        "{\"chunk_bytes\":1,\"spaces\":\"1\",\"address_bytes\":1,\"high_bytes\":1}",
        "{\"chunk_bytes\":1,\"spaces\":1.5,\"address_bytes\":1,\"high_bytes\":1}",
        "{\"chunk_bytes\":1,\"spaces\":18446744073709551616,\"address_bytes\":1,\"high_bytes\":1}",
        "{\"chunk_bytes\":1,\"chunk_bytes\":2,\"spaces\":1,\"address_bytes\":1,\"high_bytes\":1}",
        "{\"chunk_bytes\":1,\"spaces\":1,\"address_bytes\":1,\"high_bytes\":1",
        "{\"chunk_bytes\":1,\"spaces\":1,\"address_bytes\":1,\"high_bytes\":1} and more",
        "{\"\xff\":1,\"chunk_bytes\":1,\"spaces\":1,\"address_bytes\":1,\"high_bytes\":1}",
    };
    struct fs_graph graph;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!check(!read_text(others[i], &graph)))
            fprintf(stderr, "# %s\n", others[i]);
}

TAP_TEST(entry_that_is_too_long_is_not_looked_at)
{
    char text[FS_GRAPH_BYTES_MAX + 2];
    struct fs_graph graph;
    int bytes = snprintf(text, sizeof text,
                         "{\"chunk_bytes\":1,\"spaces\":1,"
                         "\"address_bytes\":1,\"high_bytes\":1}");

    memset(text + bytes, ' ', sizeof text - (size_t)bytes - 1);
    text[sizeof text - 1] = '\0';
    check(!read_text(text, &graph));
    text[sizeof text - 2] = '\0';
    check(read_text(text, &graph));
}
