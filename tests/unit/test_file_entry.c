/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include "base/file_entry.h"

#include <errno.h>
#include <stdlib.h>

static const char *path_fault(const char *path)
{
    const char *fault = file_entry_path_fault(path, strlen(path));

    return fault ? fault : "none";
}

static int parse(const char *value, struct file_entry *entry)
{
    return file_entry_parse(value, strlen(value), entry);
}

TAP_TEST(relative_paths_of_any_depth_are_good)
{
    check_str(path_fault("config.json"), "none");
    check_str(path_fault(".gitattributes"), "none");
    check_str(path_fault("..."), "none");
    check_str(path_fault("onnx/model_quantized.onnx_data"), "none");
    check_str(path_fault("a/b/c/d/e/f/g h/\xc3\xa4.bin"), "none");
}

TAP_TEST(other_paths_are_refused_with_a_reason)
{
    check_str(path_fault(""), "is empty");
    check_str(path_fault("/etc/passwd"), "is absolute");
    check_str(path_fault("a//b"), "has an empty component");
    check_str(path_fault("a/"), "has an empty component");
    check_str(path_fault("."), "has the component '.'");
    check_str(path_fault("./a"), "has the component '.'");
    check_str(path_fault("a/../b"), "has the component '..'");
    check_str(path_fault("a/.."), "has the component '..'");
    check_str(path_fault("a\nb"), "has a control character");
    check_str(path_fault("a\x7f"), "has a control character");
    check_str(path_fault("a\xc2\x9b"), "has a control character");
    check_str(path_fault("a\xff"), "is not UTF-8");
    check_str(file_entry_path_fault("a\0b", 3), "has a control character");
}

TAP_TEST(a_path_is_as_long_as_its_key_allows)
{
    char path[300];

    memset(path, 'a', sizeof path);
    check(file_entry_path_fault(path, 244) == NULL);
    check_str(file_entry_path_fault(path, 245),
              "takes more than 244 bytes (/ and % count as three)");
    path[1] = '/';
    path[3] = '%';
    check(file_entry_path_fault(path, 240) == NULL);
    check(file_entry_path_fault(path, 241) != NULL);
    check_int(FILE_ENTRY_PATH_BYTES, 244); /* the message has it */
}

TAP_TEST(a_value_is_formatted_and_parsed)
{
    const struct file_entry entries[] = {
        {0, 0},          {4097, 1700000000123456789}, {INT64_MAX, INT64_MAX},
        {1, -INT64_MAX}, {7, FILE_ENTRY_NO_TIME},
    };
    char value[FILE_ENTRY_VALUE_BYTES];
    struct file_entry again;

    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        size_t bytes = file_entry_format(&entries[i], value);

        check_int((long long)bytes, (long long)strlen(value));
        check_int(parse(value, &again), 0);
        check(again.size_bytes == entries[i].size_bytes && again.mtime_ns == entries[i].mtime_ns);
    }
    file_entry_format(&entries[1], value);
    check_str(value, "{\"bytes\":4097,\"mtime_ns\":1700000000123456789}");
}

TAP_TEST(another_spelling_of_the_same_object_is_parsed)
{
    struct file_entry entry;

    check_int(parse(" { \"mtime_ns\" : -5 ,\t\"bytes\" :\n12 } ", &entry), 0);
    check_int((long long)entry.size_bytes, 12);
    check_int(entry.mtime_ns, -5);
    check_int(parse("{\"bytes\":0}", &entry), 0);
    check(entry.mtime_ns == FILE_ENTRY_NO_TIME);
}

TAP_TEST(other_values_are_refused)
{
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "[]",
        "{\"bytes\":}",
        "{\"bytes\":-1}",
        "{\"bytes\":01}",
        "{\"bytes\":1.0}",
        "{\"bytes\":1",
        "{\"bytes\":1}}",
        "{\"bytes\":1,}",
        "{\"bytes\":1,\"bytes\":1}",
        "{\"mtime_ns\":1}",
        "{\"bytes\":1,\"x\":1}",
        "{\"bytes\":9223372036854775808}",
        "{\"bytes\":99999999999999999999}",
        "{\"bytes\":1,\"mtime_ns\":9223372036854775808}",
        "{\"bytes\":1,\"mtime_ns\":- 1}",
        "{\"dtype\":\"torch.float32\",\"shape\":[1]}",
        "{\"bytes\":1,\"mtime_ns\":1,\"mtime_ns\":1}",
        "x{\"bytes\":1}",
    };
    struct file_entry entry;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!check_int(parse(bad[i], &entry), -EINVAL))
            printf("# %s\n", bad[i]);
    check_int(file_entry_parse("{\"bytes\":1}\0", 12, &entry), -EINVAL);
}

TAP_TEST(a_long_value_is_refused_unread)
{
    char value[FILE_ENTRY_MOST_BYTES + 1];
    struct file_entry entry;

    memset(value, ' ', sizeof value);
    memcpy(value, "{\"bytes\":1}", 11);
    check_int(file_entry_parse(value, FILE_ENTRY_MOST_BYTES, &entry), 0);
    check_int(file_entry_parse(value, FILE_ENTRY_MOST_BYTES + 1, &entry), -EINVAL);
}
