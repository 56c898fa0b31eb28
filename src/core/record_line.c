/* SPDX-License-Identifier: Apache-2.0 */
#include "core/record_line.h"

#include "base/clean.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 100 /* of a name that is shown */

static const char *const effect_names[] = {
    [EFFECT_GRANTED] = "granted",
    [EFFECT_REFUSED] = "refused",
    [EFFECT_FREE_MEMORY] = "free_memory",
    [EFFECT_STATE] = "state",
    [EFFECT_EVENT] = "event",
    [EFFECT_SESSION_OVER] = "session_over",
    [EFFECT_PLACE] = "place",
    [EFFECT_MOVE_OVER] = "move_over",
    [EFFECT_REGION_OVER] = "region_over",
};

__attribute__((format(printf, 2, 3))) static void add(char line[RECORD_LINE_BYTES],
                                                      const char *format, ...)
{
    size_t used = strlen(line);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line + used, RECORD_LINE_BYTES - used, format, arguments);
    va_end(arguments);
}

static void add_number(char line[RECORD_LINE_BYTES], const char *key, uint64_t value)
{
    if (value != 0)
        add(line, " %s=%" PRIu64, key, value);
}

static void add_text(char line[RECORD_LINE_BYTES], const char *key, const char *text, size_t bytes)
{
    char shown[NAME_BYTES + 1];

    if (text && bytes > 0)
        add(line, " %s='%s'%s", key, clean_quoted(shown, sizeof shown, text, bytes),
            bytes > NAME_BYTES ? "..." : "");
}

void record_line(const struct record *record, char line[RECORD_LINE_BYTES])
{
    snprintf(line, RECORD_LINE_BYTES, "%s", record_type_name(record->type));
    add_number(line, "store", record->store);
    add_number(line, "session", record->session);
    add_number(line, "waiter", record->waiter);
    add_number(line, "file", record->file);
    add_number(line, "serial", record->serial);
    add_number(line, "slot", record->slot);
    add_number(line, "kind", record->kind);
    add_number(line, "wish", record->wish);
    if (record->flags)
        add(line, " flags=0x%" PRIx32, record->flags);
    add_number(line, "count", record->count);
    add_number(line, "offset", record->offset);
    add_number(line, "bytes", record->size_bytes);
    add_number(line, "aligned", record->aligned_bytes);
    add_number(line, "memory", record->memory);
    add_number(line, "memories", record->memory_count);
    add_number(line, "puts", record->put_count);
    add_number(line, "value_bytes", record->value_bytes);
    add_number(line, "deadline_ms", record->deadline_ms);
    add_number(line, "free", record->free_bytes);
    add_number(line, "pid", record->process.pid);
    add_number(line, "uid", record->uid);
    add_number(line, "gid", record->gid);
    if (record->mode)
        add(line, " mode=0%" PRIo32, record->mode);
    add_text(line, "comm", record->comm, strnlen(record->comm, sizeof record->comm));
    add_text(line, "name", record->name, record->name_bytes);
    add_text(line, "tag", record->tag, record->tag_bytes);
}

void record_line_add_effect(char line[RECORD_LINE_BYTES], const struct effect *effect)
{
    add(line, " %s(", effect_names[effect->type]);
    char *first = line + strlen(line);
    add_number(line, "store", effect->store);
    add_number(line, "waiter", effect->waiter);
    add_number(line, "session", effect->session);
    add_number(line, "file", effect->file);
    add_number(line, "memory", effect->memory);
    add_number(line, "move", effect->move);
    if (effect->error)
        add(line, " error=%d", effect->error);
    if (*first == ' ') /* the first key stands next to the bracket */
        memmove(first, first + 1, strlen(first));
    add(line, ")");
}
