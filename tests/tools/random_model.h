/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_model - the contents that a store may have after random operations, from a log
 *
 * Every client of random_ops appends a line to the log, with one write(2), before and after each
 * act under the lock. So lines of different sessions stand in the order of the lock, and a killed
 * process leaves only the time between two of its own lines unknown. Replaying the log gives the
 * set of possible contents; the content that the next client sees must be one of them.
 *
 *   R pid cid gen   a reader sees this content (0: none) and generation
 *   W pid cid gen   a writer begins, and sees this
 *   T pid, t pid    it is about to write committed bytes in place; it has done so
 *   B pid cid       it is about to commit this content
 *   A pid gen       it has committed, as this generation
 *   D pid           the mount is drained: the last session's end drops the committed content
 *   d pid, x pid    it was dropped; the drain was given up
 *   N pid           the bytes are about to be given up (place none), and the layout kept
 *   n pid, y pid    they were given up; that was refused
 *   k pid           it was killed, and its requests are over
 *
 * A content whose bytes were given up is its cid and GIVEN_UP: a writer sees that, and no reader.
 * Of T and t the content is 1 where an abort can go back to a spare.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_MODEL_H
#define GMSFS_TESTS_TOOLS_RANDOM_MODEL_H

#include "random_shared.h"

#include <inttypes.h>

#define MODEL_MAX_POSSIBLE 16
#define MODEL_GIVEN_UP     UINT64_C(1)
#define MODEL_MAX_COMMITS  65536 /* in one log */

struct model {
    uint64_t possible[MODEL_MAX_POSSIBLE];
    int possible_count;
    uint64_t generation;                 /* the last one seen */
    uint64_t first;                      /* at the start of the log */
    uint64_t content[MODEL_MAX_COMMITS]; /* by generation, from `first` on; 0 if unknown */
    uint64_t pending[MODEL_MAX_COMMITS]; /* contents of B lines without their A */
    pid_t pending_pid[MODEL_MAX_COMMITS];
    int pending_count;
    /* the last writer seen */
    pid_t writer;
    uint64_t before, wished;
    bool maybe_touched, touched, maybe_committed, committed;
    pid_t drainer;      /* since its D */
    bool seen;          /* a content, since the first D without a d or x */
    bool maybe_dropped; /* since the last content seen */
    /* An earlier drainer was killed: this log does not show whether it dropped. */
    bool was_killed;
    struct {
        pid_t pid; /* since its N */
        bool seen; /* a content, since then */
    } givers[MAX_CLIENTS];
    int giver_count;
    bool maybe_given; /* since the last content seen */
    uint64_t commits, reads, aborts, lines, given_up;
};

static inline void model_allow(struct model *model, uint64_t cid)
{
    for (int i = 0; i < model->possible_count; i++)
        if (model->possible[i] == cid)
            return;
    model->possible[model->possible_count++] = cid;
}

/* Each possible content may have lost its bytes, or certainly has. */
static inline void model_give_up(struct model *model, bool is_certain)
{
    int count = model->possible_count;

    if (is_certain)
        model->possible_count = 0;
    for (int i = 0; i < count; i++)
        if (model->possible[i])
            model_allow(model, model->possible[i] | MODEL_GIVEN_UP);
        else if (is_certain)
            model_allow(model, 0);
}

static inline void model_end_giver(struct model *model, int index)
{
    model->givers[index] = model->givers[--model->giver_count];
}

static inline int model_find_giver(const struct model *model, pid_t pid)
{
    for (int i = 0; i < model->giver_count; i++)
        if (model->givers[i].pid == pid)
            return i;
    return -1;
}

/* The last writer's session is over: adds the contents that it can have left. */
static inline void model_end_writer(struct model *model)
{
    if (!model->writer)
        return;
    model->possible_count = 0;
    if (model->committed || model->maybe_committed)
        model_allow(model, model->wished);
    if (!model->committed) {
        if (model->touched || model->maybe_touched)
            model_allow(model, 0);
        if (!model->touched)
            model_allow(model, model->before);
    }
    model->aborts += !model->committed;
    model->writer = 0;
}

static inline uint64_t *model_content(struct model *model, uint64_t generation)
{
    if (generation < model->first)
        lost("generation %" PRIu64 " was given out anew", generation);
    if (generation - model->first >= MODEL_MAX_COMMITS)
        tool_die("too many commits for the model");
    return &model->content[generation - model->first];
}

static inline void model_see(struct model *model, uint64_t cid, uint64_t generation,
                             const char *line)
{
    bool fits = false;

    model_end_writer(model);
    if (model->drainer || model->maybe_dropped)
        model_allow(model, 0);
    if (model->giver_count > 0 || model->maybe_given)
        model_give_up(model, false);
    for (int i = 0; i < model->giver_count; i++)
        model->givers[i].seen = true;
    model->maybe_given = false;
    model->seen = true;
    model->maybe_dropped = false;
    for (int i = 0; i < model->possible_count; i++)
        fits |= model->possible[i] == cid;
    if (!fits) {
        for (int i = 0; i < model->possible_count; i++)
            fprintf(stderr, "possible: %016" PRIx64 "\n", model->possible[i]);
        lost("line %" PRIu64 ": content is not possible: %s", model->lines, line);
    }
    model->possible[0] = cid;
    model->possible_count = 1;
    if (generation < model->generation)
        lost("the generation went back from %" PRIu64 ": %s", model->generation, line);
    model->generation = generation;
    if (cid == 0)
        return;
    uint64_t *content = model_content(model, generation);
    cid &= ~MODEL_GIVEN_UP;
    if (*content != 0 && *content != cid)
        lost("generation %" PRIu64 " was content %016" PRIx64 ": %s", generation, *content, line);
    *content = cid;
}

