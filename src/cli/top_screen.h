/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top_screen - draws the screen of `gmsfs top`, and reads its keys
 *
 * For cmd_top.c. However the process ends but by SIGKILL, the terminal is as it was before.
 */
#ifndef GMSFS_CLI_TOP_SCREEN_H
#define GMSFS_CLI_TOP_SCREEN_H

#include "base/failure.h"
#include "top/screen.h"

#include <stdbool.h>

/* Takes the terminal of standard input and output, which children of this process leave alone. 0,
 * or a negative errno with the failure. */
int top_screen_open(struct failure *failure);
/* Gives it back. */
void top_screen_close(void);

/* Reads the size of the terminal. */
void top_screen_get_size(unsigned *rows, unsigned *columns);
void top_screen_show(const struct screen *screen);
/* Draws all of it at the next show, not only the changes. */
void top_screen_redraw(void);

/* Reads a key, as top_press() takes it; 0: none is there. */
unsigned top_screen_read_key(void);

/* True once after the process went on from a stop: the terminal may have another's modes. */
bool top_screen_went_on(void);

#endif
