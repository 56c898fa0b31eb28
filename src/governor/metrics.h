/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metrics - what an engine says of its requests, in the text that Prometheus reads
 *
 * Of vLLM's and SGLang's own names; those of several engines in one text are added up. A line that
 * is none of these is passed over, and one of these that makes no sense is counted and passed over,
 * so nothing in a text is an error. Pure; for observe and tests.
 */
#ifndef GMSFS_GOVERNOR_METRICS_H
#define GMSFS_GOVERNOR_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct governor_metrics {
    bool has_waiting, has_running, has_ttft;
    uint64_t waiting, running; /* requests: in the queue, and being served */
    double ttft_sum_s;         /* times to the first token: of all there ever were, and how many */
    double ttft_count;
    uint64_t malformed; /* lines */
};

/* Of vLLM: vllm:num_requests_waiting, vllm:num_requests_running, vllm:time_to_first_token_seconds;
 * of SGLang: sglang:num_queue_reqs, sglang:num_running_reqs, sglang:time_to_first_token_seconds. */
void governor_metrics_parse(const char *text, size_t bytes, struct governor_metrics *metrics);

/* The mean of those that came between two looks; 0: none did, or the engine was started anew. */
uint64_t governor_metrics_ttft_ms(const struct governor_metrics *before,
                                  const struct governor_metrics *now);

/* The mount's own: the next line of gmsfs_store_grants_total from *at on, which goes on behind it.
 * `store`: its name; a store has a line for each mode of the lock. False: there are no more. */
#define GOVERNOR_LABEL_BYTES 256u
bool governor_metrics_next_grants(const char **at, const char *end,
                                  char store[GOVERNOR_LABEL_BYTES], uint64_t *grants);

#endif
