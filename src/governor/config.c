/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/config.h"

#include "core/core.h"
#include "governor/config_words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOUR_MS         UINT64_C(3600000)
#define LEAST_INTERVAL  UINT64_C(100)
#define MOST_INTERVAL   HOUR_MS
#define MOST_COOLDOWN   (24 * HOUR_MS)
#define MOST_IDLE       (7 * 24 * HOUR_MS)
#define MOST_TTFT       HOUR_MS
#define MOST_STORE_NAME 255u

enum setting {
    SETTING_INTERVAL,
    SETTING_COOLDOWN,
    SETTING_HIGH,
    SETTING_LOW,
    SETTING_COUNT,
};

struct parser {
    struct config_words words; /* first: functions cast between both */
    struct governor_config *config;
    unsigned setting_lines[SETTING_COUNT]; /* 0: not set so far */
    unsigned adapters_lines[GOVERNOR_MAX_ADAPTERS];
};

/* A KEY= of a model or of adapters. */
struct key {
    const char *name;
    int (*set)(struct parser *parser, void *row, const struct key *key, const char *value);
    size_t offset; /* of the field */
    uint64_t most; /* of a number */
};

static int copy_text(struct parser *parser, const char *text, char **copy)
{
    *copy = strdup(text);
    return *copy ? 0 : failure_no_memory(parser->words.failure);
}

/* ---- values --------------------------------------------------------------------------------- */

static char **text_field(void *row, const struct key *key)
{
    return (char **)((char *)row + key->offset);
}

static uint64_t *number_field(void *row, const struct key *key)
{
    return (uint64_t *)(void *)((char *)row + key->offset);
}

static int set_command(struct parser *parser, void *row, const struct key *key, const char *value)
{
    if (value[strspn(value, " \t")] == '\0')
        return config_refuse(&parser->words, "%s= is empty; give a command, or leave it out",
                             key->name);
    return copy_text(parser, value, text_field(row, key));
}

static int set_metrics(struct parser *parser, void *row, const struct key *key, const char *value)
{
    if (strncmp(value, "https://", 8) == 0)
        return config_refuse(&parser->words,
                             "metrics=%s: only http:// is read; let a command do it: "
                             "metrics='curl -sf https://...'",
                             config_show(value).text);
    if (strcmp(value, "http://") == 0)
        return config_refuse(&parser->words, "metrics=http:// names no host");
    return set_command(parser, row, key, value);
}

static int set_pool(struct parser *parser, void *row, const struct key *key, const char *value)
{
    if (!core_is_pool_name(value))
        return config_refuse(&parser->words,
                             "pool=%s: no pool can have this name; the file `pools` of the mount "
                             "lists the pools",
                             config_show(value).text);
    return copy_text(parser, value, text_field(row, key));
}

static int set_store(struct parser *parser, void *row, const struct key *key, const char *value)
{
    const struct governor_config *config = parser->config;
    size_t bytes = strlen(value);

    if (bytes == 0 || bytes > MOST_STORE_NAME || strchr(value, '/') || strcmp(value, ".") == 0 ||
        strcmp(value, "..") == 0)
        return config_refuse(&parser->words,
                             "store=%s: it is the name of a store's directory in the mount, "
                             "without a path",
                             config_show(value).text);
    for (size_t i = 0; i < config->model_count; i++) {
        if (&config->models[i] != row && strcmp(config->models[i].store, value) == 0)
            return config_refuse(&parser->words,
                                 "store=%s is model %s's already; each model has its own",
                                 config_show(value).text, config_show(config->models[i].name).text);
    }
    return copy_text(parser, value, text_field(row, key));
}

static int set_class(struct parser *parser, void *row, const struct key *key, const char *value)
{
    (void)key;
    for (unsigned class = 0; class < POOL_CLASS_COUNT; class ++) {
        if (strcmp(value, core_pool_class_name((enum pool_class) class)) != 0)
            continue;
        ((struct governor_model *)row)->class = (enum pool_class) class;
        return 0;
    }
    return config_refuse(&parser->words, "class=%s: it is critical, high, standard or batch",
                         config_show(value).text);
}

