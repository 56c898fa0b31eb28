/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor.conf: refused in one line that names the line, or a table within its bounds, which means
 * the same when it is written out again.
 */
#include "fuzz.h"

#include "base/failure.h"
#include "core/core.h"
#include "governor/config.h"

#include <errno.h>
#include <inttypes.h>

static void check_model(const struct governor_config *config, size_t index)
{
    const struct governor_model *model = &config->models[index];

    must(core_is_pool_name(model->name) && model->store[0] && !strchr(model->store, '/'));
    must(strlen(model->store) <= 255);
    must(model->class < POOL_CLASS_COUNT);
    must(!model->sleep == !model->wake && (!model->idle_ms || !model->min_one));
    must(!model->ttft_ms || model->metrics);
    must(!model->pool || core_is_pool_name(model->pool));
    for (size_t i = 0; i < index; i++)
        must(strcmp(config->models[i].name, model->name) != 0 &&
             strcmp(config->models[i].store, model->store) != 0);
}

static void check_config(const struct governor_config *config)
{
    must(config->interval_ms >= 100 && config->interval_ms <= 3600000);
    must(config->cooldown_ms <= 24 * 3600000 && config->low < config->high && config->high <= 100);
    must(config->model_count <= GOVERNOR_MAX_MODELS);
    must(config->adapters_count <= GOVERNOR_MAX_ADAPTERS);
    for (size_t i = 0; i < config->model_count; i++)
        check_model(config, i);
    for (size_t i = 0; i < config->adapters_count; i++) {
        const struct governor_adapters *adapters = &config->adapters[i];
        bool is_model = !adapters->base;

        for (size_t k = 0; k < config->model_count && adapters->base; k++)
            is_model |= strcmp(config->models[k].name, adapters->base) == 0;
        must(is_model && core_is_pool_name(adapters->pool));
        must(adapters->prefetch > 0 && adapters->prefetch <= GOVERNOR_MAX_PREFETCH);
    }
}

/* Quotes each byte by itself. */
static void write_quoted(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '"' ? "'%c'" : "\"%c\"", *text);
}

static void write_text(FILE *out, const char *key, const char *text)
{
    if (!text)
        return;
    fprintf(out, " %s=", key);
    write_quoted(out, text);
}

static void write_config(FILE *out, const struct governor_config *config)
{
    fprintf(out, "interval %" PRIu64 "ms;cooldown %" PRIu64 "ms;high %u;low %u%%\n",
            config->interval_ms, config->cooldown_ms, config->high, config->low);
    for (size_t i = 0; i < config->model_count; i++) {
        const struct governor_model *model = &config->models[i];

        fprintf(out, "model ");
        write_quoted(out, model->name);
        fprintf(out, " class=%s min=%d", core_pool_class_name(model->class), model->min_one);
        if (model->idle_ms)
            fprintf(out, " idle=%" PRIu64 "ms", model->idle_ms);
        if (model->ttft_ms)
            fprintf(out, " ttft_ms=%" PRIu64, model->ttft_ms);
        write_text(out, "store", model->store);
        write_text(out, "sleep", model->sleep);
        write_text(out, "wake", model->wake);
        write_text(out, "metrics", model->metrics);
        write_text(out, "pool", model->pool);
        fprintf(out, "\n");
    }
    for (size_t i = 0; i < config->adapters_count; i++) {
        fprintf(out, "adapters prefetch=%" PRIu64, config->adapters[i].prefetch);
        write_text(out, "pool", config->adapters[i].pool);
        write_text(out, "base", config->adapters[i].base);
        fprintf(out, "\n");
    }
}

static void write_out(const struct governor_config *config, char **text, size_t *bytes)
{
    FILE *out = open_memstream(text, bytes);

    must(out != NULL);
    write_config(out, config);
    must(fclose(out) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct governor_config config, again;
    struct failure failure = {""};
    char *first, *second;
    size_t first_bytes, second_bytes;
    int error = governor_config_parse((const char *)data, size, &config, &failure);

    must(error == 0 || error == -EINVAL || error == -E2BIG);
    if (error) {
        must(fuzz_is_line(failure.text));
        must(size > GOVERNOR_MAX_CONFIG || strncmp(failure.text, "line ", 5) == 0);
        must(!config.models && !config.adapters && config.model_count == 0);
        return 0;
    }
    check_config(&config);
    write_out(&config, &first, &first_bytes);
    if (first_bytes > GOVERNOR_MAX_CONFIG) {
        free(first);
        governor_config_free(&config);
        return 0;
    }
    must(governor_config_parse(first, first_bytes, &again, &failure) == 0);
    write_out(&again, &second, &second_bytes);
    must(fuzz_same(first, first_bytes, second, second_bytes));
    free(first);
    free(second);
    governor_config_free(&config);
    governor_config_free(&again);
    return 0;
}
