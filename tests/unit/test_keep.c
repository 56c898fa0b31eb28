/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the worker's helpers and the keeper: descriptors of memory, in batches, until they are
 * dropped. */
#include "daemon/keep.h"

#include "base/clock.h"
#include "daemon/keeper_internal.h"
#include "wire_fixture.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#define MANY 600u

/* A keeper run by a thread as keeper.c would; one test at a time inspects it. */
struct served {
    struct keeper keeper;
    struct keeper_setup setup;
    struct keep keep;
    pthread_t thread;
    atomic_uint questions;
    int before; /* descriptors of this process */
};

static void *serve(void *argument)
{
    struct served *served = argument;

    while (served->keeper.keep_fd >= 0) {
        struct pollfd event = {served->keeper.keep_fd, POLLIN, 0};
        poll(&event, 1, -1);
        keeper_on_keep(&served->keeper);
        served->questions++;
    }
    return NULL;
}

static void served_start(struct served *served)
{
    struct wire_ends ends;

    memset(served, 0, sizeof *served);
    served->before = count_open();
    ends_open(&ends);
    served->setup.mountpoint = "/mnt";
    served->keeper.setup = &served->setup;
    served->keeper.keep_fd = ends.there;
    keep_init(&served->keep, ends.here);
    require(pthread_create(&served->thread, NULL, serve, served) == 0);
}

/* Ends the worker: its keeper closes all it holds, and no descriptor is left. */
static void served_end(struct served *served)
{
    keep_close(&served->keep);
    pthread_join(served->thread, NULL);
    holdings_free(&served->keeper.holdings);
    check_int(count_open(), served->before);
}

static void memories_make(struct service_memory *memories, uint64_t first, size_t count)
{
    int fds[MANY];

    files_open(fds, count);
    for (size_t i = 0; i < count; i++)
        memories[i] = (struct service_memory){.id = first + i, .bytes = 4096, .fd = fds[i]};
}

static void memories_close(const struct service_memory *memories, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(memories[i].fd);
}

static void drop(struct served *served, const struct service_memory *memories, size_t count)
{
    uint64_t ids[MANY];

    for (size_t i = 0; i < count; i++)
        ids[i] = memories[i].id;
    keep_drop(&served->keep, ids, count);
}

TAP_TEST(hundreds_of_pieces_take_a_question_for_each_batch)
{
    struct service_memory memories[MANY];
    struct served served;

    memories_make(memories, 1, MANY);
    served_start(&served);
    int open = count_open();
    check_int(keep_add(&served.keep, memories, MANY), 0);
    check_int(holdings_count(&served.keeper.holdings), MANY);
    check_int(holdings_count_bytes(&served.keeper.holdings), MANY * 4096);
    check_int(count_open(), open + (int)MANY);
    drop(&served, memories, MANY);
    check_int(holdings_count(&served.keeper.holdings), 0);
    check_int(count_open(), open);
    served_end(&served);
    /* The last request is our hangup. */
    check_int(served.questions, 2 * ((MANY + WIRE_BATCH_MAX - 1) / WIRE_BATCH_MAX) + 1);
    memories_close(memories, MANY);
}

TAP_TEST(connections_are_held_beside_memory_and_are_none)
{
    struct service_memory memories[2], connections[2];
    struct served served;

    memories_make(memories, 1, 2);
    memories_make(connections, WIRE_CONNECTION | 1, 2);
    connections[0].bytes = connections[1].bytes = 0;
    served_start(&served);
    int open = count_open();
    check_int(keep_add(&served.keep, connections, 2), 0);
    check_int(holdings_count(&served.keeper.holdings), 0);
    check_int(keep_add(&served.keep, memories, 2), 0);
    check_int(holdings_count(&served.keeper.holdings), 2);
    check_int(holdings_count_bytes(&served.keeper.holdings), 2 * 4096);
    check_int(count_open(), open + 4);
    drop(&served, memories, 2); /* the numbers are two spaces */
    check_int(holdings_count_bytes(&served.keeper.holdings), 0);
    check_int(count_open(), open + 2);
    drop(&served, connections, 2);
    check_int(count_open(), open);
    served_end(&served);
    memories_close(connections, 2);
    memories_close(memories, 2);
}

TAP_TEST(memory_that_the_keeper_never_held_can_be_dropped)
{
    struct service_memory memories[3];
    struct served served;

    memories_make(memories, 10, 3);
    served_start(&served);
    check_int(keep_add(&served.keep, memories, 1), 0);
    drop(&served, memories, 3);
    drop(&served, memories, 3);
    check_int(holdings_count(&served.keeper.holdings), 0);
    served_end(&served);
    memories_close(memories, 3);
}

TAP_TEST(memory_made_anew_under_its_number_replaces_the_first)
{
    struct service_memory memories[2];
    struct served served;

    memories_make(memories, 10, 2);
    memories[1].id = 10;
    served_start(&served);
    int open = count_open();
    check_int(keep_add(&served.keep, memories, 2), 0);
    check_int(holdings_count(&served.keeper.holdings), 1);
    check_int(count_open(), open + 1);
    served_end(&served);
    memories_close(memories, 2);
}

TAP_TEST(a_batch_beyond_the_limit_of_descriptors_is_kept_in_no_part)
{
    struct service_memory memories[40];
    struct served served;

    memories_make(memories, 1, 40);
    served_start(&served);
    int open = count_open();
    check_int(keep_add(&served.keep, memories, 5), 0);
    struct rlimit limit = limit_open(20);
    int error = keep_add(&served.keep, memories + 5, 35);
    setrlimit(RLIMIT_NOFILE, &limit);
    check_int(error, -EMFILE);
    check_int(holdings_count(&served.keeper.holdings), 5);
    check_int(count_open(), open + 5);
    check_int(keep_add(&served.keep, memories + 5, 35), 0);
    check_int(holdings_count(&served.keeper.holdings), 40);
    served_end(&served);
    memories_close(memories, 40);
}

