/* SPDX-License-Identifier: Apache-2.0 */
/*
 * command - the time that a command of gmsfs takes for its bytes, as it says itself
 *
 * For gpu_load_several.c, copy.c and gpu_copy.c. Every failure ends the program.
 */
#ifndef GMSFS_BENCH_COMMAND_H
#define GMSFS_BENCH_COMMAND_H

#include "bench.h"

/* Of a command that prints "… X GB/s …": as long as these bytes take at that rate. */
BENCH_UNUSED static double command_time_us(const char *command, double bytes)
{
    char line[4096], *found;
    double rate = 0;
    FILE *output = popen(command, "r");

    if (!output)
        bench_die(command, errno);
    while (fgets(line, sizeof line, output)) {
        found = strstr(line, " GB/s");
        while (found && found > line && found[-1] != ' ')
            found--;
        if (found)
            rate = strtod(found, NULL);
    }
    if (pclose(output) != 0 || rate <= 0)
        bench_die(command, EIO);
    return bytes / rate / 1e3;
}

#endif
