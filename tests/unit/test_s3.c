/* SPDX-License-Identifier: Apache-2.0 */
/* Tests S3's signatures against the examples of its API reference, its lists and sums, and AWS'
 * files. */
#include "source/s3_config.h"
#include "source/s3_list.h"
#include "source/s3_sign.h"
#include "source/s3_sum.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static char id[] = "AKIAIOSFODNN7EXAMPLE",
            secret_key[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
static const struct s3_keys keys = {.id = id, .secret = secret_key};
static const time_t day = 1369353600; /* 2013-05-24T00:00:00Z */
static char lines[4096];

static void check_signed(const char *url, const char *more, const char *headers,
                         const char *signature)
{
    char tail[512];

    check_int(s3_sign(&keys, "us-east-1", "GET", url, day, more, lines, sizeof(lines)), 0);
    snprintf(tail, sizeof(tail),
             "x-amz-date: 20130524T000000Z\nAuthorization: AWS4-HMAC-SHA256 "
             "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
             "SignedHeaders=%s,Signature=%s\n",
             headers, signature);
    check_str(strstr(lines, "x-amz-date"), tail);
}

TAP_TEST(signatures_are_those_of_the_api_reference)
{
    check_signed("https://examplebucket.s3.amazonaws.com/test.txt", "range:bytes=0-9\n",
                 "host;range;x-amz-content-sha256;x-amz-date",
                 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    check_signed("https://examplebucket.s3.amazonaws.com/?lifecycle", "",
                 "host;x-amz-content-sha256;x-amz-date",
                 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check_signed("https://examplebucket.s3.amazonaws.com:443/?prefix=J&max-keys=2", "",
                 "host;x-amz-content-sha256;x-amz-date",
                 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TAP_TEST(what_cannot_be_signed_is_refused)
{
    char secret[1024];
    struct s3_keys long_keys = keys;

    memset(secret, 'x', sizeof(secret) - 1);
    secret[sizeof(secret) - 1] = '\0';
    long_keys.secret = secret;
    check_int(s3_sign(&long_keys, "r", "GET", "https://h/", day, "", lines, sizeof(lines)),
              -EINVAL);
    check_int(s3_sign(&keys, "r", "GET", "h/", day, "", lines, sizeof(lines)), -EINVAL);
    check_int(s3_sign(&keys, "r", "GET", "https://h/", day, "", lines, 100), -E2BIG);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static struct s3_page page;
static char found[512];

static int add(void *context, const char *key, uint64_t size_bytes, bool is_folder)
{
    const size_t at = strlen(found);

    (void)context;
    snprintf(found + at, sizeof(found) - at, "%s%s=%d;", key, is_folder ? " folder" : "",
             (int)size_bytes);
    return strcmp(key, "stop") == 0 ? -E2BIG : 0;
}

static int decode(const char *xml)
{
    found[0] = '\0';
    return s3_list_decode(xml, strlen(xml), add, NULL, &page);
}

#define LIST(inside) "<ListBucketResult>" inside "</ListBucketResult>"

TAP_TEST(keys_are_decoded)
{
    check_int(
        decode(
            "<?xml version='1.0'?><ListBucketResult xmlns='x'><IsTruncated>true</IsTruncated>"
            "<NextContinuationToken>a/+&amp;</NextContinuationToken>"
            "<Contents><Key>a+b%2Bc%C3%A9</Key><Size>7</Size><Owner><ID>x</ID></Owner></Contents>"
            "<CommonPrefixes><Prefix>x/</Prefix></CommonPrefixes></ListBucketResult>"),
        0);
    check_str(found, "a b+c\xc3\xa9=7;x/ folder=0;");
    check(page.is_truncated);
    check_str(page.token, "a/+&");
    check_int(decode(LIST("")), 0);
    check(!page.is_truncated);
}

TAP_TEST(lists_that_are_none)
{
    static const char *const texts[] = {
        "",
        "<a/>",
        "<Error><Code>x</Code></Error>",
        "<!DOCTYPE a [<!ENTITY e 'x'>]>" LIST(""),
        LIST("<Contents><Key>a</Key></Contents>"),
        LIST("<Contents><Size>1</Size></Contents>"),
        LIST("<Contents><Key>a%0</Key><Size>1</Size></Contents>"),
        LIST("<Contents><Key>a%00b</Key><Size>1</Size></Contents>"),
        LIST("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
        LIST("<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"),
        LIST("<IsTruncated>true</IsTruncated>"),
        LIST("<a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a>"),
        "<ListBucketResult><Contents>",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        check_int(decode(texts[i]), -EPROTO);
        check(page.fault != NULL);
    }
    check_int(decode(LIST("<Contents><Key>stop</Key><Size>1</Size></Contents>")), -E2BIG);
}

TAP_TEST(words_of_an_error)
{
    char text[8];

    check(s3_error_get("<Error><Code>Gone</Code>", "Code", text, sizeof(text)));
    check_str(text, "Gone");
    check(!s3_error_get("<Error><Code>Gone", "Code", text, sizeof(text)));
    check(!s3_error_get("<Error><Code>LongerText</Code>", "Code", text, sizeof(text)));
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Of "123456789", as base64 of the catalogue's values and of sha1sum(1) and sha256sum(1). */
#define CRC32     "x-amz-checksum-crc32: y/Q5Jg==\n"
#define CRC32C    "x-amz-checksum-crc32c: 4waSgw==\n"
#define CRC64NVME "x-amz-checksum-crc64nvme: rosUhgp5mIg=\n"
#define SHA1      "X-Amz-Checksum-SHA1: 98O8HYCOBHMq32eZZczDTKeuNEE=\n"
#define SHA256    "x-amz-checksum-sha256: FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=\n"

/* Returns the kind that is found, and checks the first byte of its sum. */
static enum source_sum_kind kind_of(const char *headers, uint8_t first)
{
    struct http_reply reply = {0};
    struct source_sum sum;
    bool is_found;

    for (const char *at = headers; *at; at = strchr(at, '\n') + 1)
        require(http_reply_add(&reply, at, strcspn(at, "\n")) == 0);
    is_found = s3_sum_of_headers(&reply, &sum);
    http_reply_free(&reply);
    if (is_found)
        check_int(sum.bytes[0], first);
    return is_found ? sum.kind : SOURCE_SUM_NONE;
}

TAP_TEST(sums_of_a_whole_object_are_found_the_strongest_first)
{
    check_int(kind_of(CRC32, 0xcb), SOURCE_SUM_CRC32);
    check_int(kind_of(CRC32 CRC32C, 0xe3), SOURCE_SUM_CRC32C);
    check_int(kind_of(CRC32 CRC64NVME "x-amz-checksum-type: FULL_OBJECT\n", 0xae),
              SOURCE_SUM_CRC64NVME);
    check_int(kind_of(CRC64NVME SHA1, 0xf7), SOURCE_SUM_SHA1);
    check_int(kind_of(SHA1 SHA256 CRC32, 0x15), SOURCE_SUM_SHA256);
}

TAP_TEST(sums_of_parts_and_sums_that_are_none)
{
    static const char *const headers[] = {
        "",
        "ETag: \"x\"\n",
        CRC32 "x-amz-checksum-type: COMPOSITE\n",
        CRC32 "x-amz-checksum-type: SOMETHING\n",
        "x-amz-checksum-crc32: y/Q5Jg==-3\n",
        "x-amz-checksum-crc32: y/Q5Jg\n",
        "x-amz-checksum-crc32: y/Q5JgAA\n",
        "x-amz-checksum-crc32: \n",
        "x-amz-checksum-crc32: y/Q5Jg==y/Q5Jg==\n",
        "x-amz-checksum-sha256: y/Q5Jg==\n",
        "x-amz-checksum-sha256: FeKwrA9KI2i+94LQ5MDd/LP69HVMfUOjK9fWWI8tTyUFeKwrA9KI2i+94LQ5MDd\n",
        "x-amz-checksum-crc16: y/Q5Jg==\n",
    };

    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++)
        check_int(kind_of(headers[i], 0), SOURCE_SUM_NONE);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void check_found(const char *text, const char *section, const char *expected)
{
    char *value = s3_config_find(text, section, "region", NULL);

    check_str(value ? value : "none", expected);
    free(value);
}

TAP_TEST(values_of_a_section)
{
    check_found("[a]\nregion=x\n[b]\r\n region=no\r\nregion = y z \r\n", "b", "y z");
    check_found("[ a ]\nregion=", "a", "");
    check_found("region=x\n[a]\n", "a", "none");
    check_found("[a]\nregions=x\n# region=x\n[b]\nregion=y", "a", "none");
    check_found("[a\nregion=x", "a", "none");
}

static void check_url(const char *endpoint, const char *bucket, const char *key,
                      const char *expected)
{
    char region[] = "r-1";
    struct s3_config config = {.region = region, .endpoint = (char *)endpoint};
    char *url = s3_config_url(&config, bucket, key);

    check_str(url, expected);
    free(url);
}

TAP_TEST(addresses_of_buckets_and_keys)
{
    check_url(NULL, "b", "a b/~+", "https://b.s3.r-1.amazonaws.com/a%20b/~%2B");
    check_url(NULL, "b.c", "k", "https://s3.r-1.amazonaws.com/b.c/k");
    check_url(NULL, "b", NULL, "https://b.s3.r-1.amazonaws.com/");
    check_url("http://h:1", "b", "k", "http://h:1/b/k");
    check_url("http://h:1", "b", NULL, "http://h:1/b");
}
