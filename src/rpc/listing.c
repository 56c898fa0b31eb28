/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that list: made in parts, because other clients wait meanwhile, of the layout at the time
 * of the request.
 */
#include "base/log.h"
#include "rpc/rpc_internal.h"
#include "rpc/wire_id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* About 100 microseconds. */
#define ALLOCATIONS_PER_TURN 256u
#define KEYS_PER_TURN        4096u
#define KEYS_AT_ONCE         64u

struct rpc_listing {
    struct layout *layout;   /* a reference */
    struct core_store store; /* its uuid alone, for ids */
    bool of_keys;
    const char *wanted; /* tag or prefix, in the request. NULL: all */
    size_t wanted_bytes;
    size_t rank;                 /* the next allocation */
    struct layout_cursor cursor; /* the next key */
    size_t charged_bytes;        /* bytes of the frame that are charged */
};

void rpc_free_listing(struct rpc_connection *connection)
{
    struct rpc_listing *listing = connection->listing;

    if (!listing)
        return;
    layout_free(listing->layout);
    free(listing);
    connection->listing = NULL;
}

static bool has_tag(const struct rpc_listing *listing, const struct layout_allocation *allocation)
{
    return !listing->wanted ||
           (strlen(allocation->tag) == listing->wanted_bytes &&
            memcmp(allocation->tag, listing->wanted, listing->wanted_bytes) == 0);
}

static bool has_prefix(const struct rpc_listing *listing, const struct layout_entry *entry)
{
    return entry->key_bytes >= listing->wanted_bytes &&
           (listing->wanted_bytes == 0 ||
            memcmp(entry->key, listing->wanted, listing->wanted_bytes) == 0);
}

static void refuse_list(struct rpc_connection *connection, int error)
{
    rpc_free_listing(connection);
    message_buffer_free(&connection->output);
    rpc_refuse_errno(connection, "list", error);
}

static enum message_type get_answer_type(const struct rpc_listing *listing)
{
    return listing->of_keys ? MESSAGE_METADATA_LIST_RESPONSE : MESSAGE_LIST_ALLOCATIONS_RESPONSE;
}

static void start(struct rpc_connection *connection, const struct rpc_view *view,
                  struct rpc_listing from)
{
    struct message answer = {.type = get_answer_type(&from)};
    struct rpc_listing *listing = malloc(sizeof *listing);

    if (!listing) {
        refuse_list(connection, -ENOMEM);
        return;
    }
    *listing = from;
    connection->listing = listing;
    listing->layout = layout_ref((struct layout *)view->layout);
    memcpy(listing->store.uuid, view->store->uuid, sizeof listing->store.uuid);
    if (listing->of_keys)
        layout_cursor_seek(&listing->cursor, listing->layout, listing->wanted,
                           listing->wanted_bytes);
    int error = message_begin(&connection->output, connection->protocol, &answer);
    if (error)
        refuse_list(connection, error);
}

void rpc_list_allocations(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message_text *tag = &connection->asked.tag;

    start(connection, view, (struct rpc_listing){.wanted = tag->at, .wanted_bytes = tag->bytes});
}

void rpc_list_keys(struct rpc_connection *connection, const struct rpc_view *view)
{
    const struct message_text *prefix = &connection->asked.prefix;

    start(connection, view,
          (struct rpc_listing){.of_keys = true,
                               .wanted = prefix->at ? prefix->at : "",
                               .wanted_bytes = prefix->bytes});
}

/* Charges the frame again whenever it has grown. */
static int charge_growth(struct rpc_connection *connection, struct rpc_listing *listing)
{
    size_t room_bytes = connection->output.room_bytes;

    if (room_bytes <= RPC_ANSWER_BYTES || room_bytes == listing->charged_bytes)
        return 0;
    listing->charged_bytes = room_bytes;
    return rpc_charge(connection, connection->input_room + room_bytes);
}

/* Gathers the next keys with the prefix, except entries without an allocation, which V0 cannot
 * express. True: these are the last. */
static bool gather_keys(struct rpc_listing *listing, struct message_text keys[KEYS_AT_ONCE],
                        size_t *count)
{
    *count = 0;
    for (unsigned i = 0; i < KEYS_AT_ONCE; i++) {
        const struct layout_entry *entry = layout_cursor_next(&listing->cursor);

        if (!entry || !has_prefix(listing, entry))
            return true;
        if (entry->slot != LAYOUT_UNBOUND)
            keys[(*count)++] = (struct message_text){.at = entry->key, .bytes = entry->key_bytes};
    }
    return false;
}

/* Returns 1 if there may be more; 0: complete; or a negative errno. */
static int add_keys(struct rpc_connection *connection, struct rpc_listing *listing)
{
    struct message_text keys[KEYS_AT_ONCE];
    bool are_last = false;
    size_t count;
    int error = 0;

    for (unsigned i = 0; i < KEYS_PER_TURN && !are_last && error == 0; i += KEYS_AT_ONCE) {
        are_last = gather_keys(listing, keys, &count);
        error = message_add_texts(&connection->output, keys, count);
        if (error == 0)
            error = charge_growth(connection, listing);
    }
    return error < 0 ? error : !are_last;
}

