/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source - files to read, wherever they lie: their names and sizes, and their bytes
 *
 * For the commands that load, verify and check models and images. A *place* is a path, or
 * SCHEME://...; a backend (source_backend.h) knows the places of its schemes. Above this folder a
 * place is only words to pass on and to print: no other part of these commands has the path, the
 * descriptor or the connection of a file that it reads.
 *
 * A source has the files of one command. One thread adds files; then any number of threads read
 * ranges of them at the same time. Nothing is printed: functions return 0 or a negative errno, and
 * a `struct failure` has the reason. Sizes, names and sums that a server announces are untrusted:
 * they are held against the bounds below before a byte is read.
 *
 * The other headers for other folders:
 *   direct        reads files past the page cache, or through it
 *   pipe_copy     copies bytes of a file into another file by splice(2)
 *   source_peers  a store of other nodes, whose allocations are the files of a source
 */
#ifndef GMSFS_SOURCE_SOURCE_H
#define GMSFS_SOURCE_SOURCE_H

#include "base/failure.h"
#include "source/direct.h"
#include "source/pipe_copy.h"
#include "source/source_peers.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bounds of a source, and of one list. A bound that is exceeded is an error that names the place.
 */
#define SOURCE_MAX_FILES       (1u << 21) /* that one command reads */
#define SOURCE_MAX_LISTED      (1u << 20) /* names in a list */
#define SOURCE_MAX_NAME_BYTES  4096u      /* of a relative name, and of each part of it 255 */
#define SOURCE_MAX_PLACE_BYTES 8192u
#define SOURCE_MAX_FILE_BYTES  ((uint64_t)1 << 62)
#define SOURCE_MAX_HEAD_BYTES  (64u << 10) /* of the headers of one answer */
#define SOURCE_SUM_BYTES       64u

struct source;

/* A sum of all bytes of a file, which its place promises. */
enum source_sum_kind {
    SOURCE_SUM_NONE,
    SOURCE_SUM_MD5,
    SOURCE_SUM_SHA1,
    SOURCE_SUM_SHA256,
    SOURCE_SUM_CRC32,
    SOURCE_SUM_CRC32C,
    SOURCE_SUM_CRC64NVME,
};

struct source_sum {
    enum source_sum_kind kind;
    uint8_t bytes[SOURCE_SUM_BYTES]; /* in the order of the sum's usual text */
};

/* A file that was added. `shown` is set by source.c, all else by the backend. */
struct source_file {
    const char *shown;   /* for messages: DIR/NAME or a URL, never with credentials */
    uint64_t size_bytes; /* final: a read never returns bytes of a file of another size */
    int64_t mtime_ns;    /* 0: unknown */
    char *identity;      /* what a range must match, such as an ETag; of a path device and inode;
                          * owned; NULL: none */
    struct source_sum sum;
};

/* ---- places -------------------------------------------------------------------------------- */

/* Returns true if a place begins with SCHEME://, so that it is no path. */
bool source_has_scheme(const char *place);

/* Returns true if the name ends with an ending, and has more; NULL ends the endings. */
bool source_name_ends(const char *name, const char *const *endings);

/* Returns a place for messages: without its query, and without a name and password in it. The
 * caller frees it; NULL: out of memory. */
char *source_show(const char *place);

/* Returns true if a place has files below it (a directory, a repository), and is no file itself. */
bool source_is_tree(const char *place);

/* ---- a source ------------------------------------------------------------------------------ */

/* An empty one; NULL: out of memory. */
struct source *source_open(void);
/* Ends all reads first; NULL is fine. */
void source_close(struct source *source);

/* Names below a place, sorted, relative, none twice. */
struct source_entry {
    char *name;
    uint64_t size_bytes; /* UINT64_MAX: unknown until the file is added */
    bool is_folder;      /* only in a list that is not deep */
};

struct source_list {
    struct source_entry *entries;
    size_t count;
};

/*
 * Lists a tree: the files and folders right below it; or, if is_deep, all files at any depth.
 * `folder` is a name in the tree; NULL: the tree itself. Names that begin with a dot are only in a
 * deep list of a directory. That list also has the targets of symbolic links that lie in the
 * directory, and of links to files of the hub's cache that it is in; -EINVAL, by name, for another
 * link or a special file.
 */
int source_list(struct source *source, const char *tree, const char *folder, bool is_deep,
                struct source_list *list, struct failure *failure);
/* An empty list is fine. */
void source_list_free(struct source_list *list);

/* Finds the name that a file at a place is kept under: the last part of the place, of a URL of HTTP
 * decoded once. The caller frees it. -ENOMEM; -EINVAL: a '%' in it encodes no byte of a name */
int source_file_name(const char *place, char **name);
/* Returns what is wrong with a name that a list or another file announces ("has '..'"): it must be
 * relative and stay below its tree; NULL: nothing. Pure. */
const char *source_name_fault(const char *name);

/* Says, in words that follow a sentence (" ('x.part' is still there)"), that files of this tree may
 * be missing because a download has not ended; "" if nothing tells so. */
void source_tell_unfinished(struct source *source, const char *tree, char *text, size_t room);

