/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3://BUCKET/KEY and s3://BUCKET/PREFIX
 *
 * A place is a file if its key ends like a model's file, else all keys below the prefix.
 */
#include "source/source_remote.h"

#include "base/log.h"
#include "base/scope.h"
#include "source/s3_config.h"
#include "source/s3_list.h"
#include "source/s3_sum.h"
#include "source/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME_BYTES 5u /* "s3://" */
#define MOST_BUCKET  63u
#define ETAG_BYTES   128u
#define MOST_PAGE    (16u << 20)
#define MOST_PAGES   2048u /* of up to 1,000 keys: twice SOURCE_MAX_LISTED, for hidden ones */

/* Signs requests of one method. */
struct s3_auth {
    struct http_auth auth; /* the first member */
    const struct s3_config *config;
    const char *method;
    const char *more; /* a further header; "": none */
};

struct s3 {
    struct remote remote; /* the first member */
    struct s3_config config;
    struct s3_auth get, head;
    atomic_bool refuses_heads; /* a HEAD failed: its server is not asked again */
};

/* ---- credentials ----------------------------------------------------------------------------- */

static int s3_write(const struct http_auth *auth, const char *url, char *lines,
                    struct failure *failure)
{
    const struct s3_auth *own = (const struct s3_auth *)auth;
    const struct s3_config *config = own->config;
    int error;

    if (!config->keys.id) {
        strcpy(lines, own->more);
        return 0;
    }
    error = s3_sign(&config->keys, config->region, own->method, url, time(NULL), own->more, lines,
                    HTTP_AUTH_BYTES);
    return error ? failure_set(failure, error,
                               "the request cannot be signed: %s; look at the "
                               "AWS credentials",
                               strerror(-error))
                 : 0;
}

/* Turns S3's XML into words. */
static void s3_explain(const struct http_auth *auth, const struct http_reply *reply, char *text,
                       size_t room)
{
    const struct s3_config *config = ((const struct s3_auth *)auth)->config;
    char code[128] = "", message[512] = "", region[65] = "";

    s3_error_get(text, "Code", code, sizeof(code));
    s3_error_get(text, "Message", message, sizeof(message));
    if (http_reply_get(reply, "x-amz-bucket-region", region, sizeof(region)) &&
        strcmp(region, config->region) != 0) {
        snprintf(text, room, ": the bucket is in the region %s, not %s; set AWS_REGION=%s", region,
                 config->region, region);
        return;
    }
    if (reply->status == 403 && !config->keys.id)
        snprintf(text, room,
                 ": there are no credentials for S3; set AWS_ACCESS_KEY_ID and "
                 "AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials");
    else
        snprintf(text, room, "%s%s%s%s", code[0] ? ": " : "", code, message[0] ? ": " : "",
                 message);
}

static int s3_open(void **state, struct failure *failure)
{
    struct s3 *s3;
    int error = remote_open(sizeof(*s3), state, failure);

    if (error)
        return error;
    s3 = *state;
    s3->get = (struct s3_auth){{s3_write, s3_explain, true}, &s3->config, "GET", ""};
    s3->head = (struct s3_auth){{s3_write, s3_explain, true}, &s3->config, "HEAD", S3_SUM_HEADER};
    error = s3_config_read(&s3->config, failure);
    if (error) {
        s3_config_free(&s3->config);
        remote_close(s3);
    }
    return error;
}

static void s3_close(void *state)
{
    struct s3 *s3 = state;

    s3_config_free(&s3->config);
    remote_close(s3);
}

/* ---- places ---------------------------------------------------------------------------------- */

static const char *key_of(const char *place)
{
    const char *key = place + SCHEME_BYTES + strcspn(place + SCHEME_BYTES, "/");

    return *key ? key + 1 : key;
}

