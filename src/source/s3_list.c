/* SPDX-License-Identifier: Apache-2.0 */
#include "source/s3_list.h"

#include "source/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <expat.h>

#define MOST_DEPTH      8u
#define MOST_TEXT_BYTES (3 * S3_MOST_TOKEN_BYTES)

struct decoding {
    XML_Parser parser;
    struct s3_page *page;
    s3_add *add;
    void *context;
    int error;

    unsigned depth;
    bool is_list;                   /* the root is a list of objects */
    char group[16];                 /* element below the root */
    char text[MOST_TEXT_BYTES + 1]; /* of the present element */
    size_t text_bytes;
    char key[S3_MOST_KEY_BYTES + 1]; /* of the present group; "": none yet */
    uint64_t size_bytes;
    bool has_size;
};

static void stop(struct decoding *decoding, int error, const char *fault)
{
    if (decoding->error == 0) {
        decoding->error = error;
        decoding->page->fault = fault;
    }
    XML_StopParser(decoding->parser, XML_FALSE);
}

static void refuse_doctype(void *context, const XML_Char *name, const XML_Char *system,
                           const XML_Char *public, int has_subset)
{
    (void)name, (void)system, (void)public, (void)has_subset;
    stop(context, -EPROTO, "it has a document type");
}

/* ---- elements -------------------------------------------------------------------------------- */

static void begin_element(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct decoding *decoding = context;

    (void)attributes;
    if (++decoding->depth > MOST_DEPTH)
        return stop(decoding, -EPROTO, "its elements are nested too deep");
    if (decoding->depth == 1)
        decoding->is_list = strcmp(name, "ListBucketResult") == 0;
    if (decoding->depth == 1 && !decoding->is_list)
        return stop(decoding, -EPROTO, "it is no list of objects");
    if (decoding->depth == 2) {
        snprintf(decoding->group, sizeof(decoding->group), "%.15s", name);
        decoding->key[0] = '\0';
        decoding->has_size = false;
    }
    decoding->text_bytes = 0;
}

static void take_text(void *context, const XML_Char *text, int bytes)
{
    struct decoding *decoding = context;

    if ((size_t)bytes > MOST_TEXT_BYTES - decoding->text_bytes)
        return stop(decoding, -EPROTO, "it has a text that is too long");
    memcpy(decoding->text + decoding->text_bytes, text, (size_t)bytes);
    decoding->text_bytes += (size_t)bytes;
}

/* Decodes the text in place as a key: a blank is "+" there. */
static void take_key(struct decoding *decoding)
{
    for (char *at = decoding->text; *at; at++)
        if (*at == '+')
            *at = ' ';
    if (!url_decode(decoding->text) || decoding->text[0] == '\0')
        return stop(decoding, -EPROTO, "it has a key that is not encoded as asked for");
    if (strlen(decoding->text) > S3_MOST_KEY_BYTES)
        return stop(decoding, -EPROTO, "it has a key of more than 1,024 bytes");
    strcpy(decoding->key, decoding->text);
}

static void take_size(struct decoding *decoding)
{
    char *end;

    errno = 0;
    decoding->size_bytes = strtoull(decoding->text, &end, 10);
    decoding->has_size = decoding->text[0] >= '0' && decoding->text[0] <= '9' && *end == '\0' &&
                         errno == 0 && decoding->size_bytes <= INT64_MAX;
    if (!decoding->has_size)
        stop(decoding, -EPROTO, "it has a size that is no number");
}

static void take_token(struct decoding *decoding)
{
    if (decoding->text_bytes > S3_MOST_TOKEN_BYTES)
        return stop(decoding, -EPROTO, "its token for the next page is too long");
    strcpy(decoding->page->token, decoding->text);
}

/* Takes the text of an element at depth 2 (of the list) or 3 (of an object or a prefix). */
static void take_value(struct decoding *decoding, const char *name)
{
    const bool is_object = strcmp(decoding->group, "Contents") == 0;

    if (decoding->depth == 2 && strcmp(name, "IsTruncated") == 0)
        decoding->page->is_truncated = strcmp(decoding->text, "true") == 0;
    else if (decoding->depth == 2 && strcmp(name, "NextContinuationToken") == 0)
        take_token(decoding);
    else if (decoding->depth == 3 && is_object && strcmp(name, "Key") == 0)
        take_key(decoding);
    else if (decoding->depth == 3 && is_object && strcmp(name, "Size") == 0)
        take_size(decoding);
    else if (decoding->depth == 3 && strcmp(decoding->group, "CommonPrefixes") == 0 &&
             strcmp(name, "Prefix") == 0)
        take_key(decoding);
}

static void end_group(struct decoding *decoding)
{
    const bool is_object = strcmp(decoding->group, "Contents") == 0;
    int error;

    if (!is_object && strcmp(decoding->group, "CommonPrefixes") != 0)
        return;
    if (decoding->key[0] == '\0' || (is_object && !decoding->has_size))
        return stop(decoding, -EPROTO, "it has an object without key or size");
    error = decoding->add(decoding->context, decoding->key, is_object ? decoding->size_bytes : 0,
                          !is_object);
    if (error)
        stop(decoding, error, NULL);
}

static void end_element(void *context, const XML_Char *name)
{
    struct decoding *decoding = context;

    if (decoding->error)
        return;
    decoding->text[decoding->text_bytes] = '\0';
    if (strlen(decoding->text) != decoding->text_bytes)
        return stop(decoding, -EPROTO, "it has a NUL");
    take_value(decoding, name);
    if (decoding->depth == 2 && decoding->error == 0)
        end_group(decoding);
    decoding->text_bytes = 0;
    decoding->depth--;
}

/* ---- a page ---------------------------------------------------------------------------------- */

static int parse(struct decoding *decoding, const char *xml, size_t bytes)
{
    XML_SetUserData(decoding->parser, decoding);
    XML_SetElementHandler(decoding->parser, begin_element, end_element);
    XML_SetCharacterDataHandler(decoding->parser, take_text);
    XML_SetStartDoctypeDeclHandler(decoding->parser, refuse_doctype);
    if (XML_Parse(decoding->parser, xml, (int)bytes, XML_TRUE) == XML_STATUS_ERROR)
        stop(decoding,
             XML_GetErrorCode(decoding->parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : -EPROTO,
             "it is not well-formed XML");
    else if (decoding->page->is_truncated && decoding->page->token[0] == '\0')
        stop(decoding, -EPROTO, "it does not tell how to ask for the next page");
    return decoding->error;
}

int s3_list_decode(const char *xml, size_t bytes, s3_add *add, void *context, struct s3_page *page)
{
    struct decoding *decoding = calloc(1, sizeof(*decoding));
    int error = -ENOMEM;

    *page = (struct s3_page){.is_read = true};
    if (bytes > INT32_MAX) {
        page->fault = "it is too long";
        error = -EPROTO;
    } else if (decoding && (decoding->parser = XML_ParserCreate("UTF-8"))) {
        decoding->page = page;
        decoding->add = add;
        decoding->context = context;
        error = parse(decoding, xml, bytes);
        XML_ParserFree(decoding->parser);
    }
    free(decoding);
    return error;
}

bool s3_error_get(const char *xml, const char *name, char *text, size_t room)
{
    char tag[64];

    snprintf(tag, sizeof(tag), "<%.60s>", name);
    const char *begin = strstr(xml, tag);
    if (!begin)
        return false;
    begin += strlen(tag);
    const char *end = strchr(begin, '<');
    if (!end || (size_t)(end - begin) >= room)
        return false;
    memcpy(text, begin, (size_t)(end - begin));
    text[end - begin] = '\0';
    return true;
}
