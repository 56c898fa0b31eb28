/* SPDX-License-Identifier: Apache-2.0 */
/* The governor's memory from round to round. */
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

    if (!models)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        models[i].name = strdup(config->models[i].name);
        if (models[i].name)
            continue;
        free_models(models, i);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++)
        take_over(past, &models[i]);
    free_models(past->models, past->model_count);
    past->models = models;
    past->model_count = count;
    past->has_told_pools = false;
    return 0;
}

static void free_moments(struct governor_moments *moments)
{
    for (size_t i = 0; i < moments->count; i++)
        free(moments->list[i].name);
}

void governor_past_free(struct governor_past *past)
{
    free_models(past->models, past->model_count);
    governor_grants_free(&past->grants);
    free_moments(&past->pools);
    free_moments(&past->stores);
    *past = (struct governor_past){0};
}

uint64_t governor_moments_find(const struct governor_moments *moments, const char *name)
{
    for (size_t i = 0; i < moments->count; i++)
        if (strcmp(moments->list[i].name, name) == 0)
            return moments->list[i].at_ms;
    return 0;
}

/* Returns the time of this name, or a free one, or the oldest. */
static struct governor_moment *find_moment(struct governor_moments *moments, const char *name)
{
    struct governor_moment *oldest = moments->list;

    for (size_t i = 0; i < moments->count; i++) {
        struct governor_moment *moment = &moments->list[i];

        if (strcmp(moment->name, name) == 0)
            return moment;
        if (moment->at_ms < oldest->at_ms)
            oldest = moment;
    }
    return moments->count < GOVERNOR_MAX_MOMENTS ? &moments->list[moments->count] : oldest;
}

static void note_moment(struct governor_moments *moments, const char *name, uint64_t now_ms)
{
    struct governor_moment *moment = find_moment(moments, name);
    char *copy = strdup(name);

    if (!copy)
        return;
    if (moment == &moments->list[moments->count])
        moments->count++;
    free(moment->name);
    *moment = (struct governor_moment){.name = copy, .at_ms = now_ms};
}

void governor_note(struct governor_past *past, const struct governor_deed *deed, int error,
                   uint64_t now_ms)
{
    struct governor_past_model *model =
        deed->model < past->model_count ? &past->models[deed->model] : NULL;

    if (deed->kind == GOVERNOR_POOL_MAX)
        note_moment(&past->pools, deed->store, now_ms);
    else if (!model && error && deed->store)
        note_moment(&past->stores, deed->store, now_ms);
    if (!model)
        return;
    if (error)
        model->failed_ms = now_ms;
    else if (deed->kind == GOVERNOR_SLEEP || deed->kind == GOVERNOR_WAKE)
        model->done_ms = now_ms;
    if (!error && deed->kind == GOVERNOR_WAKE)
        model->woken_ms = now_ms;
    else if (deed->kind == GOVERNOR_SLEEP)
        model->woken_ms = 0;
}
