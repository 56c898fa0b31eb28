/* SPDX-License-Identifier: Apache-2.0 */
/* The computations of a COMMIT: a helper makes them before the record if they are slow. */
#include "core/core_internal.h"

#include "meta/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct layout *find_layout(const struct core *core, uint64_t session_id)
{
    const struct core_session *session = core_session(core, session_id);
    const struct core_store *store = session ? core_store(core, session->store) : NULL;

    if (!store)
        return NULL;
    return store->working ? store->working : store->fixed;
}

bool core_commit_is_slow(const struct core *core, uint64_t session)
{
    const struct layout *layout = find_layout(core, session);

    return layout && core_is_large(layout);
}

struct core_commit *core_commit_new(const struct core *core, uint64_t session, uint32_t flags)
{
    struct layout *layout = find_layout(core, session);
    struct core_commit *commit = layout ? calloc(1, sizeof *commit) : NULL;

    if (!commit)
        return NULL;
    commit->layout = layout_ref(layout);
    commit->check = (flags & CORE_COMMIT_CHECK) != 0;
    return commit;
}

bool core_commit_is_current(const struct core *core, uint64_t session,
                            const struct core_commit *commit)
{
    return find_layout(core, session) == commit->layout;
}

int core_encode_layout(const struct layout *layout, struct blob **encoding, uint8_t hash[16],
                       struct made_file_facts *made)
{
    uint8_t *bytes;
    size_t size;
    int error = made_file_look(layout, made);

    if (error == 0)
        error = layout_encode(layout, &bytes, &size);
    if (error < 0)
        return error;
    *encoding = blob_new(bytes, size);
    if (!*encoding) {
        free(bytes);
        return -ENOMEM;
    }
    layout_hash(bytes, size, hash);
    return 0;
}

void core_commit_prepare(struct core_commit *commit)
{
    char message[sizeof commit->message] = "";
    int error = layout_check(commit->layout, commit->check, message, sizeof message);

    /* Only the text is copied: the bytes behind it become state too and have to be the same
     * always. */
    memcpy(commit->message, message, strnlen(message, sizeof message - 1));
    commit->refused = error < 0;
    commit->pieces_bytes = pieces_text_bytes(commit->layout);
    if (error == 0 && !commit->check)
        error = core_encode_layout(commit->layout, &commit->encoding, commit->hash, &commit->made);
    commit->error = error;
}

void core_commit_free(struct core_commit *commit)
{
    if (!commit)
        return;
    blob_unref(commit->encoding);
    layout_free(commit->layout);
    free(commit);
}
