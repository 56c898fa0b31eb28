/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - reads an engine's request counts from Prometheus text
 *
 * Knows the names of vLLM and SGLang; several engines in one text are added up. Other lines are
 * skipped; known lines with invalid values are counted and skipped, so no text is an error. Pure;
 * for observe and tests.
 */
#ifndef GMSFS_GOVERNOR_METRICS_H
#define GMSFS_GOVERNOR_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct governor_metrics {
    bool has_waiting, has_running, has_ttft;
    uint64_t waiting, running; /* requests: queued, and being served */
    double ttft_sum_s;         /* sum and number of all times to the first token */
    double ttft_count;
    uint64_t malformed; /* lines */
};

/* vLLM: vllm:num_requests_waiting, vllm:num_requests_running, vllm:time_to_first_token_seconds;
 * SGLang: sglang:num_queue_reqs, sglang:num_running_reqs, sglang:time_to_first_token_seconds. */
void governor_metrics_parse(const char *text, size_t bytes, struct governor_metrics *metrics);

/* Returns the mean of the times between two readings; 0: there were none, or the engine
 * restarted. */
uint64_t governor_metrics_ttft_ms(const struct governor_metrics *before,
                                  const struct governor_metrics *now);

/* Takes the next line of gmsfs_store_grants_total, a metric of the mount, at *at, and moves *at
 * behind it. `store`: its name; a store has a line for each lock mode. False: there are no more. */
#define GOVERNOR_LABEL_BYTES 256u
bool governor_metrics_next_grants(const char **at, const char *end,
                                  char store[GOVERNOR_LABEL_BYTES], uint64_t *grants);

#endif
