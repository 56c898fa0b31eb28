/* SPDX-License-Identifier: Apache-2.0 */
/* Asks all engines for their metrics, and the mount for its grants, side by side. */
#include "governor/observe.h"

#include "base/failure.h"
#include "base/scope.h"
#include "governor/hook.h"
#include "governor/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRANTS_BYTES (16u << 20) /* two lines for each of 4,096 stores take 3 MiB at most */

/* ---- metrics of engines --------------------------------------------------------------------- */

static bool is_address(const char *metrics)
{
    return strncmp(metrics, "http://", 7) == 0 || strncmp(metrics, "https://", 8) == 0;
}

/* NULL: no memory. */
static char *make_question(const struct governor_model *model)
{
    SCOPED_FREE char *quoted = shell_quote(model->metrics);

    if (!is_address(model->metrics))
        return strdup(model->metrics);
    return quoted
               ? shell_format("exec curl -sSf --max-time %u %s", GOVERNOR_METRICS_MS / 1000, quoted)
               : NULL;
}

static int understand(const struct hook *hook, struct governor_metrics *metrics,
                      struct failure *failure)
{
    int error = hook_check(hook, GOVERNOR_METRICS_MS, failure);

    if (error)
        return error;
    governor_metrics_parse(hook->output ? hook->output : "", hook->bytes, metrics);
    if (metrics->has_waiting)
        return 0;
    return failure_set(failure, -EBADMSG,
                       metrics->malformed ? "the length of the queue is not a number"
                                          : "they lack the length of the queue: neither "
                                            "vllm:num_requests_waiting nor sglang:num_queue_reqs");
}

static void hear(struct governor_past_model *past, const struct governor_model *model,
                 const struct hook *hook, governor_tell *tell)
{
    struct governor_metrics metrics;
    struct failure why, text;

    past->is_known = understand(hook, &metrics, &why) == 0;
    if (past->is_known) {
        past->ttft_ms = governor_metrics_ttft_ms(&past->metrics, &metrics);
        past->metrics = metrics;
        if (past->is_told) {
            failure_set(&text, 0, "%s: its metrics are there again", model->name);
            tell(text.text);
        }
        past->is_told = false;
        return;
    }
    if (!past->is_told) {
        failure_set(&text, 0,
                    "%s: its metrics (%.256s): %.1024s; it is left alone until they return",
                    model->name, model->metrics, why.text);
        tell(text.text);
    }
    past->is_told = true;
}

/* ---- a round -------------------------------------------------------------------------------- */

static char *make_grants_question(const char *mount)
{
    SCOPED_FREE char *quoted = shell_quote(mount);

    return quoted ? shell_format("exec grep '^gmsfs_store_grants_total{' %s/metrics", quoted)
                  : NULL;
}

/* Makes a hook for each model with metrics, in their order, and one for the mount. Returns their
 * number; -ENOMEM. */
static int make_questions(const struct governor_config *config, const char *mount,
                          struct hook *hooks)
{
    int count = 0;

    for (size_t i = 0; i < config->model_count; i++) {
        if (!config->models[i].metrics)
            continue;
        hooks[count].command = make_question(&config->models[i]);
        if (!hooks[count++].command)
            return -ENOMEM;
    }
    if (config->adapters_count > 0) {
        hooks[count].command = make_grants_question(mount);
        hooks[count].most_bytes = GRANTS_BYTES;
        if (!hooks[count++].command)
            return -ENOMEM;
    }
    return count;
}

static int hear_grants(struct governor_past *past, const struct hook *hook, uint64_t now_ms)
{
    struct failure why;

    if (hook_check(hook, GOVERNOR_METRICS_MS, &why) != 0)
        return 0; /* the next look at the mount reports the reason */
    return governor_grants_take(&past->grants, hook->output ? hook->output : "", hook->bytes,
                                now_ms);
}

static int hear_all(struct governor_past *past, const struct governor_config *config,
                    const struct hook *hooks, uint64_t now_ms, governor_tell *tell)
{
    size_t at = 0;

    for (size_t i = 0; i < config->model_count; i++)
        if (config->models[i].metrics)
            hear(&past->models[i], &config->models[i], &hooks[at++], tell);
    return config->adapters_count > 0 ? hear_grants(past, &hooks[at], now_ms) : 0;
}

int governor_ask(struct governor_past *past, const struct governor_config *config,
                 const char *mount, uint64_t now_ms, governor_tell *tell)
{
    const size_t most = config->model_count + 1;
    SCOPED_FREE struct hook *hooks = calloc(most, sizeof(*hooks));
    int count = hooks ? make_questions(config, mount, hooks) : -ENOMEM, error = count;

    if (count >= 0) {
        hooks_run(hooks, (size_t)count, GOVERNOR_METRICS_MS);
        error = hear_all(past, config, hooks, now_ms, tell);
        hooks_free(hooks, (size_t)count);
    }
    for (size_t i = 0; hooks && i < most; i++)
        free((char *)hooks[i].command);
    return error < 0 ? error : 0;
}
