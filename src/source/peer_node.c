/* SPDX-License-Identifier: Apache-2.0 */
#include "source/peer_node.h"

#include "base/hex.h"
#include "base/scope.h"
#include "source/libcurl.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#define ID_HEAD       "gmsfs-pieces 1\nid "
#define ID_TEXT_BYTES (2 * NODE_ID_BYTES + 1)
#define NAME_BYTES    64u /* of a file below by-id/ID/ */
#define STATE_WRITTEN "RW\n"

#define MOST_ADDRESSES 4096u /* of one name */

enum {
    NODE_PIECES,
    NODE_TEXTS
};

/* ---- addresses ------------------------------------------------------------------------------ */

static bool is_private_v4(uint32_t address)
{
    static const struct {
        uint32_t network;
        unsigned bits;
    } private[] = {
        {0x0a000000, 8}, {0xac100000, 12}, {0xc0a80000, 16}, {0x7f000000, 8}, {0xa9fe0000, 16}};
    bool is_private = false;

    for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++)
        is_private |= (address ^ private[i].network) >> (32 - private[i].bits) == 0;
    return is_private;
}

static bool is_private_v6(const struct in6_addr *address)
{
    const uint8_t *bytes = address->s6_addr;
    uint32_t inner;

    if (IN6_IS_ADDR_V4MAPPED(address)) {
        memcpy(&inner, bytes + 12, sizeof(inner));
        return is_private_v4(ntohl(inner));
    }
    return IN6_IS_ADDR_LOOPBACK(address) || IN6_IS_ADDR_LINKLOCAL(address) ||
           (bytes[0] & 0xfe) == 0xfc;
}

