/* SPDX-License-Identifier: Apache-2.0 */
#include "source/s3_sign.h"

#include "base/hex.h"
#include "base/scope.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nettle/hmac.h>
#include <nettle/sha2.h>

#define EMPTY_SHA256    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SECRET_BYTES    512u
#define MOST_PARAMETERS 16u
#define HEX_BYTES       (2 * SHA256_DIGEST_SIZE + 1)

struct request {
    const char *method;
    const char *host, *path; /* in the address */
    size_t host_bytes, path_bytes;
    char *query; /* sorted; "" if there is none */
};

static void sha256_text(const char *text, char hex[HEX_BYTES])
{
    uint8_t digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx context;

    sha256_init(&context);
    sha256_update(&context, strlen(text), (const uint8_t *)text);
    sha256_digest(&context, sizeof(digest), digest);
    hex_format(digest, sizeof(digest), hex);
}

static void hmac(const void *key, size_t key_bytes, const char *text, uint8_t *digest)
{
    struct hmac_sha256_ctx context;

    hmac_sha256_set_key(&context, key_bytes, key);
    hmac_sha256_update(&context, strlen(text), (const uint8_t *)text);
    hmac_sha256_digest(&context, SHA256_DIGEST_SIZE, digest);
}

/* ---- the address ----------------------------------------------------------------------------- */

static int parameter_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Returns NAME=VALUE&... sorted, with a "=" behind each name. NULL: no memory, or too many. */
static char *sort_query(const char *query)
{
    SCOPED_FREE char *copy = strdup(query);
    char *parts[MOST_PARAMETERS], *rest = copy, *sorted = NULL, *end;
    size_t count = 0;

    for (char *part; copy && (part = strtok_r(rest, "&", &rest));)
        if (count < MOST_PARAMETERS)
            parts[count++] = part;
        else
            return NULL;
    if (copy)
        sorted = malloc(strlen(query) + 2 * MOST_PARAMETERS);
    if (!sorted)
        return NULL;
    qsort(parts, count, sizeof(parts[0]), parameter_compare);
    *sorted = '\0';
    end = sorted;
    for (size_t i = 0; i < count; i++)
        end += sprintf(end, "%s%s%s", i ? "&" : "", parts[i], strchr(parts[i], '=') ? "" : "=");
    return sorted;
}

/* A port that the scheme has anyway is in no Host header. */
static bool ends_with_port(const struct request *request, const char *port)
{
    const size_t bytes = strlen(port);

    return request->host_bytes > bytes &&
           memcmp(request->host + request->host_bytes - bytes, port, bytes) == 0;
}

static int take_apart(const char *url, struct request *request)
{
    const char *scheme = strstr(url, "://"), *query;

    if (!scheme)
        return -EINVAL;
    request->host = scheme + 3;
    request->host_bytes = strcspn(request->host, "/?");
    request->path = request->host + request->host_bytes;
    request->path_bytes = strcspn(request->path, "?");
    query = request->path + request->path_bytes;
    if (request->path_bytes == 0) {
        request->path = "/";
        request->path_bytes = 1;
    }
    if (strncmp(url, "https:", 6) == 0 && ends_with_port(request, ":443"))
        request->host_bytes -= 4;
    else if (strncmp(url, "http:", 5) == 0 && ends_with_port(request, ":80"))
        request->host_bytes -= 3;
    request->query = sort_query(*query ? query + 1 : query);
    return request->query ? 0 : -ENOMEM;
}

/* ---- the signature --------------------------------------------------------------------------- */

static void sign_text(const struct s3_keys *keys, const char *region, const char *date,
                      const char *text, char hex[HEX_BYTES])
{
    char secret[SECRET_BYTES + 8];
    uint8_t key[SHA256_DIGEST_SIZE];

    snprintf(secret, sizeof(secret), "AWS4%s", keys->secret);
    hmac(secret, strlen(secret), date, key);
    hmac(key, sizeof(key), region, key);
    hmac(key, sizeof(key), "s3", key);
    hmac(key, sizeof(key), "aws4_request", key);
    hmac(key, sizeof(key), text, key);
    hex_format(key, sizeof(key), hex);
    explicit_bzero(secret, sizeof(secret));
}

/* Writes the names of the signed headers, "host;x-amz-...". */
static void name_headers(const struct s3_keys *keys, const char *more, char *names, size_t room)
{
    snprintf(names, room, "host;%.*s%sx-amz-content-sha256;x-amz-date%s", (int)strcspn(more, ":"),
             more, *more ? ";" : "", keys->token && *keys->token ? ";x-amz-security-token" : "");
}

static int write_lines(const struct s3_keys *keys, const char *region,
                       const struct request *request, const char *time, const char *more,
                       char *lines, size_t room)
{
    char names[160], hash[HEX_BYTES], signature[HEX_BYTES], scope[128], text[384], date[9];
    SCOPED_FREE char *canonical = NULL;
    const char *token = keys->token ? keys->token : "";

    name_headers(keys, more, names, sizeof(names));
    if (asprintf(&canonical,
                 "%s\n%.*s\n%s\nhost:%.*s\n%sx-amz-content-sha256:" EMPTY_SHA256
                 "\nx-amz-date:%s\n%s%s%s\n%s\n" EMPTY_SHA256,
                 request->method, (int)request->path_bytes, request->path, request->query,
                 (int)request->host_bytes, request->host, more, time,
                 *token ? "x-amz-security-token:" : "", token, *token ? "\n" : "", names) < 0)
        return -ENOMEM;
    sha256_text(canonical, hash);
    snprintf(scope, sizeof(scope), "%.8s/%.64s/s3/aws4_request", time, region);
    snprintf(text, sizeof(text), "AWS4-HMAC-SHA256\n%s\n%s\n%s", time, scope, hash);
    snprintf(date, sizeof(date), "%.8s", time);
    sign_text(keys, region, date, text, signature);
    int written = snprintf(lines, room,
                           "%sx-amz-content-sha256: " EMPTY_SHA256 "\nx-amz-date: %s\n%s%s%s"
                           "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,"
                           "Signature=%s\n",
                           more, time, *token ? "x-amz-security-token: " : "", token,
                           *token ? "\n" : "", keys->id, scope, names, signature);
    return written < 0 || (size_t)written >= room ? -E2BIG : 0;
}

int s3_sign(const struct s3_keys *keys, const char *region, const char *method, const char *url,
            time_t now, const char *more, char *lines, size_t room)
{
    struct request request = {.method = method};
    struct tm parts;
    char time[20];
    int error = strlen(keys->secret) > SECRET_BYTES ? -EINVAL : take_apart(url, &request);

    if (error)
        return error;
    if (!gmtime_r(&now, &parts) || strftime(time, sizeof(time), "%Y%m%dT%H%M%SZ", &parts) == 0)
        error = -EINVAL;
    else
        error = write_lines(keys, region, &request, time, more, lines, room);
    free(request.query);
    return error;
}
