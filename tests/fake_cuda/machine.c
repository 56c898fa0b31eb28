/* SPDX-License-Identifier: Apache-2.0 */
/* The control file: the machine and its faults. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES   8192
#define CALL_BYTES   64
#define YOUNG_S      1
#define HOLD_TURN_MS 10

struct fault {
    char call[CALL_BYTES];
    unsigned result;
    unsigned long first, count; /* of calls, the first is 1; count 0: all later ones */
    unsigned long seen;
    unsigned slow_ms;
    bool holds;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char text[TEXT_BYTES]; /* the last text read */
static struct machine now;
static struct fault faults[FAKE_MAX_FAULTS];
static unsigned fault_count;
static pid_t initialised_by;

static _Thread_local const char *stays_in;

void machine_stay(const char *dir)
{
    stays_in = dir;
}

const char *machine_dir(void)
{
    return stays_in ? stays_in : getenv("GMSFS_FAKE_CUDA");
}

void machine_uuid(unsigned gpu, struct drv_uuid *uuid)
{
    memset(uuid->bytes, 0x5a, sizeof(uuid->bytes));
    uuid->bytes[0] = (char)0xfa;
    uuid->bytes[15] = (char)gpu;
}

void machine_uuid_text(unsigned gpu, char *uuid_text, size_t bytes)
{
    struct drv_uuid uuid;
    int at = snprintf(uuid_text, bytes, "GPU-");

    machine_uuid(gpu, &uuid);
    for (int i = 0; i < 16; i++)
        at += snprintf(uuid_text + at, bytes - (size_t)at, "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                       (unsigned char)uuid.bytes[i]);
}

void machine_pci_id(unsigned gpu, char *id, size_t bytes)
{
    snprintf(id, bytes, "0000:%02x:00.0", 0x17 + gpu);
}

static void add_fault(const char *call, unsigned result, unsigned long first, unsigned long count,
                      unsigned slow_ms)
{
    if (fault_count == FAKE_MAX_FAULTS)
        abort(); /* a test that needs this needs more room */
    faults[fault_count] =
        (struct fault){.result = result, .first = first, .count = count, .slow_ms = slow_ms};
    snprintf(faults[fault_count].call, CALL_BYTES, "%s", call);
    fault_count++;
}

/* Adds a hold, which lasts as long as its line in the control file. */
static void add_hold(const char *call)
{
    add_fault(call, 0, 0, 0, 0);
    faults[fault_count - 1].holds = true;
}

static void add_event(unsigned gpu, unsigned xid)
{
    if (now.event_count < FAKE_MAX_EVENTS)
        now.events[now.event_count++] = (struct machine_event){.gpu = gpu, .xid = xid};
}

static void take_line(const char *line)
{
    unsigned a = 0, b = 0;
    unsigned long first = 1, count = 0;
    char call[CALL_BYTES];

    if (sscanf(line, "devices %u", &a) == 1 && a <= FAKE_MAX_DEVICES)
        now.devices = a;
    else if (sscanf(line, "memory %u", &a) == 1)
        now.memory_bytes = (uint64_t)a << 20;
    else if (sscanf(line, "others %u", &a) == 1)
        now.others_bytes = (uint64_t)a << 20;
    else if (sscanf(line, "rdma %u", &a) == 1)
        now.rdma = a != 0;
    else if (sscanf(line, "peers %u", &a) == 1)
        now.peers = a != 0;
    else if (sscanf(line, "lazy %u", &a) == 1)
        now.lazy = a != 0;
    else if (sscanf(line, "poison %u", &a) == 1)
        now.poison_bytes = (uint64_t)a << 20;
    else if (sscanf(line, "lost %u", &a) == 1 && a < FAKE_MAX_DEVICES)
        now.lost[a] = true;
    else if (sscanf(line, "xid %u %u", &a, &b) == 2)
        add_event(a, b);
    else if (sscanf(line, "ecc %u", &a) == 1)
        add_event(a, 0);
    else if (sscanf(line, "fail %63s %u %lu %lu", call, &a, &first, &count) >= 2)
        add_fault(call, a, first, count, 0);
    else if (sscanf(line, "slow %63s %u", call, &a) == 2)
        add_fault(call, 0, 0, 0, a);
    else if (sscanf(line, "hold %63s", call) == 1)
        add_hold(call);
    else if (*line && *line != '#')
        abort(); /* a test with an unknown word must not pass */
}

static void take_text(void)
{
    char copy[TEXT_BYTES], *rest = copy, *line;

    now = (struct machine){
        .devices = 1, .memory_bytes = UINT64_C(1) << 30, .rdma = true, .peers = true};
    fault_count = 0;
    memcpy(copy, text, TEXT_BYTES);
    while ((line = strsep(&rest, "\n")))
        take_line(line);
}

/* Returns whether the file is unchanged since it was read; a young file may be written again within
 * the same tick of the file system's clock. */
static bool is_unchanged(const char *path, struct stat *last)
{
    struct timespec clock;
    struct stat st;

    if (stat(path, &st) < 0)
        st = (struct stat){0};
    bool same = st.st_ino == last->st_ino && st.st_size == last->st_size &&
                st.st_mtim.tv_sec == last->st_mtim.tv_sec &&
                st.st_mtim.tv_nsec == last->st_mtim.tv_nsec;
    clock_gettime(CLOCK_REALTIME, &clock);
    *last = st;
    return same && clock.tv_sec - st.st_mtim.tv_sec > YOUNG_S;
}

/* A missing file is an empty one. Returns false if this thread stays in a machine that is gone:
 * then it must not read the present one. */
static bool refresh(void)
{
    char fresh[TEXT_BYTES] = "", path[4096];
    static struct stat last;
    static bool taken;
    int fd;

    snprintf(path, sizeof(path), "%s/control", machine_dir());
    if (!stays_in && is_unchanged(path, &last) && taken)
        return true;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, fresh, TEXT_BYTES - 1);

        fresh[got > 0 ? got : 0] = '\0';
        close(fd);
    } else if (stays_in) {
        return false;
    }
    if (taken && !memcmp(fresh, text, TEXT_BYTES))
        return true;
    memcpy(text, fresh, TEXT_BYTES);
    take_text();
    taken = true;
    return true;
}

