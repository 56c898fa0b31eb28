/* SPDX-License-Identifier: Apache-2.0 */
#include "journal/journal_internal.h"

#include "base/file_io.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory is allocated in such steps before it is written, so that no write to the mapping
 * faults. */
#define ROOM_STEP_BYTES (UINT64_C(256) << 10)
/* Reserve for small entries. */
#define AHEAD_BYTES (UINT64_C(256) << 10)
/* Memory that an emptied file of transactions keeps for its next use. */
#define KEPT_BYTES (UINT64_C(64) << 20)
/* Far above any real number of snapshots. */
#define GENERATION_MAX (UINT64_C(1) << 40)

struct transaction_head {
    uint64_t bytes; /* bytes of its entries */
    uint64_t hash;  /* hash of these, seeded with the place of the transaction */
};

struct entry {
    uint32_t type, pad;
    uint64_t size;
};

struct journal {
    struct journal_files files;
    struct head *head;
    uint8_t *transactions[2];
    const uint8_t *snapshot; /* the snapshot found at the start; NULL if none */
    size_t snapshot_size;
    uint64_t max_bytes;    /* size of a file of transactions */
    uint64_t room[2];      /* end of the allocated memory of each */
    uint64_t at;           /* offset of the transaction's next entry */
    uint64_t counted_from; /* bytes before this offset do not count towards a snapshot */
    uint64_t bound;        /* bytes beyond which only small entries are accepted */
    bool is_at_bound;      /* true if an entry was refused for it */
    bool is_snapshotting;
    uint64_t snapshots;
};

static uint64_t align8(uint64_t bytes)
{
    return (bytes + 7) & ~UINT64_C(7);
}

static unsigned file_of(uint64_t generation)
{
    return (unsigned)(generation % 2);
}

static uint64_t seed_of(uint64_t generation, uint64_t offset)
{
    return generation << 40 ^ offset;
}

/* ---- files ------------------------------------------------------------------------------- */

static int map_file(int fd, size_t bytes, int protection, void **at)
{
    *at = mmap(NULL, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (*at != MAP_FAILED)
        return 0;
    *at = NULL;
    return -errno;
}

static bool is_in_use(const struct head *head, unsigned file)
{
    return file == file_of(head->base) || file == file_of(head->writing);
}

static int check_head(const struct head *head, struct failure *failure)
{
    if (head->magic != HEAD_MAGIC)
        return failure_set(failure, -EPROTO, "the journal is damaged: it is none");
    if (head->version != JOURNAL_VERSION)
        return failure_set(failure, -EPROTONOSUPPORT,
                           "the journal has version %" PRIu32 ", this gmsfs writes %u",
                           head->version, JOURNAL_VERSION);
    uint64_t base = head->base, writing = head->writing;
    if (base >= GENERATION_MAX || (writing != base && writing != base + 1))
        return failure_set(failure, -EPROTO,
                           "the journal is damaged: generations %" PRIu64 " and %" PRIu64, base,
                           writing);
    return 0;
}

/* A file's memory begins at offset 0 and has no gaps: it was allocated for transactions and not
 * freed. The part in use has to lie in it. */
static int check_file(struct journal *journal, unsigned file, struct failure *failure)
{
    const struct head *head = journal->head;
    uint64_t from = file == file_of(head->base) ? head->from[file] : 0, tail = head->tails[file];
    struct stat stat;

    if (fstat(journal->files.transactions[file], &stat) != 0)
        return failure_set(failure, -errno, "cannot look at the journal: %s", strerror(errno));
    uint64_t size = (uint64_t)stat.st_size, memory = (uint64_t)stat.st_blocks * 512;
    if (size == 0 || size % ROOM_STEP_BYTES != 0 || size > JOURNAL_MAX_BYTES ||
        (file > 0 && size != journal->max_bytes))
        return failure_set(failure, -EPROTO, "the journal is damaged: it has room for %" PRIu64,
                           size);
    journal->max_bytes = size;
    journal->room[file] = memory < size ? memory / HEAD_BYTES * HEAD_BYTES : size;
    if (is_in_use(head, file) &&
        (tail > journal->room[file] || tail % 8 != 0 || from > tail || from % 8 != 0))
        return failure_set(failure, -EPROTO,
                           "the journal is damaged: it reaches from %" PRIu64 " to %" PRIu64, from,
                           tail);
    return 0;
}

/* Returns the bytes of the file of a snapshot; 0: none, or it cannot be told. */
static uint64_t count_snapshot(const struct journal *journal, unsigned file)
{
    off_t end = lseek(journal->files.snapshots[file], 0, SEEK_END);

    return end > 0 ? (uint64_t)end : 0;
}

static void forget_snapshot(struct journal *journal, uint64_t generation)
{
    int fd = journal->files.snapshots[file_of(generation)];
    int done = ftruncate(fd, 0);

    (void)done; /* shrinking needs no memory */
}

/* Frees the memory of the file behind `bytes`, which the caller has checked to be unused. */
static void shrink(struct journal *journal, unsigned file, uint64_t bytes)
{
    if (journal->room[file] > bytes &&
        fallocate(journal->files.transactions[file], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)bytes, (off_t)(journal->max_bytes - bytes)) == 0)
        journal->room[file] = bytes;
}

