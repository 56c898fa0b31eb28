/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_ioctls - operations of gmsctl that are ioctls
 *
 * For gmsctl.c alone. Each acts on the file in use, and returns 0 or a negative errno.
 */
#ifndef TOOLS_GMSCTL_IOCTLS_H
#define TOOLS_GMSCTL_IOCTLS_H

#include "gmsctl_files.h"

#include <sys/ioctl.h>

#define MAX_RAW_BYTES 16383u /* _IOC_SIZEBITS */

static int acquire(char **arg, uint32_t flags, uint64_t reserve_bytes)
{
    struct gmsfs_ioc_acquire a = {.mode = mode_of(arg[0]),
                                  .flags = flags,
                                  .timeout_ms = number(arg[1]),
                                  .reserve_bytes = reserve_bytes};
    if (ioctl(s.fd, GMSFS_IOC_ACQUIRE, &a) != 0)
        return -errno;
    memcpy(s.token, a.token, sizeof s.token);
    printf("%s session=%llu generation=%llu count=%llu", mode_name(a.mode),
           (unsigned long long)a.session, (unsigned long long)a.generation,
           (unsigned long long)a.count);
    print_hex(" token=", a.token, sizeof a.token);
    print_hex(" store=", a.store_id, sizeof a.store_id);
    print_hex(" hash=", a.layout_hash, sizeof a.layout_hash);
    if (flags & GMSFS_ACQUIRE_EXPORT) {
        memcpy(s.ticket, a.ticket, sizeof s.ticket);
        print_hex(" ticket=", a.ticket, sizeof a.ticket);
    }
    putchar('\n');
    return 0;
}

static int op_acquire(char **arg)
{
    return acquire(arg, 0, 0);
}

static int op_acquire_export(char **arg)
{
    return acquire(arg, GMSFS_ACQUIRE_EXPORT, 0);
}

static int op_acquire_again(char **arg)
{
    return acquire(arg, GMSFS_ACQUIRE_AGAIN, 0);
}

static int op_acquire_fresh(char **arg)
{
    return acquire(arg, GMSFS_ACQUIRE_FRESH, 0);
}

static int op_acquire_replace(char **arg)
{
    return acquire(arg, GMSFS_ACQUIRE_REPLACE, 0);
}

static int op_acquire_any(char **arg)
{
    return acquire(arg, GMSFS_ACQUIRE_ANY, 0);
}

/* Waits for the reader's lock, which an open of `lock` for reading does not; the session is the
 * same as that of such an open. */
static int op_reader(char **arg)
{
    struct gmsfs_ioc_acquire a = {.mode = GMSFS_MODE_RO,
                                  .flags = GMSFS_ACQUIRE_BY_PROCESS,
                                  .timeout_ms = GMSFS_TIMEOUT_FOREVER};
    char path[4096];
    snprintf(path, sizeof path, "%s/ctl", arg[0]);
    int error = use_file(open(path, O_RDONLY | O_CLOEXEC));
    return error ? error : result(ioctl(s.fd, GMSFS_IOC_ACQUIRE, &a));
}

static int op_acquire_reserve(char **arg)
{
    return acquire(arg, 0, number(arg[2]));
}

static int op_reserve(char **arg)
{
    struct gmsfs_ioc_reserve r = {.bytes = number(arg[0]), .flags = (uint32_t)number(arg[1])};
    if (ioctl(s.fd, GMSFS_IOC_RESERVE, &r) != 0)
        return -errno;
    printf("reserved=%llu before=%llu\n", (unsigned long long)r.bytes,
           (unsigned long long)r.before);
    return 0;
}

static int op_join(char **arg)
{
    struct gmsfs_ioc_join j = {.pad = 0};
    id_of(arg[0], s.token, j.token);
    if (ioctl(s.fd, GMSFS_IOC_JOIN, &j) != 0)
        return -errno;
    printf("%s session=%llu\n", mode_name(j.mode), (unsigned long long)j.session);
    return 0;
}

static int op_release(char **arg)
{
    (void)arg;
    return result(ioctl(s.fd, GMSFS_IOC_RELEASE));
}

static int alloc(struct gmsfs_ioc_alloc *a, const char *name, const char *tag)
{
    snprintf(a->name, sizeof a->name, "%s", name);
    snprintf(a->tag, sizeof a->tag, "%s", tag);
    if (ioctl(s.fd, GMSFS_IOC_ALLOC, a) != 0)
        return -errno;
    printf("name=%s slot=%llu rank=%llu aligned=%llu\n", a->name, (unsigned long long)a->slot,
           (unsigned long long)a->rank, (unsigned long long)a->size_bytes);
    return 0;
}

