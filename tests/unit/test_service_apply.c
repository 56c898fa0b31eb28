/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a bulk document's slices for the loop: the chunks of the layout's indexes that each
 * of them touches. */
#include "service_fixture.h"

#include "meta/layout_internal.h"

#include <stdlib.h>

#define ROWS       20480u
#define SLICES     (ROWS / SERVICE_APPLY_SLICE)
#define ROW_BYTES  15u
#define SCRAMBLING 7919u /* times i, modulo ROWS: each number once, in no order */

static const uint8_t head[] = "\x82\xa1v\x01\xa8metadata\xdd";

static struct client writer;

static void start(void)
{
    service_start();
    open_ctl(&writer, 1);
    acquire(&writer, LOCK_WISH_RW, 0);
    require(writer.error == 0);
}

static const struct layout *get_layout(void)
{
    const struct core *core = service_get_core(service);

    return core_get_layout(core, core_find_store(core, store_id()));
}

/* {"v": 1, "metadata": [["k000005", nil, 0, "x"], ...]}, of keys that end with `last`. */
static uint8_t *make_document(unsigned step, char last, size_t *bytes)
{
    uint8_t *document = malloc(sizeof head + 4 + ROWS * ROW_BYTES), *at = document;
    char row[ROW_BYTES + 1];

    require(document != NULL);
    memcpy(at, head, sizeof head - 1);
    at += sizeof head - 1;
    for (int shift = 24; shift >= 0; shift -= 8)
        *at++ = (uint8_t)(ROWS >> shift);
    for (unsigned i = 0; i < ROWS; i++, at += ROW_BYTES) {
        snprintf(row, sizeof row, "%c%ck%05u%c%c", 0x94, 0xa7, i * step % ROWS, last, 0xc0);
        memcpy(at, row, 10);
        memcpy(at + 10, "\x00\xc4\x02xy", 5);
    }
    *bytes = (size_t)(at - document);
    return document;
}

static size_t count_own(const struct layout_index *index, const struct layout_index *other)
{
    size_t own = 0;

    for (size_t i = 0; i < index->chunk_count; i++) {
        bool shared = false;
        for (size_t k = 0; k < other->chunk_count && !shared; k++)
            shared = other->chunks[k].chunk == index->chunks[i].chunk;
        own += !shared;
    }
    return own;
}

/* Returns how many chunks the loop's next turn touches: the chunks that an earlier clone does not
 * share. */
static size_t measure_turn(void)
{
    struct layout *before = layout_clone(get_layout());
    size_t touched;

    require(before != NULL && fixture_idle);
    fixture_idle = false;
    service_on_idle(service);
    settle_step();
    touched = count_own(&get_layout()->by_key, &before->by_key) +
              count_own(&get_layout()->by_serial, &before->by_serial);
    layout_free(before);
    return touched;
}

/* Applies ROWS rows and tells the chunks that each slice touches. */
static void apply(unsigned step, char last, size_t touched[SLICES])
{
    struct service_actor by = {.file = writer.ctl};
    size_t bytes;
    uint8_t *document = make_document(step, last, &bytes);

    writer.answers = 0;
    check_int(in_step(service_apply(service, &by, document, bytes, &writer.request)), 0);
    for (size_t i = 0; i < SLICES; i++) {
        require(writer.answers == 0);
        check(service_has_slices(service));
        touched[i] = measure_turn();
    }
    check(!service_has_slices(service));
    check_answer(&writer, 0);
    free(document);
}

TAP_TEST(slices_touch_equally_many_chunks_in_any_order_of_the_keys)
{
    size_t touched[2][SLICES];
    size_t chunks;

    for (int i = 0; i < 2; i++) {
        start();
        apply(1, '0', touched[i]);
        chunks = get_layout()->by_key.chunk_count;
        apply(i == 0 ? 1 : SCRAMBLING, '5', touched[i]); /* each between two that are there */
        check_int(layout_count_entries(get_layout()), 2 * ROWS);
        service_end();
    }
    for (size_t i = 0; i < SLICES; i++) {
        check_int(touched[1][i], touched[0][i]);
        check(touched[0][i] < chunks / 4);
    }
}
