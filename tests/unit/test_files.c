/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the files that the copier keeps mapped and pinned. */
#include "copier/files.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SPAN_BYTES COPIER_MOVE_BYTES
#define WAIT_MS    20000

static atomic_uint pinned, pins;
static atomic_bool is_refused;

static int enter(void *gpu, void **stream, char *why)
{
    (void)gpu;
    (void)stream;
    (void)why;
    return 0;
}

static void leave(void *gpu, void *stream)
{
    (void)gpu;
    (void)stream;
}

static int pin(void *gpu, void *at, size_t bytes)
{
    (void)gpu;
    (void)at;
    check(bytes > 0 && bytes <= SPAN_BYTES);
    pins++;
    if (is_refused)
        return -ENOMEM;
    pinned++;
    return 0;
}

static void unpin(void *gpu, void *at)
{
    (void)gpu;
    (void)at;
    require(pinned > 0);
    pinned--;
}

static const struct copier_gpu driver = {
    .enter = enter, .leave = leave, .pin = pin, .unpin = unpin};

static struct files *fresh_files(void)
{
    struct files *files = files_new(&driver, NULL);

    require(files != NULL);
    pinned = pins = 0;
    is_refused = false;
    return files;
}

static void await(atomic_uint *number, unsigned value)
{
    for (unsigned ms = 0; *number != value && ms < WAIT_MS; ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    check_int(*number, value);
}

static int make_file(size_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    require(fd >= 0);
    require(ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static struct copier_request move_of(uint64_t file, uint64_t offset, uint64_t bytes)
{
    return (struct copier_request){
        .act = COPIER_MOVE_OUT, .file = file, .offset = offset, .bytes = bytes};
}

/* Begins and ends one move. */
static struct file_view try_move(struct files *files, const struct copier_request *move, int fd)
{
    struct file_view view = files_enter(files, move, fd);

    if (view.at)
        files_leave(files, move);
    return view;
}

TAP_TEST(a_span_is_pinned_after_its_first_move_and_stays_so_until_the_file_is_forgotten)
{
    struct files *files = fresh_files();
    struct copier_request first = move_of(7, 0, SPAN_BYTES);
    struct copier_request rest = move_of(7, SPAN_BYTES, 4u << 20);
    auto_fd fd = make_file(SPAN_BYTES + (4u << 20));
    struct file_view view = try_move(files, &first, fd);

    require(view.at);
    check(!view.is_pinned);
    memcpy(view.at + 5, "bytes", 5);
    await(&pinned, 1);
    try_move(files, &rest, fd);
    await(&pinned, 2);
    view = try_move(files, &first, fd);
    check(view.is_pinned);
    check_bytes(view.at + 5, 5, "bytes", 5);
    check(try_move(files, &rest, fd).is_pinned);
    check_int(pins, 2);
    check_int(files_forget(files, 7), 0);
    check_int(pinned, 0);
    check_int(files_forget(files, 7), 0);
    files_free(files);
}

TAP_TEST(a_file_that_something_moves_from_is_not_forgotten)
{
    struct files *files = fresh_files();
    struct copier_request move = move_of(7, 0, 2u << 20);
    auto_fd fd = make_file(2u << 20);

    require(files_enter(files, &move, fd).at);
    check_int(files_forget(files, 7), -EBUSY);
    files_leave(files, &move);
    check_int(files_forget(files, 7), 0);
    check_int(pinned, 0);
    files_free(files);
}

TAP_TEST(files_of_other_numbers_stay)
{
    struct files *files = fresh_files();
    auto_fd fd = make_file(2u << 20);

    for (uint64_t id = 1; id <= 3; id++) {
        struct copier_request move = move_of(id, 0, 2u << 20);

        require(try_move(files, &move, fd).at);
    }
    await(&pinned, 3);
    check_int(files_forget(files, 1), 0);
    check_int(pinned, 2);
    check_int(files_forget(files, 3), 0);
    check_int(pinned, 1);
    files_free(files);
    check_int(pinned, 0);
}

TAP_TEST(a_span_that_is_not_pinned_is_moved_another_way)
{
    struct files *files = fresh_files();
    int fd = make_file(2 * SPAN_BYTES), small = make_file(FILES_MIN_BYTES - 1), ends[2];
    struct copier_request across = move_of(7, SPAN_BYTES - 4096, 8192);
    struct copier_request nameless = move_of(0, 0, SPAN_BYTES);
    struct copier_request of_small = move_of(8, 0, 4096), of_pipe = move_of(9, 0, 4096);
    struct copier_request beyond = move_of(7, 2 * SPAN_BYTES - 4096, 8192);

    require(pipe(ends) == 0);
    check(!try_move(files, &nameless, fd).at);
    check(!try_move(files, &of_small, small).at);
    check(!try_move(files, &of_pipe, ends[0]).at);
    check(!try_move(files, &beyond, fd).at);
    check(try_move(files, &across, fd).at != NULL);
    await(&pinned, 1);
    check(!try_move(files, &across, fd).is_pinned); /* half of it is not */
    files_free(files);
    close(fd);
    close(small);
    close(ends[0]);
    close(ends[1]);
}

TAP_TEST(a_span_that_the_driver_refuses_is_not_asked_for_again)
{
    struct files *files = fresh_files();
    struct copier_request move = move_of(7, 0, 2u << 20), other = move_of(8, 0, 2u << 20);
    auto_fd fd = make_file(2u << 20);

    is_refused = true;
    try_move(files, &move, fd);
    await(&pins, 1);
    check(!try_move(files, &move, fd).is_pinned);
    is_refused = false;
    try_move(files, &other, fd);
    await(&pins, 2); /* and the first was not among them */
    check(!try_move(files, &move, fd).is_pinned);
    check(try_move(files, &other, fd).at != NULL);
    await(&pinned, 1);
    files_free(files);
    check_int(pinned, 0);
}

TAP_TEST(no_more_files_are_kept_than_there_is_room_for)
{
    struct files *files = fresh_files();
    struct copier_request one_more = move_of(FILES_MOST + 1, 0, FILES_MIN_BYTES);
    auto_fd fd = make_file(FILES_MIN_BYTES);

    for (uint64_t id = 1; id <= FILES_MOST; id++) {
        struct copier_request move = move_of(id, 0, FILES_MIN_BYTES);

        require(try_move(files, &move, fd).at);
    }
    check(!try_move(files, &one_more, fd).at);
    check_int(files_forget(files, 1), 0);
    check(try_move(files, &one_more, fd).at != NULL);
    files_free(files);
    check_int(pinned, 0);
}
