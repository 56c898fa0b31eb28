/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part - the steps of a deed that this process does, of several that share them
 *
 * PART=INDEX/COUNT: of every EVERY-th step each COUNT-th one, from the INDEX-th on; all processes
 * together do each step once. Without PART there is one process.
 */
#ifndef GMSFS_TESTS_FAULT_PART_H
#define GMSFS_TESTS_FAULT_PART_H

#include <stdio.h>
#include <stdlib.h>

struct part {
    int index, count;
};

static struct part part_of_steps(void)
{
    const char *text = getenv("PART");
    struct part part = {0, 1};

    if (text && (sscanf(text, "%d/%d", &part.index, &part.count) != 2 || part.index < 0 ||
                 part.index >= part.count)) {
        fprintf(stderr, "PART=%s: is not INDEX/COUNT, from 0/COUNT on\n", text);
        exit(2);
    }
    return part;
}

/* `from`: so that the deeds do not all begin at the same step. */
static int part_first(struct part part, int from, int every)
{
    return from % every + part.index * every;
}

static int part_next(struct part part, int step, int every)
{
    return step + part.count * every;
}

#endif
