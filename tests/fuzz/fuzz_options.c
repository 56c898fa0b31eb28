/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of `gmsfs mount`, each ended by a NUL: they are refused in one line, or all values
 * are within bounds, and mean the same when written out.
 */
#include "fuzz.h"

#include "daemon/options.h"
#include "vmm/backends.h"

#include <errno.h>
#include <inttypes.h>

#define ARGUMENTS_MAX 32u

static void check_bounds(const struct daemon_options *o)
{
    uint64_t granularity = o->vmm.granularity_bytes;

    must(backends_find(o->vmm.backend) != NULL);
    must(o->vmm.size_bytes == 0 ||
         (o->vmm.size_bytes >= OPTIONS_MIN_BYTES && o->vmm.size_bytes <= OPTIONS_MAX_BYTES));
    must(granularity == 0 ||
         (granularity >= OPTIONS_MIN_BYTES && granularity <= OPTIONS_MAX_GRANULARITY));
    must((granularity & (granularity - 1)) == 0);
    must(o->vmm.hugepage_bytes == 0 || o->vmm.hugepage_bytes == 2ull << 20 ||
         o->vmm.hugepage_bytes == 1ull << 30);
    must(o->spool_max_bytes >= OPTIONS_MIN_BYTES && o->spool_max_bytes <= OPTIONS_MAX_BYTES);
    must(o->alloc_timeout_ms <= (OPTIONS_MAX_SECONDS + 1) * 1000ull);
    must(o->patience_ms <= (OPTIONS_MAX_SECONDS + 1) * 1000ull);
    must(o->log_level <= LOG_LEVEL_DEBUG);
    must(o->gms_mode <= 0777 && o->gms_ordinal <= OPTIONS_MAX_ORDINAL);
    must(o->gms_dir[0] == '\0' || o->gms_dir[0] == '/');
    must(memchr(o->gms_dir, '\0', sizeof o->gms_dir) != NULL);
    must(o->help || o->version || (o->mountpoint && *o->mountpoint));
}

static void write_out(const struct daemon_options *o, char *list, size_t room)
{
    static const char *const LEVELS[] = {"error", "warning", "info", "debug"};
    static const uint8_t NO_UUID[16];
    size_t used = (size_t)snprintf(
        list, room,
        "backend=%s,spool_max=%" PRIu64 ",alloc_timeout=%" PRIu64 ".%03" PRIu64
        ",writer_patience=%" PRIu64 ".%03" PRIu64 ",log_level=%s",
        o->vmm.backend, o->spool_max_bytes, o->alloc_timeout_ms / 1000, o->alloc_timeout_ms % 1000,
        o->patience_ms / 1000, o->patience_ms % 1000, LEVELS[o->log_level]);

#define ADD(...) used += (size_t)snprintf(list + used, room - used, __VA_ARGS__)
    if (o->vmm.size_bytes)
        ADD(",size=%" PRIu64, o->vmm.size_bytes);
    if (o->vmm.granularity_bytes)
        ADD(",granularity=%" PRIu64, o->vmm.granularity_bytes);
    if (o->vmm.hugepage_bytes)
        ADD(",hugepages=%" PRIu64, o->vmm.hugepage_bytes);
    if (o->vmm.spill_bytes)
        ADD(",spill=%s,spill_size=%" PRIu64, o->vmm.spill, o->vmm.spill_bytes);
    if (o->vmm.host_bytes || o->vmm.spill_bytes)
        ADD(",keep_copy=%s,evict=%s,min_stay=%" PRIu64 ".%03" PRIu64,
            o->drops_copies ? "no" : "yes", o->evicts_none ? "none" : "lru", o->min_stay_ms / 1000,
            o->min_stay_ms % 1000);
    if (o->vmm.host_bytes) {
        ADD(",host_size=%" PRIu64, o->vmm.host_bytes);
        if (o->vmm.host_hugepage_bytes)
            ADD(",host_hugepages=%" PRIu64, o->vmm.host_hugepage_bytes);
    }
    if (o->keep_journal[0])
        ADD(",keep_journal=%s", o->keep_journal);
    if (o->uid != OPTIONS_NO_ID)
        ADD(",uid=%" PRIu32, o->uid);
    if (o->gid != OPTIONS_NO_ID)
        ADD(",gid=%" PRIu32, o->gid);
    if (o->allow_other)
        ADD(",%sallow_other", o->allow_other == OPTIONS_NO ? "no_" : "");
    if (memcmp(o->vmm.uuid, NO_UUID, sizeof NO_UUID) != 0) {
        ADD(",uuid=");
        for (size_t i = 0; i < sizeof o->vmm.uuid; i++)
            ADD("%02x", o->vmm.uuid[i]);
    }
    if (o->gms) {
        ADD(",gms,gms_mode=%" PRIo32 ",gms_ordinal=%" PRIu32, o->gms_mode, o->gms_ordinal);
        if (o->gms_keep)
            ADD(",gms_keep");
        if (o->gms_dir[0])
            ADD(",gms_dir=%s", o->gms_dir);
    }
#undef ADD
    must(used < room);
}

static void parse_again(const struct daemon_options *o)
{
    char list[1024], error[OPTIONS_ERROR_BYTES];
    char program[] = "gmsfs", take[] = "-o", end[] = "--";
    char *path = fuzz_text((const uint8_t *)o->mountpoint, strlen(o->mountpoint));
    char *argv[] = {program, take, list, end, path, NULL};
    struct daemon_options again;

    write_out(o, list, sizeof list);
    must(options_parse(5, argv, &again, error, sizeof error) == 0);
    must(strcmp(again.mountpoint, o->mountpoint) == 0);
    must(strcmp(again.vmm.backend, o->vmm.backend) == 0);
    must(again.vmm.size_bytes == o->vmm.size_bytes);
    must(again.vmm.granularity_bytes == o->vmm.granularity_bytes);
    must(again.vmm.hugepage_bytes == o->vmm.hugepage_bytes);
    must(memcmp(again.vmm.uuid, o->vmm.uuid, sizeof again.vmm.uuid) == 0);
    must(again.alloc_timeout_ms == o->alloc_timeout_ms && again.patience_ms == o->patience_ms);
    must(again.spool_max_bytes == o->spool_max_bytes && again.uid == o->uid && again.gid == o->gid);
    must(again.gms == o->gms && again.gms_keep == o->gms_keep);
    must(again.gms_mode == o->gms_mode && again.gms_ordinal == o->gms_ordinal);
    must(strcmp(again.gms_dir, o->gms_dir) == 0);
    must(strcmp(again.keep_journal, o->keep_journal) == 0);
    must(again.allow_other == o->allow_other && again.log_level == o->log_level);
    free(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), program[] = "gmsfs";
    char *argv[ARGUMENTS_MAX + 1] = {program};
    char error[OPTIONS_ERROR_BYTES];
    struct daemon_options options;
    int argc = 1;

    memset(error, '*', sizeof error); /* the writer has to terminate it */
    for (char *at = text; at < text + size && argc < (int)ARGUMENTS_MAX; at += strlen(at) + 1)
        argv[argc++] = at;
    int refused = options_parse(argc, argv, &options, error, sizeof error);
    must(refused == 0 || refused == -EINVAL);
    if (refused) {
        must(memchr(error, '\0', sizeof error) && fuzz_is_line(error));
    } else {
        check_bounds(&options);
        if (!options.help && !options.version)
            parse_again(&options);
    }
    free(text);
    return 0;
}
