/* SPDX-License-Identifier: Apache-2.0 */
#include "source/libcurl.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Debian and Fedora have the first; Debian has the second for the build with GnuTLS. */
static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

#define LEAST_VERSION 0x075500u /* 7.85 has options for the schemes that a redirect may lead to */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards table and is_open */
static struct libcurl table;
static bool is_open;

static const struct symbol {
    const char *name;
    size_t at; /* in struct libcurl */
} symbols[] = {
#define LIBCURL_SYMBOL(name) {"curl_" #name, offsetof(struct libcurl, name)},
    LIBCURL_FUNCTIONS(LIBCURL_SYMBOL)
#undef LIBCURL_SYMBOL
};

static int load_symbols(void *library, struct failure *failure)
{
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(library, symbols[i].name);

        if (!address)
            return failure_set(failure, -ELIBBAD,
                               "libcurl has no %s: it is older than 7.85; update the package "
                               "libcurl4",
                               symbols[i].name);
        memcpy((char *)&table + symbols[i].at, &address, sizeof(address));
    }
    return 0;
}

static int initialise(struct failure *failure)
{
    CURLcode result = table.global_init(CURL_GLOBAL_DEFAULT);

    if (result != CURLE_OK)
        return failure_set(failure, -ELIBBAD, "libcurl does not start: %s",
                           table.easy_strerror(result));
    if (table.version_info(CURLVERSION_NOW)->version_num < LEAST_VERSION)
        return failure_set(failure, -ELIBBAD,
                           "libcurl %s is older than 7.85; update the package "
                           "libcurl4",
                           table.version_info(CURLVERSION_NOW)->version);
    if (!(table.version_info(CURLVERSION_NOW)->features & CURL_VERSION_SSL))
        return failure_set(failure, -ELIBBAD,
                           "libcurl was built without TLS; install another "
                           "(Debian: libcurl4)");
    return 0;
}

static int load(struct failure *failure)
{
    void *library = NULL;

    for (size_t i = 0; !library && i < sizeof(names) / sizeof(names[0]); i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return failure_set(failure, -ELIBACC,
                           "libcurl.so.4 is not installed, and addresses need it; install it "
                           "(Debian: apt-get install libcurl4 ca-certificates)");
    int error = load_symbols(library, failure);
    if (error == 0)
        error = initialise(failure);
    if (error)
        dlclose(library);
    return error; /* on success the library stays: its functions are in the table */
}

int libcurl_open(const struct libcurl **library, struct failure *failure)
{
    int error = 0;

    pthread_mutex_lock(&mutex);
    if (!is_open)
        error = load(failure);
    is_open = error == 0;
    pthread_mutex_unlock(&mutex);
    *library = &table;
    return error;
}
