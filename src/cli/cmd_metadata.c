/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs metadata - single entries of a store: put, get, rm, ls
 *
 * Looking goes through the files of the mount. Changing needs a writer's session: that of the
 * token in GMSFS_SESSION, else that of an ancestor process.
 */
#include "base/clean.h"
#include "base/file_io.h"
#include "base/key_name.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "gmsfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- one entry ------------------------------------------------------------------------------ */

/* Changing and reading it. The session is chosen: by the token in GMSFS_SESSION through the
 * library, else by descent through the files of the mount. Never takes a lock of its own. */

struct metadata_entry {
    struct gmsfs_metadata data;
    char allocation[GMSFS_NAME_MAX + 1]; /* the name of that slot; "" when unbound */
    bool remove;                         /* the entry of that key is to go */
};

/* Makes the path of the entry's file; free(3). The key is valid. */
static char *metadata_path(const char *store, const char *key)
{
    char name[KEY_NAME_BYTES];

    key_name_encode(key, name);
    return cli_format("%s/metadata/%s", store, name);
}

/* ---- by token ------------------------------------------------------------------------------ */

static int metadata_change_joined(gmsfs_t *handle, const struct metadata_entry *entry)
{
    if (gmsfs_granted_lock(handle) != GMSFS_MODE_RW)
        return -ENOLCK;
    return entry->remove ? gmsfs_metadata_delete(handle, entry->data.key)
                         : gmsfs_metadata_put(handle, &entry->data);
}

/* ---- by descent ---------------------------------------------------------------------------- */

static int metadata_set_text(const char *path, const char *attribute, const char *text)
{
    return setxattr(path, attribute, text, strlen(text), 0) < 0 ? -errno : 0;
}

static int metadata_bind(const char *path, const struct metadata_entry *entry)
{
    char offset[24];

    snprintf(offset, sizeof(offset), "%" PRIu64, entry->data.offset);

    /* At 0 both an unbound entry and any allocation are valid in between. */
    int error = metadata_set_text(path, "user.gmsfs.offset", "0");
    if (!error)
        error = metadata_set_text(path, "user.gmsfs.allocation", entry->allocation);
    if (!error && entry->data.offset)
        error = metadata_set_text(path, "user.gmsfs.offset", offset);
    return error;
}

static int metadata_put_file(const char *path, const struct metadata_entry *entry)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), error;

    if (fd < 0)
        return -errno;
    error = file_write(fd, entry->data.value, entry->data.value_bytes);

    /* The value becomes the entry's at close. */
    if (close(fd) < 0 && !error)
        error = -errno;
    return error ? error : metadata_bind(path, entry);
}

static int metadata_change_file(const char *store, const struct metadata_entry *entry)
{
    SCOPED_FREE char *path = metadata_path(store, entry->data.key);

    if (entry->remove)
        return unlink(path) < 0 ? -errno : 0;
    return metadata_put_file(path, entry);
}

/* Puts or removes. 0 or a negative errno; -ENOLCK: in no writer's session. `handle` may be joined
 * to the session afterwards. */