static int map_snapshot(struct journal *journal, struct failure *failure)
{
    const struct head *head = journal->head;
    unsigned file = file_of(head->base);
    void *at = NULL;

    if (head->base == 0)
        return 0;
    if (head->snapshot_bytes[file] == 0 ||
        count_snapshot(journal, file) < head->snapshot_bytes[file])
        return failure_set(failure, -EPROTO, "the journal is damaged: its snapshot is cut off");
    journal->snapshot_size = head->snapshot_bytes[file];
    int error = map_file(journal->files.snapshots[file], journal->snapshot_size, PROT_READ, &at);
    if (error)
        return failure_set(failure, error, "cannot map the snapshot: %s", strerror(-error));
    journal->snapshot = at;
    if (XXH3_64bits_withSeed(at, journal->snapshot_size, head->base) == head->snapshot_hash[file])
        return 0;
    return failure_set(failure, -EPROTO, "the journal is damaged: its snapshot has another sum");
}

/* A child that writes a snapshot does not inherit the mapping. */
static int map_transactions(struct journal *journal, unsigned file, struct failure *failure)
{
    void *at = NULL;
    int error = map_file(journal->files.transactions[file], journal->max_bytes,
                         PROT_READ | PROT_WRITE, &at);

    if (!error && madvise(at, journal->max_bytes, MADV_DONTFORK) != 0)
        error = -errno;
    journal->transactions[file] = at;
    if (error)
        failure_set(failure, error, "cannot map the journal: %s", strerror(-error));
    return error;
}

int journal_open(const struct journal_files *files, struct journal **out, struct failure *failure)
{
    struct journal *journal = calloc(1, sizeof *journal);
    void *at = NULL;

    if (!journal)
        return failure_no_memory(failure);
    journal->files = *files;
    int error = map_file(files->head, HEAD_BYTES, PROT_READ | PROT_WRITE, &at);
    journal->head = at;
    if (error)
        failure_set(failure, error, "cannot map the journal: %s", strerror(-error));
    else
        error = check_head(journal->head, failure);
    for (unsigned i = 0; i < 2 && !error; i++)
        error = check_file(journal, i, failure);
    for (unsigned i = 0; i < 2 && !error; i++)
        error = map_transactions(journal, i, failure);
    if (!error)
        error = map_snapshot(journal, failure);
    if (error) {
        journal_close(journal);
        return error;
    }
    journal_free_former(journal); /* also memory that the last worker never used */
    journal->bound = UINT64_MAX;
    journal_rewind(journal, 0);
    *out = journal;
    return 0;
}

void journal_close(struct journal *journal)
{
    if (!journal)
        return;
    if (journal->head)
        munmap(journal->head, HEAD_BYTES);
    for (unsigned i = 0; i < 2; i++)
        if (journal->transactions[i])
            munmap(journal->transactions[i], journal->max_bytes);
    if (journal->snapshot)
        munmap((void *)(uintptr_t)journal->snapshot, journal->snapshot_size);
    free(journal);
}

/* ---- reading ----------------------------------------------------------------------------- */

