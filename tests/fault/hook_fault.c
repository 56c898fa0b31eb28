/* SPDX-License-Identifier: Apache-2.0 */
#include "fault.h"
#include "kill.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCKS     (1u << 17) /* that can be told apart; a power of two */
#define OWN_FRAMES 3          /* walk_stack, remember_site, and fault_meet or fault_note_block */

void *__real_malloc(size_t bytes);
void __real_free(void *block);

extern char __executable_start, etext; /* the linker's: our own code lies between */

static struct fault_control *control; /* NULL if nothing fails and nothing is counted */
static bool counting;
static enum fault_process process = FAULT_COMMAND;
static const void *root; /* the start of call sites: the caller of fault_run */

/* ---- sites ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Returns the number of return addresses of the program itself, as offsets. Calls inside this file
 * are left out: a compiler may have one such call for armed and one for unarmed. */
static __attribute__((noinline)) size_t walk_stack(uint64_t chain[FAULT_DEPTH])
{
    void *frames[FAULT_DEPTH + 24]; /* libraries' frames are between ours */
    int count = backtrace(frames, sizeof frames / sizeof frames[0]);
    size_t used = 0;

    for (int i = OWN_FRAMES; i < count && used < FAULT_DEPTH - 1; i++) {
        char *frame = frames[i];
        if (frame == root)
            break;
        if (frame >= &__executable_start && frame < &etext)
            chain[used++] = (uint64_t)(frame - &__executable_start);
    }
    memset(chain + used, 0, (FAULT_DEPTH - used) * sizeof chain[0]);
    return used;
}

/* Returns NULL if the table is full. */
static struct fault_site *find_site(uint64_t id)
{
    for (uint32_t i = 0; i < FAULT_MAX_SITES; i++) {
        struct fault_site *site = &control->sites[(id + i) % FAULT_MAX_SITES];
        uint64_t found = 0;
        if (atomic_load(&site->id) == id || atomic_compare_exchange_strong(&site->id, &found, id) ||
            found == id)
            return site;
    }
    return NULL;
}

static __attribute__((noinline)) struct fault_site *remember_site(enum fault_point point)
{
    uint64_t chain[FAULT_DEPTH];
    size_t length = walk_stack(chain);
    uint64_t id = mix(0, point);

    for (size_t i = 0; i < length; i++)
        id = mix(id, chain[i]);
    struct fault_site *site = find_site(id ? id : 1);
    if (site && site->point == FAULT_NONE) {
        memcpy(site->chain, chain, sizeof chain);
        site->point = point;
    }
    return site;
}

int fault_meet(enum fault_point point)
{
    kill_meet_point(point);
    if (!control)
        return 0;
    int before = errno;
    bool wanted = atomic_load(&control->armed) && (control->processes & process) &&
                  (control->point == FAULT_NONE || control->point == point);
    if (counting) {
        struct fault_site *site = remember_site(point);
        if (site) {
            atomic_fetch_or(&site->processes, process);
            atomic_fetch_add(&site->hits, 1);
        }
        wanted =
            wanted && (control->site == 0 || (site && control->site == atomic_load(&site->id)));
    }
    if (!wanted || atomic_fetch_sub(&control->after, 1) != 0) {
        errno = before;
        return 0;
    }
    atomic_store(&control->fired, true);
    if (control->again > 0)
        atomic_store(&control->after, control->again - 1);
    errno = control->error;
    return control->error;
}

__attribute__((noinline)) int fault_run(int (*run)(void *context), void *context)
{
    root = __builtin_return_address(0);
    int result = run(context);
    root = NULL;
    return result;
}

void fault_become(enum fault_process as)
{
    process = as;
    if (as == FAULT_WORKER)
        kill_become(KILL_WORKER);
}

/* ---- heap blocks ------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    size_t count;
    struct block {
        void *at;
        struct fault_site *site;
    } table[BLOCKS]; /* open addressing */
} blocks = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static size_t slot_of(const void *at)
{
    return mix(1, (uintptr_t)at) >> 20 & (BLOCKS - 1);
}

static void count_block(const struct block *block, int by)
{
    atomic_fetch_add(&control->living[process], by);
    if (block->site)
        atomic_fetch_add(&block->site->living[process], by);
}

void fault_note_block(enum fault_point point, void *at)
{
    if (!counting || !at)
        return;
    int before = errno;
    struct block block = {at, remember_site(point)};
    pthread_mutex_lock(&blocks.mutex);
    if (blocks.count < BLOCKS / 2) {
        size_t i = slot_of(at);
        while (blocks.table[i].at)
            i = (i + 1) & (BLOCKS - 1);
        blocks.table[i] = block;
        blocks.count++;
        count_block(&block, 1);
    }
    pthread_mutex_unlock(&blocks.mutex);
    errno = before;
}

/* Closes the gap, so that a search can end at the first free slot. */
static void take_out(size_t gap)
{
    for (size_t i = (gap + 1) & (BLOCKS - 1); blocks.table[i].at; i = (i + 1) & (BLOCKS - 1)) {
        size_t home = slot_of(blocks.table[i].at);
        if (((i - home) & (BLOCKS - 1)) < ((i - gap) & (BLOCKS - 1)))
            continue;
        blocks.table[gap] = blocks.table[i];
        gap = i;
    }
    blocks.table[gap] = (struct block){0};
    blocks.count--;
}

