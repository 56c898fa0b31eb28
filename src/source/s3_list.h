/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3_list - decodes a page of S3's list of objects (ListObjectsV2, XML), and S3's errors
 *
 * For source_s3.c. Pure. The page is untrusted: a document type, deep nesting and long texts are
 * refused; how many objects there may be is the caller's bound. Keys are decoded from
 * encoding-type=url, which every request asks for, so that each key is valid XML.
 */
#ifndef GMSFS_SOURCE_S3_LIST_H
#define GMSFS_SOURCE_S3_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_MOST_KEY_BYTES   1024u
#define S3_MOST_TOKEN_BYTES 4096u

struct s3_page {
    bool is_read;
    bool is_truncated;                   /* there is another page */
    char token[S3_MOST_TOKEN_BYTES + 1]; /* to ask for it */
    const char *fault;                   /* what is wrong with this page */
};

/* Takes an object, or the prefix of several (is_folder; its key ends with '/'). An error ends the
 * decoding, which returns it. */
typedef int s3_add(void *context, const char *key, uint64_t size_bytes, bool is_folder);

/* 0; -EPROTO, with page->fault; -ENOMEM; or the error of add(). */
int s3_list_decode(const char *xml, size_t bytes, s3_add *add, void *context, struct s3_page *page);

/* Copies the text of the first <NAME> of an error's XML, without decoding it. False: there is none,
 * or it does not fit. */
bool s3_error_get(const char *xml, const char *name, char *text, size_t room);

#endif
