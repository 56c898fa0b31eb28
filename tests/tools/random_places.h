/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_places - operations of a client of random_ops on a mount with places besides its device
 *
 * Moves by `residency`, readers that sleep while the store leaves, readers of any place, writers
 * that replace, bytes given up, pins and pools. A reader that wakes compares the bytes with the
 * content of the generation that was committed. Included by random_ops.c alone, of which it is a
 * part; without places its clients look instead.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_PLACES_H
#define GMSFS_TESTS_TOOLS_RANDOM_PLACES_H

#include "random_clients.h"

/* ---- moves --------------------------------------------------------------------------------- */

static int order_place(const char *word)
{
    int fd = open_in("residency", O_WRONLY), error = 0;

    check(fd, "residency");
    if (write(fd, word, strlen(word)) < 0)
        error = -errno;
    close(fd);
    return error;
}

/* EBUSY: held, or moving. ENODATA: nothing to move, or to cancel. ENOMEM: no room there. EAGAIN,
 * EDQUOT: no room on the device. EINVAL: a spare at the place itself. */
static int order_and_check(const char *word)
{
    static const int allowed[] = {0, -EBUSY, -ENODATA, -ENOMEM, -EAGAIN, -EDQUOT};
    int result = order_place(word);

    if (result == 0)
        atomic_fetch_add(&shared->moves, 1);
    for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
        if (result == allowed[i])
            return result;
    if (result != -EINVAL || word[0] != '+')
        tool_die("%s to residency: %s", word, strerror(-result));
    return result;
}

static void move_somewhere(void)
{
    static const char *const words[] = {"device", "host",  "host",  "disk",  "disk",
                                        "+host",  "+disk", "-host", "-disk", "cancel"};

    if (!has_places)
        look();
    else
        order_and_check(words[below(sizeof(words) / sizeof(words[0]))]);
}

static void give_up(void)
{
    int result;

    note("N %d\n", (int)getpid());
    result = order_place("none");
    note("%c %d\n", result == 0 ? 'n' : 'y', (int)getpid());
    if (result && result != -EBUSY && result != -ENODATA)
        tool_die("none to residency: %s", strerror(-result));
}

/* ---- readers ------------------------------------------------------------------------------- */

static uint64_t note_reader(gmsfs_t *handle)
{
    uint64_t saw = see_by_library(handle);

    note("R %d %016" PRIx64 " %" PRIu64 "\n", (int)getpid(), saw, gmsfs_generation(handle));
    return saw;
}

static void compare_mappings(const struct gmsfs_mapping *list, size_t count, uint64_t cid)
{
    struct content content = make_content(cid);

    if (count != (size_t)content.count)
        lost("%zu allocations, expected %d", count, content.count);
    for (int i = 0; i < content.count; i++)
        compare_bytes(&content, i, list[i].ptr);
}

/* Wakes at the former addresses: with the bytes of the generation from before, or not at all. */
static void wake_and_compare(gmsfs_t *handle, const struct gmsfs_mapping *list, size_t count,
                             uint64_t cid)
{
    struct gmsfs_info before, after;
    int result;

    check(gmsfs_get_info(handle, &before), "gmsfs_get_info");
    result = gmsfs_remap_all_vas(handle, below(200 * life_factor), 1);

    if (is_refusal(result) || result == -ESTALE)
        return;
    check(result, "gmsfs_remap_all_vas");
    if (note_reader(handle) != cid)
        lost("content %016" PRIx64 " was slept over, and is another", cid);
    compare_mappings(list, count, cid);
    check(gmsfs_get_info(handle, &after), "gmsfs_get_info");
    if (after.moves != before.moves)
        atomic_fetch_add(&shared->wakes, 1);
}

static void sleep_and_compare(gmsfs_t *handle)
{
    static const char *const words[] = {"host", "disk", "device"};
    struct gmsfs_mapping *list;
    size_t count;
    uint64_t saw = note_reader(handle);

    check(gmsfs_attach_all(handle, GMSFS_ACCESS_READ, &list, &count), "gmsfs_attach_all");
    compare_mappings(list, count, saw);
    check(gmsfs_unmap_all_vas(handle, 0), "gmsfs_unmap_all_vas");
    if (order_and_check(words[below(3)]) == 0)
        tool_pause_us((unsigned)below(3000));
    wake_and_compare(handle, list, count, saw);
    free(list);
}

static void sleep_and_wake(void)
{
    gmsfs_t *handle;
    int result;

    if (!has_places) {
        look();
        return;
    }
    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    result = gmsfs_connect(handle, GMSFS_MODE_RO, below(50));
    if (!is_refusal(result)) {
        check(result, "gmsfs_connect");
        sleep_and_compare(handle);
    }
    gmsfs_close(handle);
}

/* By path and by mapping, from its present tier. */
static void read_anywhere(void)
{
    gmsfs_t *handle;
    int result;

    check(gmsfs_open(store.text, &handle), "gmsfs_open");
    check(gmsfs_set_connect_flags(handle, GMSFS_CONNECT_ANY), "gmsfs_set_connect_flags");
    result = gmsfs_connect(handle, GMSFS_MODE_RO, below(4) ? below(50) : 0);
    if (!is_refusal(result)) {
        check(result, "gmsfs_connect");
        if (chance(50))
            compare_in_tree(note_reader(handle), true);
        else
            compare_by_library(handle, note_reader(handle));
    }
    gmsfs_close(handle);
}

/* ---- budgets ------------------------------------------------------------------------------- */

/* Wide enough for all, so that only users of pools get EDQUOT. */
static void write_pools(void)
{
    static const char *const classes[] = {"critical", "high", "standard", "batch"};
    struct tool_path line =
        tool_path("%s max=%s class=%s sm=%d", chance(50) ? "red" : "blue",
                  chance(50) ? "max" : "1G", classes[below(4)], 1 + (int)below(100));
    int fd = open(tool_path("%s/pools", mount_dir).text, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, line.text, strlen(line.text)) < 0)
        tool_die("pools: %s: %s", line.text, strerror(errno));
    close(fd);
}

static void set_or_remove(const char *name, const char *value)
{
    int result = chance(60) ? setxattr(store.text, name, value, strlen(value), 0)
                            : removexattr(store.text, name);

    if (result != 0 && errno != ENODATA && errno != ENOENT)
        tool_die("%s: %s", name, strerror(errno));
}

static void budget(void)
{
    switch (below(3)) {
    case 0:
        write_pools();
        break;
    case 1:
        set_or_remove("user.gmsfs.pool", chance(50) ? "red" : "blue");
        break;
    default:
        set_or_remove("user.gmsfs.pin", "1");
        break;
    }
}

static void use_places(void)
{
    if (!has_places)
        look();
    else if (chance(40))
        use_library(GMSFS_MODE_RW, GMSFS_CONNECT_REPLACE);
    else if (chance(50))
        give_up();
    else
        budget();
}

#endif