static inline void model_end_give_up(struct model *model, pid_t pid, char type)
{
    int index = model_find_giver(model, pid);

    if (index < 0 && type == 'k')
        return;
    if (index < 0)
        tool_die("line %" PRIu64 ": %d gave nothing up", model->lines, (int)pid);
    model->given_up += type == 'n';
    if (type == 'n' && !model->givers[index].seen) {
        model_end_writer(model);
        model_give_up(model, true);
    } else if (type != 'y') {
        model->maybe_given = true;
    }
    model_end_giver(model, index);
}

/* Its session may be over already, and the next one begun. */
static inline void model_committed(struct model *model, pid_t pid, uint64_t generation)
{
    for (int i = 0; i < model->pending_count; i++) {
        if (model->pending_pid[i] != pid)
            continue;
        uint64_t *content = model_content(model, generation);
        if (*content != 0 && *content != model->pending[i])
            lost("generation %" PRIu64 " is not the content that %d committed", generation,
                 (int)pid);
        *content = model->pending[i];
        model->pending[i] = model->pending[model->pending_count - 1];
        model->pending_pid[i] = model->pending_pid[--model->pending_count];
        model->commits++;
        break;
    }
    if (model->writer == pid)
        model->committed = true;
}

static inline void model_own(const struct model *model, pid_t pid, const char *line)
{
    if (model->writer != pid)
        tool_die("line %" PRIu64 ": %d writes while %d is the writer: %s", model->lines, (int)pid,
                 (int)model->writer, line);
}

static inline void model_apply(struct model *model, const char *line)
{
    uint64_t cid = 0, generation = 0;
    int number = 0;
    char type = 0;

    model->lines++;
    if (sscanf(line, "%c %d %" SCNx64 " %" SCNu64, &type, &number, &cid, &generation) < 2)
        tool_die("not understood: %s", line);
    pid_t pid = (pid_t)number;
    switch (type) {
    case 'R':
        model_see(model, cid, generation, line);
        model->reads++;
        break;
    case 'W':
        model_see(model, cid, generation, line);
        model->writer = pid;
        model->before = cid;
        model->touched = model->maybe_touched = model->committed = model->maybe_committed = false;
        break;
    case 'T':
    case 't':
        model_own(model, pid, line);
        model->maybe_touched = true;
        model->touched |= type == 't' && cid == 0;
        break;
    case 'B':
        model_own(model, pid, line);
        model->maybe_committed = true;
        model->wished = cid;
        if (model->pending_count == MODEL_MAX_COMMITS)
            tool_die("too many commits for the model");
        model->pending[model->pending_count] = cid;
        model->pending_pid[model->pending_count++] = pid;
        break;
    case 'D':
        model->seen &= model->drainer != 0;
        model->was_killed |= model->drainer != 0;
        model->drainer = pid;
        break;
    case 'd':
        /* Another process's drain may have ended meanwhile, and the mount serve: contents seen
         * since may be older or newer than this one. */
        if (model->seen) {
            model->maybe_dropped = true;
        } else {
            model_end_writer(model);
            model->possible[0] = 0;
            model->possible_count = 1;
        }
        model->was_killed = false;
        model->drainer = 0;
        break;
    case 'x':
        if (!model->was_killed)
            model->drainer = 0;
        break;
    case 'N':
        if (model->giver_count == MAX_CLIENTS)
            tool_die("too many clients give up bytes");
        model->givers[model->giver_count].pid = pid;
        model->givers[model->giver_count++].seen = false;
        break;
    case 'n':
    case 'y':
    case 'k':
        model_end_give_up(model, pid, type);
        break;
    case 'A':
        model_committed(model, pid, generation);
        break;
    default:
        tool_die("not understood: %s", line);
    }
}

/* Replays the log and empties it. All clients have ended, so no line of the next log has a
 * generation before the last one here. */
static inline void model_replay(struct model *model, int from_fd)
{
    FILE *log;
    char line[256];
    int fd = dup(from_fd);

    if (fd < 0 || lseek(fd, 0, SEEK_SET) != 0 || !(log = fdopen(fd, "r")))
        tool_die("the log cannot be read: %s", strerror(errno));
    while (fgets(line, sizeof(line), log)) {
        line[strcspn(line, "\n")] = '\0';
        model_apply(model, line);
    }
    fclose(log);
    if (ftruncate(from_fd, 0) != 0)
        tool_die("ftruncate: %s", strerror(errno));
    model->pending_count = 0;
    memset(model->content, 0, sizeof(model->content));
    model->first = model->generation;
}

#endif
