/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index and two shards, `a` and `b`, in one input: two little-endian 16-bit lengths, of the
 * index and of `a`, then the three. No index leads out of its directory.
 */
#include "fuzz.h"

#include "safetensors_check.h"

static char directory[256];
static int index_fd = -1, shard_fds[2] = {-1, -1};

static void remove_directory(void)
{
    static const char *const NAMES[] = {"/model.index.json", "/a", "/b", ""};
    char path[300];

    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        snprintf(path, sizeof path, "%s%s", directory, NAMES[i]);
        remove(path);
    }
}

static int make_file(const char *name)
{
    char path[300];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0);
    return fd;
}

static void set_up(void)
{
    const char *parent = getenv("TMPDIR");

    snprintf(directory, sizeof directory, "%s/fuzz-index.XXXXXX", parent ? parent : "/tmp");
    must(mkdtemp(directory) != NULL);
    atexit(remove_directory);
    index_fd = make_file("model.index.json");
    shard_fds[0] = make_file("a");
    shard_fds[1] = make_file("b");
}

/* Takes `wanted` bytes from the rest, or all of it. */
static void take(int fd, const uint8_t **at, size_t *left, size_t wanted)
{
    size_t size = wanted < *left ? wanted : *left;

    write_all(fd, *at, size);
    *at += size;
    *left -= size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300];

    if (size < 4)
        return 0;
    if (index_fd < 0)
        set_up();
    const uint8_t *at = data + 4;
    size_t left = size - 4;
    take(index_fd, &at, &left, (size_t)data[0] | (size_t)data[1] << 8);
    take(shard_fds[0], &at, &left, (size_t)data[2] | (size_t)data[3] << 8);
    take(shard_fds[1], &at, &left, left);
    snprintf(path, sizeof path, "%s/model.index.json", directory);
    struct source *source = source_open();
    must(source != NULL);
    struct model *model = open_checked(source, path);
    for (size_t i = 0; model && i < model->file_count; i++) {
        must(strncmp(model->files[i].path, directory, strlen(directory)) == 0);
        must(strchr(model->files[i].path + strlen(directory) + 1, '/') == NULL);
    }
    safetensors_close(model);
    source_close(source);
    return 0;
}