static int copy_bucket(const char *place, char bucket[MOST_BUCKET + 1], struct failure *failure)
{
    const size_t bytes = strcspn(place + SCHEME_BYTES, "/");

    snprintf(bucket, MOST_BUCKET + 1, "%.*s", (int)(bytes > MOST_BUCKET ? 0 : bytes),
             place + SCHEME_BYTES);
    if (bytes >= 3 && bytes <= MOST_BUCKET &&
        bucket[strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-_"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0')
        return 0;
    return source_fail(failure, -EINVAL, place,
                       "has no bucket's name; a place is s3://BUCKET/PREFIX or s3://BUCKET/KEY");
}

static bool s3_is_tree(const char *place)
{
    return !remote_is_file_name(key_of(place));
}

/* Returns PREFIX/NAME; NAME alone if there is no prefix. */
static char *join_key(const char *place, const char *name)
{
    const char *key = key_of(place);
    const size_t bytes = strlen(key);
    char *joined = NULL;

    if (!name)
        return strdup(key);
    if (asprintf(&joined, "%s%s%s", key, bytes == 0 || key[bytes - 1] == '/' ? "" : "/", name) < 0)
        return NULL;
    return joined;
}

/* Returns true if a server answers so where it has no checksums, or does not tell them. */
static bool is_refusal(unsigned status)
{
    return status == 400 || status == 403 || status == 404 || status == 405 || status == 501;
}

/* Asks for the sums of an object without an MD5 as its ETag, as after an upload in parts: ranges
 * do not tell the sums. A server that refuses the question promises nothing. After another failure
 * it is not asked again, so that a silent server costs one timeout. -ENOMEM, -ECANCELED. */
static int ask_for_sum(struct s3 *s3, const struct source_item *item, const char *url,
                       const struct http_reply *first, struct source_sum *sum)
{
    const struct http_target target = {url, &s3->head.auth};
    char etag[ETAG_BYTES], etag_before[ETAG_BYTES];
    struct http_reply reply = {0};
    struct failure failure;
    uint64_t bytes;
    if (atomic_load(&s3->refuses_heads))
        return 0;
    int error = http_get_head(s3->remote.http, &target, &reply, &failure);
    bool is_same =
        error == 0 && http_reply_get_length(&reply, &bytes) && bytes == item->file.size_bytes;

    if (error && error != -ENOMEM && error != -ECANCELED && !is_refusal(reply.status) &&
        !atomic_exchange(&s3->refuses_heads, true))
        log_warning("%s: it and further files are loaded without S3's checksums, for which the "
                    "server could not be asked: %s",
                    item->file.shown, failure.text);
    http_reply_get(first, "ETag", etag_before, sizeof(etag_before));
    http_reply_get(&reply, "ETag", etag, sizeof(etag));
    if (is_same && strcmp(etag, etag_before) == 0)
        s3_sum_of_headers(&reply, sum);
    http_reply_free(&reply);
    return error == -ENOMEM || error == -ECANCELED ? error : 0;
}

static int s3_add_file(void *state, struct source_item *item, struct failure *failure)
{
    struct s3 *s3 = state;
    char bucket[MOST_BUCKET + 1];
    SCOPED_FREE char *key = join_key(item->place, item->name);
    SCOPED_FREE char *url = NULL;
    struct http_reply reply = {0};
    struct source_sum sum;
    int error = copy_bucket(item->place, bucket, failure), sum_error = 0;

    if (error)
        return error;
    if (key && key[0] == '\0')
        return source_fail(failure, -EISDIR, item->file.shown, "is a bucket; name a key in it");
    url = key ? s3_config_url(&s3->config, bucket, key) : NULL;
    if (!url)
        return source_fail(failure, -ENOMEM, item->file.shown, "out of memory");
    error = remote_add(&s3->remote, item, url, &s3->get.auth, &reply, failure);
    if (error == 0 && !s3_sum_of_etag(&reply, &sum) && !(item->flags & SOURCE_NO_SUM))
        sum_error = ask_for_sum(s3, item, url, &reply, &sum);
    if (error == 0 && !sum_error)
        sum_error = remote_promise(item, &sum);
    if (sum_error) {
        remote_drop(s3, item);
        error = source_fail(failure, sum_error, item->file.shown, "%s", strerror(-sum_error));
    }
    http_reply_free(&reply);
    return error;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct listing {
    struct source_list *list;
    const char *prefix; /* of all keys; "" or with '/' at its end */
};

static int add_key(void *context, const char *key, uint64_t size_bytes, bool is_folder)
{
    const struct listing *listing = context;
    const size_t prefix_bytes = strlen(listing->prefix);
    char name[S3_MOST_KEY_BYTES + 1];

    if (strncmp(key, listing->prefix, prefix_bytes) != 0)
        return -EBADMSG;
    strcpy(name, key + prefix_bytes);
    size_t bytes = strlen(name);
    if (bytes == 0 || (name[bytes - 1] == '/' && !is_folder))
        return 0; /* an object that stands for a folder */
    if (is_folder)
        name[bytes - 1] = '\0';
    if (remote_is_hidden(name))
        return 0;
    return source_list_add(listing->list, name, size_bytes, is_folder);
}

/* Returns the address of a page. NULL: no memory. */
static char *page_url(const struct s3 *s3, const char *bucket, const char *prefix, bool is_deep,
                      const char *token)
{
    SCOPED_FREE char *base = s3_config_url(&s3->config, bucket, NULL);
    SCOPED_FREE char *encoded = malloc(3 * (strlen(prefix) + strlen(token)) + 2);
    char *url = NULL, *token_at;

    if (!base || !encoded)
        return NULL;
    token_at = url_encode(encoded, token, URL_KEEP_NOTHING) + 1;
    url_encode(token_at, prefix, URL_KEEP_NOTHING);
    if (asprintf(&url, "%s?%s%s%sencoding-type=url&list-type=2&prefix=%s", base,
                 *token ? "continuation-token=" : "", encoded,
                 is_deep ? (*token ? "&" : "") : (*token ? "&delimiter=%2F&" : "delimiter=%2F&"),
                 token_at) < 0)
        return NULL;
    return url;
}

static int list_page(struct s3 *s3, const char *url, const char *tree, struct listing *listing,
                     struct s3_page *page, struct failure *failure)
{
    const struct http_target target = {url, &s3->get.auth};
    struct failure why;
    char *xml = NULL;
    size_t bytes = 0;
    int error = http_get_text(s3->remote.http, &target, MOST_PAGE, &xml, &bytes, NULL, &why);

    if (error)
        return source_fail(failure, error, tree, "cannot list it: %s", why.text);
    error = s3_list_decode(xml, bytes, add_key, listing, page);
    free(xml);
    if (error == -EPROTO)
        return source_fail(failure, error, tree,
                           "cannot list it: the server's answer is refused: %s", page->fault);
    if (error == -EBADMSG)
        return source_fail(failure, error, tree,
                           "cannot list it: the server's answer has a key that is no file of it");
    return error ? source_fail(failure, error, tree, "cannot list it: %s", strerror(-error)) : 0;
}

static int s3_list_tree(void *state, const char *tree, const char *folder, bool is_deep,
                        struct source_list *list, struct failure *failure)
{
    struct s3 *s3 = state;
    SCOPED_FREE char *key = join_key(tree, folder);
    SCOPED_FREE char *prefix = NULL;
    struct s3_page page = {0};
    char bucket[MOST_BUCKET + 1];
    struct listing listing = {list, NULL};
    int error = copy_bucket(tree, bucket, failure);

    if (error)
        return error;
    if (!key || asprintf(&prefix, "%s%s", key, *key && key[strlen(key) - 1] != '/' ? "/" : "") < 0)
        return source_fail(failure, -ENOMEM, tree, "out of memory");
    listing.prefix = prefix;
    for (unsigned pages = 0; error == 0 && (page.is_truncated || !page.is_read); pages++) {
        SCOPED_FREE char *before = strdup(page.token);
        SCOPED_FREE char *url = page_url(s3, bucket, prefix, is_deep, page.token);

        error = url && before ? list_page(s3, url, tree, &listing, &page, failure)
                              : source_fail(failure, -ENOMEM, tree, "out of memory");
        if (error == 0 && page.is_truncated &&
            (pages == MOST_PAGES || strcmp(page.token, before) == 0))
            error = source_fail(failure, -EPROTO, tree, "cannot list it: its list has no end");
    }
    if (error == 0 && list->count == 0)
        return source_fail(failure, -ENOENT, tree,
                           "there is no key below it; look at the bucket and the prefix");
    return error;
}

const struct source_backend source_s3 = {
    .open = s3_open,
    .close = s3_close,
    .is_tree = s3_is_tree,
    .list = s3_list_tree,
    .add = s3_add_file,
    .drop = remote_drop,
    .read = remote_read,
    .copy = remote_copy,
    .check = remote_check,
    .cancel = remote_cancel,
    .threads = remote_threads,
    .is_slow = remote_is_slow,
};