bool journal_is_new(const struct journal *journal)
{
    const struct head *head = journal->head;

    return head->base == 0 && head->writing == 0 && head->tails[0] == 0;
}

const void *journal_get_snapshot(const struct journal *journal, size_t *size)
{
    *size = journal->snapshot_size;
    return journal->snapshot;
}

struct reading {
    const struct journal *journal;
    uint64_t generation;
    int (*on_entry)(void *context, const struct journal_entry *entry);
    void *context;
    struct failure *failure;
};

static int damaged(const struct reading *reading, uint64_t offset, const char *cause)
{
    return failure_set(reading->failure, -EPROTO,
                       "the journal is damaged: generation %" PRIu64 ", at %" PRIu64 ": %s",
                       reading->generation, offset, cause);
}

static int read_entries(const struct reading *reading, uint64_t at, uint64_t end)
{
    unsigned file = file_of(reading->generation);
    const uint8_t *transactions = reading->journal->transactions[file];
    bool is_delivered = end <= reading->journal->head->delivered[file];

    while (at < end) {
        struct entry head;
        if (end - at < sizeof head)
            return damaged(reading, at, "an entry is cut off");
        memcpy(&head, transactions + at, sizeof head);
        at += sizeof head;
        if (head.pad != 0 || head.size > end - at || align8(head.size) > end - at)
            return damaged(reading, at, "an entry is longer than its transaction");
        struct journal_entry entry = {.type = head.type,
                                      .bytes = transactions + at,
                                      .size = head.size,
                                      .is_delivered = is_delivered};
        int error = reading->on_entry(reading->context, &entry);
        if (error)
            return error;
        at += align8(head.size);
    }
    return 0;
}

static int read_transaction(const struct reading *reading, uint64_t *at, uint64_t tail)
{
    const uint8_t *transactions = reading->journal->transactions[file_of(reading->generation)];
    struct transaction_head transaction;

    if (tail - *at < sizeof transaction)
        return damaged(reading, *at, "a transaction is cut off");
    memcpy(&transaction, transactions + *at, sizeof transaction);
    uint64_t first = *at + sizeof transaction;
    if (transaction.bytes == 0 || transaction.bytes % 8 != 0 || transaction.bytes > tail - first)
        return damaged(reading, *at, "a transaction is longer than the rest");
    if (transaction.hash != XXH3_64bits_withSeed(transactions + first, transaction.bytes,
                                                 seed_of(reading->generation, *at)))
        return damaged(reading, *at, "a transaction has another sum");
    *at = first + transaction.bytes;
    return read_entries(reading, first, *at);
}

int journal_read(const struct journal *journal,
                 int (*on_entry)(void *context, const struct journal_entry *entry), void *context,
                 struct failure *failure)
{
    const struct head *head = journal->head;
    struct reading reading = {
        .journal = journal, .on_entry = on_entry, .context = context, .failure = failure};
    int error = 0;

    for (uint64_t generation = head->base; generation <= head->writing && !error; generation++) {
        unsigned file = file_of(generation);
        uint64_t at = generation == head->base ? head->from[file] : 0;
        reading.generation = generation;
        if (at > head->tails[file] || at % 8 != 0)
            return damaged(&reading, at, "it begins behind its end");
        while (at < head->tails[file] && !error)
            error = read_transaction(&reading, &at, head->tails[file]);
    }
    return error;
}

/* ---- writing ----------------------------------------------------------------------------- */

static unsigned writing_file(const struct journal *journal)
{
    return file_of(journal->head->writing);
}

/* Returns the offset at which the current transaction begins. */
static uint64_t begin_of_transaction(const struct journal *journal)
{
    return journal->head->tails[writing_file(journal)];
}

size_t journal_entry_room(size_t size)
{
    return sizeof(struct entry) + align8(size);
}

static uint64_t align_to_step(uint64_t bytes)
{
    return (bytes + ROOM_STEP_BYTES - 1) / ROOM_STEP_BYTES * ROOM_STEP_BYTES;
}

