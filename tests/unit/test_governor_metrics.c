/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parsing of engines' metrics. */
#include "governor/metrics.h"
#include "tap.h"

#include <stdlib.h>

static struct governor_metrics metrics;

/* A block of its own, so that a sanitizer sees a read beyond its end. */
static void parse(const char *text)
{
    size_t bytes = strlen(text);
    char *exact = malloc(bytes ? bytes : 1);

    require(exact != NULL);
    memcpy(exact, text, bytes);
    governor_metrics_parse(exact, bytes, &metrics);
    free(exact);
}

TAP_TEST(an_engine_of_vllm_is_understood)
{
    parse("# HELP vllm:num_requests_waiting Number of requests waiting to be processed.\n"
          "# TYPE vllm:num_requests_waiting gauge\n"
          "vllm:num_requests_waiting{engine=\"0\",model_name=\"Qwen/Qwen3-8B\"} 3.0\n"
          "vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 2.0\n"
          "vllm:num_requests_running{engine=\"0\",model_name=\"Qwen/Qwen3-8B\"} 12.0\n"
          "vllm:time_to_first_token_seconds_bucket{le=\"0.001\",engine=\"0\"} 0.0\n"
          "vllm:time_to_first_token_seconds_count{engine=\"0\"} 40.0\n"
          "vllm:time_to_first_token_seconds_sum{engine=\"0\"} 9.5\n");
    check(metrics.has_waiting && metrics.has_running && metrics.has_ttft);
    check_int(metrics.waiting, 3);
    check_int(metrics.running, 12);
    check(metrics.ttft_count == 40 && metrics.ttft_sum_s == 9.5);
    check_int(metrics.malformed, 0);
}

TAP_TEST(an_engine_of_sglang_is_understood)
{
    parse("sglang:num_running_reqs{model_name=\"m\"} 2\n"
          "sglang:num_queue_reqs{model_name=\"m\"} 1 1700000000000\n"
          "sglang:time_to_first_token_seconds_sum{model_name=\"m\"} 2.5e-1\r\n"
          "sglang:time_to_first_token_seconds_count{model_name=\"m\"} 1");
    check_int(metrics.waiting, 1);
    check_int(metrics.running, 2);
    check(metrics.ttft_count == 1 && metrics.ttft_sum_s == 0.25);
    check_int(metrics.malformed, 0);
}

TAP_TEST(several_engines_in_one_text_are_added_up)
{
    parse("vllm:num_requests_waiting{engine=\"0\"} 1\nvllm:num_requests_waiting{engine=\"1\"} 4\n"
          "vllm:num_requests_waiting 2\n");
    check_int(metrics.waiting, 7);
}

TAP_TEST(labels_may_have_quoted_delimiters)
{
    parse("vllm:num_requests_waiting{model_name=\"a\\\"} 9 \\\\\",b=\"{ }\"} 5\n");
    check_int(metrics.waiting, 5);
    check_int(metrics.malformed, 0);
}

TAP_TEST(invalid_lines_are_counted_and_skipped)
{
    parse("vllm:num_requests_waiting\n"
          "vllm:num_requests_waiting -1\n"
          "vllm:num_requests_waiting NaN\n"
          "vllm:num_requests_waiting +Inf\n"
          "vllm:num_requests_waiting 1e300\n"
          "vllm:num_requests_waiting 3x\n"
          "vllm:num_requests_waiting{a=\"} 3\n"
          "vllm:num_requests_waiting{a=\"b\" 3\n"
          "vllm:num_requests_waiting 0000000000000000000000000000000000000000000000000000000000000"
          "00000001\n"
          "vllm:num_requests_waiting 6\n");
    check_int(metrics.malformed, 9);
    check_int(metrics.waiting, 6);
}

TAP_TEST(blanks_stand_where_the_format_lets_them)
{
    static const char *const lines[] = {
        "vllm:num_requests_waiting {a=\"b\"} 5",
        " \tvllm:num_requests_waiting \t { a = \"b\" , c\t=\t\"d\" } \t5 \t",
        "vllm:num_requests_waiting{a=\"b\",}5",
        "vllm:num_requests_waiting{ }5",
        "vllm:num_requests_waiting{\"a.b\"=\"c\"} 5",
        "vllm:num_requests_waiting\t5",
        "vllm:num_requests_waiting 5 -1700000000000",
        "vllm:num_requests_waiting +5.0e0 1700000000.123",
        "vllm:num_requests_waiting 5 # {trace_id=\"x y\"} 0.5 1700000000.1",
        "vllm:num_requests_waiting 5 1700000000.1 # {trace_id=\"x\"} 0.5"};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        parse(lines[i]);
        check_int(metrics.waiting, 5);
        check_int(metrics.malformed, 0);
    }
}

