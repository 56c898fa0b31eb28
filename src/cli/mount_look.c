/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mount_look.h"

#include "base/child.h"
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/mappers.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELD_BYTES 96
#define PIECE_BYTES 65536 /* of the child's output: the room of a pipe */

/* ---- in the child -------------------------------------------------------------------------- */

/* \040 and the like stay as they are: the name is shown, not used. */
static json_t *look_parse_session(const char *line)
{
    char id[FIELD_BYTES], mode[FIELD_BYTES], status[FIELD_BYTES], comm[FIELD_BYTES];
    char since[FIELD_BYTES];
    long long pid, uid, files;

    if (sscanf(line, "%95s %95s %95s %lld %lld %95s %95s %lld", id, mode, status, &pid, &uid, comm,
               since, &files) != 8)
        return NULL;
    return json_pack("{s:s,s:s,s:s,s:I,s:I,s:o,s:s,s:I}", "id", id, "mode", mode, "status", status,
                     "pid", (json_int_t)pid, "uid", (json_int_t)uid, "comm", ui_json_text(comm),
                     "since", since, "files", (json_int_t)files);
}

json_t *mount_look_parse_sessions(const char *text)
{
    json_t *array = json_array(), *session;

    while (*text) {
        session = look_parse_session(text);
        if (session)
            json_array_append_new(array, session);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    return array;
}

/* `max` is no number, and null here; a word is a text. */
static json_t *look_parse_value(const char *text)
{
    char *end;

    if (strcmp(text, "max") == 0)
        return json_null();
    errno = 0;
    long long number = strtoll(text, &end, 10);
    return errno || *end || end == text ? ui_json_text(text) : json_integer(number);
}

static json_t *look_parse_pool(char *line)
{
    char *rest = NULL, *word = strtok_r(line, " ", &rest), *value;
    json_t *pool = word ? json_object() : NULL;

    if (!pool)
        return NULL;
    json_object_set_new(pool, "name", ui_json_text(word));
    while ((word = strtok_r(NULL, " ", &rest))) {
        value = strchr(word, '=');
        if (!value)
            continue;
        *value = '\0';
        json_object_set_new(pool, word, look_parse_value(value + 1));
    }
    return pool;
}

/* None where the mount has no such file. */
static json_t *look_at_pools(const char *mount)
{
    SCOPED_FREE char *text = NULL;
    char *rest = NULL, *line;
    json_t *pools = json_array(), *pool;

    if (pools && store_read_file(mount, "pools", &text) == 0) {
        for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            pool = look_parse_pool(line);
            if (pool)
                json_array_append_new(pools, pool);
        }
    }
    return pools;
}

static void look_set_error(json_t *look, int error)
{
    const char *name = strerrorname_np(-error);

    json_object_set_new(look, "errno", json_string(name ? name : "?"));
    json_object_set_new(look, "error", json_string(strerror(-error)));
}

/* A store may be removed while it is looked at. */
static bool look_is_gone(int error)
{
    return error == -ENOENT || error == -ENOTDIR || error == -ESTALE;
}

static json_t *look_at_store(const char *mount, const char *name)
{
    SCOPED_FREE char *path = store_file_path(mount, name), *text = NULL;
    json_t *store = NULL;
    int error = store_read_json(path, "info", &store);

    if (!error)
        error = store_read_file(path, "sessions", &text);
    if (look_is_gone(error)) {
        json_decref(store);
        store = NULL;
    } else {
        if (!store)
            store = json_object();
        if (error)
            look_set_error(store, error);
        json_object_set_new(store, "sessions", mount_look_parse_sessions(text ? text : ""));
        json_object_set_new(store, "name", ui_json_text(name));
    }
    return store;
}

static int look_filter(const struct dirent *entry)
{
    bool is_dir = entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN;

    return is_dir && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
           strcmp(entry->d_name, "regions") != 0;
}

/* The directories at the top are the stores, but for that of the regions. */
static int look_at_stores(const char *mount, json_t *stores)
{
    SCOPED_FREE struct dirent **names = NULL;
    json_t *store;
    int count = scandir(mount, &names, look_filter, alphasort);

    if (count < 0)
        return -errno;
    for (int i = 0; i < count; i++) {
        store = look_at_store(mount, names[i]->d_name);
        if (store)
            json_array_append_new(stores, store);
        free(names[i]);
    }
    return 0;
}

/* Maps the kernel's errors for a daemon that has ended, or is about to end. Any other error is the
 * mount's own answer. */
static const char *look_health(int error)
{
    if (error == -ENOTCONN || error == -ECONNABORTED || error == -ECONNREFUSED)
        return "dead";
    return error == -EACCES || error == -EPERM ? "no access" : "unknown";
}

static json_t *look_failed(const char *health, int error)
{
    json_t *look = json_pack("{s:s,s:n,s:[]}", "health", health, "device", "stores");

    if (error)
        look_set_error(look, error);
    return look;
}

/* Writes a blank, which JSON may begin with, once the mount has answered. */
static json_t *look_now(const char *path, int to)
{
    const char *health;
    json_t *device, *look, *stores;
    int error = store_read_json(path, "device", &device);

    if (error)
        return look_failed(look_health(error), error);
    file_write(to, "\n", 1);
    stores = json_array();
    error = look_at_stores(path, stores);
    health = json_get_text(device, "health");
    look = json_pack("{s:s,s:o,s:o,s:o}", "health", *health ? health : "ok", "device", device,
                     "stores", stores, "pools", look_at_pools(path));
    if (error)
        look_set_error(look, error);
    return look;
}

