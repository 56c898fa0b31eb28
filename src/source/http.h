/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http - files and texts of HTTP servers, by libcurl
 *
 * For the places of src/source that a server has. A client has the connections of one source: each
 * thread that reads takes one that is idle, or makes one, so that N threads read over N
 * connections. Addresses are http:// or https://. What always holds:
 *
 * - The certificate of an https server is verified. Redirects never lead from an https address that
 *   was named to http, to another scheme, or over more than HTTP_MAX_REDIRECTS addresses.
 * - Credentials (of the address, of ~/.netrc, of struct http_auth) go to the host that they are
 * for.
 * - A transfer that breaks is continued where it broke, after growing pauses. The bytes are those
 *   of one file: if its ETag, its date or its size changes, reading fails with -ESTALE.
 * - What a server announces and sends has bounds.
 *
 * The environment: http_proxy, https_proxy, all_proxy, no_proxy (libcurl); CURL_CA_BUNDLE or
 * SSL_CERT_FILE: trusted certificates instead of the system's; GMSFS_HTTP_STALL: seconds without a
 * byte after which a transfer has broken (30); one byte a second is enough to go on.
 *
 * Blocking, from any thread, except for opening and closing. Prints nothing. A failure has the
 * reason and the way out; the caller writes the name of the file before it.
 */
#ifndef GMSFS_SOURCE_HTTP_H
#define GMSFS_SOURCE_HTTP_H

#include "base/failure.h"
#include "source/http_reply.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_REDIRECTS 8u
#define HTTP_AUTH_BYTES    (16u << 10)

struct http;
struct http_stream;

/* Credentials of a place. */
struct http_auth {
    /* Writes header lines for a request of this address, each with '\n', into HTTP_AUTH_BYTES. 0 or
     * a negative errno, with the failure. Called before each attempt, from any thread. */
    int (*write)(const struct http_auth *auth, const char *url, char *lines,
                 struct failure *failure);
    /* Says why the server refused, in words that follow "the server answers 403 Forbidden"; "" if
     * there is nothing to add. text: of http_auth's caller, as a server sent it. May be NULL. */
    void (*explain)(const struct http_auth *auth, const struct http_reply *reply, char *text,
                    size_t room);
    /* Redirects are refused: the headers are a signature of this address alone. */
    bool is_signature;
};

struct http_target {
    const char *url;
    const struct http_auth *auth; /* NULL: none but the address's own, and ~/.netrc */
};

/* A file, as its server described it. */
struct http_file {
    struct http_target target; /* valid as long as the file */
    uint64_t size_bytes;
    int64_t mtime_ns;         /* 0: unknown */
    bool has_ranges;          /* else one stream serves all reads */
    char *etag;               /* NULL: none */
    char *modified;           /* Last-Modified; NULL: none */
    char *direct;             /* the address after redirects; NULL: as the target */
    atomic_bool direct_ended; /* a signature in it has expired: use the target's again */
    struct http_stream *stream;
};

/* How a client treats a server that is one of several with the same files: it makes one attempt,
 * which ends after a time, follows no redirect, and leaves waiting to its caller. */
struct http_peer {
    const char *pin;            /* "HOST:PORT:ADDRESS": the address to take for this name; NULL */
    const atomic_uint *most_ms; /* of an attempt, also one that has begun: -ETIMEDOUT */
    const char *cert, *key;     /* files of this client's certificate, as PEM; NULL: none */
    atomic_uint *retry_s;       /* gets the seconds of Retry-After of a refusal; 0: none */
};

/* -ELIBACC: libcurl is not installed. */
int http_open(struct http **http, struct failure *failure);
/* For all later requests; the caller keeps *peer as long as the client. */
void http_set_peer(struct http *http, const struct http_peer *peer);
/* No read may be left. NULL is fine. */
void http_close(struct http *http);
/* Ends all reads, also later ones: -ECANCELED, within a fraction of a second. From any thread. */
void http_cancel(struct http *http);

/* Gets a whole text (a listing) of at most most_bytes, terminated by a NUL that does not count. The
 * caller frees text and reply; reply may be NULL. -E2BIG: it is longer. */
int http_get_text(struct http *http, const struct http_target *target, size_t most_bytes,
                  char **text, size_t *bytes, struct http_reply *reply, struct failure *failure);

/* Gets the headers of an address alone, by one HEAD, which is not tried again. reply: as for
 * http_get_text, also after an error; its status is 0 if there was no answer. */
int http_get_head(struct http *http, const struct http_target *target, struct http_reply *reply,
                  struct failure *failure);

/* Gets the first bytes of a text, or all if it has fewer. Neither more is read of it. */
int http_get_begin(struct http *http, const struct http_target *target, size_t most_bytes,
                   char **text, size_t *bytes, struct failure *failure);

/*
 * Asks for size, identity and ranges of a file, by a GET of its first byte: servers of signed
 * addresses refuse HEAD. The caller owns *target. reply: as for http_get_text. Afterwards the file
 * is to be freed, also after an error.
 */
int http_file_look(struct http *http, const struct http_target *target, struct http_file *file,
                   struct http_reply *reply, struct failure *failure);
void http_file_free(struct http_file *file);

/* Takes the next bytes; an error ends the transfer, which returns it. */
typedef int http_put(void *context, const uint8_t *bytes, size_t size_bytes);

/* Passes size_bytes from an offset on to `put`, in order. Several threads may read one file. */
int http_file_copy(struct http *http, struct http_file *file, uint64_t offset_bytes,
                   uint64_t size_bytes, http_put *put, void *context, struct failure *failure);

#endif
