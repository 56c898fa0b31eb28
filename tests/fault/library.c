/* SPDX-License-Identifier: Apache-2.0 */
/*
 * library - lets each call site of libgmsfs fail once, in a client of a live store
 *
 *   library STORE SECOND [STEP...]
 *
 * Each step is a call of the library on a handle in a state that fits. It is done once to learn the
 * call sites below it, then once for each of them with a fault there. It succeeds, or returns an
 * errno that fits and has done nothing: the same call then succeeds. When the handle is closed,
 * nothing is left: descriptors, mappings, blocks of the heap, the lock. Prints each failure and a
 * last line of numbers; exit status 1 if there are failures.
 */
#include "driver.h"
#include "gmsfs_graph.h"
#include "gmsfs_region.h"

#define ALLOCATIONS      3u
#define ENTRIES          40u
#define WAIT_MS          10000u
#define CLOSED_OF_A_KIND 64 /* as in libgmsfs/internal.h */

static const char *store, *second; /* `second` is for groups */

struct scene {
    gmsfs_t *handle, *other;
    gmsfs_graph_pool_t *pool;
    gmsfs_graph_space_t *space;
    void *ptr;
    uint64_t slot; /* of an allocation */
    uint8_t token[GMSFS_TOKEN_BYTES];
};

static void must(int result, const char *what)
{
    if (result < 0)
        tool_die("%s: %s", what, strerror(-result));
}

#include "library_graph.h"
#include "library_handles.h"
#include "library_regions.h"

static const struct step {
    const char *name;
    void (*prepare)(struct scene *scene);
    int (*run)(struct scene *scene);
} STEPS[] = {{"open", nothing, do_open},
             {"regions", object_made, do_regions},
             {"connect RO", opened, do_connect_ro},
             {"connect RW", opened, do_connect_rw},
             {"join", invited, do_join},
             {"reopen", opened, do_reopen},
             {"disconnect", reading, do_disconnect},
             {"get_info", reading, do_info},
             {"read_layout", reading, do_read_layout},
             {"list_handles", reading, do_list},
             {"metadata_get", reading, do_get},
             {"metadata_list", reading, do_list_keys},
             {"attach_all", reading, do_attach_all},
             {"attach_mapping", reading, do_attach_one},
             {"export_handle", reading, do_export},
             {"allocate_handles", writing, do_allocate},
             {"create_mapping", writing, do_create_mapping},
             {"metadata_put", writing, do_put},
             {"metadata_put_many", changing, do_put_many},
             {"commit", writing, do_commit},
             {"abort", writing, do_abort},
             {"unmap_all_vas", attached, do_sleep},
             {"remap_all_vas", asleep, do_wake},
             {"retarget", attached, do_retarget},
             {"retarget asleep", asleep, do_retarget},
             {"reallocate_all_handles", bereft, do_reallocate},
             {"connect_group RW", paired, do_group_write},
             {"connect_group RO", paired_whole, do_group_read},
             {"connect_group whole", paired_whole, do_group_either},
             {"connect_group mix", paired, do_group_either},
             {"commit_group", paired_writing, do_group_commit},
             GRAPH_STEPS};

/* ---- the process's resources ---------------------------------------------------------------- */

struct holding {
    int fds, memory;
    int64_t blocks;
};

static int count_memory_maps(void)
{
    static char text[1 << 20];
    int count = 0;

    if (tool_read_text("/proc/self/maps", text, sizeof text) < 0)
        tool_die("cannot read the mappings");
    for (const char *at = text; (at = strstr(at, "memfd:")) != NULL; at++)
        count++;
    return count;
}

static struct holding look(void)
{
    return (struct holding){.fds = tool_count_fds(getpid(), NULL),
                            .memory = count_memory_maps() + tool_count_fds(getpid(), "memfd:"),
                            .blocks = control->living[FAULT_COMMAND]};
}

/* ---- one fault --------------------------------------------------------------------------- */

static void close_all(struct scene *scene)
{
    gmsfs_close(scene->handle);
    gmsfs_close(scene->other);
    gmsfs_graph_close(scene->pool);
    rmdir(graph_store()); /* empties it, if something is left */
    *scene = (struct scene){0};
}

/* Makes the start of every step: committed, with allocations and entries. */
static void publish(void)
{
    struct gmsfs_metadata entries[ENTRIES];
    struct scene scene = {0};
    char keys[ENTRIES][16];

    writing(&scene);
    must(gmsfs_clear_all_handles(scene.handle), "clear_all_handles");
    must(gmsfs_set_slab_bytes(scene.handle, 0), "set_slab_bytes");
    for (unsigned i = 0; i < ALLOCATIONS; i++) {
        must(gmsfs_create_mapping(scene.handle, 1000, "tag", NULL, &scene.ptr), "create_mapping");
        memcpy(scene.ptr, "bytes", 6);
    }
    for (unsigned i = 0; i < ENTRIES; i++) {
        snprintf(keys[i], sizeof keys[i], "key%u", i);
        entries[i] = (struct gmsfs_metadata){
            .key = keys[i], .value = "value", .value_bytes = 5, .slot = GMSFS_SLOT_NONE};
    }
    must(gmsfs_metadata_put_many(scene.handle, entries, ENTRIES, NULL), "metadata_put_many");
    must(gmsfs_commit(scene.handle, 0, NULL), "commit");
    close_all(&scene);
}