static int op_alloc(char **arg)
{
    struct gmsfs_ioc_alloc a = {.size_bytes = number(arg[0]), .count = (uint32_t)number(arg[1])};
    return alloc(&a, arg[2], arg[3]);
}

static int op_alloc_nowait(char **arg)
{
    struct gmsfs_ioc_alloc a = {.size_bytes = number(arg[0]),
                                .count = (uint32_t)number(arg[1]),
                                .flags = GMSFS_ALLOC_NOWAIT};
    return alloc(&a, arg[2], arg[3]);
}

static int op_alloc_as(char **arg)
{
    struct gmsfs_ioc_alloc a = {.size_bytes = number(arg[0]),
                                .count = 1,
                                .flags = (uint32_t)number(arg[1]),
                                .mem_class = (uint32_t)number(arg[2]),
                                .handle_types = (uint32_t)number(arg[3])};
    return alloc(&a, "", "");
}

static int op_free(char **arg)
{
    struct gmsfs_ioc_free f = {.slot = number(arg[0])};
    return result(ioctl(s.fd, GMSFS_IOC_FREE, &f));
}

static int op_clear(char **arg)
{
    (void)arg;
    return result(ioctl(s.fd, GMSFS_IOC_CLEAR));
}

static int export(char **arg, uint32_t flags)
{
    struct gmsfs_ioc_export e = {.first = number(arg[0]), .count = number(arg[1]), .flags = flags};
    if (ioctl(s.fd, GMSFS_IOC_EXPORT, &e) != 0)
        return -errno;
    memcpy(s.ticket, e.ticket, sizeof s.ticket);
    print_hex("ticket=", e.ticket, sizeof e.ticket);
    printf(" count=%llu total=%llu generation=%llu\n", (unsigned long long)e.count,
           (unsigned long long)e.total_bytes, (unsigned long long)e.generation);
    return 0;
}

static int op_export(char **arg)
{
    return export(arg, 0);
}

static int op_export_rw(char **arg)
{
    return export(arg, GMSFS_EXPORT_WRITABLE);
}

static int op_export_slot(char **arg)
{
    return export(arg, GMSFS_EXPORT_BY_SLOT);
}

static int metadata(unsigned long command, struct gmsfs_ioc_metadata *m, const char *key,
                    const char *value)
{
    struct bytes k = bytes_of(key), v = bytes_of(value);
    if (k.size + v.size > sizeof m->data)
        die("key and value too long", key);
    m->key_bytes = (uint32_t)k.size;
    m->value_bytes = (uint32_t)v.size;
    memcpy(m->data, k.data, k.size);
    memcpy(m->data + k.size, v.data, v.size);
    free(k.data);
    free(v.data);
    return result(ioctl(s.fd, command, m));
}

static int op_put(char **arg)
{
    static struct gmsfs_ioc_metadata m;
    m = (struct gmsfs_ioc_metadata){.slot = number(arg[2]), .offset = number(arg[3])};
    return metadata(GMSFS_IOC_METADATA_PUT, &m, arg[0], arg[1]);
}

static int op_get(char **arg)
{
    static struct gmsfs_ioc_metadata m;
    memset(&m, 0, sizeof m);
    int error = metadata(GMSFS_IOC_METADATA_GET, &m, arg[0], "");
    if (error)
        return error;
    printf("slot=%lld rank=%lld offset=%llu value=", (long long)m.slot, (long long)m.rank,
           (unsigned long long)m.offset);
    fwrite(m.data + m.key_bytes, 1, m.value_bytes, stdout);
    putchar('\n');
    return 0;
}

static int op_delete(char **arg)
{
    static struct gmsfs_ioc_metadata m;
    memset(&m, 0, sizeof m);
    return metadata(GMSFS_IOC_METADATA_DELETE, &m, arg[0], "");
}

static int commit(uint32_t flags, const char *group)
{
    struct gmsfs_ioc_commit c = {.flags = flags};
    if (group)
        id_of(group, s.token, c.group);
    if (ioctl(s.fd, GMSFS_IOC_COMMIT, &c) != 0)
        return -errno;
    printf("%s generation=%llu", mode_name(c.mode), (unsigned long long)c.generation);
    print_hex(" hash=", c.layout_hash, sizeof c.layout_hash);
    putchar('\n');
    return 0;
}

static int op_commit(char **arg)
{
    (void)arg;
    return commit(0, NULL);
}

static int op_commit_stay(char **arg)
{
    (void)arg;
    return commit(GMSFS_COMMIT_STAY, NULL);
}

static int op_seal(char **arg)
{
    (void)arg;
    return commit(GMSFS_COMMIT_SEAL, NULL);
}

static int op_commit_group(char **arg)
{
    return commit(GMSFS_COMMIT_GROUP, arg[0]);
}

static int op_commit_flags(char **arg)
{
    return commit((uint32_t)number(arg[0]), NULL);
}

