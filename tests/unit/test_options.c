/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of `gmsfs mount`, and sizes as people write them. */
#include "base/size.h"
#include "daemon/options.h"
#include "tap.h"

#include <errno.h>
#include <stdarg.h>

#define MAX_ARGUMENTS 8

static struct daemon_options options;
static char error_text[OPTIONS_ERROR_BYTES];

/* Arguments after the command's name, ended by NULL. */
static int parse(const char *first, ...)
{
    char copies[MAX_ARGUMENTS][512];
    char *argv[MAX_ARGUMENTS + 1] = {NULL};
    int argc = 0;
    va_list rest;

    va_start(rest, first);
    snprintf(copies[0], sizeof copies[0], "mount");
    argv[argc++] = copies[0];
    for (const char *at = first; at && argc < MAX_ARGUMENTS; at = va_arg(rest, const char *)) {
        snprintf(copies[argc], sizeof copies[argc], "%s", at);
        argv[argc] = copies[argc];
        argc++;
    }
    va_end(rest);
    error_text[0] = '\0';
    int error = options_parse(argc, argv, &options, error_text, sizeof error_text);
    options.mountpoint = NULL; /* it pointed to a copy */
    return error;
}

static int parse_list(const char *list)
{
    return parse("-o", list, "/mnt", NULL);
}

static void refused(const char *list, const char *part)
{
    check_int(parse_list(list), -EINVAL);
    if (!check(strstr(error_text, part) != NULL))
        fprintf(stderr, "# %s: %s\n", list, error_text);
}

TAP_TEST(sizes_are_powers_of_1024)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } GOOD[] = {
        {"0", 0},
        {"4096", 4096},
        {"1K", 1024},
        {"256M", 256u << 20},
        {"4G", 4ull << 30},
        {"1T", 1ull << 40},
        {"2P", 2ull << 50},
        {"4GiB", 4ull << 30},
        {"4g", 4ull << 30},
        {"007k", 7168},
        {"9223372036854775807", INT64_MAX},
    };
    uint64_t bytes = 1;

    for (size_t i = 0; i < sizeof GOOD / sizeof GOOD[0]; i++) {
        check_int(size_parse(GOOD[i].text, &bytes), 0);
        check_int(bytes, GOOD[i].bytes);
    }
}

TAP_TEST(invalid_sizes_are_refused_and_change_nothing)
{
    static const char *const BAD[] = {"",  " 1", "-1", "+1",  "1.5G",  "4GB",  "4 G",
                                      "G", "1Q", "1E", "1Gi", "1GiBx", "0x10", "50%"};
    static const char *const LARGE[] = {"9223372036854775808", "18446744073709551616", "8192P",
                                        "99999999999999999999999999999999", "9223372036854775807K"};
    uint64_t bytes = 77;

    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        check_int(size_parse(BAD[i], &bytes), -EINVAL);
    for (size_t i = 0; i < sizeof LARGE / sizeof LARGE[0]; i++)
        check_int(size_parse(LARGE[i], &bytes), -ERANGE);
    check_int(bytes, 77);
}

TAP_TEST(sizes_are_written_with_one_decimal)
{
    char text[SIZE_TEXT_BYTES];

    check_str(size_format(0, text), "0 B");
    check_str(size_format(1023, text), "1023 B");
    check_str(size_format(1024, text), "1.0 KiB");
    check_str(size_format(1536, text), "1.5 KiB");
    check_str(size_format((1u << 20) - 1, text), "1.0 MiB");
    check_str(size_format(4ull << 30, text), "4.0 GiB");
    check_str(size_format(UINT64_MAX, text), "16.0 EiB");
}

static void check_apart(uint64_t one, uint64_t other, const char *one_text, const char *other_text)
{
    char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], c[SIZE_TEXT_BYTES];

    size_format_apart((struct size_text[]){{one, a}, {other, b}, {one, c}}, 3);
    check_str(a, one_text);
    check_str(b, other_text);
    check_str(c, one_text);
}

TAP_TEST(sizes_that_differ_are_written_differently)
{
    check_apart(1280ull << 20, 512ull << 20, "1.2 GiB", "512.0 MiB");
    check_apart(4ull << 30, 4ull << 30, "4.0 GiB", "4.0 GiB");
    check_apart(1280ull << 20, 1200ull << 20, "1.25 GiB", "1.17 GiB");
    check_apart(1201ull << 20, 1200ull << 20, "1.173 GiB", "1.172 GiB");
    check_apart(1ull << 30, (1ull << 30) + 1, "1073741824 B", "1073741825 B");
    check_apart(UINT64_MAX, UINT64_MAX - 1, "18446744073709551615 B", "18446744073709551614 B");
}

