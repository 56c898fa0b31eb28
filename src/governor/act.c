/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/act.h"

#include "base/failure.h"
#include "base/scope.h"
#include "governor/hook.h"
#include "governor/shell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MS_PER_S 1000u

static const char *get_tier(const struct governor_deed *deed)
{
    return deed->tier == GOVERNOR_DISK ? "disk" : deed->tier == GOVERNOR_NONE ? "none" : "host";
}

static const struct governor_model *find_model(const struct governor_deed *deed,
                                               const struct governor_config *config)
{
    return deed->model < config->model_count ? &config->models[deed->model] : NULL;
}

/* ---- commands ------------------------------------------------------------------------------- */

/* MOUNT/STORE, or MOUNT/STORE/FILE. */
static char *quote_path(const char *mount, const char *store, const char *file)
{
    SCOPED_FREE char *path = shell_format("%s/%s%s%s", strcmp(mount, "/") == 0 ? "" : mount, store,
                                          *file ? "/" : "", file);

    return path ? shell_quote(path) : NULL;
}

/* Runs the hook in a shell of its own, so that its quotes and exit status stay its own. */
static char *make_hook(const char *hook)
{
    SCOPED_FREE char *quoted = shell_quote(hook);

    return quoted ? shell_format("sh -c %s", quoted) : NULL;
}

static char *make_write(const char *word, const char *mount, const char *store, const char *file)
{
    SCOPED_FREE char *quoted = shell_quote(word), *path = quote_path(mount, store, file);

    return quoted && path ? shell_format("echo %s >%s", quoted, path) : NULL;
}

static char *make_max(const struct governor_deed *deed, const char *mount)
{
    SCOPED_FREE char *line = deed->bytes == UINT64_MAX
                                 ? shell_format("%s max=max", deed->store)
                                 : shell_format("%s max=%" PRIu64, deed->store, deed->bytes);

    return line ? make_write(line, mount, "pools", "") : NULL;
}

static char *make_own(const struct governor_deed *deed, const struct governor_place *place)
{
    SCOPED_FREE char *store = quote_path(place->mount, deed->store, ""),
                     *program = shell_quote(place->program);
    char *command = NULL;

    if (store && program && deed->kind == GOVERNOR_PROMOTE)
        command = shell_format("%s promote -q --timeout %u %s", program,
                               GOVERNOR_MOVE_MS / MS_PER_S, store);
    else if (store && program && deed->kind == GOVERNOR_DEMOTE)
        command = shell_format("%s demote -q --to %s --timeout %u %s", program, get_tier(deed),
                               GOVERNOR_MOVE_MS / MS_PER_S, store);
    else if (store && program && deed->tier == GOVERNOR_NONE)
        command = shell_format("%s drain -q --then none --timeout %u %s", program,
                               GOVERNOR_DRAIN_MS / MS_PER_S, store);
    else if (store && program)
        command = shell_format("%s drain -q --then demote --to %s --timeout %u %s", program,
                               get_tier(deed), GOVERNOR_DRAIN_MS / MS_PER_S, store);
    return command;
}

char *governor_deed_command(const struct governor_deed *deed, const struct governor_config *config,
                            const struct governor_place *place)
{
    const struct governor_model *model = find_model(deed, config);

    switch (deed->kind) {
    case GOVERNOR_SLEEP:
        return make_hook(model && model->sleep ? model->sleep : ":");
    case GOVERNOR_WAKE:
        return make_hook(model && model->wake ? model->wake : ":");
    case GOVERNOR_SPARE:
        return make_write(deed->tier == GOVERNOR_DISK ? "+disk" : "+host", place->mount,
                          deed->store, "residency");
    case GOVERNOR_POOL_MAX:
        return make_max(deed, place->mount);
    case GOVERNOR_REPORT:
        return strdup("");
    default:
        return make_own(deed, place);
    }
}

void governor_deed_name(const struct governor_deed *deed, const struct governor_config *config,
                        char *text, size_t room)
{
    static const struct {
        const char *before, *behind;
        bool of_model, has_tier;
    } words[] = {
        [GOVERNOR_SLEEP] = {"put ", " to sleep", true, false},
        [GOVERNOR_WAKE] = {"wake ", "", true, false},
        [GOVERNOR_DRAIN] = {"drain ", " and demote it to ", false, true},
        [GOVERNOR_DEMOTE] = {"demote ", " to ", false, true},
        [GOVERNOR_PROMOTE] = {"promote ", "", false, false},
        [GOVERNOR_SPARE] = {"begin a spare of ", " in ", false, true},
        [GOVERNOR_POOL_MAX] = {"change the max of pool ", "", false, false},
        [GOVERNOR_REPORT] = {"report on ", "", false, false},
    };
    const struct governor_model *model = find_model(deed, config);
    const char *name = words[deed->kind].of_model && model ? model->name : deed->store;

    snprintf(text, room, "%s%s%s%s", words[deed->kind].before, name ? name : "",
             words[deed->kind].behind, words[deed->kind].has_tier ? get_tier(deed) : "");
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static uint64_t get_limit_ms(const struct governor_deed *deed)
{
    switch (deed->kind) {
    case GOVERNOR_SLEEP:
    case GOVERNOR_WAKE:
        return GOVERNOR_HOOK_MS;
    case GOVERNOR_SPARE:
    case GOVERNOR_POOL_MAX:
        return GOVERNOR_WRITE_MS;
    case GOVERNOR_DRAIN: /* the daemon's move after it may take that long */
        return GOVERNOR_DRAIN_MS + GOVERNOR_MOVE_MS;
    default:
        return GOVERNOR_MOVE_MS + GOVERNOR_WRITE_MS; /* the command's own limit is reached first */
    }
}

int governor_do(const struct governor_deed *deed, const struct governor_config *config,
                const struct governor_place *place, struct failure *failure)
{
    struct hook hook = {.command = governor_deed_command(deed, config, place)};
    SCOPED_FREE char *command = (char *)hook.command;
    struct failure why;
    char name[512];

    if (!command)
        return failure_no_memory(failure);
    hooks_run(&hook, 1, get_limit_ms(deed));
    int error = hook_check(&hook, get_limit_ms(deed), &why);
    if (error) {
        governor_deed_name(deed, config, name, sizeof(name));
        failure_set(failure, error,
                    "cannot %s: %.2048s; it is tried again after the cooldown ('%.1024s')", name,
                    why.text, command);
    }
    hooks_free(&hook, 1);
    return error;
}
