/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub_settings - the environment of a hub of models, and the files that it names
 *
 * For source_hub.c. The names and their order are those of huggingface_hub 0.26.
 */
#ifndef GMSFS_SOURCE_HUB_SETTINGS_H
#define GMSFS_SOURCE_HUB_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the value of a variable; NULL: it is not set, or empty. */
const char *hub_setting(const char *name);

/* Returns true if a variable is neither empty nor a word for no. */
bool hub_is_set(const char *name);

/* Returns BELOW in HF_HOME. The caller frees it; NULL: no memory. */
char *hub_in_home(const char *below);

/* Reads the first word of a file; "": there is none. */
void hub_read_line(const char *path, char *line, size_t room);

#endif