static int set_min(struct parser *parser, void *row, const struct key *key, const char *value)
{
    uint64_t number;

    (void)key;
    if (config_take_number(&parser->words, "min", value, 0, 1, &number) < 0)
        return -EINVAL;
    ((struct governor_model *)row)->min_one = number == 1;
    return 0;
}

static int set_idle(struct parser *parser, void *row, const struct key *key, const char *value)
{
    return config_take_time(&parser->words, key->name, value, 1, key->most, number_field(row, key));
}

static int set_number(struct parser *parser, void *row, const struct key *key, const char *value)
{
    return config_take_number(&parser->words, key->name, value, 1, key->most,
                              number_field(row, key));
}

/* The model may follow later in the file, so its existence is checked at the end. */
static int set_base(struct parser *parser, void *row, const struct key *key, const char *value)
{
    return copy_text(parser, value, text_field(row, key));
}

static const struct key model_keys[] = {
    {"store", set_store, offsetof(struct governor_model, store), 0},
    {"class", set_class, 0, 0},
    {"min", set_min, 0, 0},
    {"idle", set_idle, offsetof(struct governor_model, idle_ms), MOST_IDLE},
    {"ttft_ms", set_number, offsetof(struct governor_model, ttft_ms), MOST_TTFT},
    {"sleep", set_command, offsetof(struct governor_model, sleep), 0},
    {"wake", set_command, offsetof(struct governor_model, wake), 0},
    {"metrics", set_metrics, offsetof(struct governor_model, metrics), 0},
    {"pool", set_pool, offsetof(struct governor_model, pool), 0},
};

static const struct key adapters_keys[] = {
    {"pool", set_pool, offsetof(struct governor_adapters, pool), 0},
    {"base", set_base, offsetof(struct governor_adapters, base), 0},
    {"prefetch", set_number, offsetof(struct governor_adapters, prefetch), GOVERNOR_MAX_PREFETCH},
};

static void list_keys(const struct key *keys, size_t count, char *text, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=", i ? " " : "", keys[i].name);
}

/* Parses the word KEY=VALUE. `seen` has a bit for each key. */
static int take_key(struct parser *parser, void *row, const struct key *keys, size_t count,
                    unsigned *seen)
{
    char known[128];
    const char *word = parser->words.word;
    size_t bytes = strcspn(word, "=");

    for (size_t i = 0; i < count && word[bytes]; i++) {
        if (strlen(keys[i].name) != bytes || memcmp(keys[i].name, word, bytes) != 0)
            continue;
        if (*seen & 1u << i)
            return config_refuse(&parser->words, "%s= is there twice in one statement",
                                 keys[i].name);
        *seen |= 1u << i;
        return keys[i].set(parser, row, &keys[i], word + bytes + 1);
    }
    list_keys(keys, count, known, sizeof known);
    return config_refuse(&parser->words, "\"%s\" is none of %s", config_show(word).text, known);
}

static int take_keys(struct parser *parser, void *row, const struct key *keys, size_t count)
{
    unsigned seen = 0;
    int there = config_next_word(&parser->words);

    for (; there > 0; there = config_next_word(&parser->words)) {
        int error = take_key(parser, row, keys, count, &seen);
        if (error)
            return error;
    }
    return there;
}

/* ---- statements ----------------------------------------------------------------------------- */

static int find_model(const struct governor_config *config, const char *name)
{
    for (size_t i = 0; i < config->model_count; i++) {
        if (strcmp(config->models[i].name, name) == 0)
            return (int)i;
    }
    return -ENOENT;
}

