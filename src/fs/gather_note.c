/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather_note - notes of gathered bytes, from which the next worker restores them
 *
 * Bytes that clients have written to be applied later lie in the worker's memory. As long as they
 * are few, each change is noted in the journal as well, and all of them again after a snapshot; the
 * noted bytes count for the user of the file. A loss is noticed nevertheless, because the core
 * knows how many bytes there were, and reported by the call that would have used them.
 */
#include "fs/fs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOTED_BYTES (2u << 20) /* of one file */

struct note {
    uint64_t file, node, change, offset;
};

/* ---- noting ------------------------------------------------------------------------------ */

static int put_note(struct fs *fs, const struct fs_handle *handle, enum fs_gathered_change change,
                    uint64_t offset, const void *bytes, size_t size)
{
    struct note note = {
        .file = handle->id, .node = handle->node, .change = change, .offset = offset};
    const struct iovec parts[2] = {{&note, sizeof note}, {(void *)(uintptr_t)bytes, size}};

    return fs->host.note(fs->host.context, parts, 2);
}

/* Counts the file's notes as at most this many bytes. False: that is too much. */
static bool count(struct fs *fs, struct fs_handle *handle, uint64_t bytes)
{
    uint64_t before = handle->noted_bytes;

    if (bytes > NOTED_BYTES)
        return false;
    if (bytes > before &&
        service_take(fs->service, SERVICE_BOUND_NOTES, handle->store, handle->uid, bytes - before))
        return false;
    if (bytes > before)
        handle->noted_bytes = bytes;
    return true;
}

static void uncount(struct fs *fs, struct fs_handle *handle)
{
    service_give(fs->service, SERVICE_BOUND_NOTES, handle->uid, handle->noted_bytes);
    handle->noted_bytes = 0;
}

/* Stops noting the file's bytes. */
static int stop(struct fs *fs, struct fs_handle *handle)
{
    int error = put_note(fs, handle, FS_GATHERED_LOST, 0, NULL, 0);

    if (error)
        return error;
    handle->notes_nothing = true;
    uncount(fs, handle);
    return 0;
}

int fs_note_gathered(struct fs *fs, struct fs_handle *handle, enum fs_gathered_change change,
                     uint64_t offset, const void *bytes, size_t size)
{
    if (change == FS_GATHERED_DROP) {
        handle->notes_nothing = false;
        uncount(fs, handle);
    }
    if (handle->notes_nothing && change != FS_GATHERED_PUT)
        return handle->dirty
                   ? 0
                   : stop(fs, handle); /* otherwise the last note says that nothing is lost */
    if (!handle->notes_nothing && !count(fs, handle, offset + size))
        return stop(fs, handle);
    return put_note(fs, handle, change, offset, bytes, size);
}

static int note_value(struct fs *fs, struct fs_handle *handle)
{
    const struct fs_gathered *gathered = &handle->gathered;
    int error = fs_note_gathered(fs, handle, FS_GATHERED_BEGIN, 0, gathered->bytes, gathered->used);

    if (!error && handle->dirty) /* the note of the size says that the value differs */
        error = fs_note_gathered(fs, handle, FS_GATHERED_RESIZE, gathered->used, NULL, 0);
    return error;
}

/* ---- texts that are read in parts ----------------------------------------------------------- */

bool fs_note_text(struct fs *fs, struct fs_handle *handle)
{
    const struct fs_shown *shown = &handle->shown;

    if (!count(fs, handle, shown->size))
        return false;
    if (put_note(fs, handle, FS_GATHERED_TEXT, 0, shown->bytes, shown->size) == 0)
        return true;
    uncount(fs, handle);
    return false;
}

