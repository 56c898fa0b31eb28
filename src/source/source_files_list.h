/* SPDX-License-Identifier: Apache-2.0 */
/* source_files_list - lists directories, for source_files.c alone; as in source_backend.h */
#ifndef GMSFS_SOURCE_SOURCE_FILES_LIST_H
#define GMSFS_SOURCE_SOURCE_FILES_LIST_H

#include "source/source_backend.h"

/* Where the files of one tree may lie, links followed. */
struct source_files_bounds {
    char *tree;  /* as it was named; NULL: none was listed */
    char *root;  /* its real path */
    char *blobs; /* and that of blobs/ of the hub's cache that it lies in; NULL if in none */
};

/* Of all files of one source. */
struct source_files {
    enum direct_use use;
    struct source_files_bounds bounds; /* of the last tree */
};

/* Sets the bounds to those of a tree, unless they are. */
int source_files_bound(struct source_files_bounds *bounds, const char *tree,
                       struct failure *failure);
/* Returns true if a real path lies within the bounds. */
bool source_files_is_within(const struct source_files_bounds *bounds, const char *path);
void source_files_unbound(struct source_files_bounds *bounds);

int source_files_list(void *state, const char *tree, const char *folder, bool is_deep,
                      struct source_list *list, struct failure *failure);

/* Lists all files below a directory, hidden ones too (source_files_tree.c). Symbolic links are
 * followed inside of it, and from snapshots/REVISION of a hub's cache to files in its blobs/.
 * -EINVAL for another link or a special file. Sets the bounds. */
int source_files_tree(struct source_files_bounds *bounds, const char *tree,
                      struct source_list *list, struct failure *failure);

/* Searches for a file that a download tool removes or renames when it has finished: beside the
 * model, in the hub's .cache below it, or in the blobs of the hub's cache. */
void source_files_tell_unfinished(void *state, const char *tree, char *text, size_t room);

#endif
