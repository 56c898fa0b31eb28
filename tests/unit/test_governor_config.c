/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parsing of governor.conf, and the reports of its errors. */
#include "base/failure.h"
#include "governor/config.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static struct governor_config config;
static struct failure failure;

/* A block of its own, so that a sanitizer sees a read beyond its end. */
static int parse_bytes(const char *text, size_t bytes)
{
    char *exact = malloc(bytes ? bytes : 1);
    int error;

    require(exact != NULL);
    memcpy(exact, text, bytes);
    governor_config_free(&config);
    memset(&failure, 0, sizeof failure);
    error = governor_config_parse(exact, bytes, &config, &failure);
    free(exact);
    return error;
}

static int parse(const char *text)
{
    return parse_bytes(text, strlen(text));
}

/* Checks that it is refused, and that the message has all of these. */
static void check_told(const char *text, int error, const char *const *parts, const char *file,
                       int line)
{
    tap_check_int(parse(text), error, file, line, text);
    for (; *parts; parts++) {
        if (!tap_check(strstr(failure.text, *parts) != NULL, file, line, *parts))
            fprintf(stderr, "# told: %s\n", failure.text);
    }
    tap_check(config.model_count == 0 && !config.models && !config.adapters, file, line,
              "nothing is left");
}

#define refused(text, ...) \
    check_told(text, -EINVAL, (const char *const[]){__VA_ARGS__, NULL}, __FILE__, __LINE__)

TAP_TEST(a_whole_file_is_read)
{
    check_int(parse("# of gpu0\n"
                    "interval 5 ; high 90%; low 80% ;cooldown 1m # short ones\n"
                    "\n"
                    "model code store=llama70b pool=code class=critical ttft_ms=200 min=1 "
                    "sleep='curl -sX POST :8001/sleep' wake=\"wake 'code'; true\" "
                    "metrics=http://127.0.0.1:8001/metrics\n"
                    "model batch  store=qwen7b\tclass=batch idle=300 sleep=a wake=b\n"
                    "adapters pool=adapters base=code prefetch=7"),
              0);
    check_int(config.interval_ms, 5000);
    check_int(config.high, 90);
    check_int(config.low, 80);
    check_int(config.cooldown_ms, 60000);
    require(config.model_count == 2);
    const struct governor_model *code = &config.models[0], *batch = &config.models[1];
    check_str(code->name, "code");
    check_str(code->store, "llama70b");
    check_str(code->pool, "code");
    check_int(code->class, POOL_CLASS_CRITICAL);
    check_int(code->ttft_ms, 200);
    check(code->min_one);
    check_str(code->sleep, "curl -sX POST :8001/sleep");
    check_str(code->wake, "wake 'code'; true");
    check_str(code->metrics, "http://127.0.0.1:8001/metrics");
    check_str(batch->store, "qwen7b");
    check_int(batch->class, POOL_CLASS_BATCH);
    check_int(batch->idle_ms, 300000);
    require(config.adapters_count == 1);
    check_str(config.adapters[0].pool, "adapters");
    check_str(config.adapters[0].base, "code");
    check_int(config.adapters[0].prefetch, 7);
}

TAP_TEST(missing_settings_have_their_default)
{
    check_int(parse("model a store=s\nadapters pool=p"), 0);
    check_int(config.interval_ms, 10000);
    check_int(config.cooldown_ms, 30000);
    check_int(config.high, 95);
    check_int(config.low, 85);
    require(config.model_count == 1 && config.adapters_count == 1);
    const struct governor_model *model = &config.models[0];
    check_int(model->class, POOL_CLASS_STANDARD);
    check(!model->min_one && model->idle_ms == 0 && model->ttft_ms == 0);
    check(!model->sleep && !model->wake && !model->metrics && !model->pool);
    check(!config.adapters[0].base);
    check_int(config.adapters[0].prefetch, 10);
}

TAP_TEST(an_empty_file_has_no_models)
{
    check_int(parse(""), 0);
    check_int(config.model_count + config.adapters_count, 0);
    check_int(parse("\n \t\n;;\n# nothing"), 0);
    check_int(config.model_count, 0);
}

