/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/kept.h"

#include "base/log.h"
#include "base/pages.h"
#include "rpc/rpc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MEMORY_MAGIC UINT64_C(0x636e6f6373666d67) /* "gmsfscon" */

/* Sizes of the memory and of a place, which has its state, its answer and its input. In whole
 * pages, also where these have 64 KiB. */
#define PAGE_BYTES   65536u
#define ANSWER_BEGIN ((size_t)PAGE_BYTES)
#define INPUT_BEGIN  (ANSWER_BEGIN + 2 * (size_t)PAGE_BYTES)
#define PLACE_BYTES \
    ((INPUT_BEGIN + KEPT_INPUT_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * (size_t)PAGE_BYTES)
#define SHORT_ANSWER_BYTES 4096u
/* Free places whose memory stays allocated; they are taken first. */
#define READY_PLACES 64u
#define MEMORY_BYTES (PAGE_BYTES + KEPT_MAX_CONNECTIONS * PLACE_BYTES)

_Static_assert(sizeof(struct kept) <= PAGE_BYTES && KEPT_ANSWER_BYTES <= 2 * PAGE_BYTES,
               "a place has room for all of it");

struct head {
    uint64_t magic;
    uint32_t version, connection_bytes;
    uint64_t next_id;
    uint32_t places_end; /* places from here on were never used */
};

struct kept_memory {
    uint8_t *at;
    struct head *head;
    bool is_taken[KEPT_MAX_CONNECTIONS];
};

/* ---- the memory -------------------------------------------------------------------------- */

int kept_make(int *fd)
{
    *fd = memfd_create("gmsfs-connections", MFD_CLOEXEC);
    if (*fd < 0)
        return -errno;
    if (ftruncate(*fd, (off_t)MEMORY_BYTES) == 0)
        return 0;
    int error = -errno;
    close(*fd);
    *fd = -1;
    return error;
}

static bool is_ours(const struct head *head)
{
    return head->magic == MEMORY_MAGIC && head->version == RPC_MEMORY_VERSION &&
           head->connection_bytes == sizeof(struct kept) &&
           head->places_end <= KEPT_MAX_CONNECTIONS;
}

/* Empties the memory and begins it. */
static int begin_memory(int fd, struct head *head)
{
    if (ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)MEMORY_BYTES) != 0)
        return -errno;
    *head = (struct head){.magic = MEMORY_MAGIC,
                          .version = RPC_MEMORY_VERSION,
                          .connection_bytes = sizeof(struct kept),
                          .next_id = 1};
    return 0;
}

int kept_open(int fd, struct kept_memory **out)
{
    struct kept_memory *memory = calloc(1, sizeof *memory);
    int error = 0;

    if (!memory)
        return -ENOMEM;
    memory->at =
        mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory->at == MAP_FAILED) {
        free(memory);
        return -errno;
    }
    memory->head = (struct head *)(void *)memory->at;
    if (memory->head->magic && !is_ours(memory->head))
        log_error("the shared memory of GMS connections is damaged or of another version; its "
                  "connections end");
    if (!is_ours(memory->head))
        error = begin_memory(fd, memory->head);
    if (error) {
        kept_close(memory);
        return error;
    }
    *out = memory;
    return 0;
}

void kept_close(struct kept_memory *memory)
{
    if (!memory)
        return;
    munmap(memory->at, MEMORY_BYTES);
    free(memory);
}

uint64_t kept_next_id(struct kept_memory *memory)
{
    return memory->head->next_id++;
}

/* ---- places ------------------------------------------------------------------------------ */

static struct kept *get_place(struct kept_memory *memory, uint32_t place)
{
    return (struct kept *)(void *)(memory->at + PAGE_BYTES + place * PLACE_BYTES);
}

uint8_t *kept_get_answer_bytes(struct kept *kept)
{
    return (uint8_t *)kept + ANSWER_BEGIN;
}

uint8_t *kept_get_input_bytes(struct kept *kept)
{
    return (uint8_t *)kept + INPUT_BEGIN;
}

/* Allocates pages now: a write into the mapping that finds no memory would kill the worker. */
static int populate(uint8_t *at, size_t bytes)
{
    return pages_make(at, bytes) ? -ENOMEM : 0;
}

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

int kept_reserve_input(struct kept *kept, size_t bytes)
{
    kept->has_grown |= bytes > KEPT_AHEAD_BYTES;
    return populate(kept_get_input_bytes(kept), bytes);
}

void kept_shrink_input(struct kept *kept, size_t bytes)
{
    size_t from = round_up(bytes);

    (void)madvise(kept_get_input_bytes(kept) + from, round_up(KEPT_INPUT_BYTES) - from,
                  MADV_REMOVE);
}

