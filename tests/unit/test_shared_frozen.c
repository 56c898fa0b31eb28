/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests data that processes of two builds share, beside states, records and the ledger
 * (test_core_frozen.c, test_fs_frozen.c), against the bytes that this release recorded in
 * tests/data/shared: writing gives the same bytes, and reading them works. A change that these
 * tests notice needs another number in src/daemon/abi.c, and then `tests/data/freeze`. Every
 * recorded name has that number: "wire-batch-2".
 */
#include "frozen_file.h"
#include "wire_fixture.h"

#include "daemon/audit.h"
#include "daemon/fdstore.h"
#include "daemon/handover.h"
#include "daemon/transaction.h"
#include "rpc/rpc_internal.h"

#include <sys/un.h>

#define PATH       "tests/data/shared"
#define HEAD_BYTES 144u /* of the journal's head: the used part */
#define FDS        8

static struct frozen frozen;

/* Returns the recorded bytes; in the mode of tests/data/freeze it records them now. */
static void check_frozen(const char *name, unsigned version, const void *bytes, size_t size)
{
    char full[64], line[256] = "";
    bool is_found = false;

    snprintf(full, sizeof full, "%s-%u", name, version);
    FILE *file = fopen(PATH, getenv("GMSFS_FREEZE") ? "a+" : "r");
    require(file != NULL);
    while (!is_found && frozen_read(file, line, &frozen))
        is_found = strcmp(frozen.name, full) == 0;
    if (!is_found && getenv("GMSFS_FREEZE"))
        frozen_write(file, full, bytes, size);
    else if (!check(is_found && frozen.size == size && memcmp(frozen.bytes, bytes, size) == 0))
        fprintf(stderr, "# %s\n", full);
    fclose(file);
}

static void read_bytes(int fd, void *bytes, size_t size, off_t at)
{
    require(pread(fd, bytes, size, at) == (ssize_t)size);
}

/* ---- the journal --------------------------------------------------------------------------- */

static struct journal *open_journal(const struct journal_files *files)
{
    struct failure failure = {.text = ""};
    struct journal *journal = NULL;

    if (!check_int(journal_open(files, &journal, &failure), 0))
        fprintf(stderr, "# %s\n", failure.text);
    require(journal != NULL);
    return journal;
}

static void publish(struct journal *journal, uint32_t type, const char *text)
{
    const struct iovec part = {(void *)(uintptr_t)text, strlen(text)};

    require(journal_reserve(journal, journal_entry_room(strlen(text))) == 0);
    journal_add(journal, type, &part, 1);
    journal_publish(journal);
}

static int note_entry(void *context, const struct journal_entry *entry)
{
    char *found = context;

    snprintf(found + strlen(found), 64, "%u:%.*s%s ", entry->type, (int)entry->size,
             (const char *)entry->bytes, entry->is_delivered ? "!" : "");
    return 0;
}

static void check_entries(const struct journal *journal)
{
    struct failure failure;
    char found[256] = "";
    size_t size = 0;
    const char *snapshot = journal_get_snapshot(journal, &size);

    check(snapshot && size == 8 && memcmp(snapshot, "snapshot", 8) == 0);
    check_int(journal_read(journal, note_entry, found, &failure), 0);
    check_str(found, "2:second! 3:third ");
}

static const struct audit_position position = {.next = 1, .after = 2, .offset = 3, .size = 4};

TAP_TEST(a_journal_is_written_as_it_was_and_read)
{
    struct journal_files files;
    uint8_t head[HEAD_BYTES], entries[160], own[sizeof position];

    require(journal_make_files(&files) == 0);
    struct journal *journal = open_journal(&files);
    publish(journal, 1, "first");
    journal_begin_snapshot(journal);
    require(journal_write_snapshot(journal, "snapshot", 8) == 0);
    publish(journal, 2, "second");
    journal_set_delivered(journal);
    require(journal_end_snapshot(journal) == 0);
    publish(journal, 3, "third");
    memcpy(journal_get_own(journal), &position, sizeof position);
    journal_close(journal);
    read_bytes(files.head, head, sizeof head, 0);
    read_bytes(files.head, own, sizeof own, 4096 - (off_t)JOURNAL_OWN_BYTES);
    read_bytes(files.transactions[1], entries, sizeof entries, 0);
    check_frozen("journal-head", JOURNAL_VERSION, head, sizeof head);
    check_frozen("journal-entries", JOURNAL_VERSION, entries, sizeof entries);
    check_frozen("audit-position", AUDIT_VERSION, own, sizeof own);
    journal = open_journal(&files);
    check_entries(journal);
    journal_close(journal);
    journal_close_files(&files);
}