void fault_forget_block(void *at)
{
    if (!counting || !at)
        return;
    pthread_mutex_lock(&blocks.mutex);
    for (size_t i = slot_of(at); blocks.table[i].at; i = (i + 1) & (BLOCKS - 1)) {
        if (blocks.table[i].at == at) {
            count_block(&blocks.table[i], -1);
            take_out(i);
            break;
        }
    }
    pthread_mutex_unlock(&blocks.mutex);
}

/* ---- jansson ----------------------------------------------------------------------------- */

static void *json_allocate(size_t bytes)
{
    void *block = fault_meet(FAULT_json) ? NULL : __real_malloc(bytes);

    fault_note_block(FAULT_json, block);
    return block;
}

static void json_release(void *block)
{
    fault_forget_block(block);
    __real_free(block);
}

/* ---- beginning --------------------------------------------------------------------------- */

static void refuse(const char *variable, const char *value, const char *why, const char *what)
{
    fprintf(stderr, "gmsfs: %s=%s: %s%s\n", variable, value, why, what);
    _exit(2);
}

static void begin(struct fault_control *with)
{
    void *frame;

    backtrace(&frame, 1); /* loads its library, once */
    json_set_alloc_funcs(json_allocate, json_release);
    control = with;
}

static struct fault_control *map_control(int fd)
{
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *at = mmap(NULL, sizeof(struct fault_control), PROT_READ | PROT_WRITE, flags, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

struct fault_control *fault_start(enum fault_counting what)
{
    struct fault_control *made = map_control(-1);

    if (!made)
        return NULL;
    made->magic = FAULT_MAGIC;
    counting = what == FAULT_SITES;
    begin(made);
    return made;
}

static void open_control(const char *path)
{
    struct stat stat;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &stat) != 0)
        refuse("GMSFS_FAULT_CONTROL", path, "cannot open it: ", strerror(errno));
    if (stat.st_size != (off_t)sizeof(struct fault_control))
        refuse("GMSFS_FAULT_CONTROL", path, "is not a control file of this build", "");
    struct fault_control *mapped = map_control(fd);
    if (!mapped)
        refuse("GMSFS_FAULT_CONTROL", path, "cannot map it: ", strerror(errno));
    if (mapped->magic != FAULT_MAGIC)
        refuse("GMSFS_FAULT_CONTROL", path, "is not a control file of this build", "");
    close(fd);
    counting = true;
    begin(mapped);
}

static int parse_errno(const char *name)
{
    for (int error = 1; error < 200; error++) {
        const char *known = strerrorname_np(error);
        if (known && strcmp(known, name) == 0)
            return error;
    }
    return 0;
}

static uint32_t parse_process(const char *name)
{
    if (strcmp(name, "command") == 0)
        return FAULT_COMMAND;
    if (strcmp(name, "keeper") == 0)
        return FAULT_KEEPER;
    return strcmp(name, "worker") == 0 ? FAULT_WORKER : 0;
}

static int parse_count(const char *text)
{
    char *end;
    long count = strtol(text, &end, 10);

    return *text < '0' || *text > '9' || *end || count > INT32_MAX ? -1 : (int)count;
}

/* Parses one of after=N, errno=E, in=PROCESS. */
static void parse_word(const char *given, char *word, struct fault_control *into)
{
    char *value = strchr(word, '=');

    if (strncmp(word, "after=", 6) == 0) {
        int after = parse_count(value + 1);
        if (after < 0)
            refuse("GMSFS_FAULT", given, "after= takes a number of calls, not ", value + 1);
        into->after = after;
    } else if (strncmp(word, "errno=", 6) == 0) {
        into->error = parse_errno(value + 1);
        if (!into->error)
            refuse("GMSFS_FAULT", given, "errno= takes a name as ENOMEM, not ", value + 1);
    } else if (strncmp(word, "in=", 3) == 0) {
        into->processes = parse_process(value + 1);
        if (!into->processes)
            refuse("GMSFS_FAULT", given, "in= takes command, keeper or worker, not ", value + 1);
    } else {
        refuse("GMSFS_FAULT", given, "after=N, errno=E and in=PROCESS follow the point, not ",
               word);
    }
}

static void arm(const char *given)
{
    struct fault_control *made = control ? control : map_control(-1);
    char text[256], *rest = NULL;

    if (!made || strlen(given) >= sizeof text)
        refuse("GMSFS_FAULT", given, "is too long", "");
    strcpy(text, given);
    char *word = strtok_r(text, ":", &rest);
    made->point = word ? fault_point_parse(word) : FAULT_NONE;
    if (made->point == FAULT_NONE)
        refuse("GMSFS_FAULT", given, "there is no such point: ", word ? word : "(none)");
    made->error = fault_point_errno((enum fault_point)made->point);
    made->processes = FAULT_COMMAND | FAULT_KEEPER | FAULT_WORKER;
    while ((word = strtok_r(NULL, ":", &rest)))
        parse_word(given, word, made);
    made->armed = true;
    if (!control)
        begin(made);
}

__attribute__((constructor)) static void read_environment(void)
{
    const char *file = getenv("GMSFS_FAULT_CONTROL"), *fault = getenv("GMSFS_FAULT");

    if (file && *file)
        open_control(file);
    if (fault && *fault)
        arm(fault);
}