/* As add_keys. */
static int add_allocations(struct rpc_connection *connection, struct rpc_listing *listing)
{
    size_t count = layout_count_allocations(listing->layout);
    int error = 0;

    for (unsigned i = 0; i < ALLOCATIONS_PER_TURN && error == 0; i++) {
        char id[WIRE_ID_UUID_BYTES];
        struct message item = {0};

        if (listing->rank == count)
            return 0;
        const struct layout_allocation *allocation =
            layout_at_rank(listing->layout, listing->rank++);
        if (!has_tag(listing, allocation))
            continue;
        rpc_fill_allocation(connection, &listing->store, allocation, id, &item);
        error = message_add_item(&connection->output, &item);
        if (error == 0)
            error = charge_growth(connection, listing);
    }
    return error < 0 ? error : 1;
}

/* Ends the connection: V1's list would be longer than a frame may be. */
static void drop_client(struct rpc_connection *connection, int error)
{
    if (rpc_may_warn(connection->rpc))
        log_warning("%s: GMS client at %s: its list cannot be answered (%s); its connection is "
                    "dropped",
                    connection->rpc->options.mountpoint, rpc_domain_name(connection->domain),
                    strerror(-error));
    message_buffer_free(&connection->output);
    rpc_close_after(connection);
}

bool rpc_advance_listing(struct rpc_connection *connection)
{
    struct rpc_listing *listing = connection->listing;
    int error =
        listing->of_keys ? add_keys(connection, listing) : add_allocations(connection, listing);
    const struct message answer = {.type = get_answer_type(listing)};

    if (error > 0)
        return false;
    if (error == 0)
        error = message_end(&connection->output);
    if (error == -EDQUOT || error == -ENOMEM) {
        refuse_list(connection, error);
        return true;
    }
    rpc_note_answer(connection, &answer, error);
    rpc_free_listing(connection);
    if (error)
        drop_client(connection, error);
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* V0's name of an event, and whether it has a count of allocations. */
struct kind {
    const char *name;
    bool counts;
};

/* Returns up to two events of V0 for one of the history; a name of NULL ends them. */
static const struct kind *kinds_of(enum core_event_type type)
{
    static const struct kind kinds[][3] = {
        [CORE_EVENT_RW_CONNECTED] = {{"rw_connected", false}},
        [CORE_EVENT_RW_DATA_CONNECTED] = {{"rw_connected", false}},
        [CORE_EVENT_COMMITTED] = {{"committed", false}},
        [CORE_EVENT_SEALED] = {{"layout_committed", true}},
        [CORE_EVENT_CLEARED] = {{"allocations_cleared", true}},
        [CORE_EVENT_ROLLED_BACK] = {{"rw_aborted", false}},
        [CORE_EVENT_RW_DATA_DISCONNECTED] = {{"rw_disconnected", true}},
        [CORE_EVENT_OUT_OF_MEMORY] = {{"allocation_oom", true}},
        [CORE_EVENT_ABORTED] = {{"rw_aborted", false}, {"allocations_cleared", true}},
    };
    static const struct kind none = {NULL, false};

    return (size_t)type < sizeof kinds / sizeof kinds[0] ? kinds[type] : &none;
}

/* Gathers the newest events, oldest first, from the end backwards. */
static uint32_t gather_events(const struct core_history *history,
                              struct message items[CORE_HISTORY_EVENTS])
{
    uint32_t first = CORE_HISTORY_EVENTS;

    for (size_t i = history->count; i > 0 && first > 0; i--) {
        const struct core_past *past = core_history_get(history, i - 1);
        const struct kind *kinds = kinds_of(past->type);
        size_t count = 0;

        while (kinds[count].name)
            count++;
        while (count-- > 0 && first > 0) {
            items[--first] = (struct message){
                .kind = message_text(kinds[count].name),
                .allocation_count = message_integer(kinds[count].counts ? past->allocations : 0)};
        }
    }
    return first;
}

void rpc_list_events(struct rpc_connection *connection, const struct core_store *store)
{
    struct message answer = {.type = MESSAGE_GET_EVENT_HISTORY_RESPONSE};
    struct message *items = calloc(CORE_HISTORY_EVENTS, sizeof *items);

    if (!items) {
        rpc_refuse_errno(connection, "list events", -ENOMEM);
        return;
    }
    uint32_t first = gather_events(&store->history, items);
    int error = message_begin(&connection->output, connection->protocol, &answer);
    for (uint32_t i = first; i < CORE_HISTORY_EVENTS && error == 0; i++)
        error = message_add_item(&connection->output, &items[i]);
    if (error == 0)
        error = message_end(&connection->output);
    rpc_note_answer(connection, &answer, error);
    free(items);
    if (error)
        rpc_close_after(connection);
}
