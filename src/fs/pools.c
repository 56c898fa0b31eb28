/* SPDX-License-Identifier: Apache-2.0 */
/* pools - the file `pools`: a line for each budget; written lines change budgets */
#include "fs/fs_internal.h"

#include "base/clock.h"
#include "fs/pools_line.h"
#include "service/pools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void write_limit(FILE *out, const char *key, uint64_t value, uint64_t none)
{
    if (value == none)
        fprintf(out, " %s=max", key);
    else
        fprintf(out, " %s=%" PRIu64, key, value);
}

static void write_pool(FILE *out, const struct core_pool *pool)
{
    fprintf(out, "%s min=%" PRIu64, pool->name, pool->min_bytes);
    write_limit(out, "max", pool->max_bytes, CORE_NO_LIMIT);
    write_limit(out, "slots", pool->slots, 0);
    fprintf(out,
            " class=%s sm=%" PRIu32 " stores=%" PRIu64 " used=%" PRIu64 " resident=%" PRIu64 "\n",
            core_pool_class_name(pool->class), pool->sm_percent, pool->store_count,
            pool->used_bytes, pool->resident);
}

int fs_text_pools(const struct fs *fs, struct fs_text *text)
{
    const struct idvec *pools = &fs->core->pools.items;
    FILE *out = fs_text_begin(fs, text);
    if (!out)
        return text->error;
    for (size_t i = 0; i < pools->count; i++)
        write_pool(out, pools->items[i]);
    return fs_text_end(text, out);
}

uint64_t fs_get_last_used_ms(const struct core_store *store)
{
    return store->use.holds ? clock_wall_ms() : store->use.last_used_ms;
}

/* Parses or carries out the lines: all are parsed before the first is carried out. */
static int do_lines(struct fs *fs, uint64_t fh, const char *from, size_t size, bool only_check)
{
    struct service_budget pool;
    int error = 0;
    while (!error && size > 0) {
        const char *end = memchr(from, '\n', size);
        size_t bytes = end ? (size_t)(end - from) : size;
        error = pools_line_parse(from, bytes, &pool);
        if (!error && !only_check)
            error = service_set_pool(fs->service, fh, &pool);
        if (error == -ENODATA)
            error = 0;
        bytes += end != NULL;
        from += bytes;
        size -= bytes;
    }
    return error;
}

void fs_pools_write(fuse_req_t req, const char *from, size_t size, uint64_t fh)
{
    struct fs *fs = fs_of(req);
    int error = do_lines(fs, fh, from, size, true);
    if (!error)
        error = do_lines(fs, fh, from, size, false);
    if (error)
        fs_reply_error(req, error);
    else
        fuse_reply_write(req, size);
}