/* Restores a text; the last note wins. Comparing it with its print finds errors. */
static void restore_text(struct fs *fs, struct fs_handle *handle, const void *bytes, size_t size)
{
    uint8_t *text = malloc(size ? size : 1);

    fs_shown_drop(fs, handle);
    if (!text)
        return;
    memcpy(text, bytes, size);
    if (fs_shown_set(fs, handle, text, size) == 0)
        handle->shown.is_noted = count(fs, handle, size);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void note_handle(struct fs *fs, struct fs_handle *handle)
{
    const struct fs_gathered *gathered = &handle->gathered;
    int error = 0;

    if (handle->shown.is_noted)
        handle->shown.is_noted = fs_note_text(fs, handle);
    if (handle->notes_nothing && handle->has_gathered && !handle->dirty)
        error = put_note(fs, handle, FS_GATHERED_PUT, 0, NULL, 0);
    else if (handle->notes_nothing)
        return; /* the core knows */
    else if (handle->has_gathered)
        error = note_value(fs, handle);
    else if (gathered->used > 0)
        error = fs_note_gathered(fs, handle, FS_GATHERED_WRITE, 0, gathered->bytes, gathered->used);
    if (error)
        stop(fs, handle);
}

/* Notes a document that is being applied, which is no longer its handle's: the client asks the next
 * worker to apply it again. */
static void note_document(struct fs *fs, const struct fs_request *request)
{
    struct fs_handle *handle =
        request->document.used > 0 ? fs_handle_find(fs, request->file) : NULL;

    if (handle && !handle->notes_nothing &&
        fs_note_gathered(fs, handle, FS_GATHERED_WRITE, 0, request->document.bytes,
                         request->document.used))
        stop(fs, handle);
}

void fs_note_all(struct fs *fs)
{
    for (size_t i = 0; i < fs->files.count; i++)
        note_handle(fs, fs->files.items[i]);
    for (const struct fs_request *request = fs->requests; request; request = request->next)
        note_document(fs, request);
}

/* ---- making it again --------------------------------------------------------------------- */

static int restore_bytes(struct fs *fs, struct fs_handle *handle, const struct note *note,
                         const void *bytes, size_t size)
{
    bool is_value = node_get_kind(handle->node) == NODE_ENTRY;
    size_t end = (size_t)note->offset + size;

    if (note->offset > NOTED_BYTES || size > NOTED_BYTES || !count(fs, handle, end))
        return -EFBIG;
    if (note->change == FS_GATHERED_BEGIN)
        return fs_gather_begin_value(fs, handle, bytes, size);
    int error = fs_gather(fs, handle, end ? end : 1, NOTED_BYTES);
    if (error)
        return error;
    if (note->change == FS_GATHERED_RESIZE)
        fs_gather_set_size(handle, (size_t)note->offset);
    else
        fs_gather_write(handle, (size_t)note->offset, bytes, size);
    handle->has_gathered = handle->dirty = is_value;
    return 0;
}

static void drop_gathered(struct fs *fs, struct fs_handle *handle, bool is_lost)
{
    fs_gather_free(fs, handle, &handle->gathered);
    handle->has_gathered = handle->dirty = false;
    handle->is_lost = is_lost;
    uncount(fs, handle);
}

/* Nothing is missing once the value is the entry's. */
static void restore_put(struct fs *fs, struct fs_handle *handle)
{
    handle->dirty = false;
    if (fs_has_lost_bytes(fs, handle->id))
        service_gather(fs->service, handle->id, 0);
    handle->is_lost = false;
}

void fs_restore_note(struct fs *fs, const void *bytes, size_t size)
{
    struct note note;
    int error = 0;

    if (size < sizeof note)
        return;
    memcpy(&note, bytes, sizeof note);
    struct fs_handle *handle =
        core_find_file(fs->core, note.file) ? fs_handle_get(fs, note.file, note.node) : NULL;
    if (!handle ||
        (handle->is_lost && note.change != FS_GATHERED_DROP && note.change != FS_GATHERED_PUT))
        return;
    switch (note.change) {
    case FS_GATHERED_BEGIN:
    case FS_GATHERED_WRITE:
    case FS_GATHERED_RESIZE:
        error = restore_bytes(fs, handle, &note, (const uint8_t *)bytes + sizeof note,
                              size - sizeof note);
        break;
    case FS_GATHERED_TEXT:
        restore_text(fs, handle, (const uint8_t *)bytes + sizeof note, size - sizeof note);
        break;
    case FS_GATHERED_PUT:
        restore_put(fs, handle);
        break;
    case FS_GATHERED_DROP:
        drop_gathered(fs, handle, false);
        break;
    default:
        error = -ENODATA;
    }
    if (error)
        drop_gathered(fs, handle, true);
}

/* ---- losses ------------------------------------------------------------------------------ */

bool fs_has_lost_bytes(struct fs *fs, uint64_t fh)
{
    const struct core_file *file = core_find_file(fs->core, fh);
    const struct fs_handle *handle = fs_handle_find(fs, fh);
    return file && ((handle && handle->is_lost) ||
                    (file->gathered_bytes > 0 && (!handle || handle->counted_bytes == 0)));
}

int fs_take_loss(struct fs *fs, uint64_t fh)
{
    if (!fs_has_lost_bytes(fs, fh))
        return 0;
    struct fs_handle *handle = fs_handle_find(fs, fh);
    service_gather(fs->service, fh, 0);
    if (handle) {
        handle->is_lost = false;
        fs_note_gathered(fs, handle, FS_GATHERED_DROP, 0, NULL, 0);
    }
    return -EIO;
}
