/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_file - the other side of a move: whole parts of a file, read and written at their place
 *
 * For lanes.c. write(2) is quickest, for it fills no page with zeros first; but it lets one thread
 * at a time into a file in memory, and none into one of hugetlbfs. Through a mapping all may write,
 * but small pages make that far slower than waiting. So a file in memory of huge pages is mapped
 * for who writes, and that is what a lane does when another one is at write(2); its pages are
 * there, or made before they are written to, and one that cannot be had is an errno and no SIGBUS:
 * nobody but gmsfs has the file, so it does not shrink. Any other file is only written by write(2).
 * Reading needs none of that. A descriptor with O_DIRECT moves past the page cache what its file
 * system lets it.
 *
 * A file comes with many moves, each of some of its bytes, and mapping for each would make threads
 * wait for each other: it is mapped whole, and stays so until other files have come for a while, or
 * nothing moves.
 *
 * Parts by any thread, while the file is open; the rest under the lock of whoever has the mappings.
 * 0, or a negative errno: -ENODATA, the file ends before; -ENOSPC, no room on its disk, or
 * no memory for its pages, which is not the copier's fault.
 */
#ifndef GMSFS_COPIER_LANE_FILE_H
#define GMSFS_COPIER_LANE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define LANE_MAP_PAGE_BYTES ((size_t)2 << 20) /* a file of smaller pages is not mapped */
#define LANE_MAPS           32u               /* more than moves: some are in none's use */

struct lane_map {
    char *at; /* NULL: none */
    size_t bytes;
    struct statx facts;
    bool is_hugetlb;        /* which write(2) cannot write */
    unsigned files;         /* that are open on it */
    uint64_t used;          /* the turn of the last one */
    atomic_bool is_written; /* by write(2), now */
};

/* All zero in the beginning. */
struct lane_maps {
    struct lane_map all[LANE_MAPS];
    uint64_t turns;
};

struct lane_file {
    int fd;
    struct lane_map *map; /* NULL: it is written to */
};

/* For these bytes of it; the descriptor becomes the file's. Never fails: without a mapping it is
 * written to. */
void lane_file_open(struct lane_file *file, struct lane_maps *maps, int fd, bool to_write,
                    uint64_t offset, uint64_t bytes);
/* Takes mappings that are of no use any more out, for lane_maps_unmap without the lock: how many.
 */
unsigned lane_file_close(struct lane_file *file, struct lane_maps *maps,
                         struct lane_map old[LANE_MAPS]);
void lane_maps_unmap(const struct lane_map *old, unsigned count);

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset);
int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset);

#endif
