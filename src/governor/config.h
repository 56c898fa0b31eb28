/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - what `gmsfs governor` was told: its models, and when it may do what
 *
 * One statement a line, words divided by blanks, '...' and "..." around what has blanks, # begins a
 * comment. gmsfs-governor(8) has them all. Pure: text in, a table out; nothing is opened here.
 */
#ifndef GMSFS_GOVERNOR_CONFIG_H
#define GMSFS_GOVERNOR_CONFIG_H

#include "core/evict.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct failure;

#define GOVERNOR_MAX_CONFIG (1u << 20) /* bytes of the file */
#define GOVERNOR_MAX_MODELS 256u
#define GOVERNOR_MAX_ADAPTERS 64u

/* A model: an engine, and the store that it serves from. All text is the config's own. */
struct governor_model {
    char *name;
    char *store;
    enum pool_class class; /* who goes for whom */
    bool min_one;          /* min=1: never made to sleep for being idle */
    uint64_t idle_ms;      /* without demand for so long: may go; 0: only for somebody else */
    uint64_t ttft_ms;      /* target of the time to the first token; 0: none */
    char *sleep, *wake;    /* commands of the shell; NULL: the store alone is moved */
    char *metrics;         /* a command of the shell that prints Prometheus text, or http://…; NULL:
                              demand is what waits for the store's lock */
    char *pool;            /* whose max may be changed, NULL: none */
};

/* The stores of a pool that are brought ahead, by how often they were granted of late. */
struct governor_adapters {
    char *pool;
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

/* -EINVAL (failure names line and word), -E2BIG, -ENOMEM. `config` is empty then. */
int governor_config_parse(const char *text, size_t len, struct governor_config *config,
                          struct failure *failure);
void governor_config_free(struct governor_config *config);

#endif