static void look_child(const void *path, int fd)
{
    json_t *look = look_now(path, fd);
    char *text = look ? json_dumps(look, JSON_COMPACT) : NULL;

    if (text)
        file_write(fd, text, strlen(text));
}

/* ---- in the parent ------------------------------------------------------------------------- */

void mount_look_start(struct mount_look *look, const struct mount *mount)
{
    *look = (struct mount_look){.fd = -1};
    look->error = child_start(&look->child, look_child, mount->path, &look->fd);
}

bool mount_look_gather(struct mount_look *look)
{
    char piece[PIECE_BYTES], *grown;
    ssize_t got = look->fd < 0 ? 0 : read(look->fd, piece, sizeof(piece));

    if (got < 0 && errno == EINTR)
        return false;
    if (got <= 0)
        return true;
    grown = realloc(look->text, look->used + (size_t)got + 1);
    if (!grown)
        return true; /* a look cut short is unknown */
    memcpy(grown + look->used, piece, (size_t)got);
    look->used += (size_t)got;
    grown[look->used] = '\0';
    look->text = grown;
    return false;
}

static json_t *look_result(const struct mount_look *look, bool in_time)
{
    if (!in_time)
        return look_failed("silent", 0);
    json_t *json = look->text ? json_loads(look->text, 0, NULL) : NULL;
    /* Without an answer the child was ended, or had no memory. */
    return json ? json : look_failed("unknown", look->error ? look->error : -ECHILD);
}

json_t *mount_look_end(struct mount_look *look, const struct mount *mount, bool in_time)
{
    json_t *json = look_result(look, in_time);

    json_object_set_new(json, "mount", ui_json_text(mount->path));
    json_object_set_new(json, "source", ui_json_text(mount->source));
    if (look->fd >= 0)
        close(look->fd);
    child_end(look->child);
    free(look->text);
    *look = (struct mount_look){.fd = -1};
    return json;
}

/* Returns false if the look has not ended in time. */
static bool look_wait(struct mount_look *look, uint64_t start_ms)
{
    struct pollfd ready = {.fd = look->fd, .events = POLLIN};
    bool done = look->fd < 0;

    while (!done) {
        uint64_t left_ms = cli_left_ms(start_ms, MOUNT_LOOK_TIMEOUT_MS);
        int count = poll(&ready, 1, (int)left_ms);
        if (count > 0)
            done = mount_look_gather(look);
        else if (count == 0 || errno != EINTR)
            break;
    }
    return done;
}

json_t *mount_look_one(const struct mount *mount)
{
    uint64_t start_ms = clock_now_ms();
    struct mount_look look;

    mount_look_start(&look, mount);
    return mount_look_end(&look, mount, look_wait(&look, start_ms));
}

json_t **mount_look(const struct mounts *mounts)
{
    SCOPED_FREE struct mount_look *looks = cli_need(calloc(mounts->count + 1, sizeof(*looks)));
    json_t **list = cli_need(calloc(mounts->count + 1, sizeof(json_t *)));
    uint64_t start_ms = clock_now_ms();

    for (size_t i = 0; i < mounts->count; i++)
        mount_look_start(&looks[i], &mounts->list[i]);
    for (size_t i = 0; i < mounts->count; i++) {
        bool in_time = look_wait(&looks[i], start_ms);
        list[i] = mount_look_end(&looks[i], &mounts->list[i], in_time);
    }
    return list;
}

/* ---- holders ------------------------------------------------------------------------------- */

static void look_print_holders(const json_t *look, FILE *to)
{
    struct ui_table table;
    json_t *store, *session;
    size_t i, j;

    ui_table_begin(&table, "llllll");
    json_array_foreach (json_object_get(look, "stores"), i, store) {
        json_array_foreach (json_object_get(store, "sessions"), j, session) {
            char pid[24], uid[24];
            snprintf(pid, sizeof(pid), "pid %llu",
                     (unsigned long long)json_get_number(session, "pid"));
            snprintf(uid, sizeof(uid), "uid %llu",
                     (unsigned long long)json_get_number(session, "uid"));
            ui_table_add(&table, (const char *[]){json_get_text(store, "name"),
                                                  json_get_text(session, "mode"),
                                                  json_get_text(session, "status"), pid, uid,
                                                  json_get_text(session, "comm")});
        }
    }
    ui_table_end(&table, to, 2);
}

static void look_print_unknown(const json_t *look, FILE *to)
{
    json_t *store;
    size_t i;

    if (*json_get_text(look, "error"))
        ui_line(to, "  its stores cannot be listed: %s", json_get_text(look, "error"));
    json_array_foreach (json_object_get(look, "stores"), i, store) {
        if (*json_get_text(store, "error"))
            ui_line(to, "  the holders of %s cannot be read: %s", json_get_text(store, "name"),
                    json_get_text(store, "error"));
    }
}

char *mount_look_holders(const struct mount *mount)
{
    json_auto_t *look = mount_look_one(mount);
    char *text = NULL;
    size_t size;
    FILE *to = cli_need(open_memstream(&text, &size));

    look_print_holders(look, to);
    look_print_unknown(look, to);
    mappers_print(mount, to);
    if (fclose(to) == EOF)
        cli_out_of_memory();
    return text;
}
