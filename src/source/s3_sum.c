/* SPDX-License-Identifier: Apache-2.0 */
#include "source/s3_sum.h"

#include "base/hex.h"

#include <string.h>

#include <nettle/base64.h>

#define TEXT_BYTES 48u /* of the longest sum as base64, with its end */

_Static_assert(SOURCE_SUM_BYTES >= BASE64_DECODE_LENGTH(TEXT_BYTES), "room for any value");

bool s3_sum_of_etag(const struct http_reply *reply, struct source_sum *sum)
{
    char etag[40], encryption[32];

    *sum = (struct source_sum){.kind = SOURCE_SUM_NONE};
    http_reply_get(reply, "x-amz-server-side-encryption", encryption, sizeof(encryption));
    if (http_reply_get(reply, "x-amz-server-side-encryption-customer-algorithm", etag,
                       sizeof(etag)) ||
        (encryption[0] && strcmp(encryption, "AES256") != 0))
        return false;
    if (!http_reply_get(reply, "ETag", etag, sizeof(etag)) || strlen(etag) != 34 ||
        etag[0] != '"' || etag[33] != '"' || hex_parse(etag + 1, sum->bytes, 16) != 0)
        return false;
    sum->kind = SOURCE_SUM_MD5;
    return true;
}

static bool decode(const char *text, size_t bytes, uint8_t sum[SOURCE_SUM_BYTES])
{
    struct base64_decode_ctx context;
    size_t decoded = SOURCE_SUM_BYTES;

    base64_decode_init(&context);
    return base64_decode_update(&context, &decoded, sum, strlen(text), text) &&
           base64_decode_final(&context) && decoded == bytes;
}

bool s3_sum_of_headers(const struct http_reply *reply, struct source_sum *sum)
{
    static const struct {
        const char *name;
        enum source_sum_kind kind;
        size_t bytes;
    } headers[] = {
        {"x-amz-checksum-sha256", SOURCE_SUM_SHA256, 32},
        {"x-amz-checksum-sha1", SOURCE_SUM_SHA1, 20},
        {"x-amz-checksum-crc64nvme", SOURCE_SUM_CRC64NVME, 8},
        {"x-amz-checksum-crc32c", SOURCE_SUM_CRC32C, 4},
        {"x-amz-checksum-crc32", SOURCE_SUM_CRC32, 4},
    };
    char text[TEXT_BYTES];

    *sum = (struct source_sum){.kind = SOURCE_SUM_NONE};
    if (http_reply_get(reply, "x-amz-checksum-type", text, sizeof(text)) &&
        strcmp(text, "FULL_OBJECT") != 0)
        return false;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        if (!http_reply_get(reply, headers[i].name, text, sizeof(text)) ||
            !decode(text, headers[i].bytes, sum->bytes))
            continue;
        sum->kind = headers[i].kind;
        return true;
    }
    return false;
}
