/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs metadata - single entries of a store: put, get, rm, ls
 *
 * Looking goes through the files of the mount. Changing needs a writer's session: the one whose
 * token is in GMSFS_SESSION, else the one that the caller belongs to by descent.
 */
#include "base/clean.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/metadata.h"
#include "cli/output.h"
#include "cli/store_explain.h"
#include "cli/store_key.h"
#include "cli/store_open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: gmsfs metadata put STORE KEY [VALUE | -] [--allocation NAME|SLOT [--offset N]]\n"
    "       gmsfs metadata get STORE KEY\n"
    "       gmsfs metadata rm STORE KEY\n"
    "       gmsfs metadata ls STORE [PREFIX]\n"
    "\n"
    "put sets an entry, with the value as given, or read from standard input when it is - or\n"
    "missing; get prints a value as it is; rm removes an entry; ls lists keys, one a line, by\n"
    "their bytes. On a terminal what it would obey is '?'. get and ls take no lock, and see a\n"
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

/* Standard input whole, up to what an entry may have. */
static int metadata_read_input(void **value, size_t *value_bytes)
{
    size_t room = GMSFS_VALUE_MAX + 1, used;
    char *bytes = malloc(room);

    if (!bytes)
        return cli_out_of_memory();
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
    struct gmsfs_handle_info *list;
    const struct gmsfs_handle_info *found = NULL;
    char *end;
    unsigned long long slot = strtoull(metadata->allocation, &end, 10);
    size_t count;
    int error = gmsfs_list_handles(handle, NULL, &list, &count);

    if (error) {
        store_explain(metadata->store, "list the allocations", error);
        return CLI_FAILURE;
    }
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
    free(list);
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
    void *value;
    size_t value_bytes;
    int error = metadata_read(metadata->store, metadata->key, &value, &value_bytes);

    (void)handle;
    if (error)
        return metadata_explain(metadata->store, metadata->key, "get", error);
    if (isatty(STDOUT_FILENO))
        clean_bytes(value, value_bytes, "\n\t");
    fwrite(value, 1, value_bytes, stdout);
    free(value);
    return CLI_OK;
}

static int metadata_list(const struct metadata *metadata, gmsfs_t *handle)
{
    char **keys;
    size_t count;
    int error = gmsfs_metadata_list(handle, metadata->key, &keys, &count);

    if (error) {
        store_explain(metadata->store, "list the metadata", error);
        return CLI_FAILURE;
    }
    for (size_t i = 0; i < count; i++) {
        if (isatty(STDOUT_FILENO))
            clean_text(keys[i]);
        puts(keys[i]);
    }
    free(keys);
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
    char name[STORE_ENCODED_BYTES];
    gmsfs_t *handle;
    int status;

    if (verb->run != metadata_list && store_encode_key(metadata->key, name) != 0)
        return cli_usage_error("the key '%.300s' cannot be one: it takes 1 to %u bytes (/, %% and "
                               "a leading . count as three)",
                               metadata->key, GMSFS_NAME_MAX);
    if (store_open(metadata->store, &handle) != 0)
        return CLI_FAILURE;
    status = verb->run(metadata, handle);
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
    const struct metadata_verb *verb;
    int status = cli_parse(argc, argv, &metadata), operands = argc - optind - 1;

    if (status != CLI_OK)
        return status;
    verb = optind < argc ? metadata_find_verb(argv[optind]) : NULL;
    if (!verb)
        return cli_usage_error("one of put, get, rm and ls is needed");
    if (operands < verb->min || operands > verb->max)
        return cli_usage_error("wrong number of words after '%s'", verb->name);
    if (verb->run != metadata_put && (metadata.allocation || metadata.offset != OFFSET_NONE))
        return cli_usage_error("--allocation and --offset go with put alone");
    if (metadata.offset != OFFSET_NONE && !metadata.allocation)
        return cli_usage_error("--offset needs --allocation");
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
    .column = 31,
    .ending = ending,
    .run = metadata_run,
};
