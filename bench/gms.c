/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gms - requests of GMS clients over a store's socket, against a server that only echoes
 *
 *   gms SOCKET ENTRIES      SOCKET is V0's, of an unused store
 *
 * The floor is a process that reads a frame and answers one of the size that ours answered, with a
 * descriptor where ours had one; it looks at nothing but the length. Client and requests are the
 * same for both, and answers are taken apart by msgpack-c in both.
 */
#include <msgpack.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <signal.h>

#include "bench.h"

#define HEADER_BYTES 4
#define FRAME_ROOM   (4u << 20)
#define RECEIVE      (64u << 10)
#define CHUNK        100
#define EXPORTS      4000
#define LISTS        20
#define CONNECT_MS   10000

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* The floor's answer, with its header; shared with the floor's process. */
struct reply {
    size_t bytes;
    int has_descriptor;
    uint8_t frame[FRAME_ROOM];
};

struct peer {
    int socket;
    size_t answer_bytes;
    uint8_t *answer; /* the last one, with its header */
    int descriptor;  /* that came with it, or -1 */
};

/* Requests of one kind, one frame behind the other. */
struct requests {
    msgpack_sbuffer frames;
    size_t *ends;
    size_t count;
};

/* ---- frames ------------------------------------------------------------------------------ */

static size_t frame_bytes(const uint8_t *header)
{
    return HEADER_BYTES +
           ((size_t)header[0] << 24 | (size_t)header[1] << 16 | (size_t)header[2] << 8 | header[3]);
}

static void send_frame(int to, const void *frame, size_t bytes, int descriptor)
{
    union control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)frame, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (descriptor >= 0) {
        struct cmsghdr *item = &control.align;
        message.msg_control = &control;
        message.msg_controllen = sizeof control.bytes;
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
    }
    while (part.iov_len) {
        ssize_t sent = bench_call("sendmsg", (int)sendmsg(to, &message, MSG_NOSIGNAL));
        part.iov_base = (char *)part.iov_base + sent;
        part.iov_len -= (size_t)sent;
        message.msg_control = NULL;
        message.msg_controllen = 0;
    }
}

/* As clients do it: the descriptor comes with the first bytes, or not at all. */
static size_t receive_first(int from, uint8_t *frame, int *descriptor)
{
    union control control;
    struct iovec part = {.iov_base = frame, .iov_len = RECEIVE};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t got = bench_call("recvmsg", (int)recvmsg(from, &message, MSG_CMSG_CLOEXEC));
    struct cmsghdr *item = CMSG_FIRSTHDR(&message);

    *descriptor = -1;
    if (item && item->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(item), sizeof *descriptor);
    return (size_t)got;
}

/* 0: the peer has closed. */
static size_t receive_frame(int from, uint8_t *frame, int *descriptor)
{
    size_t have = receive_first(from, frame, descriptor), need;

    if (!have)
        return 0;
    for (need = HEADER_BYTES; have < need || have < frame_bytes(frame);) {
        ssize_t got = bench_call("recv", (int)recv(from, frame + have, FRAME_ROOM - have, 0));
        if (!got)
            bench_die("the connection ended within a frame", EPROTO);
        have += (size_t)got;
    }
    if (have != frame_bytes(frame))
        bench_die("more came than was asked for", EPROTO);
    return have;
}

/* ---- the floor --------------------------------------------------------------------------- */

static _Noreturn void serve(int client, const struct reply *reply)
{
    uint8_t *frame = malloc(FRAME_ROOM);
    int memory = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC)), unused;

    if (!frame)
        bench_die("floor", ENOMEM);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (receive_frame(client, frame, &unused))
        send_frame(client, reply->frame, reply->bytes, reply->has_descriptor ? memory : -1);
    exit(0);
}