TAP_TEST(defaults)
{
    check_int(parse("/mnt", NULL), 0);
    check_str(options.vmm.backend, "cuda");
    check_int(options.vmm.size_bytes, 0);
    check_int(options.vmm.granularity_bytes, 0);
    check_int(options.alloc_timeout_ms, 60000);
    check_int(options.patience_ms, 30000);
    check_int(options.uid, OPTIONS_NO_ID);
    check_int(options.allow_other, OPTIONS_DEFAULT);
    check_int(options.log_level, LOG_LEVEL_INFO);
    check(!options.foreground && !options.debug);
    check(!options.gms && !options.gms_keep);
    check_str(options.gms_dir, "");
    check_int(options.gms_mode, 0600);
    check_int(options.gms_ordinal, 0);
}

TAP_TEST(a_spool_is_bounded_by_the_memory_that_it_takes)
{
    check_int(parse("-o", "backend=host", "/mnt", NULL), 0);
    check_int(options.spool_max_bytes, OPTIONS_SPOOL_MAX_BYTES);
    check_int(parse("host", "/mnt", NULL), 0);
    check_int(options.spool_max_bytes, OPTIONS_SPOOL_MAX_BYTES);
    check_int(parse("/mnt", NULL), 0);
    check_int(options.spool_max_bytes, OPTIONS_SPOOL_MAX_GPU);
    check_int(options.vmm.copier_idle_ms, 10000);
    check_int(parse("-o", "backend=cuda,spool_max=1T", "/mnt", NULL), 0);
    check_int(options.spool_max_bytes, 1ull << 40);
}

TAP_TEST(every_option)
{
    check_int(parse("-f", "-o",
                    "backend=host,size=4G,granularity=64K,hugepages=1G,alloc_timeout=0.25,"
                    "writer_patience=5,spool_max=1G,copier_idle=0.5,no_allow_other,uid=1000,gid=0,"
                    "log=debug,host_size=8G,host_hugepages=2M,keep_copy=no,evict=none,min_stay=2.5,"
                    "spill=/var/spill,spill_size=9G,keep_journal=/var/log,"
                    "uuid=6f1c2d3e-0a1b-4c5d-8e9f-001122334455",
                    "/mnt", NULL),
              0);
    check_int(options.vmm.size_bytes, 4ull << 30);
    check_int(options.vmm.granularity_bytes, 65536);
    check_int(options.vmm.hugepage_bytes, 1u << 30);
    check_int(options.alloc_timeout_ms, 250);
    check_int(options.patience_ms, 5000);
    check_int(options.spool_max_bytes, 1u << 30);
    check_int(options.vmm.copier_idle_ms, 500);
    check_int(options.allow_other, OPTIONS_NO);
    check_int(options.uid, 1000);
    check_int(options.gid, 0);
    check_int(options.log_level, LOG_LEVEL_DEBUG);
    check_int(options.vmm.host_bytes, 8ull << 30);
    check_int(options.vmm.host_hugepage_bytes, 2u << 20);
    check(options.drops_copies);
    check(options.evicts_none);
    check_int(options.min_stay_ms, 2500);
    check_str(options.keep_journal, "/var/log");
    check_str(options.vmm.spill, "/var/spill");
    check_int(options.vmm.spill_bytes, 9ull << 30);
    check_int(options.vmm.uuid[0], 0x6f);
    check_int(options.vmm.uuid[15], 0x55);
    check(options.foreground);
}

#define UUID "uuid=GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334455"

TAP_TEST(options_for_gms_clients)
{
    check_int(parse_list("backend=host," UUID ",gms,gms_dir=/run/gms,gms_ordinal=255,gms_mode=0660,"
                         "gms_keep"),
              0);
    check(options.gms && options.gms_keep);
    check_str(options.gms_dir, "/run/gms");
    check_int(options.gms_ordinal, 255);
    check_int(options.gms_mode, 0660);
    check_int(options.vmm.uuid[0], 0x6f);
    check_int(options.vmm.uuid[15], 0x55);
    check_int(parse_list("gms_mode=0,gms"), 0); /* in any order; a GPU has its own UUID */
    check(options.gms && !options.gms_keep);
    check_int(options.gms_mode, 0);
    check_str(options.gms_dir, "");
}

