/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs web - serves mounts over HTTP, read-only, by nginx */
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/web_start.h"
#include "web/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GMSF on a telephone, with a 2 before it: no service's at IANA, and below the ports that Linux
 * gives to outgoing connections. */
#define WEB_USUAL_LISTEN "127.0.0.1:24673"
#define WEB_MAX_MOUNTS   256u

#define WEB_PULLS_UNBOUND UINT64_MAX /* --pulls was not given */

static const char usage[] =
    "Usage: gmsfs web [OPTION...] [NAME=]MOUNT...\n"
    "\n"
    "Serves mounts over HTTP, read-only: writes a configuration for nginx and becomes it. The\n"
    "store weights of a mount is at http://ADDRESS:PORT/NAME/weights/; NAME is the last part of\n"
    "the mount's path where none is given. In the foreground, until SIGTERM ends it.\n";

static const char ending[] = "Exit status: that of nginx, 0 after SIGTERM; 1 failure; 2 usage.\n"
                             "\n"
                             "gmsfs-web(8) lists what is served, and to which clients.\n";

struct web_values {
    const char *listen, *user;
    const char *cert, *key, *client_ca, *pages, *access_log;
    uint64_t pulls;
    bool is_insecure, is_printed;
};

struct web_order {
    struct web_values values;
    struct web web;
    struct web_mount mounts[WEB_MAX_MOUNTS];
    char listen[INET6_ADDRSTRLEN + 16];
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } address; /* the same */
};

/* ---- the address ---------------------------------------------------------------------------- */

static bool web_is_loopback(int family, const void *address)
{
    const unsigned char *bytes = address;
    static const unsigned char one[16] = {[15] = 1};

    return family == AF_INET ? bytes[0] == 127 : memcmp(bytes, one, sizeof(one)) == 0;
}

/* Parses ADDRESS:PORT, and writes it as nginx takes it. */
static void web_parse_listen(const char *text, struct web_order *order)
{
    const char *colon = strrchr(text, ':'), *host = text;
    char address[INET6_ADDRSTRLEN + 2];
    unsigned char bytes[16];
    size_t length = colon ? (size_t)(colon - text) : 0;
    int family = AF_INET;
    char *end;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;

    if (length >= 2 && text[0] == '[' && colon[-1] == ']') {
        family = AF_INET6;
        host = text + 1;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(address) || port == 0 || port > 65535 || colon[1] < '0' ||
        colon[1] > '9' || *end)
        cli_usage_error("--listen '%s': ADDRESS:PORT is needed, as 0.0.0.0:24673 or "
                        "[::1]:24673",
                        text);
    memcpy(address, host, length);
    address[length] = '\0';
    if (inet_pton(family, address, bytes) != 1)
        cli_usage_error("--listen '%s': '%s' is no numeric address; one of IPv6 stands in []", text,
                        address);
    snprintf(order->listen, sizeof(order->listen), family == AF_INET6 ? "[%s]:%lu" : "%s:%lu",
             address, port);
    order->web.listen = order->listen;
    order->web.is_loopback = web_is_loopback(family, bytes);
    order->address.any.sa_family = (sa_family_t)family;
    if (family == AF_INET6) {
        order->address.v6.sin6_port = htons((uint16_t)port);
        memcpy(&order->address.v6.sin6_addr, bytes, sizeof(order->address.v6.sin6_addr));
    } else {
        order->address.v4.sin_port = htons((uint16_t)port);
        memcpy(&order->address.v4.sin_addr, bytes, sizeof(order->address.v4.sin_addr));
    }
}

static int web_refuse_listen(const struct web_order *order, int error)
{
    unsigned port = ntohs(order->address.v4.sin_port); /* it lies at the same place in both */

    if (error == EADDRINUSE)
        return cli_error(
            "cannot serve %s: another program listens there ('ss -ltnp sport = :%u' names "
            "it); give another address with --listen",
            order->listen, port);
    if (error == EACCES)
        return cli_error(
            "cannot serve %s: a port below 1024 needs root's rights; give another with --listen",
            order->listen);
    if (error == EADDRNOTAVAIL)
        return cli_error(
            "cannot serve %s: this machine has no such address ('ip address' lists them); "
            "give another with --listen",
            order->listen);
    return cli_error("cannot serve %s: %s; give another address with --listen", order->listen,
                     strerror(error));
}

/* Listens there for a moment: nginx tells a failure in words of its own, five times. */
static int web_check_listen(const struct web_order *order)
{
    int family = order->address.any.sa_family, one = 1;
    socklen_t bytes = family == AF_INET6 ? sizeof(order->address.v6) : sizeof(order->address.v4);
    SCOPED_CLOSE int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return web_refuse_listen(order, errno);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)); /* both as nginx */
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    if (bind(fd, &order->address.any, bytes) != 0 || listen(fd, 1) != 0)
        return web_refuse_listen(order, errno);
    return CLI_OK;
}

