/* SPDX-License-Identifier: Apache-2.0 */
/* text - the text of a file, by the kind of its node */
#include "base/clock.h"
#include "base/hex.h"

#include "fs/fs_internal.h"
#include "fs/residency.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- `sessions`: a row for each holder of a store's lock and each waiter --------------------- */

#define REGION_WORDS "region "
#define NAME_BYTES   (sizeof REGION_WORDS + REGION_MAX_NAME_BYTES)

/* A name as one word of printable ASCII, as /proc/mounts writes such names. */
static void escape_name(const char *name, char out[4 * NAME_BYTES + 1])
{
    size_t used = 0;
    for (size_t i = 0; name[i]; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c > ' ' && c < 0x7f && c != '\\')
            out[used++] = (char)c;
        else
            used += (size_t)snprintf(out + used, 5, "\\%03o", c);
    }
    if (used == 0)
        out[used++] = '-';
    out[used] = '\0';
}

static void write_row(FILE *out, const char *id, const char *mode, const char *status,
                      struct core_process process, uint32_t uid, const char *comm,
                      uint64_t since_ms, uint64_t files)
{
    char name[4 * NAME_BYTES + 1], since[CLOCK_TEXT_BYTES];
    escape_name(comm, name);
    clock_format_utc(since_ms / 1000, since);
    fprintf(out, "%s %s %s %llu %u %s %s %llu\n", id, mode, status, (unsigned long long)process.pid,
            uid, name, since, (unsigned long long)files);
}

/* Names the session's holder; the name of its region only for the region's owner and root. */
static void name_holder(const struct core *core, const struct core_session *session,
                        uint32_t reader, char name[NAME_BYTES])
{
    const struct region *region = core_find_session_region(core, session);
    if (region && service_check_region_owner(reader, region->uid) == 0)
        snprintf(name, NAME_BYTES, REGION_WORDS "%s", region->name);
    else
        snprintf(name, NAME_BYTES, "%s", session->comm);
}

/* In the order of the lock: holders, then waiters, the first come first. */
static void write_sessions(const struct core *core, const struct core_store *store, uint32_t reader,
                           FILE *out)
{
    char id[24], name[NAME_BYTES];
    for (size_t i = 0; i < store->lock.session_count; i++) {
        const struct core_session *session = core_find_session(core, store->lock.sessions[i].id);
        if (!session)
            continue;
        snprintf(id, sizeof id, "%llu", (unsigned long long)session->id);
        name_holder(core, session, reader, name);
        write_row(out, id, lock_mode_name(session->mode), "held", session->owner, session->uid,
                  name, session->since_ms, session->files);
    }
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(core, store->lock.waiters[i].id);
        if (!waiter || !core_waiter_counts(waiter))
            continue;
        snprintf(id, sizeof id, "w%llu", (unsigned long long)waiter->id);
        write_row(out, id, lock_wish_name(waiter->wish), "waiting", waiter->owner, waiter->uid,
                  waiter->comm, waiter->since_wall_ms, 0);
    }
}

int fs_text_sessions(const struct fs *fs, const struct core_store *store, uint32_t reader,
                     struct fs_text *text)
{
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    write_sessions(fs->core, store, reader, out);
    return fs_text_end(text, out);
}

/* ---- a region's file: one JSON object, for its owner and root ---------------------------------
 */

/* Writes a JSON string. Names and keys are UTF-8. */
static bool put_string(FILE *out, const char *key, const char *text)
{
    json_t *string = json_string(text);
    char *dumped = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    bool fits = dumped && fprintf(out, ",\n  \"%s\": %s", key, dumped) > 0;
    json_decref(string);
    free(dumped);
    return fits;
}

/* Numbers of 64 bits, unlike jansson's. */
static void put_number(FILE *out, const char *key, uint64_t number)
{
    fprintf(out, ",\n  \"%s\": %" PRIu64, key, number);
}

static bool put_place(FILE *out, const struct core *core, const struct region *region)
{
    const struct core_store *store = core_find_store(core, region->store);
    const struct layout_allocation *allocation = core_find_region_allocation(core, region);
    if (!store || !allocation)
        return true;
    return put_string(out, "store", store->name) && put_string(out, "allocation", allocation->name);
}

static bool write_region(FILE *out, const struct core *core, const struct region *region)
{
    bool of_cuda = region->kind == REGION_CUDA;
    fprintf(out, "{\n  \"kind\": \"%s\"", of_cuda ? "cuda" : "system");
    bool fits = put_string(out, "name", region->name);
    if (of_cuda)
        fprintf(out, ",\n  \"device_id\": %" PRId64, region->device_id);
    else
        fits = fits && put_string(out, "key", region->key) && put_place(out, core, region);
    put_number(out, "offset", region->offset);
    put_number(out, "byte_size", region->byte_size);
    put_number(out, "references", region->references);
    fprintf(out, ",\n  \"draining\": %s", region->draining ? "true" : "false");
    fprintf(out, ",\n  \"writable\": %s", region->writable ? "true" : "false");
    put_number(out, "registered_ms", region->registered_ms);
    fputs("\n}\n", out);
    return fits;
}

static int text_region(const struct fs *fs, const struct region *region, struct fs_text *text)
{
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    if (!write_region(out, fs->core, region))
        text->error = -ENOMEM;
    return fs_text_end(text, out);
}

int fs_text_copy(const void *from, size_t size, struct fs_text *text)
{
    text->data = malloc(size ? size : 1);
    if (!text->data)
        return -ENOMEM;
    if (size)
        memcpy(text->data, from, size);
    text->size = size;
    return 0;
}

static int render_state(const struct core_store *store, struct fs_text *text)
{
    char line[32];
    int size = snprintf(line, sizeof line, "%s\n", lock_state_name(lock_get_state(&store->lock)));
    return fs_text_copy(line, (size_t)size, text);
}

static int render_residency(const struct fs *fs, const struct core_store *store,
                            struct fs_text *text)
{
    char lines[RESIDENCY_TEXT_BYTES];
    struct service_moving moving;
    bool moves = service_get_moving(fs->service, store, &moving);
    return fs_text_copy(lines, residency_format(store, moves ? &moving : NULL, lines), text);
}

static int render_hash(const struct core_store *store, struct fs_text *text)
{
    char line[34];
    if (!service_get_shown_layout(store))
        return fs_text_copy("", 0, text);
    hex_format(store->hash, sizeof store->hash, line);
    line[32] = '\n';
    return fs_text_copy(line, 33, text);
}

int fs_text_render(struct fs *fs, const struct node *node, uint32_t reader, struct fs_text *text)
{
    *text = (struct fs_text){.uid = text->uid, .store = node->store ? node->store->id : 0};
    switch (node->kind) {
    case NODE_DEVICE:
        return fs_text_device(fs, text);
    case NODE_METRICS:
        return fs_text_metrics(fs, text);
    case NODE_POOLS:
        return fs_text_pools(fs, text);
    case NODE_STATE:
        return render_state(node->store, text);
    case NODE_RESIDENCY:
        return render_residency(fs, node->store, text);
    case NODE_LAYOUT_HASH:
        return render_hash(node->store, text);
    case NODE_LAYOUT:
    case NODE_PIECES:
        return fs_text_copy("", 0, text); /* those of committed bytes are shared instead */
    case NODE_INFO:
        return fs_text_info(fs, node->store, text);
    case NODE_SESSIONS:
        return fs_text_sessions(fs, node->store, reader, text);
    case NODE_REGION:
        return text_region(fs, node->region, text);
    default:
        return -EINVAL;
    }
}
