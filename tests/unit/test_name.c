/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include "base/clean.h"
#include "meta/name.h"

#include <errno.h>
#include <stdlib.h>

static char name[NAME_MAX_BYTES + 1];
static char key[NAME_MAX_BYTES + 1];

static int encode(const char *text)
{
    return name_encode_key(text, strlen(text), name);
}

TAP_TEST(a_plain_key_is_its_own_file_name)
{
    check_int(encode("model.layers.0.weight"), 21);
    check_str(name, "model.layers.0.weight");
}

TAP_TEST(percent_slash_nul_and_leading_dot_are_escaped)
{
    check_int(name_encode_key("a%b/c\0d", 7, name), 13);
    check_str(name, "a%25b%2Fc%00d");
    check_int(encode(".hidden"), 9);
    check_str(name, "%2Ehidden");
    check_int(encode(".."), 4);
    check_str(name, "%2E.");
}

TAP_TEST(other_bytes_are_left_alone)
{
    check_int(encode("a b\\c\n\x7f*?~"), 10);
    check_str(name, "a b\\c\n\x7f*?~");
    check_int(encode("gewicht\xc3\xa4"), 9);
    check_str(name, "gewicht\xc3\xa4");
}

TAP_TEST(an_empty_key_is_refused)
{
    check_int(name_encode_key("", 0, name), -EINVAL);
    check_int(name_encode_key(NULL, 0, name), -EINVAL);
}

TAP_TEST(a_key_whose_name_has_255_bytes_fits_and_one_more_is_too_long)
{
    char text[300];

    memset(text, 'k', sizeof text);
    check_int(name_encode_key(text, 255, name), 255);
    check_int(strlen(name), 255);
    check_int(name_encode_key(text, 256, name), -ENAMETOOLONG);
    memset(text, '/', sizeof text);
    check_int(name_encode_key(text, 85, name), 255);
    check_int(name_encode_key(text, 86, name), -ENAMETOOLONG);
    text[0] = 'x';
    check_int(name_encode_key(text, 86, name), -ENAMETOOLONG);
}

TAP_TEST(a_key_that_is_not_utf8_is_refused)
{
    check_int(encode("a\xff"), -EINVAL);
    check_int(encode("\xc3"), -EINVAL);
}

TAP_TEST(utf8_ends_of_each_range_are_accepted)
{
    static const char *const good[] = {
        "",
        "\x7f",
        "\xc2\x80",
        "\xdf\xbf",
        "\xe0\xa0\x80",
        "\xed\x9f\xbf",
        "\xee\x80\x80",
        "\xef\xbf\xbf",
        "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf",
    };

    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        check(clean_is_utf8(good[i], strlen(good[i])));
    check(clean_is_utf8("\0", 1));
}

TAP_TEST(utf8_overlong_surrogates_and_beyond_unicode_are_refused)
{
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",     "\xed\xa0\x80",
        "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xfe",
        "\xe2\x28\xa1", "\xe2\x82\x28",     "\xf0\x90\x28\x80",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (!check(!clean_is_utf8(bad[i], strlen(bad[i]))))
            fprintf(stderr, "#   case %zu\n", i);
    }
}

TAP_TEST(utf8_cut_short_is_refused_without_reading_on)
{
    static const char text[] = "\xf0\x9f\x92\xbe";

    for (size_t bytes = 1; bytes < 4; bytes++) {
        char *exact = malloc(bytes); /* so that the sanitizer sees a read beyond it */
        require(exact != NULL);
        memcpy(exact, text, bytes);
        check(!clean_is_utf8(exact, bytes));
        free(exact);
    }
    check(clean_is_utf8(text, 4));
}

TAP_TEST(decoding_gives_the_key_back)
{
    check_int(name_decode_key("%2Ea%25b%2Fc%00d.%2F", key), 10);
    check_bytes(key, 11, ".a%b/c\0d./", 11);
}

TAP_TEST(spellings_that_encode_does_not_write_are_refused)
{
    static const char *const bad[] = {
        "",    ".",   "..",  ".a",  "a/b", "%",  "a%", "a%2",   "%2f",    "%2e",  "a%2E",  "%41",
        "%20", "%2G", "%zz", "%-1", "%%",  "%2", "%0", "a%25%", "%00%2e", "\xff", "a\xc3", "%C3%A4",
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (!check_int(name_decode_key(bad[i], key), -EINVAL))
            fprintf(stderr, "#   \"%s\"\n", bad[i]);
    }
}

