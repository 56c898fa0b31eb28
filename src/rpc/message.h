/* SPDX-License-Identifier: Apache-2.0 */
/*
 * message - the messages of GMS's two wire protocols, as bytes and as fields
 *
 * NVIDIA Dynamo's GPU Memory Service speaks V0, or V1, over a unix socket: 4 bytes of big-endian
 * length, then one msgpack map. This turns clients' bytes into struct message and answers into
 * frames, by one table of all messages (message_table.c). Pure, for src/rpc, its tests and its fuzz
 * target: it knows no socket, no session, no state, and judges no value; other files check sizes,
 * ids and rights. Safe on any thread.
 *
 * Decoding is as strict as the Python clients' own decoder (msgspec): keys in any order; of a
 * repeated key the last value counts, and all of them must be valid; unknown keys are skipped in V0
 * and refused in V1. It allocates nothing: texts and values point into the payload, which has to
 * outlive the message. The worst payload within 16 MiB keeps a processor busy for tenths of a
 * second, so long payloads are not decoded on the loop.
 */
#ifndef GMSFS_RPC_MESSAGE_H
#define GMSFS_RPC_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_protocol {
    MESSAGE_V0,
    MESSAGE_V1,
};

/* Two tags with the same meaning in the two protocols, or in older clients, are one type. */
enum message_type {
    /* both protocols */
    MESSAGE_HANDSHAKE_REQUEST = 1,
    MESSAGE_ALLOCATE_REQUEST,
    MESSAGE_EXPORT_REQUEST, /* V0: export_allocation_request */
    MESSAGE_FREE_REQUEST,   /* V0: free_allocation_request */
    MESSAGE_LIST_ALLOCATIONS_REQUEST,
    MESSAGE_COMMIT_REQUEST,
    MESSAGE_HANDSHAKE_RESPONSE,
    MESSAGE_EXPORT_RESPONSE, /* V0: export_allocation_response */
    MESSAGE_LIST_ALLOCATIONS_RESPONSE,
    MESSAGE_ERROR_RESPONSE,
    /* V0 */
    MESSAGE_COMMIT_LAYOUT_REQUEST,
    MESSAGE_GET_ALLOCATION_REQUEST,
    MESSAGE_METADATA_PUT_REQUEST,
    MESSAGE_METADATA_GET_REQUEST,
    MESSAGE_METADATA_DELETE_REQUEST,
    MESSAGE_METADATA_LIST_REQUEST,
    MESSAGE_GET_LOCK_STATE_REQUEST,
    MESSAGE_GET_ALLOCATION_STATE_REQUEST,
    MESSAGE_GET_MEMORY_LAYOUT_HASH_REQUEST,
    MESSAGE_GET_RUNTIME_STATE_REQUEST,
    MESSAGE_GET_EVENT_HISTORY_REQUEST,
    MESSAGE_CLEAR_ALL_REQUEST, /* older clients' */
    MESSAGE_COMMIT_RESPONSE,
    MESSAGE_COMMIT_LAYOUT_RESPONSE,
    MESSAGE_ALLOCATE_RESPONSE,
    MESSAGE_GET_ALLOCATION_RESPONSE,
    MESSAGE_FREE_RESPONSE,
    MESSAGE_METADATA_PUT_RESPONSE,
    MESSAGE_METADATA_GET_RESPONSE,
    MESSAGE_METADATA_DELETE_RESPONSE,
    MESSAGE_METADATA_LIST_RESPONSE,
    MESSAGE_GET_LOCK_STATE_RESPONSE,
    MESSAGE_GET_ALLOCATION_STATE_RESPONSE,
    MESSAGE_GET_MEMORY_LAYOUT_HASH_RESPONSE,
    MESSAGE_GET_RUNTIME_STATE_RESPONSE,
    MESSAGE_GET_EVENT_HISTORY_RESPONSE,
    MESSAGE_CLEAR_ALL_RESPONSE,
    /* V1 */
    MESSAGE_ABORT_REQUEST,
    MESSAGE_PREPARE_CHECKPOINT_REQUEST,
    MESSAGE_ABORT_CHECKPOINT_REQUEST,
    MESSAGE_COMPLETE_RESTORE_REQUEST,
    MESSAGE_GET_CHECKPOINT_STATE_REQUEST,
    MESSAGE_RETAIN_ALLOCATIONS_REQUEST, /* of later clients, always refused */
    MESSAGE_RELEASE_ATTACHMENT_REQUEST, /* likewise */
    MESSAGE_SUCCESS_RESPONSE,
    MESSAGE_CHECKPOINT_STATE_RESPONSE,
};

enum message_lock {
    MESSAGE_LOCK_NIL,
    MESSAGE_RW,
    MESSAGE_RO,
    MESSAGE_RW_OR_RO,      /* wanted only; older V0 clients write `auto` */
    MESSAGE_RW_DATA_OR_RW, /* wanted only */
    MESSAGE_RW_DATA,       /* granted only */
};

/* A text or bytes; `at` NULL: nil or absent. */
struct message_text {
    const void *at;
    size_t bytes;
};

/* Any integer of msgpack, -2^63 to 2^64 - 1, because texts of errors quote the client's value. */
struct message_integer {
    uint64_t magnitude;
    bool is_negative; /* never zero */
    bool is_given;    /* false: nil or absent */
};

