/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_contents.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "cli/ui.h"
#include "image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD    "gmsfs-pieces 1\nid "
#define LOOK_MS 50u
/* For the lock that reading takes: after it a writer's lock is waited for. */
#define MOST_LOOK_MS 2000u

int store_take_id(const char *name, const char *text, void *at)
{
    uint8_t id[DIGEST_BYTES];

    if (pieces_parse_id(text, id) != 0)
        return cli_usage_error("%s: an id has 32 hex digits in lower case ('gmsfs sum --id STORE' "
                               "prints one), not '%s'",
                               name, text);
    *(const char **)at = text;
    return CLI_OK;
}

static int read_pieces(const char *store, char id[DIGEST_TEXT_BYTES])
{
    SCOPED_FREE char *path = store_file_path(store, "pieces");
    struct words_error wrong;
    struct pieces pieces;
    uint8_t *text;
    size_t text_bytes;
    int error = path ? store_read_bytes(path, PIECES_MAX_TEXT_BYTES, &text, &text_bytes) : -ENOMEM;

    if (error) {
        store_explain(store, "sum the bytes", error);
        return CLI_FAILURE;
    }
    error = pieces_decode((const char *)text, text_bytes, &pieces, &wrong);
    if (error)
        cli_error("%s/pieces: line %zu: %s", store, wrong.line,
                  error == -ENOMEM ? strerror(ENOMEM) : wrong.text);
    else
        digest_text(pieces.id, id);
    pieces_free(&pieces);
    free(text);
    return error ? CLI_FAILURE : CLI_OK;
}

int store_get_contents_id(const char *store, uint64_t timeout_ms, bool quiet,
                          char id[DIGEST_TEXT_BYTES])
{
    gmsfs_t *handle = NULL;
    int status = store_open(store, &handle) == 0 ? CLI_OK : CLI_FAILURE;

    if (status == CLI_OK)
        status = store_connect(handle, store, GMSFS_MODE_RO, timeout_ms, quiet);
    if (status == CLI_OK)
        status = read_pieces(store, id);
    gmsfs_close(handle);
    return status;
}

int store_check_contents_id(const char *object, const char *id, const char *wanted)
{
    if (strcmp(id, wanted) == 0)
        return CLI_OK;
    cli_error("%s: has the contents %s, not %s", object, id, wanted);
    return CLI_FAILURE;
}

bool store_is_known_to_have(const char *path, const uint8_t id[DIGEST_BYTES])
{
    json_auto_t *info = store_info_json(path);
    char wanted[DIGEST_TEXT_BYTES];

    digest_text(id, wanted);
    return info && strcmp(store_json_text(info, "contents_id"), wanted) == 0;
}

/* Reads the id in the file `pieces`, which the daemon makes for it. -EAGAIN: a writer has the
 * store. */
static int read_id(const char *path, char id[DIGEST_TEXT_BYTES])
{
    SCOPED_FREE char *name = store_file_path(path, "pieces");
    char head[sizeof(HEAD) - 1 + DIGEST_TEXT_BYTES - 1];
    SCOPED_CLOSE int fd = -1;
    int error;

    if (!name)
        return -ENOMEM;
    fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    error = file_read_at(fd, head, sizeof(head), 0);
    if (error)
        return error;
    if (memcmp(head, HEAD, strlen(HEAD)) != 0)
        return -EBADMSG;
    memcpy(id, head + strlen(HEAD), DIGEST_TEXT_BYTES - 1);
    id[DIGEST_TEXT_BYTES - 1] = '\0';
    return 0;
}

bool store_has_contents(const char *path, gmsfs_t *handle, const uint8_t id[DIGEST_BYTES],
                        const char *layout_hash, uint64_t *generation)
{
    char wanted[DIGEST_TEXT_BYTES], is[DIGEST_TEXT_BYTES];
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
        error = info.layout_hash[0] ? read_id(path, is) : -EAGAIN;
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

int store_say_has_contents(const char *path, const uint8_t id[DIGEST_BYTES], bool quiet)
{
    char text[DIGEST_TEXT_BYTES];

    digest_text(id, text);
    if (!quiet)
        ui_line(stdout, "%s has the contents %s already", path, text);
    return CLI_OK;
}
