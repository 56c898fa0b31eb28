/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover.h"

#include "base/array.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const fd_keys[HANDOVER_FDS] = {
    [HANDOVER_FUSE] = "fuse",
    [HANDOVER_LISTENER] = "listener",
    [HANDOVER_AUDIT] = "audit",
    [HANDOVER_LEDGER] = "ledger",
    [HANDOVER_GMS_MEMORY] = "gms-memory",
    [HANDOVER_CONTROL] = "control",
    [HANDOVER_KEEP] = "keep",
    [HANDOVER_BACKINGS] = "backings",
    [HANDOVER_TRACE] = "trace",
};

static const char *const journal_keys[] = {"journal-head", "journal-transactions-0",
                                           "journal-transactions-1", "journal-snapshot-0",
                                           "journal-snapshot-1"};

#define JOURNAL_FILES (sizeof journal_keys / sizeof journal_keys[0])

static int *journal_file(struct journal_files *files, size_t i)
{
    return i == 0 ? &files->head : i < 3 ? &files->transactions[i - 1] : &files->snapshots[i - 3];
}

void handover_init(struct handover *handover)
{
    *handover = (struct handover){.journal = {-1, {-1, -1}, {-1, -1}}};
    for (size_t i = 0; i < HANDOVER_FDS; i++)
        handover->fds[i] = -1;
}

/* ---- encoding ---------------------------------------------------------------------------- */

struct encoder {
    FILE *stream;
    struct handover_text *text;
    size_t room;
    int error;
};

static void add_fd(struct encoder *encoder, int fd)
{
    struct handover_text *text = encoder->text;

    if (ARRAY_RESERVE(text->fds, encoder->room, text->count + 1) != 0)
        encoder->error = -ENOMEM;
    else
        text->fds[text->count++] = fd;
}

__attribute__((format(printf, 4, 5))) static void put(struct encoder *encoder, const char *key,
                                                      int fd, const char *format, ...)
{
    va_list arguments;

    if (fd >= 0) {
        fprintf(encoder->stream, "%s %d ", key, fd);
        add_fd(encoder, fd);
    } else {
        fprintf(encoder->stream, "%s - ", key);
    }
    va_start(arguments, format);
    vfprintf(encoder->stream, format, arguments);
    va_end(arguments);
    fputc('\0', encoder->stream);
}

static void put_descriptors(struct encoder *encoder, const struct handover *handover)
{
    struct journal_files journal = handover->journal;

    for (size_t i = 0; i < HANDOVER_FDS; i++)
        if (handover->fds[i] >= 0)
            put(encoder, fd_keys[i], handover->fds[i], "%s", "");
    for (size_t i = 0; i < JOURNAL_FILES; i++)
        put(encoder, journal_keys[i], *journal_file(&journal, i), "%s", "");
    for (size_t i = 0; i < handover->gms.count; i++) {
        const struct gms_socket *socket = &handover->gms.items[i];
        put(encoder, "gms", socket->fd, "%u %u %ju %ju %s", (unsigned)socket->domain,
            (unsigned)socket->protocol, (uintmax_t)socket->device, (uintmax_t)socket->inode,
            socket->path);
    }
    for (size_t i = 0; i < holdings_count_all(&handover->holdings); i++) {
        struct holding holding = holdings_at(&handover->holdings, i);
        put(encoder, "kept", holding.fd, "%" PRIu64 " %" PRIu64, holding.id, holding.bytes);
    }
}

int handover_encode(const struct handover *handover, struct handover_text *text)
{
    struct encoder encoder = {.text = text};

    *text = (struct handover_text){0};
    encoder.stream = open_memstream(&text->bytes, &text->size);
    if (!encoder.stream)
        return -ENOMEM;
    put(&encoder, "abi", -1, "%s", handover->abi);
    put(&encoder, "mountpoint", -1, "%s", handover->mountpoint);
    put(&encoder, "gms-dir", -1, "%s", handover->gms_dir);
    put(&encoder, "allow-other", -1, "%d", handover->allow_other);
    put(&encoder, "detached", -1, "%d", handover->is_detached);
    put(&encoder, "mount", -1, "%d %u %u", handover->mount.id, handover->mount.major,
        handover->mount.minor);
    for (int i = 0; i < handover->argc; i++)
        put(&encoder, "argument", -1, "%s", handover->argv[i]);
    put_descriptors(&encoder, handover);
    bool failed = ferror(encoder.stream) != 0;
    failed |= fclose(encoder.stream) != 0;
    if (failed && !encoder.error)
        encoder.error = -ENOMEM;
    if (encoder.error)
        handover_text_free(text);
    return encoder.error;
}

void handover_text_free(struct handover_text *text)
{
    free(text->bytes);
    free(text->fds);
    *text = (struct handover_text){0};
}

/* ---- decoding ---------------------------------------------------------------------------- */

struct entry {
    char key[32];
    int fd; /* -1 if none */
    const char *value;
};

/* Reads the next entry. Returns false at the end, or if it is damaged. */
static bool next_entry(const char *bytes, size_t size, size_t *at, struct entry *entry)
{
    char number[16];
    int used = 0;

    if (*at >= size || !memchr(bytes + *at, '\0', size - *at))
        return false;
    if (sscanf(bytes + *at, "%31s %15s%n", entry->key, number, &used) != 2 ||
        bytes[*at + (size_t)used] != ' ')
        return false;
    entry->fd = strcmp(number, "-") == 0 ? -1 : atoi(number);
    entry->value = bytes + *at + used + 1;
    *at += strlen(bytes + *at) + 1;
    return true;
}