/* A worker that asks and reads no answer; the next question is answered again. */
TAP_TEST(an_answer_that_is_not_taken_is_given_up_in_a_second)
{
    struct wire_batch batch = {.head = {.type = WIRE_DROP, .value = 1}, .memories = {{.id = 1}}};
    struct keeper_setup setup = {.mountpoint = "/mnt"};
    struct keeper keeper = {.setup = &setup};
    struct wire_message answer = {0};
    struct wire_ends ends;
    uint64_t last = 0, took_ms = 0;
    int fd = -1;

    ends_open(&ends);
    keeper.keep_fd = ends.there;
    for (batch.head.id = 1; took_ms < 900 && batch.head.id < 100000; batch.head.id++) {
        uint64_t start_ms = clock_now_ms();
        require(wire_send_batch(ends.here, &batch, NULL) == 0);
        check(keeper_on_keep(&keeper));
        took_ms = clock_now_ms() - start_ms;
    }
    check(took_ms >= 900 && took_ms < 5000);
    check(keeper.keep_fd >= 0);
    fcntl(ends.here, F_SETFL, O_NONBLOCK);
    while (wire_receive(ends.here, &answer, &fd) == 0)
        last = answer.id;
    check_int((long long)last, (long long)batch.head.id - 2); /* all but the last answer */
    require(wire_send_batch(ends.here, &batch, NULL) == 0);
    check(keeper_on_keep(&keeper));
    check_int(wire_receive(ends.here, &answer, &fd), 0);
    check_int((long long)answer.id, (long long)batch.head.id);
    ends_close(&ends);
}

TAP_TEST(descriptors_that_the_worker_handed_over_end_with_it)
{
    struct service_memory memories[MANY];
    struct wire_batch batch = {.head = {.type = WIRE_KEEP, .id = 1, .value = 2},
                               .memories = {{.id = 1000}, {.id = 1001}}};
    struct served served;

    memories_make(memories, 1, MANY);
    served_start(&served);
    check_int(keep_add(&served.keep, memories, MANY), 0);
    /* A batch with an answer that is no longer wanted. */
    int fds[2] = {memories[0].fd, memories[1].fd};
    check_int(wire_send_batch(served.keep.fd, &batch, fds), 0);
    keep_close(&served.keep);
    pthread_join(served.thread, NULL);
    check_int(holdings_count(&served.keeper.holdings), MANY + 2);
    holdings_free(&served.keeper.holdings);
    memories_close(memories, MANY);
    check_int(count_open(), served.before - (int)MANY);
}

static void check_hangs_up(const void *bytes, size_t size, size_t count)
{
    struct service_memory memories[3];
    struct served served;
    int fds[3];

    memories_make(memories, 1, 3);
    for (size_t i = 0; i < 3; i++)
        fds[i] = memories[i].fd;
    served_start(&served);
    send_raw(served.keep.fd, bytes, size, fds, count);
    check_int(keep_add(&served.keep, memories, 3), -EPIPE);
    check_int(holdings_count(&served.keeper.holdings), 0);
    served_end(&served);
    memories_close(memories, 3);
}

TAP_TEST(a_sender_of_nonsense_is_not_served_any_more)
{
    struct wire_batch batch = {.head = {.type = WIRE_KEEP, .value = 3}};

    check_hangs_up(&batch, bytes_of(3), 2);
    check_hangs_up(&batch, bytes_of(2), 3);
    check_hangs_up(&batch, 5, 0);
    batch.head.type = WIRE_DETACHED;
    check_hangs_up(&batch, bytes_of(3), 0);
    check_hangs_up(&batch, bytes_of(3), 3);
}

TAP_TEST(a_keeper_that_is_gone_is_an_error_and_no_wait)
{
    struct service_memory memories[2];
    struct wire_ends ends;
    struct keep keep;

    memories_make(memories, 1, 2);
    ends_open(&ends);
    keep_init(&keep, ends.here);
    close(ends.there);
    check_int(keep_add(&keep, memories, 2), -EPIPE);
    keep_close(&keep);
    memories_close(memories, 2);
}

TAP_TEST(an_answer_to_an_earlier_question_is_passed_over)
{
    struct wire_message answer = {.type = WIRE_ACK, .id = 1000, .error = -EIO};
    struct service_memory memory;
    struct served served;

    memories_make(&memory, 1, 1);
    served_start(&served);
    require(wire_send(served.keeper.keep_fd, &answer, -1) == 0);
    check_int(keep_add(&served.keep, &memory, 1), 0);
    check_int(holdings_count(&served.keeper.holdings), 1);
    served_end(&served);
    memories_close(&memory, 1);
}

struct crowd {
    struct served *served;
    const struct service_memory *memories;
    int error;
};

static void *join_in(void *argument)
{
    struct crowd *one = argument;

    for (size_t i = 0; i < MANY / 4 && !one->error; i += 50)
        one->error = keep_add(&one->served->keep, one->memories + i, 50);
    return NULL;
}

TAP_TEST(threads_take_turns)
{
    struct service_memory memories[MANY];
    struct crowd crowd[4];
    pthread_t threads[4];
    struct served served;

    memories_make(memories, 1, MANY);
    served_start(&served);
    for (size_t i = 0; i < 4; i++) {
        crowd[i] = (struct crowd){&served, memories + i * (MANY / 4), 0};
        require(pthread_create(&threads[i], NULL, join_in, &crowd[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        check_int(crowd[i].error, 0);
    }
    check_int(holdings_count(&served.keeper.holdings), MANY);
    served_end(&served);
    memories_close(memories, MANY);
}