static int make_room(struct journal *journal, unsigned file, uint64_t until)
{
    uint64_t from = journal->room[file], to = align_to_step(until);

    while (fallocate(journal->files.transactions[file], 0, (off_t)from, (off_t)(to - from)) != 0)
        if (errno != EINTR)
            return -ENOMEM;
#ifdef MADV_POPULATE_WRITE
    /* Faults in all pages at once; otherwise each first write to a page would fault. */
    (void)madvise(journal->transactions[file] + from, to - from, MADV_POPULATE_WRITE);
#endif
    journal->room[file] = to;
    return 0;
}

void journal_set_bound(struct journal *journal, uint64_t bytes)
{
    journal->bound = bytes < journal->max_bytes / 2 ? bytes : journal->max_bytes / 2;
}

bool journal_is_at_bound(const struct journal *journal)
{
    return journal->is_at_bound;
}

static bool keeps_to_bound(struct journal *journal, size_t bytes)
{
    uint64_t since = journal_get_numbers(journal).bytes;

    journal->is_at_bound = bytes > journal->bound || since > journal->bound - bytes;
    return !journal->is_at_bound;
}

int journal_reserve_with(struct journal *journal, size_t bytes, size_t beside)
{
    unsigned file = writing_file(journal);

    if (bytes > journal->max_bytes ||
        (bytes > JOURNAL_SMALL_BYTES && !keeps_to_bound(journal, bytes)))
        return -ENOMEM;
    uint64_t until = journal->at + bytes + beside, ahead = until + AHEAD_BYTES;
    if (ahead <= journal->room[file] ||
        (ahead <= journal->max_bytes && make_room(journal, file, ahead) == 0))
        return 0;
    return bytes <= JOURNAL_SMALL_BYTES && until <= journal->room[file] ? 0 : -ENOMEM;
}

int journal_reserve(struct journal *journal, size_t bytes)
{
    return journal_reserve_with(journal, bytes, 0);
}

bool journal_has_room(const struct journal *journal, size_t bytes)
{
    return journal->at + bytes <= journal->room[writing_file(journal)];
}

uint8_t *journal_begin_entry(struct journal *journal)
{
    return journal->transactions[writing_file(journal)] + journal->at + sizeof(struct entry);
}

void journal_end_entry(struct journal *journal, uint32_t type, size_t size)
{
    struct entry head = {.type = type, .size = size};
    uint8_t *bytes = journal_begin_entry(journal);

    memcpy(bytes - sizeof head, &head, sizeof head);
    memset(bytes + size, 0, align8(size) - size);
    journal->at += sizeof head + align8(size);
}

const void *journal_add(struct journal *journal, uint32_t type, const struct iovec *parts,
                        int count)
{
    uint8_t *bytes = journal_begin_entry(journal);
    size_t size = 0;

    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0)
            memcpy(bytes + size, parts[i].iov_base, parts[i].iov_len);
        size += parts[i].iov_len;
    }
    journal_end_entry(journal, type, size);
    return bytes;
}

size_t journal_get_mark(const struct journal *journal)
{
    return (size_t)(journal->at - begin_of_transaction(journal) - sizeof(struct transaction_head));
}

void journal_rewind(struct journal *journal, size_t mark)
{
    journal->at = begin_of_transaction(journal) + sizeof(struct transaction_head) + mark;
}

bool journal_has_transaction(const struct journal *journal)
{
    return journal_get_mark(journal) > 0;
}

void journal_publish(struct journal *journal)
{
    unsigned file = writing_file(journal);
    uint64_t begin = begin_of_transaction(journal);
    uint8_t *at = journal->transactions[file] + begin;
    struct transaction_head transaction = {.bytes = journal_get_mark(journal)};

    if (transaction.bytes == 0)
        return;
    transaction.hash = XXH3_64bits_withSeed(at + sizeof transaction, transaction.bytes,
                                            seed_of(journal->head->writing, begin));
    memcpy(at, &transaction, sizeof transaction);
    atomic_store_explicit(&journal->head->tails[file], journal->at, memory_order_release);
    journal_rewind(journal, 0);
}

void journal_set_delivered(struct journal *journal)
{
    unsigned file = writing_file(journal);

    atomic_store_explicit(&journal->head->delivered[file], journal->head->tails[file],
                          memory_order_release);
}