TAP_TEST(a_time_has_a_unit_or_is_in_seconds)
{
    check_int(parse("interval 250ms; cooldown 0"), 0);
    check_int(config.interval_ms, 250);
    check_int(config.cooldown_ms, 0);
    check_int(parse("interval 10s; cooldown 2h"), 0);
    check_int(config.interval_ms, 10000);
    check_int(config.cooldown_ms, 7200000);
}

TAP_TEST(a_base_may_come_after_its_adapters)
{
    check_int(parse("adapters pool=p base=late\nmodel late store=s"), 0);
}

TAP_TEST(quotes_keep_blanks_and_separators)
{
    check_int(parse("model a store=s sleep='x; y # z' wake=pre'fix ed'\"'\"post # wake=no"), 0);
    check_str(config.models[0].sleep, "x; y # z");
    check_str(config.models[0].wake, "prefix ed'post");
}

TAP_TEST(a_number_sign_within_a_word_is_no_comment)
{
    check_int(parse("model a store=s#1"), 0);
    check_str(config.models[0].store, "s#1");
}

TAP_TEST(the_line_and_the_word_are_reported)
{
    refused("interval 10\n\nmodell a store=s", "line 3: ", "\"modell\"", "model and adapters");
    refused("# a\nmodel a store=s colour=red", "line 2: ", "\"colour=red\"", "store= class=");
    refused("model a store=s;\nadapters pool=p prefetsch=1", "line 2: ", "\"prefetsch=1\"",
            "pool= base= prefetch=");
    refused("model a store=s store", "line 1: ", "\"store\"", "none of store=");
}

TAP_TEST(low_is_below_high)
{
    refused("high 80\nlow 90", "line 2: ", "low 90% is not below high 80%");
    refused("low 90\nhigh 90%\n", "line 2: ", "low 90% is not below high 90%");
    refused("\nhigh 80%", "line 2: ", "low 85% (the default)", "say both");
    refused("low 95%", "line 1: ", "high 95% (the default)");
    check_int(parse("low 0;high 1%"), 0);
}

TAP_TEST(per_cent_are_0_to_100)
{
    refused("high 101%", "high 101%", "0% to 100%");
    refused("high 95%%", "high 95%%", "percentage");
    refused("high ninety", "high ninety");
    refused("low -1", "low -1");
}

TAP_TEST(a_setting_is_there_once_and_has_one_value)
{
    refused("interval 1\ninterval 1", "line 2: ", "interval", "line 1");
    refused("interval", "interval needs a value");
    refused("interval; high 90", "interval needs a value");
    refused("cooldown 3 seconds", "\"seconds\"", "cooldown", "one value");
}

TAP_TEST(times_have_bounds)
{
    refused("interval 0", "interval 0", "from 100ms to 1h");
    refused("interval 99ms", "interval 99ms");
    refused("interval 2h", "interval 2h");
    refused("cooldown 25h", "cooldown 25h");
    refused("cooldown 1.5", "cooldown 1.5");
    refused("cooldown 1d", "cooldown 1d");
    refused("cooldown 99999999999999999999", "cooldown 9999");
    refused("model a store=s idle=0", "idle 0", "from 1ms to 168h");
}

TAP_TEST(two_models_share_neither_name_nor_store)
{
    refused("model a store=s\nmodel a store=t", "line 2: ", "model a is there already");
    refused("model a store=s\nmodel b store=s", "line 2: ", "store=s", "model a's");
}

TAP_TEST(a_model_has_a_name_and_a_store)
{
    refused("model", "model \"\"", "a name comes first");
    refused("model store=s", "model \"store=s\"", "a name comes first");
    refused("model -a store=s", "model \"-a\"");
    refused("model a", "model a needs store=");
    refused("model a store=", "store=", "store's directory");
    refused("model a store=/mnt/gms/a", "store=/mnt/gms/a", "without a path");
    refused("model a store=..", "store=..");
}

TAP_TEST(a_key_is_there_once)
{
    refused("model a store=s store=t", "store= is there twice");
    refused("adapters pool=p pool=p", "pool= is there twice");
}

