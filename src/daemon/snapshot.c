/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/snapshot.h"

#include "base/container.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SNAPSHOT_NICE    10
#define MOST_ADDED_BYTES (UINT64_C(256) << 20)
/* Thresholds that may be recorded while a snapshot is being written; then large records have to
 * wait for it. */
#define MOST_THRESHOLDS 64u
#define RETRY_MS        1000u
#define QUIET_MS        1000u /* before the snapshot of a quiet time */
#define TRIM_MS         2000u /* before memory is freed in a quiet time */
/* Bytes of the journal, besides two snapshots, above which it frees memory when memory is short. */
#define SHORT_BYTES      (UINT64_C(1) << 20)
#define SHORT_RETRY_MS   100u
#define LONGEST_RETRY_MS 10000u
/* Most bytes of a former snapshot that the loop frees itself, in some 0.4 ms: a helper for them
 * would wake up once more, to leave, when the daemon is at rest. */
#define FREED_AT_ONCE_BYTES (UINT64_C(4) << 20)
/* Bytes of transactions that are reason for a first snapshot in a quiet time. */
#define FIRST_QUIET_BYTES (UINT64_C(1) << 20)

/* Grows with the cost of a snapshot, so that a large state is not written again for a few records;
 * reading that many records takes about as long as reading the snapshot. */
static uint64_t threshold_bytes(const struct journal *journal)
{
    uint64_t last_bytes = journal_get_numbers(journal).snapshot_bytes;
    uint64_t added_bytes = last_bytes < MOST_ADDED_BYTES ? last_bytes : MOST_ADDED_BYTES;

    return hook_number("GMSFS_SNAPSHOT_BYTES", JOURNAL_SNAPSHOT_BYTES + added_bytes);
}

static void set_bound(const struct snapshot *snapshot)
{
    uint64_t bytes = threshold_bytes(snapshot->journal);

    bytes = bytes < JOURNAL_MAX_BYTES ? MOST_THRESHOLDS * bytes : JOURNAL_MAX_BYTES;
    journal_set_bound(snapshot->journal, hook_number("GMSFS_JOURNAL_BOUND", bytes));
}

/* The child must not keep memory alive, by its descriptors, that the worker frees meanwhile. */
static void close_all_but(int kept)
{
    if (kept > 3)
        syscall(SYS_close_range, 3u, (unsigned)kept - 1, 0u);
    syscall(SYS_close_range, (unsigned)kept + 1, UINT_MAX, 0u);
}

/* Makes the kernel kill this process before the worker and its clients when memory runs out: a
 * snapshot can be made again. */
static void be_expendable(void)
{
    SCOPED_CLOSE int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t put = fd < 0 ? -1 : write(fd, "1000", 4);

    (void)put;
}

static _Noreturn void write_snapshot(struct snapshot *snapshot, const struct core *core,
                                     pid_t parent)
{
    uint8_t *bytes = NULL;
    size_t size = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    close_all_but(journal_get_snapshot_file(snapshot->journal));
    be_expendable();
    setpriority(PRIO_PROCESS, 0, SNAPSHOT_NICE);
    hook_wait("GMSFS_HOLD_SNAPSHOT");
    if (core_encode(core, &bytes, &size) || journal_write_snapshot(snapshot->journal, bytes, size))
        _exit(1);
    _exit(0);
}

/* Doubles the wait for the next try with each failure in a row: a fork costs the loop's time. */
static void back_off(struct snapshot *snapshot)
{
    uint64_t pause_ms = room_is_short(snapshot->room) ? SHORT_RETRY_MS : RETRY_MS;

    for (unsigned i = 0; i < snapshot->failures && pause_ms < LONGEST_RETRY_MS; i++)
        pause_ms *= 2;
    snapshot->failures++;
    snapshot->retry_ms =
        loop_now_ms() + (pause_ms < LONGEST_RETRY_MS ? pause_ms : LONGEST_RETRY_MS);
}

/* ---- the former snapshot and its transactions --------------------------------------------- */