/* Checks the combination of keys. */
static int check_model(const struct parser *parser, const struct governor_model *model)
{
    const struct config_words *words = &parser->words;
    const char *name = model->name;

    if (!model->store)
        return config_refuse(words, "model %s needs store=, the store that it serves from", name);
    if (!model->sleep != !model->wake)
        return config_refuse(words, "model %s has %s= alone; it needs %s= as well, or neither",
                             name, model->sleep ? "sleep" : "wake",
                             model->sleep ? "wake" : "sleep");
    if (model->ttft_ms && !model->metrics)
        return config_refuse(words, "model %s has ttft_ms=, which needs metrics=", name);
    if (model->idle_ms && model->min_one)
        return config_refuse(
            words, "model %s has idle= and min=1, which means never; take one away", name);
    return 0;
}

static int parse_model(struct parser *parser)
{
    struct governor_config *config = parser->config;
    struct governor_model *model = &config->models[config->model_count];
    const char *name = parser->words.word;
    int there = config_next_word(&parser->words);

    if (there < 0)
        return there;
    if (there == 0 || !core_is_pool_name(name))
        return config_refuse(&parser->words,
                             "model \"%s\": a name comes first, of up to %u printable characters "
                             "without blanks, quotes, \\ and =, and not with - or # in front",
                             config_show(name).text, CORE_POOL_NAME_BYTES - 1);
    if (find_model(config, name) >= 0)
        return config_refuse(&parser->words,
                             "model %s is there already; each has a name of its own", name);
    if (config->model_count == GOVERNOR_MAX_MODELS) {
        config_refuse(&parser->words, "model %s is one more than the maximum of %u", name,
                      GOVERNOR_MAX_MODELS);
        return -E2BIG;
    }
    *model = (struct governor_model){.class = POOL_CLASS_STANDARD};
    int error = copy_text(parser, name, &model->name);
    config->model_count += !error; /* from here on governor_config_free frees the name */
    if (!error)
        error = take_keys(parser, model, model_keys, sizeof model_keys / sizeof model_keys[0]);
    return error ? error : check_model(parser, model);
}

static int parse_adapters(struct parser *parser)
{
    struct governor_config *config = parser->config;
    struct governor_adapters *adapters = &config->adapters[config->adapters_count];

    if (config->adapters_count == GOVERNOR_MAX_ADAPTERS) {
        config_refuse(&parser->words, "adapters: there are more than %u pools of them",
                      GOVERNOR_MAX_ADAPTERS);
        return -E2BIG;
    }
    *adapters = (struct governor_adapters){.prefetch = GOVERNOR_PREFETCH};
    parser->adapters_lines[config->adapters_count++] = parser->words.line;
    int error =
        take_keys(parser, adapters, adapters_keys, sizeof adapters_keys / sizeof adapters_keys[0]);
    if (error)
        return error;
    if (!adapters->pool)
        return config_refuse(&parser->words,
                             "adapters need pool=, the pool that their stores are in");
    for (struct governor_adapters *other = config->adapters; other < adapters; other++) {
        if (strcmp(other->pool, adapters->pool) == 0)
            return config_refuse(&parser->words, "adapters pool=%s is there already",
                                 adapters->pool);
    }
    return 0;
}

static const struct {
    const char *name;
    enum setting setting;
} settings[] = {
    {"interval", SETTING_INTERVAL},
    {"cooldown", SETTING_COOLDOWN},
    {"high", SETTING_HIGH},
    {"low", SETTING_LOW},
};

static int take_setting(struct parser *parser, enum setting setting, const char *name)
{
    const struct config_words *words = &parser->words;
    struct governor_config *config = parser->config;

    switch (setting) {
    case SETTING_INTERVAL:
        return config_take_time(words, name, words->word, LEAST_INTERVAL, MOST_INTERVAL,
                                &config->interval_ms);
    case SETTING_COOLDOWN:
        return config_take_time(words, name, words->word, 0, MOST_COOLDOWN, &config->cooldown_ms);
    case SETTING_HIGH:
        return config_take_percent(words, name, words->word, &config->high);
    default:
        return config_take_percent(words, name, words->word, &config->low);
    }
}