TAP_TEST(values_fit_their_keys)
{
    refused("model a store=s class=low", "class=low", "critical, high, standard or batch");
    refused("model a store=s min=2", "min 2", "from 0 to 1");
    refused("model a store=s metrics=m ttft_ms=0", "ttft_ms 0");
    refused("model a store=s pool='a b'", "pool=a b");
    refused("model a store=s sleep='  ' wake=x", "sleep= is empty");
    refused("model a store=s metrics=https://host", "metrics=https://host", "curl");
    refused("model a store=s metrics=http://", "names no host");
    refused("adapters pool=p prefetch=0", "prefetch 0", "from 1 to 1024");
    refused("adapters pool=p prefetch=1025", "prefetch 1025");
}

TAP_TEST(keys_that_need_another_say_so)
{
    refused("model a store=s sleep=x", "model a", "sleep= alone", "wake=");
    refused("model a store=s wake=x", "model a", "wake= alone", "sleep=");
    refused("model a store=s ttft_ms=200", "model a", "ttft_ms=", "metrics=");
    refused("model a store=s idle=300 min=1", "model a", "idle=", "min=1");
}

TAP_TEST(adapters_have_a_pool_of_their_own_and_a_base_that_is_a_model)
{
    refused("adapters base=a", "adapters need pool=");
    refused("adapters pool=p\nadapters pool=p", "line 2: ", "pool=p is there already");
    refused("model a store=s\nadapters pool=p base=s\n", "line 2: ", "base=s is no model");
}

TAP_TEST(a_quote_ends_in_its_line)
{
    refused("model a store=s sleep='curl\nwake=x'", "line 1: ", "a ' is not closed");
    refused("\ninterval \"10", "line 2: ", "a \" is not closed");
}

TAP_TEST(bytes_that_are_not_text_are_refused)
{
    check_int(parse_bytes("high 90\nlow\0 80", 14), -EINVAL);
    check_str(failure.text, "line 2: has a byte 0x00; a line has only text, blanks and tabs");
    refused("interval 10\r\n", "line 1: ", "0x0d", "ends with 0x0a");
    refused("model a store=\033[31m", "0x1b");
    check_int(parse("model a store=k\xc3\xa4se"), 0);
}

TAP_TEST(a_word_is_bounded)
{
    static char text[8192];
    int bytes = snprintf(text, sizeof text, "model a store=s wake=w sleep=");

    memset(text + bytes, 'x', 4096 - 6);
    check_int(parse(text), 0);
    check_int(strlen(config.models[0].sleep), 4096 - 6);
    text[bytes + 4096 - 6] = 'x';
    check_int(parse(text), -E2BIG);
    check(strstr(failure.text, "line 1: the word that begins with \"sleep=xx") != NULL);
    snprintf(text + bytes + 4090, 8, "'y'");
    check_int(parse(text), -E2BIG);
}

TAP_TEST(the_file_is_bounded)
{
    size_t bytes = GOVERNOR_MAX_CONFIG;
    auto_free char *text = malloc(bytes + 1);

    require(text != NULL);
    memset(text, '\n', bytes + 1);
    check_int(parse_bytes(text, bytes), 0);
    check_int(parse_bytes(text, bytes + 1), -E2BIG);
    check(strstr(failure.text, "1048577 bytes") != NULL);
}

TAP_TEST(models_and_adapters_are_bounded)
{
    static char text[GOVERNOR_MAX_MODELS * 32];
    size_t used = 0;

    for (unsigned i = 0; i < GOVERNOR_MAX_MODELS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "model m%u store=s%u\n", i, i);
    check_int(parse(text), 0);
    check_int(config.model_count, GOVERNOR_MAX_MODELS);
    snprintf(text + used, sizeof text - used, "model more store=more");
    check_int(parse(text), -E2BIG);
    check(strstr(failure.text, "line 257: model more is one more than the maximum of 256") != NULL);
    used = 0;
    for (unsigned i = 0; i < GOVERNOR_MAX_ADAPTERS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "adapters pool=p%u\n", i);
    check_int(parse(text), 0);
    check_int(config.adapters_count, GOVERNOR_MAX_ADAPTERS);
    snprintf(text + used, sizeof text - used, "adapters pool=more");
    check_int(parse(text), -E2BIG);
    governor_config_free(&config);
}
