/* SPDX-License-Identifier: Apache-2.0 */
/* Tests messages between keeper and worker: batches of descriptors, and invalid ones. */
#include "wire_fixture.h"

#include <sys/syscall.h>
#include <time.h>

/* The kernel's error if this user has too many descriptors in flight. */
static bool has_too_many;
static int sent_flags, pauses;

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    sent_flags = flags;
    if (!has_too_many)
        return syscall(SYS_sendmsg, fd, message, flags);
    errno = ETOOMANYREFS;
    return -1;
}

int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    (void)wanted;
    (void)left;
    pauses++;
    return 0;
}

static struct wire_batch batch_of(enum wire_type type, size_t count)
{
    struct wire_batch batch = {.head = {.type = type, .id = 77, .value = count}};

    for (size_t i = 0; i < count && i < WIRE_BATCH_MAX; i++)
        batch.memories[i] = (struct wire_memory){.id = 1000 + i, .bytes = 4096 * i};
    return batch;
}

static void check_arrives(size_t count)
{
    struct wire_batch sent = batch_of(WIRE_KEEP, count), got;
    int fds[WIRE_BATCH_MAX], passed[WIRE_BATCH_MAX];
    struct wire_ends ends;
    size_t same = 0;

    ends_open(&ends);
    files_open(fds, count);
    check_int(wire_send_batch(ends.here, &sent, fds), 0);
    require(wire_receive_batch(ends.there, &got, passed) == 0);
    check(memcmp(&sent, &got, bytes_of(count)) == 0);
    for (size_t i = 0; i < count; i++)
        same += same_file(fds[i], passed[i]) && fcntl(passed[i], F_GETFD) == FD_CLOEXEC;
    check_int(same, count);
    files_close(passed, count);
    files_close(fds, count);
    ends_close(&ends);
}

TAP_TEST(a_batch_arrives_with_its_descriptors_in_order)
{
    check_arrives(1);
    check_arrives(2);
    check_arrives(WIRE_BATCH_MAX);
}

TAP_TEST(a_drop_arrives_without_descriptors)
{
    struct wire_batch sent = batch_of(WIRE_DROP, WIRE_BATCH_MAX), got;
    int passed[WIRE_BATCH_MAX];
    struct wire_ends ends;

    ends_open(&ends);
    check_int(wire_send_batch(ends.here, &sent, NULL), 0);
    check_int(wire_receive_batch(ends.there, &got, passed), 0);
    check(memcmp(&sent, &got, sizeof sent) == 0);
    ends_close(&ends);
}

TAP_TEST(a_batch_of_none_or_too_many_is_not_sent)
{
    struct wire_batch batch = batch_of(WIRE_DROP, 0), got;
    int passed[WIRE_BATCH_MAX];
    struct wire_ends ends;

    ends_open(&ends);
    check_int(wire_send_batch(ends.here, &batch, NULL), -EINVAL);
    batch.head.value = WIRE_BATCH_MAX + 1;
    check_int(wire_send_batch(ends.here, &batch, NULL), -EINVAL);
    check_int(wire_receive_batch(ends.there, &got, passed), -EAGAIN);
    ends_close(&ends);
}

/* `said` memories in the head, `size` bytes, `count` descriptors: refused, and no descriptor
 * stays. */
static void check_refused(enum wire_type type, uint64_t said, size_t size, size_t count)
{
    struct {
        struct wire_batch batch;
        struct wire_memory beyond[2];
    } sent = {.batch = batch_of(type, said)};
    int fds[WIRE_BATCH_MAX], passed[WIRE_BATCH_MAX];
    struct wire_batch got;
    struct wire_ends ends;

    ends_open(&ends);
    files_open(fds, count);
    int before = count_open();
    send_raw(ends.here, &sent, size, fds, count);
    check_int(wire_receive_batch(ends.there, &got, passed), -EPROTO);
    check_int(count_open(), before);
    check_int(wire_receive_batch(ends.there, &got, passed), -EAGAIN);
    files_close(fds, count);
    ends_close(&ends);
}

TAP_TEST(a_batch_that_is_too_short_or_too_long_is_refused)
{
    check_refused(WIRE_DROP, 1, 1, 0);
    check_refused(WIRE_KEEP, 3, bytes_of(0) - 1, 3);
    check_refused(WIRE_KEEP, 3, bytes_of(0), 3);
    check_refused(WIRE_KEEP, 3, bytes_of(3) - 1, 3);
    check_refused(WIRE_KEEP, 3, bytes_of(3) + 1, 3);
    check_refused(WIRE_KEEP, 3, bytes_of(4), 3);
    check_refused(WIRE_DROP, 2, bytes_of(1), 0);
}

