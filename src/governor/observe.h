/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observe - collects the governor's input: the engines' metrics, and the state of the mount
 *
 * Hooks fetch the metrics; the mount's state is the JSON object behind `gmsfs status`. struct
 * governor_past is all that a governor remembers between rounds, and it can be lost: after a
 * restart only idle times and means start anew.
 */
#ifndef GMSFS_GOVERNOR_OBSERVE_H
#define GMSFS_GOVERNOR_OBSERVE_H

#include "governor/decide.h"
#include "governor/grants.h"
#include "governor/metrics.h"

#include <jansson.h>

#define GOVERNOR_METRICS_MS 2000u /* for all metrics of a round */

struct failure;

struct governor_past_model {
    char *name;
    struct governor_metrics metrics; /* from the last successful reading */
    bool is_known;                   /* read successfully in this round */
    bool is_told;                    /* a failure was reported */
    bool was_held;                   /* its store was held in the last round */
    /* As in struct governor_demand. */
    uint64_t ttft_ms, idle_since_ms, failed_ms, done_ms, woken_ms;
};

/* Times by name. The oldest is dropped to make room. */
#define GOVERNOR_MAX_MOMENTS 256u
struct governor_moments {
    struct governor_moment {
        char *name;
        uint64_t at_ms;
    } list[GOVERNOR_MAX_MOMENTS];
    size_t count;
};

struct governor_past {
    struct governor_past_model *models; /* by the index in the config */
    size_t model_count;
    struct governor_grants grants;
    struct governor_moments pools;  /* last change of their max */
    struct governor_moments stores; /* last failed deed on a store without a model */
    bool has_told_pools;            /* since the config was read */
};

/* Adapts the past to this config; models keep their past by name. 0, or -ENOMEM and nothing
 * changed. */
int governor_past_follow(struct governor_past *past, const struct governor_config *config);
void governor_past_free(struct governor_past *past);

/* Reports one line for people, about a problem that does not stop the governor. */
typedef void governor_tell(const char *text);

/* Asks all engines and, if there are adapters, the mount for its grants. Reports metrics once when
 * they fail, and once when they return. 0 or -ENOMEM. */
int governor_ask(struct governor_past *past, const struct governor_config *config,
                 const char *mount, uint64_t now_ms, governor_tell *tell);

/* A snapshot, and the arrays that it points to. */
struct governor_seen {
    struct governor_snapshot snapshot;
    struct governor_store *stores;
    struct governor_pool *pools;
    struct governor_demand *demand;
    json_t *look;
};

/* `look`: as described in mount_look.h. -EIO: the mount cannot be governed now, or did not answer:
 * `failure` names it and the reason. -ENOMEM. Call governor_seen_free() after success. */
int governor_see(struct governor_past *past, const struct governor_config *config, json_t *look,
                 uint64_t now_ms, struct governor_seen *seen, struct failure *failure);
void governor_seen_free(struct governor_seen *seen);

/* Reports the pools of the config that the mount lacks, once for each reading of the config. */
void governor_tell_pools(struct governor_past *past, const struct governor_config *config,
                         const struct governor_snapshot *now, governor_tell *tell);

/* Returns 0 if there is none. */
uint64_t governor_moments_find(const struct governor_moments *moments, const char *name);

/* Remembers that a deed succeeded (0) or failed. */
void governor_note(struct governor_past *past, const struct governor_deed *deed, int error,
                   uint64_t now_ms);

#endif