TAP_TEST(types_of_entries_and_notes_are_unchanged)
{
    const struct rpc_note note = {1, 2, 3, 4, 5, 6};

    check_int(TRANSACTION_RECORD, 1);
    check_int(TRANSACTION_ANSWER, 2);
    check_int(TRANSACTION_NOTE, 3);
    check_int(TRANSACTION_CONNECTION, 4);
    check_int(TRANSACTION_STATE, 5);
    check_frozen("rpc-note", TRANSACTION_VERSION, &note, sizeof note);
}

/* ---- from process to process ---------------------------------------------------------------- */

TAP_TEST(messages_are_unchanged)
{
    const struct wire_message message = {
        .type = WIRE_VISITOR, .error = -5, .id = 0x0102030405060708, .value = 9};
    const struct wire_batch batch = {.head = {.type = WIRE_DROP, .id = 7, .value = 2},
                                     .memories = {{1, 2}, {3, 4}}};
    uint8_t bytes[sizeof batch];
    struct wire_ends ends;

    check_int(WIRE_PREPARED, 1);
    check_int(WIRE_FUSE, 6);
    check_int(WIRE_KEEP, 12);
    check_int(WIRE_YIELD, 16);
    ends_open(&ends);
    require(wire_send(ends.here, &message, -1) == 0);
    ssize_t got = recv(ends.there, bytes, sizeof bytes, 0);
    check_frozen("wire-message", WIRE_VERSION, bytes, (size_t)got);
    require(wire_send_batch(ends.here, &batch, NULL) == 0);
    got = recv(ends.there, bytes, sizeof bytes, 0);
    check_frozen("wire-batch", WIRE_VERSION, bytes, (size_t)got);
    ends_close(&ends);
}

static void fill_handover(struct handover *handover, const int fds[FDS])
{
    handover_init(handover);
    abi_write(handover->abi);
    strcpy(handover->mountpoint, "/mnt/gpu0");
    strcpy(handover->gms_dir, "/run/gms");
    handover->allow_other = true;
    handover->argc = 2;
    handover->argv[0] = strdup("mount");
    handover->argv[1] = strdup("/mnt/gpu0");
    handover->mount.id = 17;
    handover->mount.minor = 42;
    handover->fds[HANDOVER_LEDGER] = fds[0];
    handover->journal = (struct journal_files){fds[1], {fds[2], fds[3]}, {fds[4], fds[5]}};
    handover->gms.count = 1;
    handover->gms.items[0] = (struct gms_socket){
        .domain = 1, .protocol = 1, .fd = fds[6], .device = 5, .inode = 99, .path = "/tmp/s"};
    require(holdings_add(&handover->holdings, 77, fds[7], 4096) == 0);
}

/* Descriptors get the numbers from 100 on. The first entry, the numbers of the build (abi), is left
 * out. */
TAP_TEST(the_handover_is_unchanged_and_understood)
{
    struct handover handover, got;
    struct handover_text text;
    struct failure failure;
    int fds[FDS];

    files_open(fds, FDS);
    for (int i = 0; i < FDS; i++) {
        require(dup2(fds[i], 100 + i) == 100 + i);
        close(fds[i]);
        fds[i] = 100 + i;
    }
    fill_handover(&handover, fds);
    require(handover_encode(&handover, &text) == 0);
    size_t first = strlen(text.bytes) + 1;
    check_frozen("handover", HANDOVER_VERSION, text.bytes + first, text.size - first);
    require(handover_decode(text.bytes, text.size, NULL, 0, &got, &failure) == 0);
    check_int(got.fds[HANDOVER_LEDGER], 100);
    check_int(got.journal.snapshots[1], 105);
    check_int((long long)got.gms.items[0].inode, 99);
    check_int((long long)holdings_at(&got.holdings, 0).id, 77);
    handover_text_free(&text);
    handover_close(&got);
    handover_close(&handover); /* its descriptors were the same, and are closed already */
}