static pid_t start_floor(struct peer *floor, struct reply **reply)
{
    int ends[2];
    pid_t child;

    *reply = mmap(NULL, sizeof **reply, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (*reply == MAP_FAILED)
        bench_die("mmap", errno);
    bench_call("socketpair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
    child = bench_call("fork", fork());
    if (child == 0) {
        close(ends[0]);
        serve(ends[1], *reply);
    }
    close(ends[1]);
    floor->socket = ends[0];
    return child;
}

/* ---- requests ---------------------------------------------------------------------------- */

static void pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str_with_body(packer, text, strlen(text));
}

static void pack_pair(msgpack_packer *packer, const char *key, const char *value)
{
    pack_text(packer, key);
    pack_text(packer, value);
}

/* Appends a frame of the bytes that `pack` writes. */
static void add_frame(struct requests *requests, void (*pack)(msgpack_packer *, const void *),
                      const void *of)
{
    size_t start = requests->frames.size, bytes;
    msgpack_packer packer;

    msgpack_packer_init(&packer, &requests->frames, msgpack_sbuffer_write);
    msgpack_sbuffer_write(&requests->frames, "\0\0\0\0", HEADER_BYTES);
    pack(&packer, of);
    bytes = requests->frames.size - start - HEADER_BYTES;
    for (int i = 0; i < HEADER_BYTES; i++)
        requests->frames.data[start + (size_t)i] = (char)(bytes >> (8 * (HEADER_BYTES - 1 - i)));
    requests->ends = realloc(requests->ends, (requests->count + 1) * sizeof *requests->ends);
    if (!requests->ends)
        bench_die("requests", ENOMEM);
    requests->ends[requests->count++] = requests->frames.size;
}

static void clear_requests(struct requests *requests)
{
    msgpack_sbuffer_destroy(&requests->frames);
    free(requests->ends);
    *requests = (struct requests){0};
}

static void pack_handshake(msgpack_packer *packer, const void *lock_type)
{
    msgpack_pack_map(packer, 3);
    pack_pair(packer, "type", "handshake_request");
    pack_pair(packer, "lock_type", lock_type);
    pack_text(packer, "timeout_ms");
    msgpack_pack_int(packer, CONNECT_MS);
}

static void pack_allocate(msgpack_packer *packer, const void *tag)
{
    msgpack_pack_map(packer, 3);
    pack_pair(packer, "type", "allocate_request");
    pack_text(packer, "size");
    msgpack_pack_int(packer, 2 << 20);
    pack_pair(packer, "tag", tag);
}

static void pack_export(msgpack_packer *packer, const void *id)
{
    msgpack_pack_map(packer, 2);
    pack_pair(packer, "type", "export_allocation_request");
    pack_pair(packer, "allocation_id", id);
}

static void pack_list(msgpack_packer *packer, const void *prefix)
{
    msgpack_pack_map(packer, 2);
    pack_pair(packer, "type", "metadata_list_request");
    pack_pair(packer, "prefix", prefix);
}

struct entry {
    const char *allocation;
    size_t number;
};

static void entry_key(char key[64], const struct entry *entry)
{
    snprintf(key, 64, "model.layers.%05zu.self_attn.q_proj.weight", entry->number);
}

static void pack_put(msgpack_packer *packer, const void *of)
{
    static const char value[] =
        "{\"shape\":[4096,4096],\"dtype\":\"torch.bfloat16\",\"stride\":[4096,1]}";
    const struct entry *entry = of;
    char key[64];

    entry_key(key, entry);
    msgpack_pack_map(packer, 5);
    pack_pair(packer, "type", "metadata_put_request");
    pack_pair(packer, "key", key);
    pack_pair(packer, "allocation_id", entry->allocation);
    pack_text(packer, "offset_bytes");
    msgpack_pack_int(packer, 4096);
    pack_text(packer, "value");
    msgpack_pack_bin_with_body(packer, value, sizeof value - 1);
}

static void pack_get(msgpack_packer *packer, const void *of)
{
    char key[64];

    entry_key(key, of);
    msgpack_pack_map(packer, 2);
    pack_pair(packer, "type", "metadata_get_request");
    pack_pair(packer, "key", key);
}

/* ---- answers ----------------------------------------------------------------------------- */

static const msgpack_object *field_of(const msgpack_object *map, const char *name)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object *key = &map->via.map.ptr[i].key;
        if (key->type == MSGPACK_OBJECT_STR && key->via.str.size == strlen(name) &&
            memcmp(key->via.str.ptr, name, key->via.str.size) == 0)
            return &map->via.map.ptr[i].val;
    }
    return NULL;
}