void machine_read(struct machine *machine)
{
    pthread_mutex_lock(&mutex);
    *machine = machine_dir() && refresh() ? now : (struct machine){0};
    pthread_mutex_unlock(&mutex);
}

/* Finds the first fault that makes this call fail; adds up its delay. */
static enum drv_result judge(const char *call, unsigned *slow_ms)
{
    enum drv_result result = DRV_SUCCESS;

    for (unsigned i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];

        if (strcmp(fault->call, "*") && strcmp(fault->call, call))
            continue;
        fault->seen++;
        *slow_ms += fault->slow_ms;
        if (fault->result && result == DRV_SUCCESS && fault->seen >= fault->first &&
            (!fault->count || fault->seen - fault->first < fault->count))
            result = (enum drv_result)fault->result;
    }
    return result;
}

/* The caller holds the mutex. */
static bool is_held(const char *call)
{
    bool held = false;

    for (unsigned i = 0; i < fault_count; i++)
        held = held || (faults[i].holds && strcmp(faults[i].call, call) == 0);
    return held;
}

enum drv_result machine_judge(const char *call)
{
    enum drv_result result = DRV_SUCCESS;
    unsigned slow_ms = 0;
    bool is_there;

    pthread_mutex_lock(&mutex);
    is_there = refresh();
    while (is_there && is_held(call)) {
        pthread_mutex_unlock(&mutex);
        nanosleep(&(struct timespec){.tv_nsec = HOLD_TURN_MS * 1000000L}, NULL);
        pthread_mutex_lock(&mutex);
        is_there = refresh();
    }
    if (is_there)
        result = judge(call, &slow_ms);
    pthread_mutex_unlock(&mutex);
    if (slow_ms)
        nanosleep(&(struct timespec){slow_ms / 1000, slow_ms % 1000 * 1000000L}, NULL);
    return result;
}

enum drv_result machine_enter(const char *call)
{
    if (initialised_by != getpid())
        return DRV_NOT_INITIALIZED;
    return machine_judge(call);
}

enum drv_result machine_init(void)
{
    enum drv_result result;

    if (!machine_dir())
        return DRV_NO_DEVICE;
    if (initialised_by && initialised_by != getpid())
        return DRV_NOT_INITIALIZED; /* a child of a process that had it */
    result = machine_judge("cuInit");
    if (result == DRV_SUCCESS && now.devices == 0)
        result = DRV_NO_DEVICE;
    if (result == DRV_SUCCESS)
        initialised_by = getpid();
    return result;
}
