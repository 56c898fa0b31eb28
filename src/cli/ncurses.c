/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ncurses.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define LIBRARY "libncursesw.so.6"

static const struct symbol {
    const char *name;
    size_t at; /* in struct ncurses */
} symbols[] = {
#define NCURSES_SYMBOL(name) {#name, offsetof(struct ncurses, name)},
    NCURSES_FUNCTIONS(NCURSES_SYMBOL)
#undef NCURSES_SYMBOL
};

int ncurses_open(struct ncurses *library, struct failure *failure)
{
    void *opened = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!opened)
        return failure_set(failure, -ELIBACC,
                           LIBRARY " is not installed, and 'gmsfs top' needs it; install it "
                                   "(Debian: apt-get install libncursesw6), or use 'gmsfs status "
                                   "--watch'");
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(opened, symbols[i].name);

        if (!address)
            return failure_set(failure, -ELIBBAD, LIBRARY " has no %s; use 'gmsfs status --watch'",
                               symbols[i].name);
        memcpy((char *)library + symbols[i].at, &address, sizeof(address));
    }
    return 0;
}