/* The answer as it is to be, or the end. The caller destroys `into`. */
static const msgpack_object *unpack(const struct peer *peer, const char *type,
                                    msgpack_unpacked *into)
{
    size_t offset = HEADER_BYTES;
    const msgpack_object *found;

    msgpack_unpacked_init(into);
    if (msgpack_unpack_next(into, (const char *)peer->answer, peer->answer_bytes, &offset) !=
            MSGPACK_UNPACK_SUCCESS ||
        into->data.type != MSGPACK_OBJECT_MAP)
        bench_die("an answer that is no map", EPROTO);
    found = field_of(&into->data, "type");
    if (!found || found->type != MSGPACK_OBJECT_STR || found->via.str.size != strlen(type) ||
        memcmp(found->via.str.ptr, type, found->via.str.size) != 0) {
        msgpack_object_print(stderr, into->data);
        bench_die(type, EPROTO);
    }
    return &into->data;
}

static void exchange(struct peer *peer, const struct requests *requests, size_t at)
{
    size_t start = at ? requests->ends[at - 1] : 0;

    send_frame(peer->socket, requests->frames.data + start, requests->ends[at] - start, -1);
    peer->answer_bytes = receive_frame(peer->socket, peer->answer, &peer->descriptor);
    if (!peer->answer_bytes)
        bench_die("the server closed the connection", EPROTO);
}

static void check_answer(struct peer *peer, const char *type, int has_descriptor)
{
    msgpack_unpacked unpacked;

    unpack(peer, type, &unpacked);
    msgpack_unpacked_destroy(&unpacked);
    if ((peer->descriptor >= 0) != has_descriptor)
        bench_die("descriptor of an answer", EPROTO);
    if (peer->descriptor >= 0)
        close(peer->descriptor);
}

/* One request that is not measured; the answer stays in `peer`. */
static void ask(struct peer *peer, void (*pack)(msgpack_packer *, const void *), const void *of,
                const char *type)
{
    struct requests one = {0};
    msgpack_unpacked unpacked;

    add_frame(&one, pack, of);
    exchange(peer, &one, 0);
    unpack(peer, type, &unpacked);
    msgpack_unpacked_destroy(&unpacked);
    clear_requests(&one);
}

/* ---- ours -------------------------------------------------------------------------------- */

/* The socket may come a moment after the mount. */
static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    double end_us = bench_now_us() + CONNECT_MS * 1e3;
    int made;

    if (strlen(path) >= sizeof address.sun_path)
        bench_die(path, ENAMETOOLONG);
    memcpy(address.sun_path, path, strlen(path));
    for (;;) {
        made = bench_call("socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (connect(made, (struct sockaddr *)&address, sizeof address) == 0)
            return made;
        if ((errno != ENOENT && errno != ECONNREFUSED) || bench_now_us() > end_us)
            bench_die(path, errno);
        close(made);
        usleep(10000);
    }
}

/* Connects a writer, makes one allocation and stores its id in `id`. */
static void begin_writer(struct peer *ours, const char *path, char id[128])
{
    msgpack_unpacked unpacked;
    const msgpack_object *found;

    ours->socket = connect_to(path);
    ask(ours, pack_handshake, "rw", "handshake_response");
    ask(ours, pack_allocate, "weights", "allocate_response");
    found = field_of(unpack(ours, "allocate_response", &unpacked), "allocation_id");
    if (!found || found->type != MSGPACK_OBJECT_STR || found->via.str.size >= 128)
        bench_die("allocation_id", EPROTO);
    memcpy(id, found->via.str.ptr, found->via.str.size);
    id[found->via.str.size] = '\0';
    msgpack_unpacked_destroy(&unpacked);
}

/* ---- measuring --------------------------------------------------------------------------- */

struct measure {
    const char *type; /* of the answer */
    int has_descriptor;
    double ours_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
};

static double time_requests(struct peer *peer, const struct requests *requests, size_t from,
                            size_t to, const struct measure *measure)
{
    double start_us = bench_now_us();

    for (size_t at = from; at < to; at++) {
        exchange(peer, requests, at);
        check_answer(peer, measure->type, measure->has_descriptor);
    }
    return bench_now_us() - start_us;
}