/* The list of an answer, inside the payload; see message_next_item. */
struct message_list {
    const uint8_t *at, *end;
    uint32_t count; /* items left */
    enum message_protocol protocol;
    const struct message_row *item;
};

/* The fields of all messages and of the items of lists. Fields that a message does not have are
 * zero; so are, before encoding, fields that are to be nil or to have their default. */
struct message {
    enum message_type type; /* 0 in an item */
    /* The client used the spelling of older clients (export_request, free_request, lock_type
     * `auto`). An answer with the request's flag takes such a client's form. */
    bool is_older;
    bool process_fence; /* later V1 clients; true is refused */
    bool success, committed, layout_committed, has_rw_session, is_ready, found, deleted;
    bool out_of_memory;
    enum message_lock lock_type; /* wanted in a request, granted in an answer */
    struct message_integer timeout_ms;
    struct message_integer size, aligned_size, layout_slot, offset_bytes;
    struct message_integer allocation_count, total_bytes, cleared_count;
    struct message_integer ro_session_count, waiting_writers, code;
    struct message_text allocation_id, tag, key, prefix, value;
    struct message_text memory_layout_hash, state, kind, token;
    struct message_text error; /* V1 calls it message */
    /* V1: the server's identity; in a request the identity that the client expects, or both nil. */
    struct message_text server_nonce, gpu_uuid;
    struct message_list list; /* decoded only */
};

/* ---- lengths of frames ------------------------------------------------------------------- */

#define MESSAGE_HEADER_BYTES         4u
#define MESSAGE_V0_MAX_REQUEST_BYTES (UINT32_C(16) << 20)
#define MESSAGE_V1_MAX_BYTES         (UINT32_C(1) << 20)

/* Reads the length of a request, without the header. -EINVAL: 0, which no message has; -EMSGSIZE:
 * above the protocol's maximum. Either ends the connection; *payload_bytes is set on success
 * only. */
int message_payload_bytes(enum message_protocol protocol,
                          const uint8_t header[MESSAGE_HEADER_BYTES], size_t *payload_bytes);

/* ---- decoding ---------------------------------------------------------------------------- */

/* Decodes a message of any tag, also an answer's: a session refuses those in words, but ends the
 * connection after bytes that do not decode. Absent fields get their defaults. 0, or -EINVAL
 * (*message is then undefined) */
int message_decode(enum message_protocol protocol, const void *payload, size_t bytes,
                   struct message *message);

/* Reads the next item of message.list, false at its end: allocation_id, aligned_size, in V0 also
 * size, tag and layout_slot; key; or kind and allocation_count. */
bool message_next_item(struct message_list *list, struct message *item);

/* Returns the name that V0's errors use, as "AllocateRequest", by type and is_older. NULL: no such
 * message. */
const char *message_get_name(enum message_protocol protocol, const struct message *message);

/* ---- encoding ---------------------------------------------------------------------------- */

/* Frames in a row, ready to be sent. All zeros: an empty buffer. */
struct message_buffer {
    uint8_t *bytes;
    size_t begin_bytes, size_bytes; /* bounds of the whole frames; the sender moves begin */
    size_t room_bytes;              /* size of the memory at `bytes` */
    /* of the encoder */
    size_t used_bytes, list_bytes;
    enum message_protocol protocol;
    const struct message_row *item;
    uint32_t item_count;
    int error;
};

/*
 * Appends a whole frame, or nothing: type first, all fields in the protocol's order, defaults
 * written, shortest integers. message.list is ignored; a list has no items.
 *
 * Texts have to be UTF-8, which is not checked again: those of requests were checked by
 * message_decode, keys and tags of a layout by src/meta, and all others are the daemon's own.
 *
 * 0, -ENOMEM, -EMSGSIZE (more than V1, or 4 bytes of length, can carry), -EINVAL (the protocol has
 * no such message, or a field that must have a value has none)
 */
int message_encode(struct message_buffer *buffer, enum message_protocol protocol,
                   const struct message *message);

/* Appends a frame with a list: begin, add each item, end. Until message_end returns 0 there is no
 * frame: size_bytes is unchanged. After an error all later calls fail. The number of items is only
 * known at the end; writing it moves the bytes before the items by up to 4 bytes: the frames before
 * this one, and begin_bytes. -EINVAL also: an item of a message without a list. */
int message_begin(struct message_buffer *buffer, enum message_protocol protocol,
                  const struct message *message);
int message_add_item(struct message_buffer *buffer, const struct message *item);
/* Adds items that are texts, not maps: keys. All or none of them. */
int message_add_texts(struct message_buffer *buffer, const struct message_text *texts,
                      size_t count);
int message_end(struct message_buffer *buffer);

/* Gives the memory back; the buffer is empty then. */
void message_buffer_free(struct message_buffer *buffer);

/* ---- texts and integers ------------------------------------------------------------------ */

/* "-9223372036854775808", "18446744073709551615" */
#define MESSAGE_INTEGER_TEXT_BYTES 24u

struct message_text message_text(const char *text);
struct message_integer message_integer(uint64_t value);
/* Formats into `text` and returns it; "nil" if the integer is absent. */
const char *message_integer_format(struct message_integer integer,
                                   char text[MESSAGE_INTEGER_TEXT_BYTES]);

#endif
