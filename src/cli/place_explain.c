/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place_explain.h"

#include "cli/cli.h"
#include "cli/daemon_explain.h"
#include "cli/store_explain.h"
#include "cli/store_fenced.h"
#include "cli/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* What the daemon tells of the last order to this place; "": nothing. */
static const char *find_obstacle(const json_t *info, const char *place)
{
    const json_t *obstacle = json_object_get(info, "obstacle");

    return strcmp(store_json_text(obstacle, "to"), place) == 0 ? store_json_text(obstacle, "text")
                                                               : "";
}

json_t *place_read_info(int dir, const char *path)
{
    char itself[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

    snprintf(itself, sizeof(itself), "/proc/self/fd/%d", dir);
    return store_info_json(dir == AT_FDCWD ? path : itself);
}

int place_explain(const char *path, const char *doing, int error)
{
    /* ESTALE comes as ENOENT where the kernel sends an open again. */
    if (error == -ESTALE || error == -ENOENT)
        cli_error("%s: there is no such store, or it was removed", path);
    else
        store_explain(path, doing, error);
    return CLI_FAILURE;
}

int place_explain_order(int dir, const char *path, const char *place, int error)
{
    json_auto_t *info = NULL;
    const char *text;

    if (error == -EPERM || error == -EACCES)
        return daemon_explain_rights(path, "move it");
    if (error == -ECANCELED) {
        cli_error("%s: another user cancelled the drain; the store is open again and was not moved",
                  path);
        return CLI_FAILURE;
    }
    if (error == -EBUSY && store_explain_fence(path, "move it"))
        return CLI_FAILURE;
    info = place_read_info(dir, path);
    text = find_obstacle(info, place);
    if (*text)
        cli_error("cannot move: %s: %s", path, text);
    else if (error == -EBUSY)
        cli_error("cannot move: %s: its lock was held, or it was moving, a moment ago; try again",
                  path);
    else
        place_explain(path, "move it", error);
    return error == -EAGAIN ? CLI_TIMEOUT : CLI_FAILURE;
}

int place_explain_end(int dir, const char *path, const char *place)
{
    json_auto_t *info = place_read_info(dir, path);
    const char *text = find_obstacle(info, place);
    const char *at = json_string_value(json_array_get(json_object_get(info, "residency"), 0));

    cli_error("%s: it stays at %s: %s", path, at ? at : "its device",
              *text ? text : "another order moved it elsewhere ('events' in the mount tells)");
    return CLI_FAILURE;
}
