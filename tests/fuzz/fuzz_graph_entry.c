/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a graph pool: a parsed one is written again and parses the same. */
#include "fuzz.h"

#include "fs/graph_entry.h"

#include <inttypes.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fs_graph graph, again;
    char text[FS_GRAPH_BYTES_MAX];
    int bytes;

    if (!fs_graph_read(data, size, &graph))
        return 0;
    must(size <= FS_GRAPH_BYTES_MAX && size > 0);
    must(graph.chunk_bytes <= INT64_MAX && graph.spaces <= INT64_MAX &&
         graph.address_bytes <= INT64_MAX && graph.high_bytes <= INT64_MAX);
    bytes = snprintf(text, sizeof text,
                     "{\"chunk_bytes\":%" PRIu64 ",\"spaces\":%" PRIu64
                     ",\"address_bytes\":%" PRIu64 ",\"high_bytes\":%" PRIu64 "}",
                     graph.chunk_bytes, graph.spaces, graph.address_bytes, graph.high_bytes);
    must(fs_graph_read(text, (size_t)bytes, &again));
    must(memcmp(&again, &graph, sizeof graph) == 0);
    return 0;
}