TAP_TEST(a_name_of_more_than_255_bytes_is_too_long)
{
    char text[300];

    memset(text, 'n', sizeof text);
    text[255] = '\0';
    check_int(name_decode_key(text, key), 255);
    text[255] = 'n';
    text[256] = '\0';
    check_int(name_decode_key(text, key), -ENAMETOOLONG);
}

TAP_TEST(a_name_that_decodes_encodes_to_itself)
{
    static const char letters[] = "%%%022255EFefa./.\x01";
    char text[12];

    srand(7);
    for (int round = 0; round < 200000; round++) {
        size_t bytes = 1 + (size_t)rand() % (sizeof text - 1);
        int key_bytes;

        for (size_t i = 0; i < bytes; i++)
            text[i] = letters[(size_t)rand() % (sizeof letters - 1)];
        text[bytes - 1] = '\0';
        key_bytes = name_decode_key(text, key);
        if (key_bytes < 0)
            continue;
        require(name_encode_key(key, (size_t)key_bytes, name) == (int)bytes - 1);
        require(strcmp(name, text) == 0);
    }
}

/* Tests each byte at each place of keys shorter than, as long as, and longer than a block. */
TAP_TEST(a_key_is_checked_as_it_is_encoded)
{
    static const size_t sizes[] = {1, 15, 16, 17, 32, 33, 50, 253, 254, 255};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t at = 0; at < sizes[i]; at++) {
            for (int byte = 0; byte < 256; byte++) {
                memset(key, 'k', sizes[i]);
                key[at] = (char)byte;
                int length = name_encode_key(key, sizes[i], name);
                require(name_check_key(key, sizes[i]) == (length < 0 ? length : 0));
            }
        }
    }
    check_int(name_check_key(key, 0), -EINVAL);
    check_int(name_check_key(key, NAME_MAX_BYTES + 1), -ENAMETOOLONG);
}

TAP_TEST(every_key_of_two_bytes_survives_both_ways)
{
    for (int first = 0; first < 256; first++) {
        for (int second = 0; second < 256; second++) {
            char both[2] = {(char)first, (char)second};
            if (name_encode_key(both, 2, name) < 0)
                continue;
            require(name_decode_key(name, key) == 2);
            require(memcmp(key, both, 2) == 0);
        }
    }
}

TAP_TEST(utf8_is_judged_at_every_place_of_a_text)
{
    char text[40];

    for (size_t bytes = 0; bytes < sizeof text; bytes++) {
        memset(text, 'a', sizeof text);
        check(clean_is_utf8(text, bytes));
        for (size_t at = 0; at < bytes; at++) {
            text[at] = (char)0x80;
            check(!clean_is_utf8(text, bytes));
            text[at] = (char)0xc3;
            check(!clean_is_utf8(text, bytes));
            if (at + 1 < bytes) {
                text[at + 1] = (char)0xa4;
                check(clean_is_utf8(text, bytes));
                text[at + 1] = 'a';
            }
            text[at] = 'a';
        }
    }
}

TAP_TEST(temporary_names_of_copying_tools_are_no_keys_but_are_known)
{
    char longest[NAME_MAX_BYTES + 2];

    check(name_is_temporary(".a.XyZ019"));
    check(name_is_temporary(".model-00001-of-00002.safetensors.AbCdEf"));
    check(name_is_temporary(".lora%2Fa.AbCdEf"));
    check_int(name_decode_key(".a.XyZ019", key), -EINVAL);
    check(!name_is_temporary("a.XyZ019"));
    check(!name_is_temporary("..XyZ019"));   /* without a name */
    check(!name_is_temporary(".a.XyZ01"));   /* five */
    check(!name_is_temporary(".a.XyZ0190")); /* seven */
    check(!name_is_temporary(".a.XyZ0_9"));
    check(!name_is_temporary(".aXyZ0199"));
    check(!name_is_temporary(".%41.XyZ019")); /* not an encoded name */
    check(!name_is_temporary(""));
    memset(longest, 'a', sizeof longest);
    memcpy(longest, ".", 1);
    memcpy(longest + NAME_MAX_BYTES - 7, ".XyZ019", 8);
    check(name_is_temporary(longest));
    longest[NAME_MAX_BYTES] = '0';
    longest[NAME_MAX_BYTES + 1] = '\0';
    check(!name_is_temporary(longest));
}
