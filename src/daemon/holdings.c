/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/holdings.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct holding {
    uint64_t id; /* memory; first for idvec */
    int fd;
    uint64_t bytes; /* 0: its file tells */
};

int holdings_add(struct holdings *holdings, uint64_t memory, int fd, uint64_t bytes)
{
    struct holding *holding = idvec_find(&holdings->items, memory);

    if (holding) { /* a piece that was made anew under its number */
        close(holding->fd);
        holding->fd = fd;
        holding->bytes = bytes;
        return 0;
    }
    holding = malloc(sizeof *holding);
    if (holding) {
        *holding = (struct holding){.id = memory, .fd = fd, .bytes = bytes};
        if (idvec_insert(&holdings->items, holding) == 0)
            return 0;
        free(holding);
    }
    close(fd);
    return -ENOMEM;
}

void holdings_drop(struct holdings *holdings, uint64_t memory)
{
    struct holding *holding = idvec_remove(&holdings->items, memory);

    if (holding) {
        close(holding->fd);
        free(holding);
    }
}

void holdings_free(struct holdings *holdings)
{
    for (size_t i = 0; i < holdings->items.count; i++) {
        struct holding *holding = holdings->items.items[i];
        close(holding->fd);
        free(holding);
    }
    idvec_free(&holdings->items);
}

size_t holdings_count(const struct holdings *holdings)
{
    return holdings->items.count;
}

uint64_t holdings_count_bytes(const struct holdings *holdings)
{
    uint64_t bytes = 0;
    struct stat stat;

    for (size_t i = 0; i < holdings->items.count; i++) {
        const struct holding *holding = holdings->items.items[i];
        if (holding->bytes)
            bytes += holding->bytes;
        else if (fstat(holding->fd, &stat) == 0)
            bytes += (uint64_t)stat.st_blocks * 512;
    }
    return bytes;
}
