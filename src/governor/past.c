/* SPDX-License-Identifier: Apache-2.0 */
/* What a governor remembers from round to round. */
#include "governor/observe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void take_over(struct governor_past *past, struct governor_past_model *model)
{
    for (size_t i = 0; i < past->model_count; i++) {
        struct governor_past_model *before = &past->models[i];

        if (!before->name || strcmp(before->name, model->name) != 0)
            continue;
        free(model->name);
        *model = *before;
        before->name = NULL;
        return;
    }
}

static void free_models(struct governor_past_model *models, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(models[i].name);
    free(models);
}

int governor_past_follow(struct governor_past *past, const struct governor_config *config)
{
    size_t count = config->model_count;
    struct governor_past_model *models = calloc(count + 1, sizeof(*models));

    for (size_t i = 0; models && i < count; i++) {
        models[i].name = strdup(config->models[i].name);
        if (models[i].name)
            continue;
        free_models(models, i);
        models = NULL;
    }
    if (!models)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        take_over(past, &models[i]);
    free_models(past->models, past->model_count);
    past->models = models;
    past->model_count = count;
    return 0;
}

void governor_past_free(struct governor_past *past)
{
    free_models(past->models, past->model_count);
    governor_grants_free(&past->grants);
    for (size_t i = 0; i < past->pool_count; i++)
        free(past->pools[i].name);
    *past = (struct governor_past){0};
}

static void note_pool(struct governor_past *past, const char *name, uint64_t now_ms)
{
    struct governor_past_pool *pool = past->pools;

    while (pool < past->pools + past->pool_count && strcmp(pool->name, name) != 0)
        pool++;
    if (pool == past->pools + EVICT_MAX_POOLS)
        return;
    if (pool == past->pools + past->pool_count) {
        pool->name = strdup(name);
        past->pool_count += pool->name != NULL;
    }
    pool->changed_ms = now_ms;
}

void governor_note(struct governor_past *past, const struct governor_deed *deed, int error,
                   uint64_t now_ms)
{
    struct governor_past_model *model =
        deed->model < past->model_count ? &past->models[deed->model] : NULL;

    if (deed->kind == GOVERNOR_POOL_MAX)
        note_pool(past, deed->store, now_ms);
    if (!model)
        return;
    if (error)
        model->failed_ms = now_ms;
    else if (deed->kind == GOVERNOR_SLEEP || deed->kind == GOVERNOR_WAKE)
        model->done_ms = now_ms;
}