static void web_take_pulls(struct web_order *order)
{
    if (order->values.pulls == WEB_PULLS_UNBOUND)
        return;
    if (order->values.pulls < 1 || order->values.pulls > WEB_MAX_PULLS)
        cli_usage_error("--pulls %" PRIu64 ": 1 to %u are possible", order->values.pulls,
                        WEB_MAX_PULLS);
    order->web.pulls = (unsigned)order->values.pulls;
}

static void web_check_secure(const struct web_order *order)
{
    const struct web_values *values = &order->values;

    if (!values->cert != !values->key)
        cli_usage_error("--tls-cert and --tls-key belong together");
    if (values->client_ca && !values->cert)
        cli_usage_error("--tls-client-ca needs --tls-cert and --tls-key");
    if (!order->web.is_loopback && !values->cert && !values->is_insecure)
        cli_usage_error("%s is not this machine's own address: there every client could read "
                        "the stores, and no reader could be sure of the server; give "
                        "--tls-cert and --tls-key, or --insecure",
                        order->listen);
}

/* ---- files and mounts ----------------------------------------------------------------------- */

/* Makes the path of a file absolute. Links stay, for certificates are renewed behind them. A path
 * for --print is absolute already, and need not exist. */
static int web_take_file(const char *option, const char *path, bool is_printed, const char **at)
{
    SCOPED_FREE char *directory = NULL;

    if (!path)
        return CLI_OK;
    *at = path;
    if (is_printed && path[0] != '/')
        cli_usage_error("%s '%s': --print needs an absolute path", option, path);
    if (is_printed)
        return CLI_OK;
    if (access(path, R_OK) != 0)
        return cli_error("%s '%s': %s", option, path, strerror(errno));
    if (path[0] == '/')
        return CLI_OK;
    directory = getcwd(NULL, 0);
    if (!directory)
        return cli_error("%s '%s': no working directory: %s", option, path, strerror(errno));
    *at = cli_format("%s/%s", directory, path);
    return CLI_OK;
}

/* As above, for a file of a setting in which no variable can stand for a '$'. */
static int web_take_secret(const char *option, const char *path, bool is_printed, const char **at)
{
    int status = web_take_file(option, path, is_printed, at);

    if (status != CLI_OK || !*at || !strchr(*at, '$'))
        return status;
    return cli_error("%s '%s': nginx takes a '$' for a variable; give another path", option, *at);
}

/* Finds the pages of this program: installed, or of the tree that it was built in. Beside an
 * installed program, "../web" is a directory of something else. */
static char *web_find_pages(void)
{
    static const struct {
        const char *pages, *proof; /* a file that only our tree has; NULL: none is needed */
    } places[] = {{"../share/gmsfs/web", NULL},
                  {"../web", "../src/web/config.c"},
                  {"../../web", "../../src/web/config.c"}};
    char program[PATH_MAX], path[PATH_MAX + 32], *found = NULL;
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof(program) - 1);

    program[bytes > 0 ? bytes : 0] = '\0';
    *(strrchr(program, '/') ? strrchr(program, '/') : program) = '\0';
    for (size_t i = 0; !found && program[0] && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", program, places[i].proof ? places[i].proof : "");
        if (access(path, F_OK) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", program, places[i].pages);
        found = realpath(path, NULL);
    }
    return found;
}

static int web_take_files(struct web_order *order)
{
    const struct web_values *values = &order->values;
    struct web *web = &order->web;
    bool is_printed = values->is_printed;
    int status = web_take_secret("--tls-cert", values->cert, is_printed, &web->cert);

    if (status == CLI_OK)
        status = web_take_secret("--tls-key", values->key, is_printed, &web->key);
    if (status == CLI_OK)
        status = web_take_secret("--tls-client-ca", values->client_ca, is_printed, &web->client_ca);
    if (status == CLI_OK)
        status = web_take_file("--pages", values->pages, is_printed, &web->pages);
    if (status == CLI_OK && values->access_log && values->access_log[0] != '/')
        cli_usage_error("--access-log '%s': an absolute path is needed", values->access_log);
    web->access_log = values->access_log;
    if (!web->pages)
        web->pages = web_find_pages();
    return status;
}

/* Splits NAME=MOUNT. A path may have a '=', so a name ends before the first '/'. */
static void web_split(char *operand, struct web_mount *mount)
{
    char *equals = strchr(operand, '='), *slash = strchr(operand, '/'), *last;
    size_t bytes;

    mount->path = operand;
    if (equals && (!slash || equals < slash)) {
        *equals = '\0';
        mount->name = operand;
        mount->path = equals + 1;
    } else {
        bytes = strlen(operand);
        while (bytes > 1 && operand[bytes - 1] == '/')
            operand[--bytes] = '\0';
        last = strrchr(operand, '/');
        mount->name = last ? last + 1 : operand;
    }
    if (!web_check_name(mount->name))
        cli_usage_error("'%s' cannot be a mount's name in addresses: it has 1 to %u letters, "
                        "digits, '_', '-' and '.', begins with no '.', and is not '" WEB_PAGES
                        "'; give another, as NAME=%s",
                        mount->name, WEB_MAX_NAME, mount->path);
}

