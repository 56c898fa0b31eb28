/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commands - lets each call site of a command that moves bytes fail once
 *
 *   commands CONTROL GMSFS STORE DIRECTORY [EVERY]
 *
 * Runs `image save` of the store into the directory and `image load` back, `save` and `load`: each
 * once to learn its call sites, then once for each of them (or each EVERYth) with a fault there. A
 * command succeeds, and its result is complete; or it prints the reason, with exit status 1, holds
 * no lock, leaves nothing that looks complete, and works when it is run again. The store holds a
 * model that `save` can write. Prints each failure and a last line of numbers; exit status 1 if
 * there are failures.
 */
#include "driver.h"

#include <dirent.h>

#define MAX_ARGUMENTS 10

static const char *gmsfs, *store, *directory;

/* $S is the store, $D the directory. */
struct command {
    const char *name, *words[MAX_ARGUMENTS];
    const char *proof[MAX_ARGUMENTS]; /* succeeds after the command has, on its result */
};

static const struct command COMMANDS[] = {
    {"image save",
     {"image", "save", "-q", "--force", "--threads", "2", "$S", "$D/image"},
     {"image", "ls", "--check", "$D/image"}},
    {"image load",
     {"image", "load", "-q", "--threads", "2", "$S", "$D/image"},
     {"verify", "-q", "$S", "$D/model.safetensors"}},
    {"save",
     {"save", "-q", "$S", "$D/model.safetensors"},
     {"verify", "-q", "$S", "$D/model.safetensors"}},
    {"load",
     {"load", "-q", "$S", "$D/model.safetensors"},
     {"verify", "-q", "$S", "$D/model.safetensors"}},
};

static void fill_in(const char *const *words, char *(*argv)[MAX_ARGUMENTS + 2],
                    struct tool_path (*room)[MAX_ARGUMENTS])
{
    size_t i = 0;

    (*argv)[0] = (char *)(uintptr_t)gmsfs;
    for (; i < MAX_ARGUMENTS && words[i]; i++) {
        const char *word = words[i];
        bool named = word[0] == '$';
        const char *before = !named ? "" : word[1] == 'S' ? store : directory;
        (*room)[i] = tool_path("%s%s", before, named ? word + 2 : word);
        (*argv)[i + 1] = (*room)[i].text;
    }
    (*argv)[i + 1] = NULL;
}

static void run(const char *const *words, struct ran *ran)
{
    struct tool_path room[MAX_ARGUMENTS];
    char *argv[MAX_ARGUMENTS + 2];
    int null = open_null(), output = open_scratch();

    fill_in(words, &argv, &room);
    pid_t child = start(argv, null, output);
    close(null);
    if (!wait_child(child, LIMIT_MS, &ran->status)) {
        int status;
        kill(child, SIGKILL);
        wait_child(child, LIMIT_MS, &status);
        ran->status = -1;
    }
    take_text(output, ran);
}

/* The kernel releases closed files some time after close(2). */
static bool is_held(void)
{
    struct tool_path sessions = tool_path("%s/sessions", store);
    char text[4096];

    for (int i = 0; i < 2000; i++) {
        if (tool_read_text(sessions.text, text, sizeof text) == 0)
            return false;
        tool_pause_us(1000);
    }
    return true;
}

/* `.name` is a file that is being written. */
static bool has_leftovers(void)
{
    DIR *all = opendir(directory);
    bool found = false;

    for (struct dirent *entry; all && (entry = readdir(all)) != NULL;)
        found |= entry->d_name[0] == '.' && strcmp(entry->d_name, ".") != 0 &&
                 strcmp(entry->d_name, "..") != 0;
    if (all)
        closedir(all);
    return found;
}

/* Returns NULL, or the failure. `ran` is the command's output. */
static const char *judge(const struct command *command, struct ran *ran)
{
    bool failed = ran->status != 0;

    if (ran->status == -1)
        return "it hangs";
    if (!WIFEXITED(ran->status) || WEXITSTATUS(ran->status) > 1)
        return "another end than success or failure";
    if (failed && !ran->text[0])
        return "it failed without a message";
    if (is_held())
        return "the store is held";
    if (has_leftovers())
        return "a file that was begun is left";
    if (failed) {
        run(command->words, ran);
        if (ran->status != 0)
            return "it fails again without a fault";
    }
    run(command->proof, ran);
    return ran->status != 0 ? "what it made is not whole" : NULL;
}

static void try_command(const struct command *command, unsigned every)
{
    static uint32_t hits[FAULT_MAX_SITES];
    unsigned before = faults, seen = 0;
    struct ran ran;

    for (size_t i = 0; i < FAULT_MAX_SITES; i++)
        hits[i] = control->sites[i].hits;
    run(command->words, &ran);
    if (ran.status != 0)
        tool_die("%s: fails even without a fault: %s", command->name, ran.text);
    for (size_t i = 0; i < FAULT_MAX_SITES; i++)
        hits[i] = control->sites[i].hits - hits[i];
    for (size_t i = 0; i < FAULT_MAX_SITES; i++) {
        const struct fault_site *site = &control->sites[i];
        char said[sizeof ran.text];
        if (hits[i] == 0 || seen++ % every != 0)
            continue;
        arm(site, FAULT_COMMAND);
        run(command->words, &ran);
        control->armed = false;
        faults += control->fired;
        told += ran.status != 0;
        memcpy(said, ran.text, sizeof said);
        const char *wrong = judge(command, &ran);
        if (!wrong)
            continue;
        complain("%s: %s: %s\n%s%s", command->name, fault_point_name((enum fault_point)site->point),
                 wrong, said, ran.text);
        print_site(site);
    }
    printf("%s: %u faults\n", command->name, faults - before);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int every = argc > 5 ? atoi(argv[5]) : 1;

    if (argc < 5) {
        fprintf(stderr, "usage: commands CONTROL GMSFS STORE DIRECTORY [EVERY]\n");
        return 2;
    }
    gmsfs = argv[2], store = argv[3], directory = argv[4];
    make_control(argv[1]);
    map_control(argv[1]);
    setenv("GMSFS_FAULT_CONTROL", argv[1], 1);
    for (size_t i = 0; i < sizeof COMMANDS / sizeof COMMANDS[0]; i++)
        try_command(&COMMANDS[i], every > 0 ? (unsigned)every : 1);
    printf("%u faults, %u of them told, %u wrong\n", faults, told, failures);
    return failures || faults == 0;
}
