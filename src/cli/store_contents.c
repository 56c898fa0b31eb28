/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_contents.h"

#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "cli/ui.h"
#include "image/image.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOK_MS 50u
/* For the lock that reading takes: after it a writer's lock is waited for. */
#define MOST_LOOK_MS 2000u

void store_take_id(const char *name, const char *text, void *at)
{
    uint8_t id[DIGEST_BYTES];

    if (pieces_parse_id(text, id) != 0)
        cli_usage_error("%s: an id has 32 hex digits in lower case ('gmsfs sum --id STORE' "
                        "prints one), not '%s'",
                        name, text);
    *(const char **)at = text;
}

/* Reads the id in the file `pieces`, which the daemon makes for it. -EAGAIN: a writer has the
 * store; -EBADMSG, with *wrong: the text has no id. */
static int read_id(const char *store, char id[DIGEST_TEXT_BYTES], struct words_error *wrong)
{
    SCOPED_FREE char *path = store_file_path(store, "pieces");
    SCOPED_FREE uint8_t *text = NULL;
    struct pieces pieces;
    size_t text_bytes;
    int error = store_read_bytes(path, PIECES_MAX_TEXT_BYTES, &text, &text_bytes);

    if (error)
        return error;
    error = pieces_decode((const char *)text, text_bytes, &pieces, wrong);
    if (!error)
        digest_text(pieces.id, id);
    pieces_free(&pieces);
    return error && error != -ENOMEM ? -EBADMSG : error;
}

static int read_id_or_explain(const char *store, char id[DIGEST_TEXT_BYTES])
{
    struct words_error wrong;
    int error = read_id(store, id, &wrong);

    if (error == -EBADMSG)
        cli_error("%s/pieces: line %zu: %s", store, wrong.line, wrong.text);
    else if (error)
        store_explain(store, "sum the bytes", error);
    return error ? CLI_FAILURE : CLI_OK;
}

int store_get_contents_id(const char *store, uint64_t timeout_ms, bool quiet,
                          char id[DIGEST_TEXT_BYTES])
{
    gmsfs_t *handle = NULL;
    int status = store_open(store, &handle);

    if (status == CLI_OK)
        status = store_connect(handle, store, GMSFS_MODE_RO, timeout_ms, quiet);
    if (status == CLI_OK)
        status = read_id_or_explain(store, id);
    gmsfs_close(handle);
    return status;
}

int store_check_contents_id(const char *object, const char *id, const char *wanted)
{
    if (strcmp(id, wanted) == 0)
        return CLI_OK;
    return cli_error("%s: has the contents %s, not %s", object, id, wanted);
}

bool store_is_known_to_have(const char *path, const uint8_t id[DIGEST_BYTES])
{
    json_auto_t *info = store_info_json(path);
    char wanted[DIGEST_TEXT_BYTES];

    digest_text(id, wanted);
    return info && strcmp(json_get_text(info, "contents_id"), wanted) == 0;
}

bool store_has_contents(const char *path, gmsfs_t *handle, const uint8_t id[DIGEST_BYTES],
                        const char *layout_hash, uint64_t *generation)
{
    char wanted[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];
    struct words_error unused;
    struct gmsfs_info info;
    int error = -EAGAIN;

    digest_text(id, wanted);
    for (unsigned ms = 0; error == -EAGAIN && ms < MOST_LOOK_MS; ms += LOOK_MS) {
        if (gmsfs_get_info(handle, &info) != 0)
            return false;
        if (!info.committed ||
            (info.layout_hash[0] && strcmp(info.layout_hash, layout_hash) != 0)) {
            *generation = info.generation;
            return false;
        }
        error = info.layout_hash[0] ? read_id(path, is, &unused) : -EAGAIN;
        if (error == -EAGAIN)
            clock_pause_ms(LOOK_MS);
    }
    if (error == -EAGAIN)
        return false;
    if (!error && strcmp(is, wanted) == 0)
        return true;
    *generation = info.generation;
    return false;
}

int store_say_has_contents(const char *path, const uint8_t id[DIGEST_BYTES], bool immutable,
                           bool quiet)
{
    json_auto_t *info = NULL;
    int error = immutable ? store_read_json(path, "info", &info) : 0;
    char text[DIGEST_TEXT_BYTES];

    digest_text(id, text);
    if (error)
        return store_explain(path, "tell if the layout is immutable", error);
    if (immutable && !json_get_flag(info, "immutable"))
        return cli_error(
            "%s: has the contents %s already, but was committed without --immutable; remove "
            "it with rmdir, and pull it again, or leave --immutable out",
            path, text);
    if (!quiet)
        ui_line(stdout, "%s has the contents %s already", path, text);
    return CLI_OK;
}