static int metadata_change(const char *store, gmsfs_t *handle, const struct metadata_entry *entry)
{
    int error = store_join(handle);

    if (error == 0)
        return metadata_change_joined(handle, entry);
    return error == -ENOENT ? metadata_change_file(store, entry) : error;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Reads the value, free(3). 0 or a negative errno. */
static int metadata_read(const char *store, const char *key, uint8_t **value, size_t *value_bytes)
{
    SCOPED_FREE char *path = metadata_path(store, key);

    return store_read_bytes(path, GMSFS_VALUE_MAX, value, value_bytes);
}

/* Prints why it could not be done; returns CLI_FAILURE. */
static int metadata_explain(const char *store, const char *key, const char *doing, int error)
{
    if (error == -ENOENT)
        return cli_error("%s: no entry '%s'; 'gmsfs metadata ls %s' lists them", store, key, store);
    if (error == -ENOLCK || error == -EBADF)
        return cli_error("cannot %s '%s': %s: not in a writer's session; do it as "
                         "'gmsfs run -w %s -- gmsfs metadata ...'",
                         doing, key, store, store);
    if (error == -EINVAL)
        return cli_error(
            "cannot %s '%s': %s: the store refuses it: the key must be UTF-8, and the offset "
            "lie in the allocation",
            doing, key, store);
    if (error == -EFBIG || error == -ENOSPC)
        return cli_error(
            "cannot %s '%s': %s: beyond the bounds of a store (a value has at most %u bytes)",
            doing, key, store, GMSFS_VALUE_MAX);
    return store_explain(store, doing, error);
}

static const char usage[] =
    "Usage: gmsfs metadata put STORE KEY [VALUE | -] [--allocation NAME|SLOT [--offset N]]\n"
    "       gmsfs metadata get STORE KEY\n"
    "       gmsfs metadata rm STORE KEY\n"
    "       gmsfs metadata ls STORE [PREFIX]\n"
    "\n"
    "put sets an entry, with the value as given, or read from standard input when it is - or\n"
    "missing; get prints a value as it is; rm removes an entry; ls lists keys, one a line, by\n"
    "their bytes. On a terminal, control bytes become '?'. get and ls take no lock, and see a\n"
    "writer's work in progress. put and rm need a writer's session: 'gmsfs run -w STORE --\n"
    "gmsfs metadata put ...'.\n";

static const char ending[] =
    "Exit status: 0 done; 1 failure, as when there is no such entry; 2 usage.\n";

#define OFFSET_NONE UINT64_MAX /* it was not given */

struct metadata {
    const char *store;
    const char *key; /* ls: the prefix, or NULL */
    const char *value;
    const char *allocation;
    uint64_t offset;
};

/* ---- put ----------------------------------------------------------------------------------- */

/* Reads standard input whole, up to the bound of a value. */
static int metadata_read_input(void **value, size_t *value_bytes)
{
    size_t room = GMSFS_VALUE_MAX + 1, used;
    char *bytes = cli_need(malloc(room));

    used = fread(bytes, 1, room, stdin);
    if (ferror(stdin) || used == room) {
        if (used == room)
            cli_error("the value is longer than an entry may be (%u bytes)", GMSFS_VALUE_MAX);
        else
            cli_error("cannot read standard input: %s", strerror(errno));
        free(bytes);
        return CLI_FAILURE;
    }
    *value = bytes;
    *value_bytes = used;
    return CLI_OK;
}

/* By name first: an allocation may be named "7". */
static int metadata_find_allocation(const struct metadata *metadata, gmsfs_t *handle,
                                    struct metadata_entry *entry)
{
    SCOPED_FREE struct gmsfs_handle_info *list = NULL;
    const struct gmsfs_handle_info *found = NULL;
    char *end;
    unsigned long long slot = strtoull(metadata->allocation, &end, 10);
    size_t count;
    int error = gmsfs_list_handles(handle, NULL, &list, &count);

    if (error)
        return store_explain(metadata->store, "list the allocations", error);
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, metadata->allocation) == 0)
            found = &list[i];
    for (size_t i = 0; i < count && !found && *metadata->allocation && !*end; i++)
        if (list[i].slot == slot)
            found = &list[i];
    if (found) {
        entry->data.slot = found->slot;
        snprintf(entry->allocation, sizeof(entry->allocation), "%s", found->name);
    } else {
        cli_error("%s: no allocation '%s'; its directory 'allocations' lists them", metadata->store,
                  metadata->allocation);
    }
    return found ? CLI_OK : CLI_FAILURE;
}

static int metadata_put(const struct metadata *metadata, gmsfs_t *handle)
{
    struct metadata_entry entry = {.data = {.key = metadata->key, .slot = GMSFS_SLOT_NONE}};
    bool from_input = !metadata->value || strcmp(metadata->value, "-") == 0;
    SCOPED_FREE void *input = NULL;
    int status = CLI_OK, error;

    entry.data.value = metadata->value;
    if (from_input) {
        status = metadata_read_input(&input, &entry.data.value_bytes);
        entry.data.value = input;
    } else {
        entry.data.value_bytes = strlen(metadata->value);
    }
    if (status == CLI_OK && metadata->allocation) {
        status = metadata_find_allocation(metadata, handle, &entry);
        entry.data.offset = metadata->offset;
    }
    if (status == CLI_OK) {
        error = metadata_change(metadata->store, handle, &entry);
        if (error)
            status = metadata_explain(metadata->store, metadata->key, "put", error);
        else
            output_set_done();
    }
    return status;
}

