/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/size.h"

#include "base/clock.h"
#include "base/xxh3.h"
#include "fs/fs_internal.h"
#include "fs/residency.h"

#include <stdlib.h>
#include <string.h>

#define TOLD_MS    1000u /* how long a text whose size was told waits for its first read */
#define HASH_BYTES 33u

enum fs_reading fs_get_reading(const struct fuse_file_info *info)
{
    return info->lock_owner ? FS_READ_DIRECT : FS_READ_PAGES;
}

bool fs_is_costly_text(enum node_kind kind)
{
    switch (kind) {
    case NODE_DEVICE:
    case NODE_METRICS:
    case NODE_POOLS:
    case NODE_INFO:
    case NODE_SESSIONS:
    case NODE_REGION:
        return true;
    default:
        return false;
    }
}

static uint64_t count_residency(const struct fs *fs, const struct core_store *store)
{
    char lines[RESIDENCY_TEXT_BYTES];
    struct service_moving moving;
    bool moves = service_get_moving(fs->service, store, &moving);

    return residency_format(store, moves ? &moving : NULL, lines);
}

/* Counts the line "ro 17\n" that an open for reading would show, with the next session's number. */
static uint64_t count_held(const struct fs *fs)
{
    uint64_t bytes = strlen(lock_mode_name(LOCK_MODE_RO)) + strlen(" 0\n");
    for (uint64_t number = fs->core->next_session; number >= 10; number /= 10)
        bytes++;
    return bytes;
}

static uint64_t count_text(const struct fs *fs, const struct node *node)
{
    const struct blob *layout;

    switch (node->kind) {
    case NODE_STATE:
        return strlen(lock_state_name(lock_get_state(&node->store->lock))) + 1;
    case NODE_RESIDENCY:
        return count_residency(fs, node->store);
    case NODE_LAYOUT_HASH:
        return service_get_shown_layout(node->store) ? HASH_BYTES : 0;
    case NODE_LAYOUT:
        layout = service_get_shown_layout(node->store);
        return layout ? layout->size : 0;
    case NODE_PIECES:
        return service_count_pieces_bytes(node->store);
    case NODE_EVENTS:
        return fs->core->event_bytes;
    case NODE_LOCK:
    case NODE_AUTO:
    case NODE_DATA:
        return count_held(fs);
    default:
        return fs_is_costly_text(node->kind) ? SERVICE_MAX_TEXT_BYTES : 0; /* no text is longer */
    }
}

/* Sets the time of the last event: programs that follow a file look for a changed time. */
static void set_event_time(const struct fs *fs, struct stat *stat)
{
    const struct core_event *last = core_find_event(fs->core, fs->core->next_event - 1);

    if (!last)
        return;
    stat->st_mtim.tv_sec = (time_t)(last->wall_ms / 1000);
    stat->st_mtim.tv_nsec = (long)(last->wall_ms % 1000) * 1000000;
    stat->st_ctim = stat->st_mtim;
}

void fs_stat(struct fs *fs, const struct node *node, struct stat *stat)
{
    node_stat(fs->core, &fs->top, node, stat);
    if (!node->allocation && !node->entry && !node_is_made(node->kind) && S_ISREG(stat->st_mode))
        stat->st_size = (off_t)count_text(fs, node);
    if (node->kind == NODE_EVENTS)
        set_event_time(fs, stat);
}

/* ---- the newest open file of each text ----------------------------------------------------- */

/* Returns the node's place. Another node may have taken it: then no open file is known. */
static size_t find_place(uint64_t node)
{
    return (size_t)((node ^ node >> 8 ^ node >> 16) % FS_OPENED);
}

bool fs_is_newest_open(const struct fs *fs, uint64_t node, uint64_t file)
{
    const struct fs_opened *opened = &fs->opened[find_place(node)];

    return opened->node == node && opened->file == file;
}

/* Returns a print of all sources of texts, except the time and the memory that other processes
 * use. */
static uint64_t make_print(const struct fs *fs, uint64_t changes)
{
    struct service_numbers numbers;

    service_get_numbers(fs->service, &numbers);
    return XXH3_64bits_withSeed(&numbers, sizeof numbers, changes + fs->orders.changes);
}

void fs_keep_told_text(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes)
{
    if (fs_shown_set(fs, handle, text, bytes))
        return;
    handle->shown.is_told = true;
    handle->shown.told_ms = clock_now_ms();
    handle->shown.told_print = make_print(fs, service_count_changes(fs->service));
}

bool fs_is_told_text_true(const struct fs *fs, const struct fs_handle *handle)
{
    const struct fs_shown *shown = &handle->shown;

    return shown->is_told &&
           shown->told_print == make_print(fs, service_count_changes(fs->service)) &&
           clock_now_ms() - shown->told_ms <= TOLD_MS;
}

struct fs_handle *fs_find_unread(struct fs *fs, uint64_t node, uint32_t tid, uint32_t uid)
{
    const struct fs_opened *opened = &fs->opened[find_place(node)];
    const struct core_file *file;

    if (tid == 0 || opened->tid != tid || opened->node != node)
        return NULL;
    file = core_find_file(fs->core, opened->file);
    if (!file || file->uid != uid)
        return NULL;
    struct fs_handle *handle = fs_handle_get(fs, opened->file, node);
    return handle && (!handle->shown.is_fixed || handle->shown.is_told) ? handle : NULL;
}

/* ---- from GETATTR to open -------------------------------------------------------------------- */

void fs_drop_measured(struct fs *fs)
{
    if (fs->measured.node != 0)
        service_give(fs->service, SERVICE_BOUND_TEXTS, fs->measured.uid, fs->measured.bytes);
    free(fs->measured.text);
    fs->measured = (struct fs_measured){0};
}

bool fs_age_measured(struct fs *fs)
{
    if (fs->measured.node != 0 && clock_now_ms() - fs->measured.made_ms > TOLD_MS)
        fs_drop_measured(fs);
    return fs->measured.node != 0;
}

void fs_keep_measured(struct fs *fs, const struct fs_measured *measured)
{
    fs_drop_measured(fs);
    if (measured->tid == 0 ||
        service_take(fs->service, SERVICE_BOUND_TEXTS, 0, measured->uid, measured->bytes)) {
        free(measured->text);
        return;
    }
    fs->measured = *measured;
    fs->measured.made_ms = clock_now_ms();
    fs->measured.print = make_print(fs, service_count_changes(fs->service));
}

/* Gives the measured text to the open file, if nothing but this open has happened since. */
static void take_measured(struct fs *fs, uint64_t node, uint64_t file, uint32_t tid)
{
    struct fs_measured measured = fs->measured;
    const struct core_file *opened = core_find_file(fs->core, file);

    if (measured.node != node || measured.tid != tid || !opened || opened->uid != measured.uid)
        return;
    fs->measured.text = NULL;
    fs_drop_measured(fs);
    struct fs_handle *handle =
        measured.print == make_print(fs, service_count_changes(fs->service) - 1)
            ? fs_handle_get(fs, file, node)
            : NULL;
    if (!handle) {
        free(measured.text);
        return;
    }
    fs_keep_told_text(fs, handle, measured.text, measured.bytes);
    handle->shown.told_ms = measured.made_ms;
}

void fs_size_opened(struct fs *fs, uint64_t node, uint64_t file, uint32_t tid)
{
    fs->opened[find_place(node)] = (struct fs_opened){.node = node, .file = file, .tid = tid};
    take_measured(fs, node, file, tid);
}
