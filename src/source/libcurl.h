/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl - the HTTP library, opened at run time behind one table of functions
 *
 * For src/source alone. No program links against libcurl: it brings thirty other libraries, which
 * would make each start of the gmsfs command several times as long. Types and options are those of
 * <curl/curl.h>.
 */
#ifndef GMSFS_SOURCE_LIBCURL_H
#define GMSFS_SOURCE_LIBCURL_H

#include "base/failure.h"

#include <curl/curl.h>

#define LIBCURL_FUNCTIONS(F) \
    F(global_init)           \
    F(version_info)          \
    F(easy_init)             \
    F(easy_setopt)           \
    F(easy_getinfo)          \
    F(easy_pause)            \
    F(easy_reset)            \
    F(easy_cleanup)          \
    F(easy_strerror)         \
    F(multi_init)            \
    F(multi_add_handle)      \
    F(multi_remove_handle)   \
    F(multi_perform)         \
    F(multi_poll)            \
    F(multi_info_read)       \
    F(multi_cleanup)         \
    F(slist_append)          \
    F(slist_free_all)        \
    F(url)                   \
    F(url_set)               \
    F(url_get)               \
    F(url_cleanup)           \
    F(free)                  \
    F(getdate)

/* A member per function: easy_init is curl_easy_init. <curl/curl.h> has macros of some names that
 * check types; none takes a name alone. */
struct libcurl {
#define LIBCURL_MEMBER(name) __typeof__(curl_##name) *name;
    LIBCURL_FUNCTIONS(LIBCURL_MEMBER)
#undef LIBCURL_MEMBER
};

/* Opens and initialises the library once a process; later calls return the same table, which lives
 * as long as the process. From any thread. -ELIBACC: not installed; -ELIBBAD: it is too old or
 * lacks TLS. The failure names the package to install. A failure is not remembered. */
int libcurl_open(const struct libcurl **library, struct failure *failure);

#endif