size_t handover_count_fds(const char *bytes, size_t size)
{
    struct entry entry;
    size_t at = 0, count = 0;

    while (next_entry(bytes, size, &at, &entry))
        count += entry.fd >= 0;
    return count;
}

static bool take_text(char *to, size_t room, const char *value)
{
    if (strlen(value) >= room)
        return false;
    strcpy(to, value);
    return true;
}

static bool take_gms(struct handover *handover, const struct entry *entry)
{
    struct gms_sockets *gms = &handover->gms;
    unsigned domain, protocol;
    uintmax_t device, inode;
    int used = 0;

    if (gms->count == GMS_SOCKETS_MAX ||
        sscanf(entry->value, "%u %u %ju %ju %n", &domain, &protocol, &device, &inode, &used) != 4)
        return false;
    struct gms_socket *socket = &gms->items[gms->count];
    *socket = (struct gms_socket){
        .domain = domain, .protocol = protocol, .fd = entry->fd, .device = device, .inode = inode};
    if (!take_text(socket->path, sizeof socket->path, entry->value + used))
        return false;
    gms->count++;
    return true;
}

/* Returns false if this key has no descriptor. *ok: the entry was valid, and was taken. */
static bool take_descriptor(struct handover *handover, const struct entry *entry, bool *ok)
{
    uint64_t id, bytes;

    *ok = true;
    for (size_t i = 0; i < HANDOVER_FDS; i++)
        if (strcmp(entry->key, fd_keys[i]) == 0) {
            handover->fds[i] = entry->fd;
            return true;
        }
    for (size_t i = 0; i < JOURNAL_FILES; i++)
        if (strcmp(entry->key, journal_keys[i]) == 0) {
            *journal_file(&handover->journal, i) = entry->fd;
            return true;
        }
    if (strcmp(entry->key, "gms") == 0) {
        *ok = take_gms(handover, entry);
        if (!*ok)
            close(entry->fd);
        return true;
    }
    if (strcmp(entry->key, "kept") != 0)
        return false;
    *ok = sscanf(entry->value, "%" SCNu64 " %" SCNu64, &id, &bytes) == 2 &&
          holdings_add(&handover->holdings, id, entry->fd, bytes) == 0;
    return true;
}

static bool take_word(struct handover *handover, const struct entry *entry)
{
    struct mountinfo *mount = &handover->mount;

    if (strcmp(entry->key, "abi") == 0)
        return take_text(handover->abi, sizeof handover->abi, entry->value);
    if (strcmp(entry->key, "mountpoint") == 0)
        return take_text(handover->mountpoint, sizeof handover->mountpoint, entry->value);
    if (strcmp(entry->key, "gms-dir") == 0)
        return take_text(handover->gms_dir, sizeof handover->gms_dir, entry->value);
    if (strcmp(entry->key, "mount") == 0)
        return sscanf(entry->value, "%d %u %u", &mount->id, &mount->major, &mount->minor) == 3;
    if (strcmp(entry->key, "allow-other") == 0) {
        handover->allow_other = strcmp(entry->value, "1") == 0;
        return true;
    }
    if (strcmp(entry->key, "detached") == 0) {
        handover->is_detached = strcmp(entry->value, "1") == 0;
        return true;
    }
    if (strcmp(entry->key, "argument") != 0 || handover->argc == (int)HANDOVER_MAX_ARGUMENTS)
        return false;
    handover->argv[handover->argc] = strdup(entry->value);
    return handover->argv[handover->argc] && ++handover->argc;
}

static bool take_entry(struct handover *handover, const struct entry *entry)
{
    bool ok;

    if (entry->fd < 0)
        return take_word(handover, entry);
    if (fcntl(entry->fd, F_SETFD, FD_CLOEXEC) == 0 && take_descriptor(handover, entry, &ok))
        return ok;
    close(entry->fd);
    return false;
}

static int check(const struct handover *handover, struct failure *failure)
{
    struct journal_files journal = handover->journal;

    for (size_t i = 0; i < JOURNAL_FILES; i++)
        if (*journal_file(&journal, i) < 0)
            return failure_set(failure, -EPROTO, "the handover lacks '%s'", journal_keys[i]);
    if (handover->fds[HANDOVER_LEDGER] < 0 || !*handover->mountpoint || handover->argc == 0)
        return failure_set(failure, -EPROTO,
                           "the handover lacks the ledger, the mountpoint or the arguments");
    return 0;
}

int handover_decode(const char *bytes, size_t size, const int *fds, size_t count,
                    struct handover *handover, struct failure *failure)
{
    struct entry entry;
    size_t at = 0, next = 0;
    int error = 0;

    handover_init(handover);
    while (!error && next_entry(bytes, size, &at, &entry)) {
        if (entry.fd >= 0 && fds)
            entry.fd = next < count ? fds[next++] : -1;
        if (!take_entry(handover, &entry))
            error = failure_set(
                failure, -EPROTO,
                "the handover has an entry that this gmsfs does not understand: '%s %s'", entry.key,
                entry.value);
        else if (strcmp(entry.key, "abi") == 0)
            error = abi_check(handover->abi, failure);
    }
    if (!error)
        error = at == size ? check(handover, failure)
                           : failure_set(failure, -EPROTO, "the handover is cut off");
    for (; fds && next < count; next++)
        close(fds[next]);
    if (error)
        handover_close(handover);
    return error;
}

void handover_close(struct handover *handover)
{
    for (size_t i = 0; i < HANDOVER_FDS; i++)
        if (handover->fds[i] >= 0)
            close(handover->fds[i]);
    gms_sockets_forget(&handover->gms);
    journal_close_files(&handover->journal);
    holdings_free(&handover->holdings);
    for (int i = 0; i < handover->argc; i++)
        free(handover->argv[i]);
    handover_init(handover);
}