static bool is_changed(const char *when, const struct step *step, const struct holding *was)
{
    struct holding now = look();

    /* A call that failed may have a connection to keep, and may have unmapped some pieces. */
    if (strcmp(when, "failed") == 0
            ? now.memory <= was->memory
            : now.memory == was->memory && now.fds == was->fds && now.blocks == was->blocks)
        return false;
    complain("%s: when it %s: was %d descriptors, %d of memory, %lld blocks; is %d, %d, %lld",
             step->name, when, was->fds, was->memory, (long long)was->blocks, now.fds, now.memory,
             (long long)now.blocks);
    return true;
}

static void print_leaks(const int32_t *before)
{
    for (size_t i = 0; i < FAULT_MAX_SITES; i++) {
        const struct fault_site *site = &control->sites[i];
        if (site->living[FAULT_COMMAND] == before[i])
            continue;
        printf("    %+d blocks of %s\n", site->living[FAULT_COMMAND] - before[i],
               fault_point_name((enum fault_point)site->point));
        print_site(site);
    }
}

static bool judge(const struct step *step, const struct fault_site *site, struct scene *scene,
                  int result, const struct holding *before)
{
    int injected = fault_point_errno((enum fault_point)site->point);
    unsigned wrong = failures;

    if (result >= 0)
        return true;
    told++;
    if (result != -injected && result != -ENOMEM)
        complain("%s: %s %s: says %s", step->name, fault_point_name((enum fault_point)site->point),
                 strerrorname_np(injected), strerrorname_np(-result));
    is_changed("failed", step, before);
    result = step->run(scene);
    if (result < 0)
        complain("%s: %s %s: does not work afterwards: %s", step->name,
                 fault_point_name((enum fault_point)site->point), strerrorname_np(injected),
                 strerrorname_np(-result));
    return failures == wrong;
}

struct performance {
    const struct step *step;
    struct scene *scene;
};

static int perform(void *context)
{
    const struct performance *what = context;

    return what->step->run(what->scene);
}

/* Does the step with a fault, or without one to learn its call sites. */
static void try_step(const struct step *step, const struct fault_site *site, uint32_t *hits)
{
    static int32_t living[FAULT_MAX_SITES];
    struct holding empty = look();
    struct scene scene = {0};

    for (size_t i = 0; i < FAULT_MAX_SITES; i++)
        living[i] = control->sites[i].living[FAULT_COMMAND];
    step->prepare(&scene);
    struct holding before = look();
    for (size_t i = 0; !site && i < FAULT_MAX_SITES; i++)
        hits[i] = control->sites[i].hits;
    if (site)
        arm(site, FAULT_COMMAND);
    int result = fault_run(perform, &(struct performance){step, &scene});
    control->armed = false;
    for (size_t i = 0; !site && i < FAULT_MAX_SITES; i++)
        hits[i] = control->sites[i].hits - hits[i];
    if (!site)
        must(result, step->name);
    faults += site && control->fired;
    bool good = !site || judge(step, site, &scene, result, &before);
    close_all(&scene);
    if (site && is_changed("was over", step, &empty)) {
        good = false;
        print_leaks(living);
    }
    if (!good)
        print_site(site);
}

static void try_all(const struct step *step)
{
    static uint32_t hits[FAULT_MAX_SITES];
    unsigned before = faults;

    for (int at = -2; at < (int)FAULT_MAX_SITES; at++) {
        if (at >= 0 && hits[at] == 0)
            continue;
        publish();
        try_step(step, at < 0 ? NULL : &control->sites[at], hits);
    }
    printf("%s: %u faults\n", step->name, faults - before);
    fflush(stdout);
}

/* The library keeps a little of the last closed things of each kind; this fills that up for
 * good. */
static void fill_closed(void)
{
    struct scene scene = {0};

    for (int i = 0; i < CLOSED_OF_A_KIND; i++) {
        must(gmsfs_open(store, &scene.handle), "open");
        must(do_graph_open(&scene), "graph_open");
        must(do_graph_space_new(&scene), "graph_space_new");
        close_all(&scene);
        must(do_regions(&scene), "regions");
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: library STORE SECOND [STEP...]\n");
        return 2;
    }
    store = argv[1];
    second = argv[2];
    control = fault_start(FAULT_SITES);
    if (!control)
        tool_die("no memory to begin with");
    publish();
    fill_closed();
    for (size_t i = 0; i < sizeof STEPS / sizeof STEPS[0]; i++) {
        bool wanted = argc == 3;
        for (int at = 3; at < argc; at++)
            wanted |= strcmp(argv[at], STEPS[i].name) == 0;
        if (wanted)
            try_all(&STEPS[i]);
    }
    printf("%u faults, %u of them told, %u wrong\n", faults, told, failures);
    return failures || faults == 0;
}