enum source_add_flags {
    SOURCE_NO_LINKS = 1u << 0, /* a symbolic link is refused: -ELOOP */
    SOURCE_IN_TURN = 1u << 1,  /* one of so many files that none is held open between two reads */
    SOURCE_LISTED = 1u << 2,   /* a name of a deep list, by whose rules a link is judged again */
    SOURCE_NO_SUM = 1u << 3,   /* the caller has sums of its own: source_check leaves it out */
};

/*
 * Adds the file at a place; or, with a name, the file of that name in the tree at a place. Sets its
 * number, which counts from 0 on; that of the file that was added from there before, unless a flag
 * is new. Fails, with the whole message, if it cannot be read or is no file
 * with a size: -ENOENT, -EACCES, -EISDIR, -EINVAL (neither file nor directory), -ELOOP ...
 */
int source_add(struct source *source, const char *place, const char *name, unsigned flags,
               size_t *file, struct failure *failure);
/* Adds a file that lies in the same folder as another one. */
int source_add_beside(struct source *source, size_t other, const char *name, size_t *file,
                      struct failure *failure);
/* Adds bytes of this process as a file, which is shown as another file is. Takes over `bytes`, from
 * malloc, if it succeeds. -ENOMEM. */
int source_add_bytes(struct source *source, size_t shown_as, uint8_t *bytes, size_t size_bytes,
                     size_t *file);

/* Valid until the source is closed. */
const struct source_file *source_get(const struct source *source, size_t file);

/* Returns true if two files that were added are the same file, perhaps by other names. */
bool source_is_same(const struct source *source, size_t file, size_t other);

/*
 * Finds the gmsfs store that a file lies in: a command that writes that store would wait for
 * itself. False: in none.
 */
bool source_find_store(const struct source *source, size_t file, uint8_t store_id[16]);

/* ---- bytes --------------------------------------------------------------------------------- */

/*
 * Reads and copies: blocking, from any thread. All the bytes, or an error: -ENODATA: the file is
 * shorter than it was; -ECANCELED after source_cancel(); -ESTALE: it is another file than the one
 * that was added. The failure has the reason alone, without the file's name, as the end of "cannot
 * read it: "; "" if the errno tells all.
 */
int source_read(struct source *source, size_t file, uint64_t offset_bytes, void *bytes,
                size_t size_bytes, struct failure *failure);

/*
 * Receives the bytes of one copy, in order, on the thread that copies. Made by the mover. Bytes may
 * come from a room that the receiver offers, from memory of the backend, or by a pipe.
 */
struct source_receiver {
    /* Room for the next 1..most_bytes bytes. in_blocks: the room is page-aligned and holds, beside
     * them, what direct_room_bytes() adds. Never called while another room is not put yet. */
    int (*room)(struct source_receiver *receiver, size_t most_bytes, bool in_blocks, uint8_t **room,
                size_t *room_bytes);
    /* Takes the next bytes: in the room, or anywhere. NULL: they are in `fd` already. An error of
     * either function ends the copy, which returns it. */
    int (*put)(struct source_receiver *receiver, const uint8_t *bytes, size_t size_bytes);
    /* For a source that has its bytes from several servers. After all bytes: -EBADMSG if they have
     * another sum than the wanted bytes. */
    int (*check)(struct source_receiver *receiver);
    /* Forgets the bytes that were put: they come again, from the first one on. */
    void (*restart)(struct source_receiver *receiver);
    /* Both change with each put(). */
    uint64_t at_bytes;   /* offset in the memory of the next byte */
    uint64_t left_bytes; /* contiguous in memory from there on; a room is never larger */
    size_t step_bytes;   /* best size of a step through the page cache */
    /* The file of that memory, which takes bytes by splice(2) while the pipe is open; -1: none. */
    int fd;
    struct pipe_copy *pipe;
};

int source_copy(struct source *source, size_t file, uint64_t offset_bytes, uint64_t size_bytes,
                struct source_receiver *receiver, struct failure *failure);

/*
 * Compares the bytes that were copied with the sums that their places promise: of each file of
 * which all was read, but for a little that this reads. When all copies have ended, and their
 * memory has the bytes still. Blocking. -EBADMSG, with the whole message: a file has another sum;
 * -ECANCELED, without one.
 */
int source_check(struct source *source, struct failure *failure);

/* Wakes all reads and copies, which return -ECANCELED, as all later ones do. From any thread, also
 * several times. */
void source_cancel(struct source *source);

/*
 * Decides how to read the files, before the first copy. direct: of files on this machine;
 * read_bytes: how much of all will be read; taken_bytes: memory of this machine that the command
 * will fill beside them.
 */
void source_prepare(struct source *source, enum direct_use direct, uint64_t read_bytes,
                    uint64_t taken_bytes);
/* Returns `asked`; if that is 0 (as many as are best), more if the files are far or on a disk. */
uint64_t source_threads(const struct source *source, uint64_t asked);
/* Returns true if reading a file again takes longer than copying memory: the files are far, or are
 * read past the page cache. After source_prepare. */
bool source_is_slow(const struct source *source);

#endif