static void run_freeing(struct job *job)
{
    struct snapshot *snapshot = CONTAINER_OF(job, struct snapshot, freeing);

    journal_free_former(snapshot->journal);
}

static void end_freeing(struct job *job)
{
    struct snapshot *snapshot = CONTAINER_OF(job, struct snapshot, freeing);

    snapshot->is_freeing = false;
    if (room_is_short(snapshot->room))
        journal_trim(snapshot->journal);
}

/* Frees a gigabyte in a tenth of a second: that much not on the loop. Keeps out of
 * SERVICE_POOL_FREE, where a job may hang on a disk: no snapshot begins before this job ends. */
static void free_former(struct snapshot *snapshot)
{
    enum service_pool pool =
        room_is_short(snapshot->room) ? SERVICE_POOL_MEMORY : SERVICE_POOL_COMPUTE;

    snapshot->freeing = (struct job){.run = run_freeing, .done = end_freeing};
    snapshot->is_freeing = true;
    if (journal_count_former(snapshot->journal) > FREED_AT_ONCE_BYTES &&
        helpers_submit(snapshot->helpers, pool, &snapshot->freeing) == 0)
        return;
    run_freeing(&snapshot->freeing);
    end_freeing(&snapshot->freeing);
}

static void on_exit_of_child(struct event_watch *watch, uint32_t events)
{
    struct snapshot *snapshot = CONTAINER_OF(watch, struct snapshot, watch);
    int status = 0;

    (void)events;
    if (waitpid(snapshot->child, &status, WNOHANG) == 0)
        return;
    loop_unwatch(snapshot->loop, watch);
    close(watch->fd);
    snapshot->child = 0;
    if (status == 0 && journal_end_snapshot(snapshot->journal) == 0) {
        snapshot->failures = 0;
        set_bound(snapshot);
        free_former(snapshot);
        return;
    }
    journal_abandon_snapshot(snapshot->journal);
    back_off(snapshot);
    log_warning(
        "a snapshot of the state could not be written (status %#x), most likely for lack of "
        "memory: the journal continues without it",
        (unsigned)status);
}

static int watch_child(struct snapshot *snapshot)
{
    int fd = -1;
    int error = process_open((uint64_t)snapshot->child, &fd);

    if (error)
        return error;
    snapshot->watch = (struct event_watch){.fd = fd, .ready = on_exit_of_child};
    error = loop_watch(snapshot->loop, &snapshot->watch, EVENT_READ);
    if (error)
        close(fd);
    return error;
}

void snapshot_init(struct snapshot *snapshot, struct loop *loop, struct helpers *helpers,
                   struct journal *journal, struct room *room)
{
    *snapshot =
        (struct snapshot){.loop = loop, .helpers = helpers, .journal = journal, .room = room};
    if (journal)
        set_bound(snapshot);
}

/* Returns true if memory is short and the journal would free memory by a snapshot. */
static bool is_worth_its_room(const struct snapshot *snapshot)
{
    return room_is_short(snapshot->room) &&
           journal_wants_snapshot(snapshot->journal,
                                  SHORT_BYTES + 2 * snapshot->seen.snapshot_bytes);
}

/* At the bound it tries again soon, because requests are refused until there is a snapshot. */
static bool is_time(struct snapshot *snapshot, bool is_amid_document)
{
    const struct journal *journal = snapshot->journal;
    uint64_t bytes = snapshot->is_wanted ? 1 : threshold_bytes(journal);

    if (journal_wants_snapshot(journal, is_amid_document ? 2 * bytes : bytes))
        return !(snapshot->lacks_room || snapshot->failures > 0) ||
               loop_now_ms() >= snapshot->retry_ms;
    bool is_at_bound = journal_is_at_bound(journal) && journal_wants_snapshot(journal, 0);
    return (is_at_bound || is_worth_its_room(snapshot)) && loop_now_ms() >= snapshot->retry_ms;
}