/* ---- rm, get, ls --------------------------------------------------------------------------- */

static int metadata_remove(const struct metadata *metadata, gmsfs_t *handle)
{
    const struct metadata_entry entry = {.data = {.key = metadata->key}, .remove = true};
    int error = metadata_change(metadata->store, handle, &entry);

    if (error)
        return metadata_explain(metadata->store, metadata->key, "remove", error);
    output_set_done();
    return CLI_OK;
}

static int metadata_get(const struct metadata *metadata, gmsfs_t *handle)
{
    SCOPED_FREE uint8_t *value = NULL;
    size_t value_bytes;
    int error = metadata_read(metadata->store, metadata->key, &value, &value_bytes);

    (void)handle;
    if (error)
        return metadata_explain(metadata->store, metadata->key, "get", error);
    if (isatty(STDOUT_FILENO))
        clean_bytes(value, value_bytes, "\n\t");
    fwrite(value, 1, value_bytes, stdout);
    return CLI_OK;
}

static int metadata_list(const struct metadata *metadata, gmsfs_t *handle)
{
    SCOPED_FREE char **keys = NULL;
    size_t count;
    int error = gmsfs_metadata_list(handle, metadata->key, &keys, &count);

    if (error)
        return store_explain(metadata->store, "list the metadata", error);
    for (size_t i = 0; i < count; i++) {
        if (isatty(STDOUT_FILENO))
            clean_text(keys[i]);
        puts(keys[i]);
    }
    return CLI_OK;
}

/* ---- the command line ---------------------------------------------------------------------- */

static const struct metadata_verb {
    const char *name;
    int min, max; /* operands after it */
    int (*run)(const struct metadata *metadata, gmsfs_t *handle);
} verbs[] = {
    {"put", 2, 3, metadata_put},
    {"get", 2, 2, metadata_get},
    {"rm", 2, 2, metadata_remove},
    {"ls", 1, 2, metadata_list},
};

static const struct metadata_verb *metadata_find_verb(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int metadata_do(const struct metadata_verb *verb, const struct metadata *metadata)
{
    char name[KEY_NAME_BYTES];
    gmsfs_t *handle;

    if (verb->run != metadata_list && key_name_encode(metadata->key, name) != 0)
        cli_usage_error("the key '%.300s' cannot be one: it takes 1 to %u bytes (/, %% and "
                        "a leading . count as three)",
                        metadata->key, GMSFS_NAME_MAX);
    if (store_open(metadata->store, &handle) != 0)
        return CLI_FAILURE;
    int status = verb->run(metadata, handle);
    gmsfs_close(handle);
    return status;
}

static const struct cli_option options[] = {
    {"--allocation", 0, "NAME|SLOT", cli_take_text, offsetof(struct metadata, allocation),
     "bind the entry to this allocation (default: to none)"},
    {"--offset", 0, "N", cli_take_number, offsetof(struct metadata, offset),
     "and to this byte of it (default: 0)"},
    {0},
};

static int metadata_run(int argc, char **argv)
{
    struct metadata metadata = {.offset = OFFSET_NONE};

    cli_parse(argc, argv, &metadata);
    int operands = argc - optind - 1;
    const struct metadata_verb *verb = optind < argc ? metadata_find_verb(argv[optind]) : NULL;
    if (!verb)
        cli_usage_error("one of put, get, rm and ls is needed");
    if (operands < verb->min || operands > verb->max)
        cli_usage_error("wrong number of words after '%s'", verb->name);
    if (verb->run != metadata_put && (metadata.allocation || metadata.offset != OFFSET_NONE))
        cli_usage_error("--allocation and --offset go with put alone");
    if (metadata.offset != OFFSET_NONE && !metadata.allocation)
        cli_usage_error("--offset needs --allocation");
    if (metadata.offset == OFFSET_NONE)
        metadata.offset = 0;
    metadata.store = argv[optind + 1];
    metadata.key = operands > 1 ? argv[optind + 2] : NULL;
    metadata.value = operands > 2 ? argv[optind + 3] : NULL;
    return metadata_do(verb, &metadata);
}

const struct cli_command cmd_metadata = {
    .name = "metadata",
    .summary = "put, get, remove and list metadata entries",
    .usage = usage,
    .options = options,
    .ending = ending,
    .has_free_words = true,
    .run = metadata_run,
};
