/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resume - a FUSE session that continues where another worker ended
 *
 * The kernel sent FUSE_INIT once: libfuse gets the same request again, and its answer is not sent.
 * The last answers are written once more: if one had arrived, the kernel does not know its request
 * any more (ENOENT). Only then is the kernel asked to send unanswered requests again
 * (FUSE_NOTIFY_RESEND), because that gives the requests new numbers.
 */
#include "fs/fs_internal.h"

#include "base/log.h"
#include "base/test_hooks.h"
#include "fs/passthrough.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>

#define NOTIFY_RESEND 7 /* Linux 6.9; older headers do not know it */
#define RESEND_MINOR  40u

/* 0 or a negative errno */
static int write_kernel(struct fs *fs, const void *message, size_t bytes)
{
    while (write(fs->options.fuse_fd, message, bytes) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

void fs_keep_init(struct fs *fs, const void *request, size_t bytes)
{
    struct fs_ledger *ledger = fs->options.ledger;
    const struct fuse_in_header *head = request;

    if (ledger->init_bytes || head->opcode != FUSE_INIT || bytes > sizeof ledger->init)
        return;
    memcpy(ledger->init, request, bytes);
    atomic_store(&ledger->init_bytes, (uint32_t)bytes);
}

void fs_keep_init_answer(struct fs *fs, const struct iovec *parts, int count, size_t bytes)
{
    struct fs_ledger *ledger = fs->options.ledger;
    uint8_t answer[FS_INIT_ANSWER_BYTES] = {0};
    uint32_t known = atomic_load(&ledger->init_answer_bytes);
    size_t used = 0;

    for (int i = 0; i < count && bytes <= sizeof answer; used += parts[i++].iov_len)
        memcpy(answer + used, parts[i].iov_base, parts[i].iov_len);
    if (known) {
        fs->init_differs = bytes != known || memcmp(answer, ledger->init_answer, known) != 0;
        return;
    }
    if (bytes > sizeof answer)
        return;
    memcpy(ledger->init_answer, answer, bytes);
    atomic_store(&ledger->init_answer_bytes, (uint32_t)bytes);
}

void fs_repeat_choice(const struct fs *fs, struct fuse_conn_info *connection)
{
    const struct fs_ledger *ledger = fs->options.ledger;
    struct fuse_init_out agreed = {0};
    size_t head = sizeof(struct fuse_out_header), bytes = atomic_load(&ledger->init_answer_bytes);

    if (bytes <= head)
        return;
    bytes -= head;
    memcpy(&agreed, ledger->init_answer + head, bytes < sizeof agreed ? bytes : sizeof agreed);
    fs_init_repeat(connection, &agreed);
}

void fs_choose_passing(struct fs *fs)
{
    const struct fs_ledger *ledger = fs->options.ledger;
    uint32_t known = atomic_load(&ledger->init_answer_bytes);

    if (known)
        fs->passes = passthrough_is_agreed(ledger->init_answer, known);
    else
        fs->passes = !fs->options.unshared_reason && !hook_is_set("GMSFS_NO_PASSTHROUGH") &&
                     passthrough_is_offered(ledger->init, ledger->init_bytes);
}

int fs_repeat_init(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;
    struct fuse_buf request = {.mem = ledger->init, .size = ledger->init_bytes};

    if (!ledger->init_bytes)
        return -EPROTO;
    fs->mutes_answers = true;
    fuse_session_process_buf(fs->session, &request);
    fs->mutes_answers = false;
    fs->ready = fs->initialized;
    if (fs->init_differs)
        log_error("%s: this gmsfs, or its libfuse, cannot serve the kernel as was agreed when the "
                  "mount began (FUSE_INIT); mount anew to use it",
                  fs->options.mountpoint);
    return fs->initialized && !fs->init_differs ? 0 : -EPROTO;
}

static void notify_poll(struct fs *fs, uint64_t poll)
{
    struct {
        struct fuse_out_header head;
        struct fuse_notify_poll_wakeup_out wakeup;
    } message = {.head = {.len = sizeof message, .error = FUSE_NOTIFY_POLL},
                 .wakeup = {.kh = poll}};

    write_kernel(fs, &message, sizeof message);
}

void fs_answer_again(struct fs *fs, const void *answer, size_t bytes)
{
    int error = write_kernel(fs, answer, bytes);

    if (error && error != -ENOENT && error != -ENODEV)
        log_warning("%s: an answer of the last worker cannot be given: %s", fs->options.mountpoint,
                    strerror(-error));
}

/* Answers all requests EIO, because a kernel that does not send them again would let them wait for
 * ever. */
static void refuse_requests(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;

    for (unsigned i = 0; i < ledger->slots; i++) {
        struct fuse_out_header answer = {
            .len = sizeof answer, .error = -EIO, .unique = ledger->requests[i].unique};
        if (answer.unique)
            write_kernel(fs, &answer, sizeof answer);
    }
}

/* Refuses the request that killed too many workers. If the journal has its answer, that was written
 * before, and the kernel does not know the request any more. */
static void refuse_poison(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;
    uint64_t refused = atomic_load(&ledger->refused);

    if (!refused || refused & FS_AT_CONNECTION)
        return;
    for (unsigned i = 0; i < ledger->slots; i++) {
        struct fuse_out_header answer = {
            .len = sizeof answer, .error = -EIO, .unique = ledger->requests[i].unique};
        if ((answer.unique & ~FS_RESENT_BIT) != refused)
            continue;
        write_kernel(fs, &answer, sizeof answer);
        ledger->requests[i].unique = 0;
    }
    atomic_store(&ledger->refused, 0);
}

/* Wakes a poll of the last worker: its client looks again, and polls anew. */
static void wake_poll(struct fs *fs, uint64_t poll)
{
    if (poll)
        notify_poll(fs, poll);
}

static void restore_reading(struct fs *fs, struct fs_handle *handle,
                            const struct fs_kept_position *from)
{
    enum node_kind kind = node_get_kind(handle->node);

    if (kind == NODE_EVENTS)
        fs_events_restore(fs, handle, from);
    else if (kind == NODE_ALLOCATION || kind == NODE_FILE)
        fs_mapped_restore(fs, handle, from);
    else
        fs_shown_restore(fs, handle, from);
}

/* Restores the last worker's handles whose files are still open. */
static void restore_handles(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;

    uint32_t end = atomic_load(&ledger->handles_end);
    for (uint32_t i = 0; i < end; i++) {
        struct fs_kept_handle *kept = &ledger->handles[i];
        uint64_t file = atomic_load(&kept->file), poll = atomic_load(&kept->poll);
        if (!file)
            continue;
        struct fs_handle *handle =
            core_find_file(fs->core, file) ? fs_handle_get(fs, file, kept->node) : NULL;
        if (handle) {
            handle->kept = kept;
            restore_reading(fs, handle, fs_kept_position(kept));
        } else {
            atomic_store(&kept->file, 0);
        }
        wake_poll(fs, poll);
        atomic_store(&kept->poll, 0);
    }
}

bool fs_can_resend(unsigned protocol_minor)
{
    return protocol_minor >= RESEND_MINOR && !hook_is_set("GMSFS_NO_RESEND");
}

int fs_ask_again(struct fs *fs)
{
    const struct fuse_out_header resend = {.len = sizeof resend, .error = NOTIFY_RESEND};
    refuse_poison(fs);
    int error = fs->can_resend ? write_kernel(fs, &resend, sizeof resend) : -EOPNOTSUPP;

    if (error)
        refuse_requests(fs);
    fs_ledger_give_back(fs, !error);
    fs_die_if_told("GMSFS_DIE_ASKED");
    restore_handles(fs);
    return error ? -EOPNOTSUPP : 0;
}