static struct kept *begin_place(struct kept_memory *memory, uint32_t place, uint64_t id,
                                uint32_t domain, uint32_t protocol)
{
    struct kept *kept = get_place(memory, place);

    if (populate((uint8_t *)kept, sizeof *kept) ||
        populate(kept_get_answer_bytes(kept), SHORT_ANSWER_BYTES) ||
        kept_reserve_input(kept, KEPT_AHEAD_BYTES))
        return NULL;
    memset(kept, 0, sizeof *kept);
    kept->domain = domain;
    kept->protocol = protocol;
    memory->is_taken[place] = true;
    if (memory->head->places_end <= place)
        memory->head->places_end = place + 1;
    atomic_store(&kept->id, id);
    return kept;
}

struct kept *kept_take(struct kept_memory *memory, uint64_t id, uint32_t domain, uint32_t protocol)
{
    for (uint32_t i = 0; i < KEPT_MAX_CONNECTIONS; i++)
        if (!memory->is_taken[i])
            return begin_place(memory, i, id, domain, protocol);
    return NULL;
}

void kept_give(struct kept_memory *memory, struct kept *kept)
{
    size_t place = (size_t)((uint8_t *)kept - memory->at - PAGE_BYTES) / PLACE_BYTES;

    atomic_store(&kept->id, 0);
    if (kept->has_grown || place >= READY_PLACES)
        (void)madvise(kept, PLACE_BYTES, MADV_REMOVE);
    memory->is_taken[place] = false;
}

static bool makes_sense(const struct kept *kept)
{
    if (kept->input_at > 1 || kept->output_at > 1)
        return false;
    const struct kept_input *input = &kept->inputs[kept->input_at];
    return input->begin_bytes <= KEPT_INPUT_BYTES &&
           input->size_bytes <= KEPT_INPUT_BYTES - input->begin_bytes &&
           input->read.msg_len <= KEPT_INPUT_BYTES - input->begin_bytes - input->size_bytes &&
           input->sender_count <= KEPT_MAX_SENDERS && kept->answer_bytes <= KEPT_ANSWER_BYTES;
}

struct kept *kept_find(struct kept_memory *memory, uint64_t id)
{
    for (uint32_t i = 0; i < memory->head->places_end; i++) {
        struct kept *kept = get_place(memory, i);
        if (kept->id != id)
            continue;
        memory->is_taken[i] = makes_sense(kept);
        return memory->is_taken[i] ? kept : NULL;
    }
    return NULL;
}

/* ---- the current one of two --------------------------------------------------------------- */

const struct kept_input *kept_get_input(const struct kept *kept)
{
    return &kept->inputs[kept->input_at];
}

struct kept_input *kept_change_input(struct kept *kept)
{
    const struct kept_input *now = &kept->inputs[kept->input_at];
    struct kept_input *next = &kept->inputs[1 - kept->input_at];

    *next = *now;
    next->size_bytes += now->read.msg_len;
    next->read.msg_len = 0;
    return next;
}

void kept_set_input(struct kept *kept)
{
    atomic_store(&kept->input_at, 1 - kept->input_at);
}

const struct kept_output *kept_get_output(const struct kept *kept)
{
    return &kept->outputs[kept->output_at];
}

struct kept_output *kept_change_output(struct kept *kept)
{
    const struct kept_output *now = &kept->outputs[kept->output_at];
    struct kept_output *next = &kept->outputs[1 - kept->output_at];

    *next = *now;
    next->sent_bytes += now->send.msg_len;
    next->send.msg_len = 0;
    return next;
}

void kept_set_output(struct kept *kept)
{
    atomic_store(&kept->output_at, 1 - kept->output_at);
}

void kept_set_answer(struct kept *kept, uint64_t frame, const void *bytes, size_t size)
{
    uint8_t *to = kept_get_answer_bytes(kept);

    atomic_store(&kept->answer_frame, 0);
    if (size > KEPT_ANSWER_BYTES || (size > SHORT_ANSWER_BYTES && populate(to, size)))
        return;
    kept->has_grown |= size > SHORT_ANSWER_BYTES;
    memcpy(to, bytes, size);
    kept->answer_bytes = size;
    atomic_store(&kept->answer_frame, frame);
}

uint64_t kept_get_asked_us(struct kept *kept, uint64_t frame, uint64_t now_us)
{
    if (kept->asked_frame == frame && kept->asked_us <= now_us)
        return kept->asked_us;
    atomic_store(&kept->asked_frame, 0);
    kept->asked_us = now_us;
    atomic_store(&kept->asked_frame, frame);
    return now_us;
}
