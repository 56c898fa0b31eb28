/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_http - parses HTTP/1.1 requests as they arrive: heads, and bodies with a length or in chunks
 *
 * Pure: callers read, wait and answer. Strict where leniency lets two parsers see two requests:
 * lines end with CRLF, no space stands before a field's colon, no line is folded, a length stands
 * once and not beside chunks, and HTTP/1.1 names one host.
 */
#ifndef GMSFS_TRITON_WIRE_HTTP_H
#define GMSFS_TRITON_WIRE_HTTP_H

#include "triton/wire_text.h"

#define WIRE_HTTP_MAX_HEAD_BYTES 16384u
#define WIRE_HTTP_MAX_FIELDS     100u
#define WIRE_HTTP_MAX_CHUNKS     65536u
#define WIRE_HTTP_MAX_LINE_BYTES 4096u /* a chunk's size, or a trailer line */
#define WIRE_HTTP_MAX_EMPTY      8u    /* lines before a request */
/* Bytes that the lines of all chunks may have beyond the need of their data. */
#define WIRE_HTTP_MAX_EXCESS_BYTES 16384u

/* Texts point into the head. */
struct wire_http_head {
    size_t head_bytes;
    struct wire_text method, path; /* path: as sent, up to a '?' */
    struct wire_text authority;    /* of a target with a host, which overrides Host */
    bool is_kept;                  /* another request may follow the answer */
    bool is_old;                   /* HTTP/1.0 */
    bool is_chunked, wants_continue;
    uint64_t length_bytes;              /* unused if the body is chunked */
    struct wire_text session, encoding; /* gmsfs-session, Content-Encoding; at NULL: absent */
    bool has_json_bytes;
    uint64_t json_bytes; /* Inference-Header-Content-Length */
};

/* Why a request is refused: the status of the answer. No later byte of the connection is parsed. */
struct wire_http_refusal {
    unsigned status;
    const char *text;
};

/*
 * Searches for a complete head at the start of `bytes`. scanned: 0 at first, then unchanged by the
 * caller, so that no byte is searched twice. 0; -EAGAIN: more bytes are needed; -EPROTO: `refusal`
 * says why.
 */
int wire_http_parse(const char *bytes, size_t size, size_t *scanned, struct wire_http_head *head,
                    struct wire_http_refusal *refusal);

enum wire_http_phase {
    WIRE_HTTP_DATA, /* the next `left_bytes` belong to the body */
    WIRE_HTTP_SIZE,
    WIRE_HTTP_EXTENSION,
    WIRE_HTTP_SIZE_END,
    WIRE_HTTP_DATA_CR,
    WIRE_HTTP_DATA_END,
    WIRE_HTTP_TRAILER,      /* at the start of a line */
    WIRE_HTTP_TRAILER_LINE, /* within a line */
    WIRE_HTTP_TRAILER_LINE_END,
    WIRE_HTTP_LAST_END,
    WIRE_HTTP_ENDED,
};

struct wire_http_body {
    enum wire_http_phase phase;
    bool is_chunked, has_digit;
    uint64_t left_bytes;  /* of the body, or of the chunk */
    uint64_t total_bytes; /* seen so far; with a length, all of it from the start */
    uint32_t chunks, line_bytes, excess_bytes;
};

void wire_http_body_begin(struct wire_http_body *body, const struct wire_http_head *head);
/* Takes some of `bytes`; `data` is the part that belongs to the body, possibly empty. 0: the body
 * ends with `taken`; -EAGAIN: the body goes on; -EPROTO */
int wire_http_body_take(struct wire_http_body *body, const char *bytes, size_t size, size_t *taken,
                        struct wire_text *data, struct wire_http_refusal *refusal);

/* Returns true for HOST or HOST:PORT of RFC 3986: a name, an address, or [an IPv6 address]. */
bool wire_http_is_authority(struct wire_text text);

/* Returns "OK", "Not Found" ... for the statuses that the front end uses. */
const char *wire_http_reason(unsigned status);

#endif
