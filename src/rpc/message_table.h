/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message_table - the fields of every message, as rows that decoder and encoder read
 *
 * For the decoder and the encoder (message_*.c) alone. A new message is a row, a new field an item
 * of its list and a member of struct message.
 */
#ifndef GMSFS_RPC_MESSAGE_TABLE_H
#define GMSFS_RPC_MESSAGE_TABLE_H

#include "rpc/message.h"

enum field_kind {
    FIELD_INTEGER,  /* struct message_integer */
    FIELD_BOOL,     /* bool */
    FIELD_TEXT,     /* struct message_text: UTF-8 */
    FIELD_BYTES,    /* struct message_text: any bytes */
    FIELD_WANTED,   /* enum message_lock, by the names of requests */
    FIELD_GRANTED,  /* enum message_lock, by the names of answers */
    FIELD_IDENTITY, /* server_nonce and gpu_uuid in an array */
    FIELD_LIST,     /* struct message_list; the last of its message */
};

enum field_absent {
    FIELD_REQUIRED,
    FIELD_REQUIRED_OR_NIL, /* must be there, and may be nil */
    FIELD_OR_NIL,
    FIELD_OR_ZERO,        /* 0, false, "", no items */
    FIELD_OR_DEFAULT_TAG, /* "default" */
    FIELD_LATER,          /* false, and then not written: clients of this release refuse it */
};

struct message_field {
    const char *name; /* NULL ends the list */
    size_t name_bytes;
    enum field_kind kind;
    enum field_absent absent;
    size_t offset; /* in struct message */
};

#define MESSAGE_MAX_FIELDS 9u

struct message_row {
    const char *tag; /* NULL: an item without a type */
    const char *name;
    enum message_type type;
    /* The row of the type that older clients use. Of two rows with one tag the first is used for
     * decoding. */
    bool is_older;
    bool is_bare; /* an item that is its only field's value, not a map */
    const struct message_row *item;
    struct message_field fields[MESSAGE_MAX_FIELDS + 1];
};

/* NULL: no such message. `tag` is not terminated. */
const struct message_row *message_find_tag(enum message_protocol protocol, const char *tag,
                                           size_t bytes);
/* Returns, of two rows, the one with this `is_older`. */
const struct message_row *message_find_type(enum message_protocol protocol, enum message_type type,
                                            bool is_older);

bool message_is_nil_good(const struct message_field *field);
/* Sets the default of an absent field. */
void message_set_absent(const struct message_field *field, struct message *message);

/* Finds a lock by its name in requests or in answers; MESSAGE_LOCK_NIL: no such name. */
enum message_lock message_lock_from_name(enum message_protocol protocol, enum field_kind kind,
                                         const char *name, size_t bytes);
/* NULL: the lock has no name there. */
const char *message_lock_name(enum field_kind kind, enum message_lock lock);

#endif