static int op_abort(char **arg)
{
    struct gmsfs_ioc_abort a = {.pad = 0};
    (void)arg;
    if (ioctl(s.fd, GMSFS_IOC_ABORT, &a) != 0)
        return -errno;
    printf("rolled_back=%u\n", a.rolled_back);
    return 0;
}

static int op_apply(char **arg)
{
    struct gmsfs_ioc_apply a = {.pad = 0};
    (void)arg;
    if (ioctl(s.fd, GMSFS_IOC_APPLY, &a) != 0)
        return -errno;
    printf("applied=%llu culprit=%lld\n", (unsigned long long)a.applied, (long long)a.culprit);
    return a.error;
}

static int op_info(char **arg)
{
#define NAME(word, number) [number] = #word,
    static const char *const states[] = {GMSFS_STATE_LIST(NAME)};
#undef NAME
    struct gmsfs_ioc_info i = {.mode = 0};
    (void)arg;
    if (ioctl(s.fd, GMSFS_IOC_INFO, &i) != 0)
        return -errno;
    printf("mode=%s state=%s session=%llu committed=%u sealed=%u generation=%llu allocations=%llu "
           "entries=%llu total=%llu readers=%llu writers_waiting=%llu layout_bytes=%u abi=%u",
           mode_name(i.mode), i.state < sizeof states / sizeof states[0] ? states[i.state] : "?",
           (unsigned long long)i.session, i.committed, i.sealed, (unsigned long long)i.generation,
           (unsigned long long)i.allocations, (unsigned long long)i.entries,
           (unsigned long long)i.total_bytes, (unsigned long long)i.readers,
           (unsigned long long)i.writers_waiting, i.layout_bytes, i.abi_version);
    print_hex(" token=", i.token, sizeof i.token);
    print_hex(" store=", i.store_id, sizeof i.store_id);
    print_hex(" hash=", i.layout_hash, sizeof i.layout_hash);
    print_hex(" group=", i.group, sizeof i.group);
#ifdef LARGER_ABI
    printf(" later=%llu", (unsigned long long)i.later);
#endif
    putchar('\n');
    return 0;
}

static void print_list(const struct gmsfs_ioc_list *list)
{
    const uint8_t *at = list->data;
    printf("count=%u more=%u allocations=%llu\n", list->count, list->more,
           (unsigned long long)list->allocations);
    for (uint32_t i = 0; i < list->count; i++) {
        struct gmsfs_list_item item;
        memcpy(&item, at, sizeof item);
        const char *text = (const char *)at + sizeof item;
        printf("allocation rank=%llu slot=%llu size=%llu aligned=%llu tag=%.*s name=%.*s\n",
               (unsigned long long)item.rank, (unsigned long long)item.slot,
               (unsigned long long)item.size_bytes, (unsigned long long)item.aligned_bytes,
               (int)item.tag_bytes, text, (int)item.name_bytes, text + item.tag_bytes);
        at += item.item_bytes;
    }
}

/* Lists the next page of the layout of the last `list`. */
static int op_list_on(char **arg)
{
    struct gmsfs_ioc_list list = {.first = number(arg[0]),
                                  .flags = (uint32_t)number(arg[1]),
                                  .count = (uint32_t)number(arg[2])};
    memcpy(list.layout, s.layout, sizeof list.layout);
    if (ioctl(s.fd, GMSFS_IOC_LIST, &list) != 0)
        return -errno;
    memcpy(s.layout, list.layout, sizeof s.layout);
    print_list(&list);
    return 0;
}

static int op_list(char **arg)
{
    memset(s.layout, 0, sizeof s.layout);
    return op_list_on(arg);
}

/* Sends any number, with any size: these bytes first, then zeros, and `last` as the last one. */
static int op_raw(char **arg)
{
    static uint8_t payload[MAX_RAW_BYTES];
    unsigned size = (unsigned)number(arg[1]);
    struct bytes first = bytes_of(arg[2]);
    if (size > sizeof payload || first.size > size)
        die("does not fit", arg[2]);
    memset(payload, 0, sizeof payload);
    memcpy(payload, first.data, first.size);
    free(first.data);
    if (size > 0 && number(arg[3]) != 0)
        payload[size - 1] = (uint8_t)number(arg[3]);
    unsigned long command = _IOC(_IOC_READ | _IOC_WRITE, 'G', (unsigned)number(arg[0]), size);
    if (ioctl(s.fd, command, payload) < 0)
        return -errno;
    print_hex("answer=", payload, size < 256 ? size : 256);
    putchar('\n');
    return 0;
}

static int op_command(char **arg)
{
    static uint8_t payload[MAX_RAW_BYTES];
    return result(ioctl(s.fd, (unsigned long)number(arg[0]), payload));
}

#endif