bool snapshot_step(struct snapshot *snapshot, const struct core *core, bool is_amid_document)
{
    if (snapshot->is_freeing || journal_has_transaction(snapshot->journal) ||
        !is_time(snapshot, is_amid_document))
        return false;
    snapshot->retry_ms =
        loop_now_ms() + (room_is_short(snapshot->room) ? SHORT_RETRY_MS : RETRY_MS);
    snapshot->lacks_room = !room_has_aside(snapshot->room, loop_now_ms());
    if (snapshot->lacks_room)
        return false;
    snapshot->is_wanted = false;
    journal_begin_snapshot(snapshot->journal);
    pid_t parent = getpid();
    snapshot->child = fork();
    if (snapshot->child == 0)
        write_snapshot(snapshot, core, parent);
    int error = snapshot->child < 0 ? -errno : watch_child(snapshot);
    if (!error)
        return true;
    back_off(snapshot);
    log_warning("a snapshot of the state cannot be written now: %s", strerror(-error));
    snapshot_stop(snapshot);
    journal_abandon_snapshot(snapshot->journal);
    return false;
}

/* Returns true if the journal is much larger than the state needs. Twice the size is not enough:
 * else a large state would be written for each change. But the first snapshot is always written,
 * usually after a model was loaded and nothing changes any more. */
static bool has_outlived(const struct snapshot *snapshot, const struct core *core)
{
    if (snapshot->seen.snapshot_bytes == 0)
        return journal_wants_snapshot(snapshot->journal, FIRST_QUIET_BYTES);
    uint64_t most =
        JOURNAL_SNAPSHOT_BYTES + 2 * (snapshot->base_bytes + core_count_entry_bytes(core));
    uint64_t snapshot_bytes = snapshot->seen.snapshot_bytes;

    return journal_wants_snapshot(snapshot->journal,
                                  snapshot_bytes < most ? most - snapshot_bytes : 1);
}

/* Notes the size of the state without its entries, from a snapshot that was made in a quiet
 * time. */
static void note_base(struct snapshot *snapshot, const struct core *core)
{
    uint64_t bytes = snapshot->seen.snapshot_bytes, entry_bytes = core_count_entry_bytes(core);

    snapshot->base_bytes = bytes > entry_bytes ? bytes - entry_bytes : 0;
}

bool snapshot_on_tick(struct snapshot *snapshot, const struct core *core, uint64_t now_ms)
{
    struct journal_numbers now = journal_get_numbers(snapshot->journal), *seen = &snapshot->seen;
    bool is_quiet_one = snapshot->is_tried && now.snapshots != seen->snapshots && now.bytes == 0;

    if (!is_quiet_one && (now.bytes != seen->bytes || now.snapshots != seen->snapshots)) {
        *seen = now;
        snapshot->quiet_since_ms = now_ms;
        snapshot->is_wanted = snapshot->is_tried = snapshot->is_trimmed = false;
        return true;
    }
    *seen = now;
    if (is_quiet_one)
        note_base(snapshot, core);
    if (snapshot->is_trimmed)
        return false;
    uint64_t quiet_ms = now_ms - snapshot->quiet_since_ms;
    if (snapshot->child > 0 || snapshot->is_freeing || quiet_ms < QUIET_MS)
        return true;
    if (!snapshot->is_tried && has_outlived(snapshot, core)) {
        snapshot->is_wanted = snapshot->is_tried = true;
        return true;
    }
    if (quiet_ms < TRIM_MS)
        return true;
    journal_trim(snapshot->journal);
    snapshot->is_trimmed = true;
    return false;
}

void snapshot_stop(struct snapshot *snapshot)
{
    if (snapshot->child <= 0)
        return;
    kill(snapshot->child, SIGKILL);
    while (waitpid(snapshot->child, NULL, 0) < 0 && errno == EINTR)
        ;
    snapshot->child = 0;
    if (snapshot->watch.loop) {
        loop_unwatch(snapshot->loop, &snapshot->watch);
        close(snapshot->watch.fd);
    }
}
