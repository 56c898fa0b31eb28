/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a file of any place, as the commands read it, by several threads.
 *
 *   source_get PLACE [NAME] OUT THREADS PIECE_BYTES   into the file OUT, "-": nowhere; prints the
 * size source_get -l TREE                                prints SIZE NAME of all files of a tree
 *
 * OUT is written piece by piece, so that bytes at a wrong offset are seen. GET_END=MS cancels the
 * source after so long; GET_PAUSE=MS waits between adding the file and reading it; GET_FAIL=N fails
 * the N-th write, once, with EIO. A failure is printed on stderr, with its errno's name; exit
 * status 1.
 */
#include "source/source.h"

#include "base/clock.h"
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 64

static struct source *source;
static size_t file;
static int out = -1;
static uint64_t piece_bytes;
static atomic_uint_fast64_t next_piece;
static atomic_int failed;
static atomic_ulong writes_to_fail; /* 0: none fails */
static struct failure first;

struct writer {
    struct source_receiver receiver; /* the first member */
    uint8_t *room;
};

static int give_room(struct source_receiver *receiver, size_t most_bytes, bool in_blocks,
                     uint8_t **room, size_t *room_bytes)
{
    struct writer *writer = (struct writer *)receiver;

    *room = writer->room;
    *room_bytes = most_bytes < 1u << 20 ? most_bytes : 1u << 20;
    return in_blocks ? -EOPNOTSUPP : 0;
}

static int take(struct source_receiver *receiver, const uint8_t *bytes, size_t size_bytes)
{
    int error = out < 0 ? 0 : file_write_at(out, bytes, size_bytes, receiver->at_bytes);

    if (atomic_load(&writes_to_fail) > 0 && atomic_fetch_sub(&writes_to_fail, 1) == 1)
        return -EIO;
    receiver->at_bytes += size_bytes;
    receiver->left_bytes -= size_bytes;
    return error;
}

static void *copy_pieces(void *unused)
{
    struct writer writer = {
        .receiver = {.room = give_room, .put = take, .fd = -1, .step_bytes = 1u << 18}};
    const uint64_t size_bytes = source_get(source, file)->size_bytes;
    struct failure failure;

    writer.room = malloc(1u << 20);
    while (!atomic_load(&failed) && writer.room) {
        const uint64_t at = atomic_fetch_add(&next_piece, 1) * piece_bytes;
        const uint64_t left = at < size_bytes ? size_bytes - at : 0;
        int error, none = 0;

        if (left == 0)
            break;
        writer.receiver.at_bytes = at;
        writer.receiver.left_bytes = left < piece_bytes ? left : piece_bytes;
        error =
            source_copy(source, file, at, writer.receiver.left_bytes, &writer.receiver, &failure);
        if (error && atomic_compare_exchange_strong(&failed, &none, error))
            first = failure;
    }
    free(writer.room);
    return unused;
}

static void *cancel_later(void *ms)
{
    clock_pause_ms((unsigned)strtoul(ms, NULL, 10));
    source_cancel(source);
    return NULL;
}

static int report(int error, const struct failure *failure)
{
    fprintf(stderr, "%s: %s\n", strerrorname_np(-error), failure->text);
    return 1;
}

static int copy_all(unsigned threads)
{
    pthread_t ids[MOST_THREADS], canceller;
    const bool ends = getenv("GET_END") != NULL;

    if (getenv("GET_FAIL"))
        atomic_store(&writes_to_fail, strtoul(getenv("GET_FAIL"), NULL, 10));
    if (getenv("GET_PAUSE"))
        clock_pause_ms((unsigned)strtoul(getenv("GET_PAUSE"), NULL, 10));
    if (ends)
        pthread_create(&canceller, NULL, cancel_later, getenv("GET_END"));
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, copy_pieces, NULL);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    if (ends)
        pthread_join(canceller, NULL);
    if (!atomic_load(&failed))
        atomic_store(&failed, source_check(source, &first));
    if (atomic_load(&failed))
        return report(atomic_load(&failed), &first);
    printf("%" PRIu64 "\n", source_get(source, file)->size_bytes);
    return 0;
}

static int list_tree(const char *tree)
{
    struct failure failure;
    struct source_list list;
    int error = source_list(source, tree, NULL, true, &list, &failure);

    if (error)
        return report(error, &failure);
    for (size_t i = 0; i < list.count; i++)
        printf("%" PRId64 " %s\n", (int64_t)list.entries[i].size_bytes, list.entries[i].name);
    source_list_free(&list);
    return 0;
}

static int get(char **words, int count)
{
    const char *name = count == 5 ? words[1] : NULL;
    const unsigned long threads = strtoul(words[count - 2], NULL, 10);
    struct failure failure;
    int error;

    piece_bytes = strtoull(words[count - 1], NULL, 10);
    if (threads < 1 || threads > MOST_THREADS || piece_bytes == 0)
        return 2;
    if (strcmp(words[count - 3], "-") != 0)
        out = open(words[count - 3], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    error = source_add(source, words[0], name, 0, &file, &failure);
    if (error)
        return report(error, &failure);
    source_prepare(source, DIRECT_NEVER, source_get(source, file)->size_bytes, 0);
    return copy_all((unsigned)threads);
}

int main(int count, char **words)
{
    int status = 2;

    source = source_open();
    if (source && count == 3 && strcmp(words[1], "-l") == 0)
        status = list_tree(words[2]);
    else if (source && (count == 5 || count == 6))
        status = get(words + 1, count - 1);
    else
        fprintf(stderr, "usage: source_get PLACE [NAME] OUT THREADS PIECE_BYTES | -l TREE\n");
    source_close(source);
    return status;
}
