/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which addresses count as private, and which URLs are addresses of a store. */
#include "source/peer_node.h"

#include "tap.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

static struct peer_node nodes[PEERS_MAX];
static struct peer_common common;
static struct failure failure;

static bool is_private(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return peer_address_is_private((const struct sockaddr *)&v4);
    require(inet_pton(AF_INET6, text, &v6.sin6_addr) == 1);
    return peer_address_is_private((const struct sockaddr *)&v6);
}

TAP_TEST(private_addresses_and_their_neighbours)
{
    static const char *const private[] = {
        "10.0.0.0",    "10.255.255.255",  "172.16.0.1",      "172.31.255.255",
        "192.168.0.1", "127.0.0.1",       "127.9.9.9",       "169.254.0.1",
        "::1",         "fe80::1",         "febf::1",         "fc00::1",
        "fdff::1",     "::ffff:10.1.2.3", "192.168.255.255",
    };
    static const char *const public[] = {
        "9.255.255.255",
        "11.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "126.0.0.1",
        "128.0.0.0",
        "169.253.0.1",
        "169.255.0.0",
        "0.0.0.0",
        "8.8.8.8",
        "::2",
        "fec0::1",
        "fbff::1",
        "::ffff:11.1.2.3",
        "2000::1",
        "fe7f::1",
        "::",
        "100.64.0.1",
    };

    for (size_t i = 0; i < sizeof(private) / sizeof(private[0]); i++)
        check(is_private(private[i]));
    for (size_t i = 0; i < sizeof(public) / sizeof(public[0]); i++)
        check(!is_private(public[i]));
    check(!peer_address_is_private(&(const struct sockaddr){.sa_family = AF_UNIX}));
}

TAP_TEST(a_node_that_could_not_be_made_is_cancelled_and_freed)
{
    nodes[0] = (struct peer_node){.url = NULL};
    peer_node_cancel(&nodes[0]);
    peer_nodes_free(nodes, 1);
    check(!nodes[0].http[0]);
}

static int add(const char *url, bool is_insecure, size_t *count)
{
    int error;

    *count = 0;
    common.is_insecure = is_insecure;
    error = peer_nodes_add(nodes, count, url, &common, &failure);
    if (*count > 0)
        check(nodes[0].url[strlen(nodes[0].url) - 1] == '/');
    peer_nodes_free(nodes, *count);
    return error;
}

TAP_TEST(only_private_addresses_need_no_tls)
{
    size_t count;

    check_int(add("http://10.0.0.7:8080/gpu0/weights", false, &count), 0);
    check_int(count, 1);
    check_int(add("http://[fd00::7]:8080/gpu0/weights/", false, &count), 0);
    check_int(add("http://192.0.2.1/gpu0/weights", false, &count), -EACCES);
    check(strstr(failure.text, "https://, or --insecure") != NULL);
    check_int(count, 0);
    check_int(add("http://192.0.2.1/gpu0/weights", true, &count), 0);
    check_int(add("https://192.0.2.1/gpu0/weights", false, &count), 0);
}

TAP_TEST(what_is_no_address_of_a_store)
{
    static const char *const wrong[] = {
        "/mnt/gpu0/weights",
        "s3://bucket/x",
        "hf://org/model",
        "ftp://10.0.0.1/x",
        "http://",
        "http://10.0.0.1/x?y",
        "http://10.0.0.1/x#y",
        "http://10.0.0.1:port/x",
        "",
    };
    size_t count;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        check_int(add(wrong[i], true, &count), -EINVAL);
}

TAP_TEST(an_order_has_each_number_once)
{
    size_t order[100];
    uint8_t seen[100] = {0};

    peer_shuffle(order, 100);
    for (size_t i = 0; i < 100; i++)
        seen[order[i]]++;
    for (size_t i = 0; i < 100; i++)
        check_int(seen[i], 1);
}