/* ---- snapshots --------------------------------------------------------------------------- */

bool journal_wants_snapshot(const struct journal *journal, uint64_t bytes)
{
    return !journal->is_snapshotting &&
           begin_of_transaction(journal) - journal->counted_from >= bytes;
}

void journal_begin_snapshot(struct journal *journal)
{
    struct head *head = journal->head;
    uint64_t next = head->base + 1;
    unsigned file = file_of(next);

    if (head->writing != next) {
        atomic_store(&head->delivered[file], 0);
        atomic_store(&head->tails[file], 0);
        atomic_store(&head->writing, next);
    } /* else a snapshot was begun before and never finished */
    head->from[file] = head->tails[file];
    journal->is_snapshotting = true;
    journal_rewind(journal, 0);
    journal_count_from_here(journal);
}

void journal_count_from_here(struct journal *journal)
{
    journal->counted_from = begin_of_transaction(journal);
}

int journal_get_snapshot_file(const struct journal *journal)
{
    return journal->files.snapshots[file_of(journal->head->base + 1)];
}

int journal_write_snapshot(struct journal *journal, const void *bytes, size_t size)
{
    struct head *head = journal->head;
    uint64_t generation = head->base + 1;
    unsigned file = file_of(generation);

    if (ftruncate(journal->files.snapshots[file], 0) != 0 ||
        file_write_at(journal->files.snapshots[file], bytes, size, 0) < 0)
        return -ENOMEM;
    head->snapshot_hash[file] = XXH3_64bits_withSeed(bytes, size, generation);
    head->snapshot_bytes[file] = size;
    return 0;
}

int journal_end_snapshot(struct journal *journal)
{
    struct head *head = journal->head;
    uint64_t old = head->base;
    unsigned file = file_of(old + 1);
    uint64_t bytes = count_snapshot(journal, file);

    journal->is_snapshotting = false;
    if (bytes == 0 || bytes != head->snapshot_bytes[file])
        return -EPROTO;
    atomic_store(&head->base, old + 1);
    journal->is_at_bound = false;
    if (journal->snapshot)
        munmap((void *)(uintptr_t)journal->snapshot, journal->snapshot_size);
    journal->snapshot = NULL;
    journal->snapshot_size = 0;
    journal->snapshots++;
    return 0;
}

uint64_t journal_count_former(const struct journal *journal)
{
    unsigned file = file_of(journal->head->base + 1);
    uint64_t bytes = count_snapshot(journal, file);

    if (!is_in_use(journal->head, file) && journal->room[file] > KEPT_BYTES)
        bytes += journal->room[file] - KEPT_BYTES;
    return bytes;
}

void journal_free_former(struct journal *journal)
{
    uint64_t next = journal->head->base + 1;

    forget_snapshot(journal, next);
    if (!is_in_use(journal->head, file_of(next)))
        shrink(journal, file_of(next), KEPT_BYTES);
}

void journal_abandon_snapshot(struct journal *journal)
{
    journal->is_snapshotting = false;
}

void journal_trim(struct journal *journal)
{
    const struct head *head = journal->head;

    for (unsigned i = 0; i < 2; i++) {
        uint64_t end = is_in_use(head, i) ? head->tails[i] : 0;
        if (i == writing_file(journal))
            end = journal->at;
        shrink(journal, i, align_to_step(end + AHEAD_BYTES));
    }
}

void *journal_get_own(const struct journal *journal)
{
    return (uint8_t *)journal->head + HEAD_BYTES - JOURNAL_OWN_BYTES;
}

void *journal_get_counts(const struct journal *journal)
{
    return (uint8_t *)journal_get_own(journal) - JOURNAL_COUNTS_BYTES;
}

struct journal_numbers journal_get_numbers(const struct journal *journal)
{
    const struct head *head = journal->head;
    uint64_t base = head->base, bytes = head->tails[file_of(base)] - head->from[file_of(base)];

    if (head->writing != base)
        bytes += head->tails[file_of(base + 1)];
    return (struct journal_numbers){.bytes = bytes,
                                    .snapshots = journal->snapshots,
                                    .snapshot_bytes = head->snapshot_bytes[file_of(base)]};
}
