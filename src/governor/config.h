/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - the configuration of `gmsfs governor`: its models, and its limits
 *
 * One statement a line, or several divided by `;`. Words are divided by blanks, '...' and "..."
 * enclose blanks, `;` or #, and # begins a comment. gmsfs-governor(8) explains them all:
 *
 *   interval 10 | cooldown 30     seconds, or with a unit: 500ms, 30s, 5m, 1h
 *   high 95% | low 85%
 *   model NAME store=S class= min= idle= ttft_ms= sleep= wake= metrics= pool=
 *   adapters pool=P base=MODEL prefetch=10
 *
 * Pure: parses a text into a table. Opens no file, and does not check that a store or pool exists.
 */
#ifndef GMSFS_GOVERNOR_CONFIG_H
#define GMSFS_GOVERNOR_CONFIG_H

#include "core/evict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct failure;

#define GOVERNOR_MAX_CONFIG   (1u << 20) /* bytes of the file */
#define GOVERNOR_MAX_WORD     4096u      /* bytes, without its quotes */
#define GOVERNOR_MAX_MODELS   256u
#define GOVERNOR_MAX_ADAPTERS 64u
#define GOVERNOR_MAX_PREFETCH 1024u

/* Defaults. A model is standard, has min=0, and none of the other keys. */
#define GOVERNOR_INTERVAL_MS 10000u
#define GOVERNOR_COOLDOWN_MS 30000u
#define GOVERNOR_HIGH        95u
#define GOVERNOR_LOW         85u
#define GOVERNOR_PREFETCH    10u

/* A model: an engine, and the store that it serves from. The config owns all texts. */
struct governor_model {
    char *name;            /* printable ASCII, unique */
    char *store;           /* name in the mount; unique */
    enum pool_class class; /* decides which model makes room for which */
    bool min_one;          /* min=1: never put to sleep, or moved off the device, for being idle */
    /* Without demand for so long: put to sleep, and its room is free for any model; 0: its room is
     * free only for more important models, or above `high` */
    uint64_t idle_ms;
    uint64_t ttft_ms;   /* target of the time to the first token; 0: none */
    char *sleep, *wake; /* shell commands, both or neither; NULL: only the store is moved */
    /* A shell command that prints Prometheus text, or http://…; NULL: the demand is the number of
     * waiters for the store's lock */
    char *metrics;
    char *pool; /* pool of which the governor may change the max; NULL: none */
};

/* The stores of a pool that are prefetched, those with the most recent grants first. */
struct governor_adapters {
    char *pool; /* unique */
    /* Name of a model: prefetch only while its store is on the device; NULL: always */
    char *base;
    uint64_t prefetch; /* maximum number of stores */
};

struct governor_config {
    uint64_t interval_ms;
    unsigned high, low; /* per cent of the device that may be used: above high, down to low */
    uint64_t cooldown_ms;
    struct governor_model *models;
    size_t model_count;
    struct governor_adapters *adapters;
    size_t adapters_count;
};

/* -EINVAL, -E2BIG (too long, or too many), -ENOMEM. `failure` is one line, which begins with `line
 * N: ` unless it concerns the whole file. `config` is empty on failure. */
int governor_config_parse(const char *text, size_t len, struct governor_config *config,
                          struct failure *failure);
void governor_config_free(struct governor_config *config);

#endif
