/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's files of /proc: a process that chooses its name chooses nothing else. */
#include "fuzz.h"

#include "daemon/mountinfo.h"
#include "daemon/process.h"

#include <errno.h>
#include <inttypes.h>

#define NAME_BYTES 15u /* the kernel's TASK_COMM_LEN, less the terminator */

/* Writes a name as the kernel does in `status`. */
static void escape(const char *name, char escaped[2 * NAME_BYTES + 1])
{
    for (; *name; name++) {
        if (*name == '\n' || *name == '\\') {
            *escaped++ = '\\';
            *escaped++ = *name == '\n' ? 'n' : '\\';
        } else {
            *escaped++ = *name;
        }
    }
    *escaped = '\0';
}

static void parse_again(const struct process_status *status)
{
    char name[2 * NAME_BYTES + 1], text[256];
    struct process_status again;

    must(strnlen(status->comm, sizeof status->comm) <= NAME_BYTES);
    escape(status->comm, name);
    int bytes = snprintf(text, sizeof text,
                         "Name:\t%s\nUmask:\t0022\nTgid:\t%" PRIu64 "\nPPid:\t%" PRIu64 "\n", name,
                         status->pid, status->parent);
    must(process_parse_status(text, (size_t)bytes, &again) == 0);
    must(again.pid == status->pid && again.parent == status->parent);
    must(memcmp(again.comm, status->comm, sizeof again.comm) == 0);
}

static void try_status(const char *text, size_t size)
{
    struct process_status status;
    int error = process_parse_status(text, size, &status);

    must(error == 0 || error == -EINVAL);
    if (error)
        return;
    must(status.pid > 0);
    parse_again(&status);
}

static void try_as_name(const char *text)
{
    struct process_status status = {.pid = 4711, .parent = 815};
    uint64_t start = 0;
    char line[256];

    memcpy(status.comm, text, strnlen(text, NAME_BYTES));
    parse_again(&status);
    int bytes = snprintf(line, sizeof line,
                         "4711 (%s) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 123456 23\n",
                         status.comm);
    must(process_parse_start(line, (size_t)bytes, &start) == 0 && start == 123456);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct mountinfo mount;
    uint64_t start;

    try_status(text, size);
    try_as_name(text);
    int error = process_parse_start(text, size, &start);
    must(error == 0 || error == -EINVAL);
    error = mountinfo_parse_line(text, &mount);
    must(error <= 0);
    if (error == 0) {
        must(strnlen(mount.path, sizeof mount.path) < sizeof mount.path);
        must(strnlen(mount.type, sizeof mount.type) < sizeof mount.type);
    }
    free(text);
    return 0;
}
