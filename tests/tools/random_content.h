/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_content - the contents that clients of random_ops put into a store
 *
 * Content is made from a random number, its cid: allocations c0, c1, ..., their bytes, entries e0,
 * e1, ... bound to them, and an entry "cid" with the number. Included by random_ops.c alone, of
 * which it is a part: it defines the mount, store, log and random numbers.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_CONTENT_H
#define GMSFS_TESTS_TOOLS_RANDOM_CONTENT_H

#include "gmsfs.h"
#include "random_shared.h"

#include <inttypes.h>
#include <sys/ioctl.h>

#define MAX_ALLOCATIONS 4
#define MAX_BYTES       200000u
#define CID_BYTES       17 /* 16 hex digits and NUL */

struct content {
    uint64_t cid;
    int count;
    uint64_t size_bytes[MAX_ALLOCATIONS];
};

/* Mark in a cid: its layout is there, and its bytes were given up. Contents have even cids. */
#define GIVEN_UP UINT64_C(1)

/* The objects of the current operation. */
static const char *mount_dir;
static bool has_places; /* host memory and a disk besides the device */
static bool is_tight;   /* the device has less than its stores may need, so others have to leave */
static struct tool_path store;
static int log_fd;

static uint64_t random_state;

static uint64_t below(uint64_t bound)
{
    return tool_below(&random_state, bound);
}

static bool chance(unsigned percent)
{
    return below(100) < percent;
}

static void check(int result, const char *what)
{
    if (result < 0)
        tool_die("%s: %s", what, strerror(-result));
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    char line[256];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (write(log_fd, line, (size_t)n) != n)
        tool_die("the log cannot be written: %s", strerror(errno));
}

static struct tool_path in_store(const char *name)
{
    return tool_path("%s/%s", store.text, name);
}

static int open_in(const char *name, int flags)
{
    int fd = open(in_store(name).text, flags | O_CLOEXEC, 0644);

    return fd < 0 ? -errno : fd;
}

static struct content make_content(uint64_t cid)
{
    struct content content = {.cid = cid & ~GIVEN_UP};
    uint64_t state = cid | 1;

    content.count = 1 + (int)tool_below(&state, MAX_ALLOCATIONS);
    for (int i = 0; i < content.count; i++)
        content.size_bytes[i] = 1 + tool_below(&state, MAX_BYTES);
    return content;
}

static void make_bytes(const struct content *content, int index, uint8_t *bytes)
{
    uint64_t state = (content->cid ^ ((uint64_t)index << 56)) | 1;

    for (uint64_t i = 0; i < content->size_bytes[index]; i++) {
        if (i % 4096 == 0)
            tool_random(&state);
        bytes[i] = (uint8_t)(state >> (i % 8 * 8));
    }
}

static void compare_bytes(const struct content *content, int index, const uint8_t *bytes)
{
    static uint8_t want[MAX_BYTES];

    uint64_t at = 0, end = content->size_bytes[index], differing = 0;

    make_bytes(content, index, want);
    while (at < end && bytes[at] == want[at])
        at++;
    if (at == end)
        return;
    for (uint64_t i = at; i < end; i++)
        differing += bytes[i] != want[i];
    lost("bytes of c%d are not those of content %016" PRIx64 ": from %" PRIu64 " of %" PRIu64
         ", %" PRIu64 " differ, the first is %#x instead of %#x",
         index, content->cid, at, end, differing, bytes[at], want[at]);
}

static uint64_t generation_of(int fd, const char *what)
{
    struct gmsfs_ioc_info info = {0};

    if (ioctl(fd, GMSFS_IOC_INFO, &info) != 0)
        tool_die("INFO on %s: %s", what, strerror(errno));
    return info.generation;
}

/* Returns the text of `residency` without the move; "" if nothing is committed. */
static struct tool_path place_now(void)
{
    struct tool_path place = tool_path("%s", "");
    ssize_t n = tool_read_text(in_store("residency").text, place.text, sizeof(place.text));

    check((int)n, "residency");
    place.text[strcspn(place.text, "\n")] = '\0';
    return place;
}

/* For a writer, whose session keeps the place as it is. */
static uint64_t mark_given_up(uint64_t cid)
{
    return cid && has_places && strcmp(place_now().text, "none") == 0 ? cid | GIVEN_UP : cid;
}

static bool can_touch(uint64_t cid)
{
    return cid && (!has_places || strncmp(place_now().text, "device", 6) == 0);
}

/* A spare that is overwritten in place: an abort then goes back to it. */
static bool has_spare(void)
{
    return has_places && strchr(place_now().text, ' ');
}

/* Returns the cid of the content in the tree; 0 if there is none. */
static uint64_t see_in_tree(void)
{
    char text[CID_BYTES + 1];
    ssize_t n = tool_read_text(in_store("metadata/cid").text, text, sizeof(text));

    if (n == -ENOENT)
        return 0;
    if (n != CID_BYTES - 1)
        tool_die("metadata/cid: %s", n < 0 ? strerror((int)-n) : text);
    return strtoull(text, NULL, 16);
}

static uint64_t see_by_library(gmsfs_t *handle)
{
    void *value;
    uint64_t cid;
    int result = gmsfs_metadata_get(handle, "cid", NULL, NULL, &value, NULL);

    if (result == -ENOENT)
        return 0;
    check(result, "gmsfs_metadata_get");
    cid = strtoull(value, NULL, 16);
    free(value);
    return cid;
}

/* Includes the refusal of a drained mount, which refuses all. */
static bool is_writers_refusal(int result)
{
    return result == -EAGAIN || result == -ETIMEDOUT || result == -ENODEV || result == -ECANCELED;
}

/* For a reader: the bytes may have been given up. */
static bool is_refusal(int result)
{
    return is_writers_refusal(result) || (has_places && result == -ENODATA);
}

/* A client that may also write finds nothing to read, and writes. */
static bool is_refused(enum gmsfs_mode mode, int result)
{
    return mode == GMSFS_MODE_RO ? is_refusal(result) : is_writers_refusal(result);
}

/* outside: not in the lock's session, so the opens succeed or fail by themselves. */
static void compare_in_tree(uint64_t cid, bool outside)
{
    static uint8_t bytes[MAX_BYTES + 1];
    struct content content = make_content(cid);

    for (int i = 0; i < content.count; i++) {
        struct tool_path name = tool_path("allocations/c%d", i);
        uint64_t done = 0;
        ssize_t n = 0;
        int fd = open_in(name.text, O_RDONLY);

        if (outside && is_refusal(fd))
            return;
        check(fd, name.text);
        while ((n = pread(fd, bytes + done, sizeof(bytes) - done, (off_t)done)) > 0)
            done += (uint64_t)n;
        if (n < 0 || done != content.size_bytes[i])
            lost("%s: %s", name.text, n < 0 ? strerror(errno) : "wrong size");
        compare_bytes(&content, i, bytes);
        close(fd);
    }
}

static void compare_by_library(gmsfs_t *handle, uint64_t cid)
{
    struct content content = make_content(cid);
    struct gmsfs_mapping *list;
    size_t count;

    check(gmsfs_attach_all(handle, GMSFS_ACCESS_READ, &list, &count), "gmsfs_attach_all");
    if (count != (size_t)content.count)
        lost("%zu allocations, expected %d", count, content.count);
    for (int i = 0; i < content.count; i++)
        compare_bytes(&content, i, list[i].ptr);
    free(list);
}

#endif