TAP_TEST(the_ordinal_of_gms_clients_is_the_index_of_the_device_where_none_is_given)
{
    check_int(parse_list("gms,device=3"), 0);
    check_int(options.gms_ordinal, 3);
    check_int(parse_list("device=255,gms"), 0);
    check_int(options.gms_ordinal, 255);
    check_int(parse_list("gms,device=256"), 0); /* there is no such device: the mount says so */
    check_int(options.gms_ordinal, 0);
    check_int(parse_list("gms,device=3,gms_ordinal=0"), 0);
    check_int(options.gms_ordinal, 0);
    check_int(parse_list("gms_ordinal=7,gms,device=3"), 0);
    check_int(options.gms_ordinal, 7);
    check_int(parse_list("gms,device=GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334455"), 0);
    check_int(options.gms_ordinal, 0);
    check_int(parse_list("gms,device=3:00.0"), 0);
    check_int(options.gms_ordinal, 0);
    check_int(parse_list("device=3"), 0);
    check_int(options.gms_ordinal, 0);
}

TAP_TEST(options_for_gms_clients_need_the_option_gms)
{
    refused("gms_dir=/run/gms", "option gms_dir=/run/gms: is for GMS clients: give the option gms");
    refused("gms_ordinal=1", "option gms_ordinal=1: is for GMS clients");
    refused("gms_mode=660", "option gms_mode=660: is for GMS clients");
    refused("gms_keep,gms_mode=660", "option gms_keep: is for GMS clients");
}

TAP_TEST(gms_clients_need_the_uuid_of_a_gpu_on_host_memory_too)
{
    refused("backend=host,gms", "option gms: clients look for a GPU's UUID, and host memory has "
                                "none: give uuid=GPU-");
    check_int(parse("host", "/mnt", "-ogms", NULL), -EINVAL);
    check_int(parse("host", "/mnt", "-ogms," UUID, NULL), 0);
    check_int(parse("-o", "backend=host,gms", "--help", NULL), 0);
}

TAP_TEST(words_that_mount_passes_on_are_accepted)
{
    check_int(parse_list("rw,nosuid,nodev,noatime,user,_netdev,nofail,x-systemd.automount,"
                         "x-a=1,X-b,comment=mine,defaults,,dev,suid,size=1G"),
              0);
    check_int(options.vmm.size_bytes, 1u << 30);
    char note[400];
    memset(note, 'a', sizeof note - 1);
    memcpy(note, "x-note=", 7);
    note[sizeof note - 1] = '\0';
    check_int(parse_list(note), 0);
}

TAP_TEST(device_is_taken_as_it_is_and_bounded)
{
    check_int(parse("-o", "device=GPU-fa5a5a5a", "/mnt", NULL), 0);
    check_str(options.vmm.device, "GPU-fa5a5a5a");
    check_int(parse("/mnt", NULL), 0);
    check_str(options.vmm.device, "");
    check_int(parse("-o", "device=0123456789012345678901234567890123456789012345678901234567890123",
                    "/mnt", NULL),
              -EINVAL);
    check(strstr(error_text, "expected an index, a GPU-UUID or a PCI id") != NULL);
}

TAP_TEST(mount_helper_form)
{
    check_int(parse("host", "/mnt", "-o", "rw", NULL), 0);
    check_str(options.vmm.backend, "host");
    check_int(parse("cuda", "/mnt", NULL), 0);
    check_str(options.vmm.backend, "cuda");
    check_int(parse("cuda", "/mnt", "-o", "backend=host", NULL), 0);
    check_str(options.vmm.backend, "host");
    check_int(parse("gpu-memory", "/mnt", NULL), 0);
    check_str(options.vmm.backend, "cuda");
}

TAP_TEST(lists_add_up_and_the_last_word_counts)
{
    check_int(parse("-osize=1G", "-o", "size=2G,uid=5", "--", "-odd", NULL), 0);
    check_int(options.vmm.size_bytes, 2ull << 30);
    check_int(options.uid, 5);
}

TAP_TEST(help_and_version_need_no_mount_point)
{
    check_int(parse("--help", NULL), 0);
    check(options.help);
    check_int(parse("-V", NULL), 0);
    check(options.version);
}

