/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of an engine, or the answer of another server in its place. */
#include "fuzz.h"

#include "governor/metrics.h"

/* Numbers are finite, and not larger than this many lines can give. */
static void check_metrics(const struct governor_metrics *metrics, size_t size)
{
    const double most = 9007199254740992.0 * ((double)size + 1);

    must(metrics->has_waiting || metrics->waiting == 0);
    must(metrics->has_running || metrics->running == 0);
    must(metrics->has_ttft || metrics->ttft_count == 0);
    must(metrics->ttft_sum_s >= 0 && metrics->ttft_sum_s <= most);
    must(metrics->ttft_count >= 0 && metrics->ttft_count <= most);
    must(metrics->malformed <= size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct governor_metrics none = {0}, all, half;
    const char *text = (const char *)data, *at = text;
    char store[GOVERNOR_LABEL_BYTES];
    uint64_t grants;

    governor_metrics_parse(text, size, &all);
    check_metrics(&all, size);
    governor_metrics_parse(text, size / 2, &half);
    check_metrics(&half, size / 2);
    must(governor_metrics_ttft_ms(&none, &all) == 0);
    (void)governor_metrics_ttft_ms(&half, &all);
    while (governor_metrics_next_grants(&at, text + size, store, &grants)) {
        must(strlen(store) > 0 && strlen(store) < sizeof store);
        must(at > text && at <= text + size);
    }
    return 0;
}
