/* SPDX-License-Identifier: Apache-2.0 */
/* Records and rows: valid ones have one spelling, and mean the same again. */
#include "fuzz.h"

#include "core/core_internal.h"

#include "../unit/record_bytes.h"

#include <errno.h>

static void try_record(const uint8_t *data, size_t size)
{
    struct record_arena *arena, *again_arena;
    struct record record, again;
    uint8_t *first, *second;
    size_t first_size, second_size;
    int error = record_decode(data, size, &record, &arena);

    if (error) {
        must((error == -EINVAL || error == -EPROTONOSUPPORT) && arena == NULL);
        return;
    }
    must(record.type >= RECORD_STORE_CREATE && record.type < RECORD_TYPE_COUNT);
    must(record_type_name(record.type) != NULL);
    must(record_encode(&record, &first, &first_size) == 0 && first_size <= size);
    must(record_decode(first, first_size, &again, &again_arena) == 0);
    must(again.type == record.type && again.count == record.count && again.mode == record.mode);
    must(fuzz_same(again.name, again.name_bytes, record.name, record.name_bytes));
    must(fuzz_same(again.tag, again.tag_bytes, record.tag, record.tag_bytes));
    must(fuzz_same(again.value, again.value_bytes, record.value, record.value_bytes));
    must(fuzz_same(again.memories, again.memory_count * sizeof *again.memories, record.memories,
                   record.memory_count * sizeof *record.memories));
    must(record_encode(&again, &second, &second_size) == 0);
    must(fuzz_same(first, first_size, second, second_size));
    record_decode_free(arena);
    record_decode_free(again_arena);
    free(first);
    free(second);
}

static void try_rows(const uint8_t *data, size_t size)
{
    struct layout_put *rows, *again;
    size_t count, again_count, encoded_size;
    uint8_t *encoded;
    int error = record_rows_decode(data, size, &rows, &count);

    if (error) {
        must(error == -EINVAL);
        return;
    }
    must(count <= size);
    must(record_rows_encode(rows, count, &encoded, &encoded_size) == 0 && encoded_size <= size);
    must(record_rows_decode(encoded, encoded_size, &again, &again_count) == 0);
    must(again_count == count);
    for (size_t i = 0; i < count; i++) {
        must(fuzz_same(again[i].key, again[i].key_bytes, rows[i].key, rows[i].key_bytes));
        must(fuzz_same(again[i].value, again[i].value_bytes, rows[i].value, rows[i].value_bytes));
        must(again[i].slot == rows[i].slot && again[i].offset == rows[i].offset);
    }
    free(rows);
    free(again);
    free(encoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_record(data, size);
    try_rows(data, size);
    return 0;
}
