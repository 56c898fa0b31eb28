/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - what `gmsfs governor` was told: its models, and when it may do what
 *
 * One statement a line, or several divided by `;`. Words are divided by blanks, '...' and "..."
 * stand around what has blanks, `;` or #, and # begins a comment. gmsfs-governor(8) has them all:
 *
 *   interval 10 | cooldown 30     seconds, or with a unit: 500ms, 30s, 5m, 1h
 *   high 95% | low 85%
 *   model NAME store=S class= min= idle= ttft_ms= sleep= wake= metrics= pool=
 *   adapters pool=P base=MODEL prefetch=10
 *
 * Pure: text in, a table out; nothing is opened here, and whether there is such a store or pool is
 * not asked.
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

/* Of what a file does not say. A model is standard, min=0, and has none of the others. */
#define GOVERNOR_INTERVAL_MS 10000u
#define GOVERNOR_COOLDOWN_MS 30000u
#define GOVERNOR_HIGH        95u
#define GOVERNOR_LOW         85u
#define GOVERNOR_PREFETCH    10u

/* A model: an engine, and the store that it serves from. All text is the config's own. */
struct governor_model {
    char *name;            /* printable ASCII, each once */
    char *store;           /* its name in the mount; no other model's */
    enum pool_class class; /* who goes for whom */
    bool min_one;          /* min=1: neither put to sleep nor taken off the device for being idle */
    uint64_t idle_ms;      /* without demand for so long: put to sleep, and its room is for whoever
                              wants it; 0: only for the more important, or above `high` */
    uint64_t ttft_ms;      /* target of the time to the first token; 0: none */
    char *sleep, *wake; /* commands of the shell, both or neither; NULL: the store alone is moved */
    char *metrics;      /* a command of the shell that prints Prometheus text, or http://…; NULL:
                           demand is what waits for the store's lock */
    char *pool;         /* whose max may be changed, NULL: none */
};

/* The stores of a pool that are brought ahead, by how often they were granted of late. */
struct governor_adapters {
    char *pool;        /* each once */
    char *base;        /* name of a model: only while its store is on the device; NULL: always */
    uint64_t prefetch; /* so many of them */
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

/* -EINVAL, -E2BIG (too long, or too many), -ENOMEM. `failure` is one line, which begins with
 * `line N: ` unless the whole file is at fault. `config` is empty then. */
int governor_config_parse(const char *text, size_t len, struct governor_config *config,
                          struct failure *failure);
void governor_config_free(struct governor_config *config);

#endif