/* ---- connections ---------------------------------------------------------------------------- */

static void fill_place(struct kept *kept)
{
    struct kept_input *input = kept_change_input(kept);

    input->consumed = 3;
    input->begin_bytes = 4;
    input->size_bytes = 5;
    input->sender_count = 1;
    input->brought_descriptor = true;
    input->senders[0].pid = 6; /* one by one: bytes between the fields are arbitrary */
    input->senders[0].process = (struct core_process){7, 8};
    strcpy(input->senders[0].comm, "comm");
    input->senders[0].end_bytes = 9;
    input->read.msg_len = 10;
    kept_set_input(kept);
    *kept_change_output(kept) = (struct kept_output){.frame = 11, .total_bytes = 12};
    kept_set_output(kept);
    kept_set_answer(kept, 13, "answer", 6);
    check_int((long long)kept_get_asked_us(kept, 14, 15), 15);
}

TAP_TEST(a_place_of_a_connection_is_unchanged_and_found)
{
    struct kept_memory *memory = NULL;
    uint8_t head[32], place[sizeof(struct kept)];
    auto_fd fd = -1;

    require(kept_make(&fd) == 0);
    require(kept_open(fd, &memory) == 0);
    struct kept *kept = kept_take(memory, kept_next_id(memory), 1, 1);
    require(kept != NULL);
    fill_place(kept);
    kept_close(memory);
    read_bytes(fd, head, sizeof head, 0);
    read_bytes(fd, place, sizeof place, 65536);
    check_frozen("connections", RPC_MEMORY_VERSION, head, sizeof head);
    check_frozen("connection", RPC_MEMORY_VERSION, place, sizeof place);
    require(kept_open(fd, &memory) == 0);
    kept = kept_find(memory, 1);
    require(kept != NULL);
    check_int((long long)kept_get_input(kept)->consumed, 3);
    check_int((long long)kept_get_output(kept)->total_bytes, 12);
    check_int((long long)kept_get_asked_us(kept, 14, 99), 15);
    kept_close(memory);
}

/* ---- the service manager's store ------------------------------------------------------------ */

static int receive_stored(int manager, char text[256])
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } rights;
    struct iovec piece = {text, 255};
    struct msghdr packet = {.msg_iov = &piece,
                            .msg_iovlen = 1,
                            .msg_control = rights.bytes,
                            .msg_controllen = sizeof rights.bytes};
    ssize_t got = recvmsg(manager, &packet, 0);
    int fd = -1;

    require(got > 0 && CMSG_FIRSTHDR(&packet));
    text[got] = '\0';
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&packet)), sizeof fd);
    return fd;
}

TAP_TEST(the_index_of_the_descriptor_store_is_unchanged)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    auto_fd manager = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct fdstore store;
    char text[256];
    uint8_t bytes[16 + 34 * 32]; /* the mount's own places come first, then the kept ones */

    snprintf(address.sun_path, sizeof address.sun_path, "%cgmsfs-test-%d", 0, (int)getpid());
    require(bind(manager, (struct sockaddr *)&address,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                             strlen(address.sun_path + 1))) == 0);
    snprintf(text, sizeof text, "@%s", address.sun_path + 1);
    setenv("NOTIFY_SOCKET", text, 1);
    fdstore_open(&store);
    auto_fd index = receive_stored(manager, text);
    check_str(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=gmsfs-index");
    check_int((long long)fdstore_add(&store, FDSTORE_TEXT, manager, 0, 0), 1);
    close(receive_stored(manager, text));
    check_str(text, "FDSTORE=1\nFDPOLL=0\nFDNAME=1");
    check_int((long long)fdstore_add(&store, FDSTORE_KEPT, manager, 5, 6), 33);
    close(receive_stored(manager, text));
    read_bytes(index, bytes, sizeof bytes, 0);
    check_frozen("store", FDSTORE_VERSION, bytes, sizeof bytes);
    fdstore_close(&store);
}