TAP_TEST(a_count_beyond_the_bound_is_refused)
{
    check_refused(WIRE_DROP, 0, bytes_of(0), 0);
    check_refused(WIRE_DROP, WIRE_BATCH_MAX + 1, bytes_of(WIRE_BATCH_MAX), 0);
    check_refused(WIRE_DROP, WIRE_BATCH_MAX + 1, bytes_of(WIRE_BATCH_MAX + 1), 0);
    check_refused(WIRE_KEEP, WIRE_BATCH_MAX + 1, bytes_of(WIRE_BATCH_MAX + 1), WIRE_BATCH_MAX);
    check_refused(WIRE_DROP, UINT64_MAX, bytes_of(1), 0);
    check_refused(WIRE_DROP, (UINT64_C(1) << 60) + 1, bytes_of(1), 0);
}

TAP_TEST(another_number_of_descriptors_than_memories_is_refused)
{
    check_refused(WIRE_KEEP, 3, bytes_of(3), 0);
    check_refused(WIRE_KEEP, 3, bytes_of(3), 2);
    check_refused(WIRE_KEEP, 3, bytes_of(3), 4);
    check_refused(WIRE_DROP, 3, bytes_of(3), 1);
    check_refused(WIRE_DROP, 3, bytes_of(3), 3);
}

TAP_TEST(at_the_limit_a_batch_leaves_no_descriptor_and_says_which_one)
{
    struct wire_batch sent = batch_of(WIRE_KEEP, 20), got;
    int fds[20], passed[WIRE_BATCH_MAX];
    struct wire_ends ends;

    ends_open(&ends);
    files_open(fds, 20);
    int before = count_open();
    require(wire_send_batch(ends.here, &sent, fds) == 0);
    struct rlimit limit = limit_open(7);
    int error = wire_receive_batch(ends.there, &got, passed);
    setrlimit(RLIMIT_NOFILE, &limit);
    check_int(error, -EMFILE);
    check_int(got.head.id, 77);
    check_int(got.head.type, WIRE_KEEP);
    check_int(count_open(), before);
    files_close(fds, 20);
    ends_close(&ends);
}

static int send_one(int (*send)(int fd, const struct wire_batch *batch, const int *fds))
{
    struct wire_batch batch = batch_of(WIRE_KEEP, 1);
    struct wire_ends ends;
    int file, error;

    ends_open(&ends);
    files_open(&file, 1);
    pauses = 0;
    error = send(ends.here, &batch, &file);
    files_close(&file, 1);
    ends_close(&ends);
    return error;
}

TAP_TEST(a_single_try_neither_waits_nor_tries_again)
{
    has_too_many = true;
    check_int(send_one(wire_try_batch), -ENFILE);
    check_int(pauses, 0);
    check_int(send_one(wire_send_batch), -ENFILE);
    check(pauses > 0);
    has_too_many = false;
    check_int(send_one(wire_try_batch), 0);
    check(sent_flags & MSG_DONTWAIT);
}

TAP_TEST(an_end_that_is_gone_is_told)
{
    struct wire_batch batch = batch_of(WIRE_DROP, 1);
    int passed[WIRE_BATCH_MAX];
    struct wire_ends ends;

    ends_open(&ends);
    close(ends.here);
    check_int(wire_receive_batch(ends.there, &batch, passed), -EPIPE);
    batch = batch_of(WIRE_DROP, 1);
    check_int(wire_send_batch(ends.there, &batch, NULL), -EPIPE);
    close(ends.there);
}

TAP_TEST(a_message_has_one_descriptor_at_most)
{
    struct wire_message sent = {.type = WIRE_FUSE, .id = 5}, got;
    struct wire_ends ends;
    int fds[2], passed;

    ends_open(&ends);
    files_open(fds, 2);
    int before = count_open();
    send_raw(ends.here, &sent, sizeof sent, fds, 2);
    check_int(wire_receive(ends.there, &got, &passed), -EPROTO);
    check_int(passed, -1);
    send_raw(ends.here, &sent, sizeof sent - 1, fds, 1);
    check_int(wire_receive(ends.there, &got, &passed), -EPROTO);
    check_int(passed, -1);
    check_int(count_open(), before);
    check_int(wire_send(ends.here, &sent, fds[0]), 0);
    check_int(wire_receive(ends.there, &got, &passed), 0);
    check(memcmp(&sent, &got, sizeof sent) == 0 && same_file(passed, fds[0]));
    close(passed);
    check_int(wire_send(ends.here, &sent, -1), 0);
    check_int(wire_receive(ends.there, &got, &passed), 0);
    check_int(passed, -1);
    files_close(fds, 2);
    ends_close(&ends);
}
