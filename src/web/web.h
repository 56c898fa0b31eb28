/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web - the configuration with which nginx serves mounts, and the rule by which it makes way
 *
 * For `gmsfs web`. Pure. The server reads files of the mounts and has no other way to them, so the
 * rights are those of its user. web_write() alone decides which of them are sent: it lists files of
 * mounts and stores, and every other path is 404.
 */
#ifndef GMSFS_WEB_WEB_H
#define GMSFS_WEB_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WEB_PAGES       "ui" /* first part of the addresses of pages; no mount has this name */
#define WEB_MAX_NAME    64u
#define WEB_WORKERS     4u
#define WEB_CUT_AFTER_S 10u /* the time that answers under way have after a reload */
#define WEB_MAX_PULLS   512u

/* A mount in the addresses: /NAME/... shows files below the path. */
struct web_mount {
    const char *name; /* as web_check_name() allows */
    const char *path; /* absolute */
};

struct web {
    const struct web_mount *mounts;
    size_t mount_count; /* 1 or more */
    const char *listen; /* ADDRESS:PORT with a numeric address, [ADDRESS]:PORT of IPv6 */
    bool is_loopback;   /* that address is the machine's own */
    /* Answers at a time with bytes under by-id, WEB_MAX_PULLS at most; 0: no bound of their own. An
     * address has half of them at most, but at least one. */
    unsigned pulls;
    const char *cert, *key, *client_ca; /* absolute paths without '$', or NULL */
    const char *pages;                  /* absolute directory of the static pages, or NULL */
    const char *access_log;             /* absolute path, or NULL */
};

/* The process beside its service. */
struct web_process {
    const char *directory;    /* private one for the files of nginx itself, absolute */
    const char *user, *group; /* of the processes that serve; NULL: the starting user's */
};

/* True if the name can be one of a mount: letters, digits, '.', '_' and '-', no '.' first. */
bool web_check_name(const char *name);

/* Writes the service, as an `http` block includes it. Errors are the stream's (ferror). */
void web_write(const struct web *web, FILE *to);

/* Writes a whole configuration: the process, and the service in it. */
void web_write_all(const struct web *web, const struct web_process *process, FILE *to);

/* True if the text of `sessions` has a reader of this user's nginx, and a waiting writer. */
bool web_is_in_the_way(const char *sessions, uint32_t uid);

#endif
