/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_http - HTTP/1.1 requests as they come: heads, and bodies with a length or in chunks
 *
 * Pure. It is given bytes and says what they are; reading, waiting and answering are for others.
 * Strict where leniency lets two parsers see two requests: lines end with CRLF, a field has no
 * space before its colon, no line is folded, a length stands once and not beside chunks, and
 * HTTP/1.1 names one host.
 */
#ifndef GMSFS_TRITON_WIRE_HTTP_H
#define GMSFS_TRITON_WIRE_HTTP_H

#include "triton/wire_text.h"

#define WIRE_HTTP_MAX_HEAD_BYTES 16384u
#define WIRE_HTTP_MAX_FIELDS     100u
#define WIRE_HTTP_MAX_CHUNKS     65536u
#define WIRE_HTTP_MAX_LINE_BYTES 4096u /* of a chunk's size, or of the trailer */
#define WIRE_HTTP_MAX_EMPTY      8u    /* lines before a request */
/* Lines of chunks may have so many bytes beyond what data of their size needs. */
#define WIRE_HTTP_MAX_EXCESS_BYTES 16384u

/* Texts point into the head. */
struct wire_http_head {
    size_t head_bytes;
    struct wire_text method, path; /* path: as it was sent, up to a '?' */
    struct wire_text authority;    /* of a target that has one, which then counts before Host */
    bool is_kept;                  /* another request may follow the answer */
    bool is_old;                   /* of HTTP/1.0 */
    bool is_chunked, wants_continue;
    uint64_t length_bytes;              /* not where it is chunked */
    struct wire_text session, encoding; /* gmsfs-session, Content-Encoding; at NULL: not there */
    bool has_json_bytes;
    uint64_t json_bytes; /* Inference-Header-Content-Length */
};

/* Why a request is refused: the status of the answer, after which nothing can be understood. */
struct wire_http_refusal {
    unsigned status;
    const char *text;
};

/*
 * Looks for a whole head at the beginning of `bytes`. scanned: 0 at first, then as it was left, so
 * that nothing is looked at twice. 0; -EAGAIN: more is needed; -EPROTO: `refusal` says why.
 */
int wire_http_parse(const char *bytes, size_t size, size_t *scanned, struct wire_http_head *head,
                    struct wire_http_refusal *refusal);

enum wire_http_phase {
    WIRE_HTTP_DATA, /* the next `left_bytes` are the body's */
    WIRE_HTTP_SIZE,
    WIRE_HTTP_EXTENSION,
    WIRE_HTTP_SIZE_END,
    WIRE_HTTP_DATA_CR,
    WIRE_HTTP_DATA_END,
    WIRE_HTTP_TRAILER,      /* at the beginning of a line */
    WIRE_HTTP_TRAILER_LINE, /* within one */
    WIRE_HTTP_TRAILER_LINE_END,
    WIRE_HTTP_LAST_END,
    WIRE_HTTP_ENDED,
};

struct wire_http_body {
    enum wire_http_phase phase;
    bool is_chunked, has_digit;
    uint64_t left_bytes;  /* of the body, or of the chunk */
    uint64_t total_bytes; /* so far; with a length all of it from the beginning */
    uint32_t chunks, line_bytes, excess_bytes;
};

void wire_http_body_begin(struct wire_http_body *body, const struct wire_http_head *head);
/* Takes some of `bytes`; `data` is what of them belongs to the body, perhaps nothing. 0: the body
 * has ended, and `taken` are its last; -EAGAIN: it goes on behind them; -EPROTO */
int wire_http_body_take(struct wire_http_body *body, const char *bytes, size_t size, size_t *taken,
                        struct wire_text *data, struct wire_http_refusal *refusal);

/* Whether it is HOST or HOST:PORT as RFC 3986 has them: a name, an address, [an IPv6 address]. */
bool wire_http_is_authority(struct wire_text text);

/* "OK", "Not Found"; statuses that the front end answers with. */
const char *wire_http_reason(unsigned status);

#endif