TAP_TEST(lines_outside_the_format_are_malformed)
{
    static const char *const lines[] = {"vllm:num_requests_waiting 5 x",
                                        "vllm:num_requests_waiting 5 1 2",
                                        "vllm:num_requests_waiting {,} 5",
                                        "vllm:num_requests_waiting{a} 5",
                                        "vllm:num_requests_waiting{a=\"b\" c=\"d\"} 5",
                                        "vllm:num_requests_waiting{a=b} 5",
                                        "vllm:num_requests_waiting{a=\"b\"",
                                        "vllm:num_requests_waiting{=\"b\"} 5",
                                        "vllm:num_requests_waiting{a=\"b\"}} 5",
                                        "vllm:num_requests_waiting{a=\"b\"} {} 5",
                                        "vllm:num_requests_waiting{a=\"b\\\"} 5"};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        parse(lines[i]);
        check_int(metrics.malformed, 1);
        check(!metrics.has_waiting);
    }
}

TAP_TEST(a_text_of_something_else_says_nothing)
{
    static const char *const texts[] = {"", "\n\n", "<html>404</html>", "vllm:", "#", "{} 3"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        parse(texts[i]);
        check(!metrics.has_waiting && !metrics.has_running && !metrics.has_ttft);
        check_int(metrics.malformed, 0);
    }
}

static struct governor_metrics of_ttft(double sum_s, double count)
{
    return (struct governor_metrics){.has_ttft = true, .ttft_sum_s = sum_s, .ttft_count = count};
}

TAP_TEST(the_time_to_the_first_token_is_the_mean_between_two_readings)
{
    struct governor_metrics before = of_ttft(100, 50), none = {0};
    struct governor_metrics more = of_ttft(101, 54), anew = of_ttft(1, 2), fast = of_ttft(100, 60);

    check_int(governor_metrics_ttft_ms(&before, &more), 250);
    check_int(governor_metrics_ttft_ms(&before, &before), 0);
    check_int(governor_metrics_ttft_ms(&before, &anew), 0);
    check_int(governor_metrics_ttft_ms(&none, &more), 0);
    check_int(governor_metrics_ttft_ms(&more, &none), 0);
    check_int(governor_metrics_ttft_ms(&before, &fast), 1); /* 0 would mean that there were none */
}

TAP_TEST(grants_are_found_by_store)
{
    static const char text[] = "# TYPE gmsfs_store_grants_total counter\n"
                               "gmsfs_store_grants_total{store=\"a\",mode=\"rw\"} 2\n"
                               "gmsfs_store_waiters{store=\"a\"} 9\n"
                               "gmsfs_store_grants_total{mode=\"rw\"} 2\n"
                               "gmsfs_store_grants_total{store=\"\"} 2\n"
                               "gmsfs_store_grants_total{notstore=\"c\"} 2\n"
                               "gmsfs_store_grants_total { mode=\"rw\", store = \"b\" } 3\n"
                               "gmsfs_store_grants_total{store=\"x\\\\y\\\"\\n\",mode=\"ro\"} 71";
    const char *at = text, *end = text + sizeof text - 1;
    char store[GOVERNOR_LABEL_BYTES];
    uint64_t grants;

    require(governor_metrics_next_grants(&at, end, store, &grants));
    check_str(store, "a");
    check_int(grants, 2);
    require(governor_metrics_next_grants(&at, end, store, &grants));
    check_str(store, "b");
    check_int(grants, 3);
    require(governor_metrics_next_grants(&at, end, store, &grants));
    check_str(store, "x\\y\"\n");
    check_int(grants, 71);
    check(!governor_metrics_next_grants(&at, end, store, &grants));
}

TAP_TEST(the_name_of_a_store_is_not_longer_than_there_is_room)
{
    char text[1000], store[GOVERNOR_LABEL_BYTES];
    const char *at = text;
    uint64_t grants;
    int bytes = snprintf(text, sizeof text,
                         "gmsfs_store_grants_total{store=\"%0300d\"} 1\n"
                         "gmsfs_store_grants_total{store=\"%0255d\"} 2",
                         0, 0);

    require(governor_metrics_next_grants(&at, text + bytes, store, &grants));
    check_int(grants, 2);
    check_int(strlen(store), 255);
}
