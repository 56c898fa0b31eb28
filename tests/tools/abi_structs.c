/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the structs of the public headers as a program sees them: each with its size, each field
 * with its place. tests/57-abi.bats compares this with the recorded text. */
#include <gmsfs_graph.h>
#include <gmsfs_region.h>
#include <stddef.h>
#include <stdio.h>

#define STRUCT(name) printf("struct %s %zu\n", #name, sizeof(struct name))
#define FIELD(name, field)                                          \
    printf("  %s %zu +%zu\n", #field, offsetof(struct name, field), \
           sizeof(((struct name *)0)->field))
#define ENUM(name) printf("%s %lld\n", #name, (long long)(name))

static void show_info(void)
{
    STRUCT(gmsfs_info);
    FIELD(gmsfs_info, store_id);
    FIELD(gmsfs_info, device_uuid);
    FIELD(gmsfs_info, group);
    FIELD(gmsfs_info, layout_hash);
    FIELD(gmsfs_info, state);
    FIELD(gmsfs_info, mode);
    FIELD(gmsfs_info, memory);
    FIELD(gmsfs_info, committed);
    FIELD(gmsfs_info, generation);
    FIELD(gmsfs_info, session);
    FIELD(gmsfs_info, allocations);
    FIELD(gmsfs_info, entries);
    FIELD(gmsfs_info, total_bytes);
    FIELD(gmsfs_info, granularity_bytes);
    FIELD(gmsfs_info, readers);
    FIELD(gmsfs_info, writers_waiting);
    FIELD(gmsfs_info, sealed);
    FIELD(gmsfs_info, residency);
    FIELD(gmsfs_info, moves);
    STRUCT(gmsfs_memory_info);
    FIELD(gmsfs_memory_info, shared_bytes);
    FIELD(gmsfs_memory_info, preserved_bytes);
    FIELD(gmsfs_memory_info, private_bytes);
}

static void show_mappings(void)
{
    STRUCT(gmsfs_handle_info);
    FIELD(gmsfs_handle_info, slot);
    FIELD(gmsfs_handle_info, rank);
    FIELD(gmsfs_handle_info, size_bytes);
    FIELD(gmsfs_handle_info, aligned_bytes);
    FIELD(gmsfs_handle_info, tag);
    FIELD(gmsfs_handle_info, name);
    STRUCT(gmsfs_new_allocation);
    FIELD(gmsfs_new_allocation, size_bytes);
    FIELD(gmsfs_new_allocation, tag);
    FIELD(gmsfs_new_allocation, name);
    STRUCT(gmsfs_mapping);
    FIELD(gmsfs_mapping, ptr);
    FIELD(gmsfs_mapping, slot);
    FIELD(gmsfs_mapping, rank);
    FIELD(gmsfs_mapping, size_bytes);
    FIELD(gmsfs_mapping, aligned_bytes);
    FIELD(gmsfs_mapping, offset);
    STRUCT(gmsfs_metadata);
    FIELD(gmsfs_metadata, key);
    FIELD(gmsfs_metadata, value);
    FIELD(gmsfs_metadata, value_bytes);
    FIELD(gmsfs_metadata, slot);
    FIELD(gmsfs_metadata, offset);
    STRUCT(gmsfs_layout_allocation);
    STRUCT(gmsfs_layout_entry);
    STRUCT(gmsfs_layout);
}

static void show_graphs(void)
{
    STRUCT(gmsfs_graph_stats);
    FIELD(gmsfs_graph_stats, awake);
    FIELD(gmsfs_graph_stats, chunk_bytes);
    FIELD(gmsfs_graph_stats, live);
    FIELD(gmsfs_graph_stats, waiters);
    STRUCT(gmsfs_graph_space_stats);
    FIELD(gmsfs_graph_space_stats, base);
    FIELD(gmsfs_graph_space_stats, eager);
    FIELD(gmsfs_graph_space_stats, live_bytes);
    STRUCT(gmsfs_region_request);
    FIELD(gmsfs_region_request, kind);
    FIELD(gmsfs_region_request, fd);
    FIELD(gmsfs_region_request, raw_handle_bytes);
    STRUCT(gmsfs_region_info);
}

static void show_numbers(void)
{
    ENUM(GMSFS_MODE_RO);
    ENUM(GMSFS_MODE_RW);
    ENUM(GMSFS_MODE_RW_OR_RO);
    ENUM(GMSFS_MODE_RW_DATA);
    ENUM(GMSFS_MODE_RW_DATA_OR_RW);
    ENUM(GMSFS_ACCESS_READ);
    ENUM(GMSFS_ACCESS_WRITE);
    ENUM(GMSFS_CONNECT_REPLACE);
    ENUM(GMSFS_CONNECT_ANY);
    ENUM(GMSFS_CONNECT_KEEP_PLACE);
    ENUM(GMSFS_COMMIT_STAY);
    ENUM(GMSFS_COMMIT_GROUP);
    ENUM(GMSFS_UNMAP_KEEP_LOCK);
    ENUM(GMSFS_NOTICE_LOST);
    ENUM(GMSFS_NOTICE_LEAVE);
    ENUM(GMSFS_GRAPH_KEEP);
    ENUM(GMSFS_GRAPH_EAGER);
    ENUM(GMSFS_ALLOC_NOWAIT);
    ENUM(GMSFS_ALLOC_EXACT);
}

int main(void)
{
    show_info();
    show_mappings();
    show_graphs();
    show_numbers();
    return 0;
}
