/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options - the arguments of `gmsfs mount`
 *
 * A pure parser: no I/O, no exit, no output; an error comes back as one line of text that names the
 * option, its value and valid ones. For mount.c and for tests.
 */
#ifndef GMSFS_DAEMON_OPTIONS_H
#define GMSFS_DAEMON_OPTIONS_H

#include "base/log.h"
#include "vmm/vmm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_ERROR_BYTES     512u
#define OPTIONS_NO_ID           UINT32_MAX
#define OPTIONS_PATH_BYTES      256u
#define OPTIONS_ALLOC_TIMEOUT_S 60u
#define OPTIONS_PATIENCE_S      30u
#define OPTIONS_MAX_SECONDS     (30u * 24 * 3600)
#define OPTIONS_COPIER_IDLE_S   10u
#define OPTIONS_MIN_STAY_S      10u
#define OPTIONS_SPOOL_MAX_BYTES (1ull << 40)
#define OPTIONS_SPOOL_MAX_GPU   (8ull << 30) /* there a spool is host memory */
#define OPTIONS_MAX_BYTES       (1ull << 50)
#define OPTIONS_MIN_BYTES       4096u
#define OPTIONS_MAX_GRANULARITY (1ull << 30)
#define OPTIONS_GMS_MODE        0600u
#define OPTIONS_MAX_ORDINAL     255u

enum options_choice {
    OPTIONS_DEFAULT = 0,
    OPTIONS_YES,
    OPTIONS_NO,
};

struct daemon_options {
    const char *mountpoint; /* as given; points into argv */
    struct vmm_options vmm;
    enum options_choice allow_other;
    uint64_t alloc_timeout_ms, patience_ms;
    uint64_t spool_max_bytes; /* never 0 */
    bool drops_copies;        /* keep_copy=no */
    bool evicts_none;         /* evict=none */
    uint64_t min_stay_ms;
    char audit[OPTIONS_PATH_BYTES];        /* absolute; "" if none */
    char trace[OPTIONS_PATH_BYTES];        /* the same */
    char keep_journal[OPTIONS_PATH_BYTES]; /* directory for journals of failed mounts; "" if none */
    uint32_t uid, gid;                     /* OPTIONS_NO_ID: those of the mounting user */
    bool gms;                              /* sockets for GMS clients */
    bool gms_keep;                         /* their writers begin with the committed contents */
    uint32_t gms_ordinal;                  /* the GPU's number among those that V1 clients see */
    uint32_t gms_mode;                     /* of the sockets */
    char gms_dir[OPTIONS_PATH_BYTES];      /* absolute; "" if the environment decides (gms_dir.h) */
    enum log_level log_level;
    bool takeover; /* take over an existing mount, without options */
    bool has_list; /* options were given by -o */
    bool foreground, debug, help, version;
};

/* argv[0] is skipped. Returns -EINVAL with a line in `error`. With help or version set the other
 * fields may be incomplete. */
int options_parse(int argc, char **argv, struct daemon_options *options, char *error,
                  size_t error_bytes);

#endif
