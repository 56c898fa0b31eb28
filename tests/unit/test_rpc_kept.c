/* SPDX-License-Identifier: Apache-2.0 */
/* The state of connections in memory that outlives the worker: its validity after a death at any
 * moment. */
#include "tap.h"

#include "rpc/kept.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int memory_fd;

static struct kept_memory *open_memory(void)
{
    struct kept_memory *memory = NULL;

    require(kept_open(memory_fd, &memory) == 0);
    return memory;
}

static struct kept_memory *make_memory(void)
{
    require(kept_make(&memory_fd) == 0);
    return open_memory();
}

static struct kept_memory *open_again(struct kept_memory *memory)
{
    kept_close(memory);
    return open_memory();
}

static void end(struct kept_memory *memory)
{
    kept_close(memory);
    close(memory_fd);
}

TAP_TEST(a_place_is_found_again_and_a_number_is_never_given_twice)
{
    struct kept_memory *memory = make_memory();
    uint64_t id = kept_next_id(memory), gone = kept_next_id(memory);
    struct kept *kept = kept_take(memory, id, 1, 0), *other = kept_take(memory, gone, 0, 1);

    require(kept && other && kept != other);
    kept_give(memory, other);
    memory = open_again(memory);
    check(kept_next_id(memory) > gone);
    check(kept_find(memory, gone) == NULL);
    kept = kept_find(memory, id);
    require(kept != NULL);
    check_int(kept->domain, 1);
    check(kept_take(memory, kept_next_id(memory), 0, 0) != kept);
    end(memory);
}

TAP_TEST(there_are_as_many_places_as_connections)
{
    struct kept_memory *memory = make_memory();
    struct kept *last = NULL;

    for (unsigned i = 0; i < KEPT_MAX_CONNECTIONS; i++) {
        last = kept_take(memory, i + 1, 0, 0);
        require(last != NULL);
    }
    check(kept_take(memory, KEPT_MAX_CONNECTIONS + 1, 0, 0) == NULL);
    kept_give(memory, last);
    check(kept_take(memory, KEPT_MAX_CONNECTIONS + 1, 0, 0) == last);
    end(memory);
}

TAP_TEST(a_change_counts_when_it_is_set_and_what_was_read_counts_at_once)
{
    struct kept_memory *memory = make_memory();
    struct kept *kept = kept_take(memory, 7, 0, 0);
    struct kept_input *next;

    require(kept != NULL);
    next = kept_change_input(kept);
    next->size_bytes = 5;
    check_int(kept_get_input(kept)->size_bytes, 0);
    kept_set_input(kept);
    check_int(kept_get_input(kept)->size_bytes, 5);
    kept->inputs[kept->input_at].read.msg_len = 3; /* as the kernel does */
    memory = open_again(memory);
    kept = kept_find(memory, 7);
    require(kept != NULL);
    check_int(kept_change_input(kept)->size_bytes, 8);
    check_int(kept_change_input(kept)->read.msg_len, 0);
    end(memory);
}

TAP_TEST(an_answer_is_whole_and_one_that_is_too_long_is_none)
{
    static uint8_t answer[KEPT_ANSWER_BYTES + 1];
    struct kept_memory *memory = make_memory();
    struct kept *kept = kept_take(memory, 7, 0, 0);

    require(kept != NULL);
    memset(answer, 'a', sizeof answer);
    kept_set_answer(kept, 3, answer, KEPT_ANSWER_BYTES);
    check_int(kept->answer_frame, 3);
    check(memcmp(kept_get_answer_bytes(kept), answer, KEPT_ANSWER_BYTES) == 0);
    kept_set_answer(kept, 4, answer, sizeof answer);
    check_int(kept->answer_frame, 0);
    end(memory);
}

TAP_TEST(what_makes_no_sense_is_not_gone_on_with)
{
    struct kept_memory *memory = make_memory();
    struct kept *kept = kept_take(memory, 7, 0, 0);

    require(kept != NULL);
    kept->inputs[kept->input_at].size_bytes = KEPT_INPUT_BYTES + 1;
    check(kept_find(memory, 7) == NULL);
    kept->inputs[kept->input_at].size_bytes = 0;
    kept->inputs[kept->input_at].sender_count = KEPT_MAX_SENDERS + 1;
    check(kept_find(memory, 7) == NULL);
    kept->inputs[kept->input_at].sender_count = 0;
    check(kept_find(memory, 7) == kept);
    kept->input_at = 2;
    check(kept_find(memory, 7) == NULL);
    end(memory);
}

TAP_TEST(memory_of_another_version_is_begun_anew)
{
    struct kept_memory *memory = make_memory();
    uint32_t version = 99;

    require(kept_take(memory, 7, 0, 0) != NULL);
    kept_close(memory);
    require(pwrite(memory_fd, &version, sizeof version, sizeof(uint64_t)) == sizeof version);
    memory = open_memory();
    check(kept_find(memory, 7) == NULL);
    check_int(kept_next_id(memory), 1);
    end(memory);
}

/* Sends bytes, each call one and the next number, until it is killed. */
static _Noreturn void send_for_ever(struct kept *kept, int socket)
{
    for (;;) {
        struct kept_output *next = kept_change_output(kept);
        uint8_t byte = (uint8_t)next->sent_bytes;
        struct iovec part = {&byte, 1};

        next->send.msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
        kept_set_output(kept);
        if (syscall(SYS_sendmmsg, socket, &next->send, 1, MSG_NOSIGNAL) < 0)
            _exit(1);
    }
}

static uint64_t count_received(int socket)
{
    uint8_t bytes[4096];
    uint64_t count = 0;
    ssize_t got;

    while ((got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (bytes[i] != (uint8_t)count++)
                return UINT64_MAX;
    return count;
}

TAP_TEST(however_a_sender_is_killed_it_is_known_how_much_has_left)
{
    struct kept_memory *memory = make_memory();
    struct kept *kept = kept_take(memory, 7, 0, 0);

    require(kept != NULL);
    for (int i = 0; i < 100; i++) {
        int pair[2];
        require(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        *kept_change_output(kept) = (struct kept_output){.frame = 1};
        kept_set_output(kept);
        pid_t child = fork();
        if (child == 0)
            send_for_ever(kept, pair[0]);
        usleep((useconds_t)(50 + 37 * i % 400));
        kill(child, SIGKILL);
        require(waitpid(child, NULL, 0) == child);
        const struct kept_output *output = kept_get_output(kept);
        check_int(count_received(pair[1]), output->sent_bytes + output->send.msg_len);
        close(pair[0]);
        close(pair[1]);
    }
    end(memory);
}
