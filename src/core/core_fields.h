/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_fields - tables of the members that an encoded state has, in order, with the range of each
 *
 * core_encode.c writes by these tables, core_decode*.c reads by them, and core_size.c and
 * core_events.c count bytes by them. A change of a table changes the bytes of the state and needs
 * another CORE_STATE_VERSION. No table lists the `id` at the start of an object, members derived
 * from others, or members without a fixed size.
 */
#ifndef GMSFS_CORE_CORE_FIELDS_H
#define GMSFS_CORE_CORE_FIELDS_H

#include <stdint.h>

enum core_field_kind {
    CORE_FIELD_END,
    CORE_FIELD_U64,    /* from least to most */
    CORE_FIELD_U32,    /* any value */
    CORE_FIELD_BOOL,   /* a byte */
    CORE_FIELD_CHOICE, /* an enum from least to most; a byte */
    CORE_FIELD_TEXT,   /* its length in 4 bytes, then its bytes */
    CORE_FIELD_RAW,    /* `size` bytes */
};

struct core_field {
    enum core_field_kind kind;
    uint32_t at, size; /* of the member in the structure */
    uint64_t least, most;
};

extern const struct core_field core_options_fields[]; /* struct core_options */
extern const struct core_field core_head_fields[];    /* struct core */
extern const struct core_field core_pool_fields[];
extern const struct core_field core_store_fields[];  /* before the layouts */
extern const struct core_field core_commit_fields[]; /* struct core_store, behind them */
extern const struct core_field core_drain_fields[];  /* a struct core_drain that is on */
extern const struct core_field core_use_fields[];
extern const struct core_field core_places_fields[]; /* behind the spares */
extern const struct core_field core_session_fields[];
extern const struct core_field core_file_fields[];
extern const struct core_field core_region_fields[]; /* behind the name and the key */
extern const struct core_field core_waiter_fields[];
extern const struct core_field core_queued_fields[]; /* struct lock_waiter */
extern const struct core_field core_ticket_fields[];
extern const struct core_field core_event_fields[];

/* Returns the bytes of an object's texts, without their lengths. */
uint64_t core_count_texts(const struct core_field *fields, const void *object);

#endif
