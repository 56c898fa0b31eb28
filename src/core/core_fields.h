/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_fields - which members of the state's structures are written, in which order, and what each
 * may be
 *
 * For core_encode.c, which writes what a table says, core_decode*.c, which reads it, and
 * core_size.c and core_events.c, which count its bytes. What changes a table changes the bytes of
 * the state, and is another CORE_STATE_VERSION. An `id` that an object begins with, what follows
 * from other members and what has no fixed size stand in none.
 */
#ifndef GMSFS_CORE_CORE_FIELDS_H
#define GMSFS_CORE_CORE_FIELDS_H

#include <stdint.h>

enum core_field_kind {
    CORE_FIELD_END,
    CORE_FIELD_U64,    /* least to most */
    CORE_FIELD_U32,    /* any */
    CORE_FIELD_BOOL,   /* a byte */
    CORE_FIELD_CHOICE, /* an enum, least to most; a byte */
    CORE_FIELD_TEXT,   /* its length as 4 bytes, then itself */
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
extern const struct core_field core_drain_fields[];  /* struct core_drain that is on */
extern const struct core_field core_use_fields[];
extern const struct core_field core_places_fields[]; /* behind the spares */
extern const struct core_field core_session_fields[];
extern const struct core_field core_file_fields[];
extern const struct core_field core_region_fields[]; /* behind the name and the key */
extern const struct core_field core_waiter_fields[];
extern const struct core_field core_queued_fields[]; /* struct lock_waiter */
extern const struct core_field core_ticket_fields[];
extern const struct core_field core_event_fields[];

/* The bytes of an object's texts, without their lengths. */
uint64_t core_count_texts(const struct core_field *fields, const void *object);

#endif
