/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_contents.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/hex.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define HEAD     "gmsfs-pieces 1\nid "
#define ID_CHARS (2 * STORE_CONTENTS_BYTES)
#define LOOK_MS  50u
#define MOST_LOOK_MS \
    2000u /* for the lock that reading takes: after it a writer's lock is waited for */

bool store_is_known_to_have(const char *path, const uint8_t id[STORE_CONTENTS_BYTES])
{
    json_auto_t *info = store_info_json(path);
    char wanted[ID_CHARS + 1];

    hex_format(id, STORE_CONTENTS_BYTES, wanted);
    return info && strcmp(store_json_text(info, "contents_id"), wanted) == 0;
}

/* Reads the id in the file `pieces`, which the daemon makes for it. -EAGAIN: a writer has the
 * store. */
static int read_id(const char *path, char id[ID_CHARS + 1])
{
    SCOPED_FREE char *name = store_file_path(path, "pieces");
    char head[sizeof(HEAD) - 1 + ID_CHARS];
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
    memcpy(id, head + strlen(HEAD), ID_CHARS);
    id[ID_CHARS] = '\0';
    return 0;
}

bool store_has_contents(const char *path, gmsfs_t *handle, const uint8_t id[STORE_CONTENTS_BYTES],
                        const char *layout_hash, uint64_t *generation)
{
    char wanted[ID_CHARS + 1], is[ID_CHARS + 1];
    struct gmsfs_info info;
    int error = -EAGAIN;

    hex_format(id, STORE_CONTENTS_BYTES, wanted);
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

int store_say_has_contents(const char *path, const uint8_t id[STORE_CONTENTS_BYTES], bool quiet)
{
    char text[ID_CHARS + 1];

    hex_format(id, STORE_CONTENTS_BYTES, text);
    if (!quiet)
        ui_line(stdout, "%s has the contents %s already", path, text);
    return CLI_OK;
}