static int parse_setting(struct parser *parser, enum setting setting, const char *name)
{
    unsigned *line = &parser->setting_lines[setting];
    int there = config_next_word(&parser->words);

    if (there < 0)
        return there;
    if (there == 0)
        return config_refuse(&parser->words, "%s needs a value after it", name);
    if (*line)
        return config_refuse(&parser->words, "%s is set in line %u already", name, *line);
    *line = parser->words.line;
    int error = take_setting(parser, setting, name);
    if (error)
        return error;
    there = config_next_word(&parser->words);
    if (there > 0)
        return config_refuse(&parser->words,
                             "\"%s\" after %s is too much: it has one value; ; divides statements",
                             config_show(parser->words.word).text, name);
    return there;
}

/* Parses a statement after its first word. */
static int parse_statement(struct parser *parser)
{
    const char *word = parser->words.word;

    if (strcmp(word, "model") == 0)
        return parse_model(parser);
    if (strcmp(word, "adapters") == 0)
        return parse_adapters(parser);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (strcmp(word, settings[i].name) == 0)
            return parse_setting(parser, settings[i].setting, settings[i].name);
    }
    return config_refuse(&parser->words,
                         "\"%s\" is not a statement; statements are interval, cooldown, high, low, "
                         "model and adapters",
                         config_show(word).text);
}

/* ---- the whole file -------------------------------------------------------------------------- */

/* Checks the whole file; an error names the line of the setting. */
static int check_whole(struct parser *parser)
{
    struct config_words *words = &parser->words;
    const struct governor_config *config = parser->config;
    unsigned high = parser->setting_lines[SETTING_HIGH], low = parser->setting_lines[SETTING_LOW];

    if (config->low >= config->high) {
        words->line = high > low ? high : low;
        return config_refuse(words, "low %u%%%s is not below high %u%%%s; say both", config->low,
                             low ? "" : " (the default)", config->high,
                             high ? "" : " (the default)");
    }
    for (size_t i = 0; i < config->adapters_count; i++) {
        words->line = parser->adapters_lines[i];
        if (config->adapters[i].base && find_model(config, config->adapters[i].base) < 0)
            return config_refuse(words, "base=%s is no model of this file",
                                 config_show(config->adapters[i].base).text);
    }
    return 0;
}

static int parse_all(struct parser *parser)
{
    int there = config_next_statement(&parser->words);

    for (; there > 0; there = config_next_statement(&parser->words)) {
        int error = parse_statement(parser);
        if (error)
            return error;
    }
    return there < 0 ? there : check_whole(parser);
}

int governor_config_parse(const char *text, size_t len, struct governor_config *config,
                          struct failure *failure)
{
    struct parser parser = {.config = config};
    int error = config_words_begin(&parser.words, text, len, failure);

    *config = (struct governor_config){.interval_ms = GOVERNOR_INTERVAL_MS,
                                       .cooldown_ms = GOVERNOR_COOLDOWN_MS,
                                       .high = GOVERNOR_HIGH,
                                       .low = GOVERNOR_LOW};
    if (!error) {
        config->models = calloc(GOVERNOR_MAX_MODELS + 1, sizeof *config->models);
        config->adapters = calloc(GOVERNOR_MAX_ADAPTERS + 1, sizeof *config->adapters);
        error =
            config->models && config->adapters ? parse_all(&parser) : failure_no_memory(failure);
    }
    if (error)
        governor_config_free(config);
    return error;
}

void governor_config_free(struct governor_config *config)
{
    for (size_t i = 0; i < config->model_count; i++) {
        const struct governor_model *model = &config->models[i];
        char *texts[] = {model->name, model->store,   model->sleep,
                         model->wake, model->metrics, model->pool};
        for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
            free(texts[k]);
    }
    for (size_t i = 0; i < config->adapters_count; i++) {
        free(config->adapters[i].pool);
        free(config->adapters[i].base);
    }
    free(config->models);
    free(config->adapters);
    *config = (struct governor_config){0};
}