/* Finds the mount, and checks that its user may look into it. */
static int web_take_mount(struct web_mount *mount, const struct web_user *user)
{
    const struct mount *found;
    SCOPED_MOUNTS struct mounts mounts = {0};
    SCOPED_FREE char *asked = cli_need(strdup(mount->path));
    int status = mounts_open_at(asked, &mounts, &found);

    if (status != CLI_OK)
        return status;
    mount->path = cli_need(strdup(found->path));
    return web_check_mount(mount->path, user);
}

static void web_take_operands(struct web_order *order, char **operands, size_t count)
{
    struct web_mount *mounts = order->mounts;

    if (count > WEB_MAX_MOUNTS)
        cli_usage_error("at most %u mounts are possible", WEB_MAX_MOUNTS);
    for (size_t i = 0; i < count; i++) {
        web_split(operands[i], &mounts[i]);
        for (size_t j = 0; j < i; j++)
            if (strcmp(mounts[i].name, mounts[j].name) == 0)
                cli_usage_error("'%s' and '%s' would both be /%s/; give one another name, "
                                "as NAME=%s",
                                mounts[j].path, mounts[i].path, mounts[i].name, mounts[i].path);
    }
    order->web.mounts = mounts;
    order->web.mount_count = count;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int web_print(const struct web_order *order)
{
    for (size_t i = 0; i < order->web.mount_count; i++)
        if (order->mounts[i].path[0] != '/')
            cli_usage_error("'%s': --print needs an absolute path", order->mounts[i].path);
    web_write(&order->web, stdout);
    return CLI_OK;
}

static int web_serve(struct web_order *order)
{
    const struct web *web = &order->web;
    static struct web_user user;
    int status = web_find_user(order->values.user, &user);

    for (size_t i = 0; status == CLI_OK && i < web->mount_count; i++)
        status = web_take_mount(&order->mounts[i], &user);
    if (status != CLI_OK)
        return status;
    status = web_check_listen(order);
    return status == CLI_OK ? web_start(web, &user) : status;
}

static const struct cli_option options[] = {
    {"--listen", 0, "ADDRESS:PORT", cli_take_text, offsetof(struct web_values, listen),
     "where it is served (default: " WEB_USUAL_LISTEN ")"},
    {"--tls-cert", 0, "FILE", cli_take_text, offsetof(struct web_values, cert),
     "serve HTTPS with this certificate, and its chain"},
    {"--tls-key", 0, "FILE", cli_take_text, offsetof(struct web_values, key),
     "key of that certificate"},
    {"--tls-client-ca", 0, "FILE", cli_take_text, offsetof(struct web_values, client_ca),
     "serve only clients with a certificate of these authorities"},
    {"--insecure", 0, NULL, cli_take_flag, offsetof(struct web_values, is_insecure),
     "serve without TLS also where other machines can ask"},
    {"--user", 0, "NAME", cli_take_text, offsetof(struct web_values, user),
     "user that serves, where root starts it (default: " WEB_USUAL_USER ")"},
    {"--pages", 0, "DIR", cli_take_text, offsetof(struct web_values, pages),
     "directory of the pages under /" WEB_PAGES "/ (default: those of gmsfs)"},
    {"--access-log", 0, "FILE", cli_take_text, offsetof(struct web_values, access_log),
     "file of a line for each request (default: none)"},
    {"--pulls", 0, "N", cli_take_number, offsetof(struct web_values, pulls),
     "answers at a time with bytes under by-id (default: no bound)"},
    {"--print", 0, NULL, cli_take_flag, offsetof(struct web_values, is_printed),
     "print the service for the 'http' block of another nginx, and end"},
    {0},
};

static int web_run(int argc, char **argv)
{
    static struct web_order order = {
        .values = {.listen = WEB_USUAL_LISTEN, .pulls = WEB_PULLS_UNBOUND}};

    cli_parse(argc, argv, &order.values);
    web_parse_listen(order.values.listen, &order);
    web_take_pulls(&order);
    web_check_secure(&order);
    web_take_operands(&order, argv + optind, (size_t)(argc - optind));
    if (web_take_files(&order) != CLI_OK)
        return CLI_FAILURE;
    return order.values.is_printed ? web_print(&order) : web_serve(&order);
}

const struct cli_command cmd_web = {
    .name = "web",
    .summary = "serve mounts over HTTP, read-only",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "a MOUNT is needed",
    .run = web_run,
};