TAP_TEST(refusals_name_option_value_and_range)
{
    refused("size=12Q", "option size=12Q: expected a size such as");
    refused("size=0", "from 4.0 KiB to 1.0 PiB");
    refused("size=4P", "from 4.0 KiB to 1.0 PiB");
    refused("size=", "a value is missing");
    refused("size", "option size: ");
    refused("granularity=3M", "power of two");
    refused("granularity=2G", "from 4.0 KiB to 1.0 GiB");
    refused("hugepages=4M", "expected 2M or 1G");
    refused("host_size=1K", "from 4.0 KiB to 1.0 PiB");
    refused("host_size=1G,host_hugepages=4M", "expected 2M or 1G");
    refused("host_size=1G,keep_copy=maybe", "expected yes or no");
    refused("keep_copy=yes", "give host_size=SIZE, too");
    refused("evict=lru", "give host_size=SIZE, too");
    refused("min_stay=1", "give host_size=SIZE, too");
    refused("host_size=1G,evict=fifo", "expected none or lru");
    refused("host_size=1G,min_stay=soon", "expected seconds");
    refused("host_hugepages=2M", "give host_size=SIZE, too");
    refused("spill=/var/spill", "spill=DIRECTORY and spill_size=SIZE");
    refused("spill_size=1G", "spill=DIRECTORY and spill_size=SIZE");
    refused("spill=spill,spill_size=1G", "expected an absolute path");
    refused("spill=/var/spill,spill_size=1", "from 4.0 KiB to 1.0 PiB");
    refused("spilled=1", "there is no such option");
    refused("host_color=blue", "there is no such option");
    refused("alloc_timeout=-1", "expected seconds from 0 to");
    refused("alloc_timeout=1.2345", "expected seconds from 0 to 2592000, with at most three");
    refused("writer_patience=99999999999999999999", "expected seconds");
    refused("uid=root", "expected a number");
    refused("uid=4294967295", "expected a number");
    refused("gid=99999999999999999999", "expected a number");
    refused("uuid=1234", "32 hex digits");
    refused("uuid=00000000-0000-0000-0000-000000000000", "not all zero");
    refused("uuid=6f1c2d3e--0a1b4c5d8e9f001122334455", "32 hex digits");
    refused("uuid=-6f1c2d3e0a1b4c5d8e9f001122334455", "32 hex digits");
    refused("uuid=GPU-1234", "32 hex digits");
    refused("uuid=GPU-GPU-6f1c2d3e0a1b4c5d8e9f001122334455", "32 hex digits");
    refused("uuid=GPU--6f1c2d3e0a1b4c5d8e9f001122334455", "32 hex digits");
    refused("gms=1", "option gms=1: there is no such option");
    refused("gms,gms_keep=1", "option gms_keep=1: there is no such option");
    refused("gms,gms_dirs=/tmp", "option gms_dirs=/tmp: there is no such option");
    refused("gms,gms_dir=run", "option gms_dir=run: expected an absolute path");
    refused("gms,gms_dir", "option gms_dir: expected an absolute path");
    refused("gms,gms_ordinal=256", "option gms_ordinal=256: expected a number from 0 to 255");
    refused("gms,gms_ordinal=-1", "expected a number from 0 to 255");
    refused("gms,gms_mode=888", "option gms_mode=888: expected an octal mode from 0 to 777");
    refused("gms,gms_mode=1777", "expected an octal mode");
    refused("gms,gms_mode=u+rw", "expected an octal mode");
    refused("gms,gms_mode", "expected an octal mode");
    refused("log_level=loud", "expected error, warning, info or debug");
    refused("backend=tpu", "expected cuda or host");
    refused("ro", "chmod");
    refused("remount", "unmount first");
    refused("allow_other=1", "no such option");
    refused("sizes=4G", "no such option");
    refused("rw=1", "no such option");
    refused("audit", "expected an absolute path");
    refused("audit=gmsfs.audit", "expected an absolute path");
    refused("trace=gmsfs.trace", "expected an absolute path");
    refused("keep_journal=log", "expected an absolute path");
}

TAP_TEST(long_words_and_wrong_flags_are_refused)
{
    char list[480];

    memset(list, 'y', sizeof list - 1);
    list[sizeof list - 1] = '\0';
    refused(list, "is too long");
    memcpy(list, "size=", 5);
    refused(list, "is too long");
    check_int(parse("-x", "/mnt", NULL), -EINVAL);
    check_int(parse("/mnt", "-o", NULL), -EINVAL);
    check_int(parse("a", "b", "c", NULL), -EINVAL);
    check_int(parse("", NULL), -EINVAL);
    check_int(parse(NULL), -EINVAL);
    check(strstr(error_text, "mount point is missing") != NULL);
}

TAP_TEST(an_error_is_one_line_for_any_arguments)
{
    refused("size=1\n\033[2J", "option size=1??[2J: expected");
    check_int(parse("-o", "a\nb", "/mnt", NULL), -EINVAL);
    check(strstr(error_text, "option a?b: ") == error_text);
    check_int(parse("--a\rb\177", "/mnt", NULL), -EINVAL);
    check(strstr(error_text, "--a?b?") != NULL);
    check_int(parse("/mnt", "/a", "/b\n", NULL), -EINVAL);
    check(strchr(error_text, '\n') == NULL);
}