/* Measures both in turn, a chunk of requests each. The floor answers with our last answer: that of
 * the first chunk. */
static void compare(struct measure *measure, int round, const struct requests *requests,
                    struct peer *ours, struct peer *floor, struct reply *reply)
{
    double ours_us = 0, floor_us = 0;

    for (size_t from = 0; from < requests->count; from += CHUNK) {
        size_t to = from + CHUNK < requests->count ? from + CHUNK : requests->count;
        ours_us += time_requests(ours, requests, from, to, measure);
        if (from == 0) {
            reply->bytes = ours->answer_bytes;
            reply->has_descriptor = measure->has_descriptor;
            memcpy(reply->frame, ours->answer, ours->answer_bytes);
        }
        floor_us += time_requests(floor, requests, from, to, measure);
    }
    measure->ours_us[round] = ours_us / (double)requests->count;
    measure->floor_us[round] = floor_us / (double)requests->count;
}

enum measured {
    EXPORT,
    PUT,
    LIST,
    GET,
    MEASURES
};

static void fill_requests(struct requests all[MEASURES], const char *id, size_t entries)
{
    for (size_t i = 0; i < entries; i++) {
        struct entry entry = {.allocation = id, .number = i};
        add_frame(&all[PUT], pack_put, &entry);
        add_frame(&all[GET], pack_get, &entry);
    }
    for (size_t i = 0; i < EXPORTS; i++)
        add_frame(&all[EXPORT], pack_export, id);
    for (size_t i = 0; i < LISTS; i++)
        add_frame(&all[LIST], pack_list, "");
}

/* Ids are new in each round, so requests are too. The writer ends without a commit. */
static void run_round(struct measure measures[MEASURES], int round, const char *path,
                      size_t entries, struct peer *ours, struct peer *floor, struct reply *reply)
{
    struct requests all[MEASURES] = {0};
    char id[128];

    begin_writer(ours, path, id);
    fill_requests(all, id, entries);
    for (int i = 0; i < MEASURES; i++) {
        compare(&measures[i], round, &all[i], ours, floor, reply);
        clear_requests(&all[i]);
    }
    close(ours->socket);
}

static void report(const struct measure measures[MEASURES], size_t entries)
{
    static const double limits[MEASURES] = {1.5, 2, 2, 2};
    char label[MEASURES][96];

    snprintf(label[EXPORT], sizeof *label, "GMS: export / echo with a descriptor (one CPU)");
    snprintf(label[PUT], sizeof *label, "GMS: put of %zu entries, each / echo", entries);
    snprintf(label[LIST], sizeof *label, "GMS: list of %zu keys / echo", entries);
    snprintf(label[GET], sizeof *label, "GMS: get of %zu entries, each / echo", entries);
    for (int i = 0; i < MEASURES; i++)
        bench_row(label[i], bench_median(measures[i].ours_us), bench_median(measures[i].floor_us),
                  limits[i], BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    struct measure measures[MEASURES] = {
        [EXPORT] = {.type = "export_allocation_response", .has_descriptor = 1},
        [PUT] = {.type = "metadata_put_response"},
        [LIST] = {.type = "metadata_list_response"},
        [GET] = {.type = "metadata_get_response"},
    };
    struct peer ours = {.descriptor = -1, .answer = malloc(FRAME_ROOM)};
    struct peer floor = {.descriptor = -1, .answer = malloc(FRAME_ROOM)};
    struct reply *reply;
    size_t entries;
    pid_t child;

    if (argc != 3) {
        fputs("usage: gms SOCKET ENTRIES\n", stderr);
        return 2;
    }
    if (!ours.answer || !floor.answer)
        bench_die("answers", ENOMEM);
    entries = bench_number(argv[2]);
    bench_share_cpu();
    child = start_floor(&floor, &reply);
    for (int round = 0; round < BENCH_ROUNDS; round++)
        run_round(measures, round, argv[1], entries, &ours, &floor, reply);
    report(measures, entries);
    close(floor.socket);
    waitpid(child, NULL, 0);
    free(ours.answer);
    free(floor.answer);
    return 0;
}
