/* SPDX-License-Identifier: Apache-2.0 */
/*
 * observe - what the governor knows when it decides: the engines' metrics, and the mount
 *
 * The metrics are asked for by hooks; what the mount says comes as the object that `gmsfs status`
 * is made of. struct governor_past is all that a governor remembers from round to round, and it
 * goes on without: after a restart only time without demand, and means, are counted anew.
 */
#ifndef GMSFS_GOVERNOR_OBSERVE_H
#define GMSFS_GOVERNOR_OBSERVE_H

#include "governor/decide.h"
#include "governor/grants.h"
#include "governor/metrics.h"

#include <jansson.h>

#define GOVERNOR_METRICS_MS 2000u /* that all metrics of a round may take */

struct failure;

struct governor_past_model {
    char *name;
    struct governor_metrics metrics; /* when they were last had */
    bool is_known;                   /* they were, this round */
    bool is_told;                    /* that they could not be */
    bool was_held;                   /* its store, in the last round */
    /* As struct governor_demand has them. */
    uint64_t ttft_ms, idle_since_ms, failed_ms, done_ms, woken_ms;
};

/* Of what has a name. Where there is no room for more, the oldest is forgotten. */
#define GOVERNOR_MAX_MOMENTS 256u
struct governor_moments {
    struct governor_moment {
        char *name;
        uint64_t at_ms;
    } list[GOVERNOR_MAX_MOMENTS];
    size_t count;
};

struct governor_past {
    struct governor_past_model *models; /* by the index of the config */
    size_t model_count;
    struct governor_grants grants;
    struct governor_moments pools;  /* when their max was changed last */
    struct governor_moments stores; /* when a deed with them that is of no model failed last */
};

/* For this config; what was remembered of models by these names stays. 0 or -ENOMEM: as before. */
int governor_past_follow(struct governor_past *past, const struct governor_config *config);
void governor_past_free(struct governor_past *past);

/* One line for people, of what is no reason to stop. */
typedef void governor_tell(const char *text);

/* Asks all engines, and, where there are adapters, the mount for its grants. What cannot be had is
 * told once, and what could be had again, too. 0 or -ENOMEM. */
int governor_ask(struct governor_past *past, const struct governor_config *config,
                 const char *mount, uint64_t now_ms, governor_tell *tell);

/* A snapshot and all that it points to. */
struct governor_seen {
    struct governor_snapshot snapshot;
    struct governor_store *stores;
    struct governor_pool *pools;
    struct governor_demand *demand;
    json_t *look;
};

/* `look`: as mount_look.h describes it. -EIO: the mount is in no state to be governed, or did not
 * answer: `failure` names it and says why. -ENOMEM. governor_seen_free() after success. */
int governor_see(struct governor_past *past, const struct governor_config *config, json_t *look,
                 uint64_t now_ms, struct governor_seen *seen, struct failure *failure);
void governor_seen_free(struct governor_seen *seen);

/* 0: none is known. */
uint64_t governor_moments_find(const struct governor_moments *moments, const char *name);

/* A deed was done (0), or failed. */
void governor_note(struct governor_past *past, const struct governor_deed *deed, int error,
                   uint64_t now_ms);

#endif