bool peer_address_is_private(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return is_private_v4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    return address->sa_family == AF_INET6 &&
           is_private_v6(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* The parts of a URL. */
struct place {
    char *host, *port;
    bool is_safe; /* by TLS */
};

static int place_parse(const char *url, struct place *place, struct failure *failure)
{
    const struct libcurl *curl;
    char *host = NULL, *port = NULL;
    int error = libcurl_open(&curl, failure);
    CURLU *parts;

    if (error)
        return error;
    parts = curl->url();
    if (!parts || url[strcspn(url, "?#")] ||
        curl->url_set(parts, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK ||
        curl->url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl->url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
        error = source_fail(failure, -EINVAL, url, "is no valid address");
    place->host = host ? strdup(host) : NULL;
    place->port = port ? strdup(port) : NULL;
    place->is_safe = strncasecmp(url, "https:", strlen("https:")) == 0;
    if (!error && (!place->host || !place->port))
        error = failure_no_memory(failure);
    curl->free(host);
    curl->free(port);
    curl->url_cleanup(parts);
    return error;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static int node_open(struct peer_node *node, const struct peer_common *common,
                     struct failure *failure)
{
    const atomic_uint *most_ms[] = {&common->piece_ms, &common->text_ms};
    int error = 0;

    for (size_t i = 0; !error && i < 2; i++) {
        error = http_open(&node->http[i], failure);
        node->as[i] = (struct http_peer){.pin = node->pin,
                                         .most_ms = most_ms[i],
                                         .cert = common->cert,
                                         .key = common->key,
                                         .retry_s = &node->retry_s};
        if (!error)
            http_set_peer(node->http[i], &node->as[i]);
    }
    return error;
}

/* Makes the node of one address of a URL. */
static int node_make(struct peer_node *node, const char *url, const struct place *place,
                     const struct addrinfo *address, const struct peer_common *common,
                     struct failure *failure)
{
    SCOPED_FREE char *shown = source_show(url);
    char number[NI_MAXHOST];

    memset(node, 0, sizeof(*node));
    if (getnameinfo(address->ai_addr, address->ai_addrlen, number, sizeof(number), NULL, 0,
                    NI_NUMERICHOST) != 0)
        return source_fail(failure, -EINVAL, url, "its address cannot be used");
    bool is_named = place->host[0] != '[' && strcmp(place->host, number) != 0;
    if (is_named && asprintf(&node->pin, "%s:%s:%s%s%s", place->host, place->port,
                             address->ai_family == AF_INET6 ? "[" : "", number,
                             address->ai_family == AF_INET6 ? "]" : "") < 0)
        node->pin = NULL;
    if (asprintf(&node->url, "%s%s", url, url[strlen(url) - 1] == '/' ? "" : "/") < 0)
        node->url = NULL;
    if (!shown || !node->url || (is_named && !node->pin))
        return failure_no_memory(failure);
    snprintf(node->shown, sizeof(node->shown), is_named ? "%.180s (%.60s)" : "%.180s", shown,
             number);
    return node_open(node, common, failure);
}

static void node_free(struct peer_node *node)
{
    http_close(node->http[NODE_PIECES]);
    http_close(node->http[NODE_TEXTS]);
    free(node->url);
    free(node->pin);
    memset(node, 0, sizeof(*node));
}

void peer_nodes_free(struct peer_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        node_free(&nodes[i]);
}

void peer_node_cancel(struct peer_node *node)
{
    for (size_t i = 0; i < 2; i++)
        if (node->http[i]) /* else making it failed */
            http_cancel(node->http[i]);
}

static int refuse_public(const char *url, struct failure *failure)
{
    return source_fail(failure, -EACCES, url,
                       "its address is not private, and without TLS each machine on the way can "
                       "send other contents; use https://, or --insecure");
}

uint32_t peer_random(uint32_t count)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = count - 1; /* no entropy yet */
    return random % count;
}

void peer_shuffle(size_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t other = peer_random((uint32_t)i + 1);

        order[i] = i;
        order[i] = order[other];
        order[other] = i;
    }
}

static int add_addresses(struct peer_node *nodes, size_t *count, const char *url,
                         const struct place *place, const struct addrinfo *list,
                         const struct peer_common *common, struct failure *failure)
{
    const struct addrinfo *addresses[MOST_ADDRESSES];
    size_t order[MOST_ADDRESSES], found = 0;
    int error = 0;

    for (; list && found < MOST_ADDRESSES; list = list->ai_next)
        addresses[found++] = list;
    peer_shuffle(order, found);
    for (size_t i = 0; !error && i < found && *count < PEERS_MAX; i++) {
        const struct addrinfo *address = addresses[order[i]];

        if (!place->is_safe && !common->is_insecure && !peer_address_is_private(address->ai_addr))
            return refuse_public(url, failure);
        error = node_make(&nodes[*count], url, place, address, common, failure);
        (*count)++;
    }
    return error;
}

int peer_nodes_add(struct peer_node *nodes, size_t *count, const char *url,
                   const struct peer_common *common, struct failure *failure)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    struct place place = {0};
    char bare[NI_MAXHOST];
    int error = 0, code;

    if (strncasecmp(url, "http://", strlen("http://")) != 0 &&
        strncasecmp(url, "https://", strlen("https://")) != 0)
        return source_fail(failure, -EINVAL, url,
                           "is no address of a store on another node, as "
                           "http://HOST:PORT/MOUNT/STORE/ is one");
    error = place_parse(url, &place, failure);
    if (!error) {
        snprintf(bare, sizeof(bare), "%s", place.host + (place.host[0] == '['));
        bare[strcspn(bare, "]")] = '\0';
        code = getaddrinfo(bare, place.port, &hints, &list);
        if (code != 0)
            error = source_fail(failure, -EHOSTUNREACH, url, "its host is unknown (%s)",
                                gai_strerror(code));
    }
    if (!error)
        error = add_addresses(nodes, count, url, &place, list, common, failure);
    if (list)
        freeaddrinfo(list);
    free(place.host);
    free(place.port);
    return error;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Makes the address of a file below by-id/ID/. NULL: no memory. */
static char *node_url(const struct peer_node *node, const uint8_t id[NODE_ID_BYTES],
                      const char *name)
{
    char text[ID_TEXT_BYTES], *url;

    hex_format(id, NODE_ID_BYTES, text);
    return asprintf(&url, "%sby-id/%s/%s", node->url, text, name) < 0 ? NULL : url;
}

int peer_node_ask(struct peer_node *node, uint8_t id[NODE_ID_BYTES], struct failure *failure)
{
    const size_t head = strlen(ID_HEAD), most = head + 2 * NODE_ID_BYTES + 1;
    SCOPED_FREE char *url = source_join(node->url, "pieces"), *text = NULL;
    size_t bytes;
    int error;

    if (!url)
        return failure_no_memory(failure);
    error = http_get_begin(node->http[NODE_TEXTS], &(struct http_target){.url = url}, most, &text,
                           &bytes, failure);
    if (error)
        return error;
    if (bytes == 0)
        return -ENOENT;
    if (bytes == most && memcmp(text, ID_HEAD, head) == 0 && text[most - 1] == '\n' &&
        hex_parse(text + head, id, NODE_ID_BYTES) == 0)
        return 0;
    return failure_set(failure, -ENOTSUP,
                       "its 'pieces' is not one of a store; give the address of a store, "
                       "http://HOST:PORT/MOUNT/STORE/");
}

bool peer_node_is_written(struct peer_node *node)
{
    SCOPED_FREE char *url = source_join(node->url, "state"), *text = NULL;
    struct failure unused;
    size_t bytes;

    return url &&
           http_get_begin(node->http[NODE_TEXTS], &(struct http_target){.url = url},
                          strlen(STATE_WRITTEN), &text, &bytes, &unused) == 0 &&
           bytes == strlen(STATE_WRITTEN) && memcmp(text, STATE_WRITTEN, bytes) == 0;
}

int peer_node_read(struct peer_node *node, const uint8_t id[NODE_ID_BYTES], const char *name,
                   size_t most_bytes, char **text, size_t *bytes, struct failure *failure)
{
    SCOPED_FREE char *url = node_url(node, id, name);

    if (!url)
        return failure_no_memory(failure);
    return http_get_text(node->http[NODE_TEXTS], &(struct http_target){.url = url}, most_bytes,
                         text, bytes, NULL, failure);
}

int peer_node_get(struct peer_node *node, const uint8_t id[NODE_ID_BYTES], uint64_t rank,
                  uint64_t size_bytes, uint64_t offset_bytes, uint64_t bytes, http_put *put,
                  void *context, struct failure *failure)
{
    SCOPED_FREE char *url = NULL;
    struct http_file file = {.size_bytes = size_bytes, .has_ranges = true};
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "allocations/%llu", (unsigned long long)rank);
    url = node_url(node, id, name);
    if (!url)
        return failure_no_memory(failure);
    file.target.url = url;
    return http_file_copy(node->http[NODE_PIECES], &file, offset_bytes, bytes, put, context,
                          failure);
}

enum peer_result peer_node_result(int error)
{
    switch (error) {
    case 0:
        return PEER_GOOD;
    case -EBUSY:
        return PEER_FULL;
    case -EAGAIN:
        return PEER_SHUT;
    case -ETIMEDOUT:
        return PEER_LATE;
    case -EBADMSG:
        return PEER_WRONG;
    case -ENOENT:
    case -ESTALE:
    case -EPERM: /* 403 also while its mount is away, or the store's mode is about to change */
        return PEER_LACKS;
    case -EKEYREJECTED:
    case -EACCES:
    case -EBADRQC:
    case -ELOOP:
    case -ENOTSUP:
        return PEER_USELESS;
    default:
        return PEER_DEAD;
    }
}
