/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config - writes the configuration of nginx
 *
 * An open that the mount refuses with EAGAIN (a writer has the lock), ENODEV (a drain, a fence),
 * ESTALE or EIO is an errno that nginx answers with 500: that becomes 503 here. 404 becomes 503
 * where the mount is gone; paths lead through a directory of the mount, so that no file is found
 * that lies under its mount point. sendfile(2) of a text is for the process that opened it last, so
 * texts are read, and memory is sent.
 */
#include "web/web.h"

#include <string.h>

/* Patterns of paths. `regions` is no store, and a store's name may be any other, also `files`. */
#define STORE "(?!regions/)[^/]+"
#define BY_ID STORE "/by-id/[0-9a-f]{32}"

/* Policies for browsers. Stored files may be pages, whose scripts must not run beside ours. */
#define OF_FILES "default-src 'none'; sandbox"
#define OF_PAGES "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

#define DOLLAR "${gmsfs_dollar}"

/* Every mount has this directory; a bare mount point lacks it. */
#define PROOF "regions"

#define NAMES_A_STRING 32u /* of WEB_MAX_NAME letters, quoted: below 4096 bytes */

static const char variables[] =
    "# A '$' in a path, which nginx can write in no other way.\n"
    "geo $gmsfs_dollar {\n"
    "    default \"$\";\n"
    "}\n"
    "\n"
    "# info, sessions and events name users and processes. They are for clients on this machine "
    "that\n"
    "# no proxy stands before, and for clients with a certificate. A page of another site that "
    "leads\n"
    "# its own name to this machine has that name as Host.\n"
    "geo $gmsfs_from_here {\n"
    "    default 0;\n"
    "    127.0.0.0/8 1;\n"
    "    ::1/128 1;\n"
    "}\n"
    "map \"$http_forwarded$http_x_forwarded_for$http_x_forwarded_host$http_x_forwarded_proto"
    "$http_x_real_ip$http_x_client_ip$http_true_client_ip$http_cf_connecting_ip$http_via\" "
    "$gmsfs_direct {\n"
    "    default 0;\n"
    "    \"\" 1;\n"
    "}\n"
    "map $host $gmsfs_local_host {\n"
    "    default 0;\n"
    "    \"\" 1;\n"
    "    \"~^(?:localhost|127(?:\\.[0-9]{1,3}){3}|\\[::1\\])\\z\" 1;\n"
    "}\n"
    "# HTTP/1.0 is what nginx speaks as a proxy, unless told otherwise, and without any header.\n"
    "map \"$gmsfs_from_here$gmsfs_direct$gmsfs_local_host $server_protocol $ssl_client_verify\" "
    "$gmsfs_trusted {\n"
    "    default 0;\n"
    "    \"~^111 HTTP/1\\.1 \" 1;\n"
    "    \"~ SUCCESS\\z\" 1;\n"
    "}\n"
    "\n"
    "# Only an address with the contents' id keeps its meaning. nginx finds out that a range lies\n"
    "# behind the end (416) after it has asked once.\n"
    "map $status $gmsfs_keep {\n"
    "    volatile;\n"
    "    default \"no-store\";\n"
    "    \"200\" \"public, max-age=31536000, immutable\";\n"
    "    \"206\" \"public, max-age=31536000, immutable\";\n"
    "}\n"
    "\n"
    "limit_conn_zone $binary_remote_addr zone=gmsfs_client:1m;\n"
    "limit_conn_zone \"all\" zone=gmsfs_all:32k;\n"
    "\n";

static const char pull_zones[] = "limit_conn_zone $binary_remote_addr zone=gmsfs_puller:1m;\n"
                                 "limit_conn_zone \"pulls\" zone=gmsfs_pulls:32k;\n"
                                 "\n";

static const char rules[] =
    "    server_tokens off;\n"
    "    absolute_redirect off;\n"
    "    large_client_header_buffers 4 32k;\n"
    "    client_max_body_size 1k;\n"
    "    merge_slashes on;\n"
    "    max_ranges 1;\n"
    "    autoindex_format json;\n"
    "    # A key of this name would hide the list of its directory; none is set but on purpose.\n"
    "    index %2Egmsfs-no-index;\n"
    "    types { }\n"
    "    default_type application/octet-stream;\n"
    "\n"
    "    # An open file of a store has its lock: nothing stays open longer than it is sent.\n"
    "    open_file_cache off;\n"
    "    directio off;\n"
    "    aio threads;\n"
    "    sendfile off;\n"
    "    client_header_timeout 10s;\n"
    "    client_body_timeout 5s;\n"
    "    send_timeout 15s;\n"
    "    # A connection stays at one process, which an open at a mount that hangs can block. So "
    "only\n"
    "    # connections for many bytes stay.\n"
    "    keepalive_timeout 0;\n"
    "    lingering_close off;\n"
    "    reset_timedout_connection on;\n"
    "    limit_conn gmsfs_client 32;\n"
    "    limit_conn gmsfs_all 512;\n"
    "    limit_conn_status 429;\n"
    "    log_not_found off;\n"
    "\n"
    "    # Times and sizes stay alike where bytes change.\n"
    "    etag off;\n"
    "    if_modified_since off;\n"
    "\n"
    "    error_page 405 = @method;\n"
    "    error_page 429 = @full;\n"
    "    location @method {\n"
    "        add_header Allow \"GET, HEAD\" always;\n"
    "        add_header Cache-Control no-store always;\n"
    "        return 405;\n"
    "    }\n"
    "    location @full {\n"
    "        add_header Retry-After 1 always;\n"
    "        add_header Cache-Control no-store always;\n"
    "        return 429;\n"
    "    }\n"
    "    # The mount is gone; or a writer has the store, it is drained, or its bytes are lost: "
    "`state`\n"
    "    # and `device` tell. A file that is not there, or whose name no file can have, is 404.\n"
    "    location @unreadable {\n"
    "        add_header Retry-After 2 always;\n"
    "        add_header Cache-Control no-store always;\n"
    "        if (!-d \"$gmsfs_mount/" PROOF "\") {\n"
    "            return 503;\n"
    "        }\n"
    "        if (!-e $gmsfs_file) {\n"
    "            add_header Cache-Control no-store always;\n"
    "            return 404;\n"
    "        }\n"
    "        return 503;\n"
    "    }\n"
    "    # A mount point whose mount is gone may be closed to this user.\n"
    "    location @closed {\n"
    "        add_header Cache-Control no-store always;\n"
    "        if (!-d \"$gmsfs_mount/" PROOF "\") {\n"
    "            add_header Retry-After 2 always;\n"
    "            add_header Cache-Control no-store always;\n"
    "            return 503;\n"
    "        }\n"
    "        return 403;\n"
    "    }\n"
    "    if ($request_method !~ \"^(?:GET|HEAD)\\z\") {\n"
    "        return 405;\n"
    "    }\n";

static const char pages[] = "        types {\n"
                            "            text/html html;\n"
                            "            text/css css;\n"
                            "            text/javascript js mjs;\n"
                            "            application/json json;\n"
                            "            application/manifest+json webmanifest;\n"
                            "            image/svg+xml svg;\n"
                            "            image/png png;\n"
                            "            text/plain txt;\n"
                            "        }\n"
                            "        charset utf-8;\n"
                            "        charset_types text/css text/javascript text/plain;\n"
                            "        index index.html;\n"
                            "        sendfile on;\n";

/* Writes text for a string of nginx's. `dollar` stands for a '$': in settings that know variables,
 * the variable that has one. */
static void put_text(const char *text, const char *dollar, FILE *to)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', to);
        if (*text == '$')
            fputs(dollar, to);
        else
            putc(*text, to);
    }
}

/* Writes the path of a file of nginx itself: these settings know no variables. */
static void put_own_path(const char *name, const char *directory, const char *file, FILE *to)
{
    fprintf(to, "%s \"", name);
    put_text(directory, "$", to);
    fprintf(to, "/%s\";\n", file);
}

static void put_setting(unsigned depth, const char *name, const char *value, FILE *to)
{
    fprintf(to, "%*s%s \"", (int)depth * 4, "", name);
    put_text(value, DOLLAR, to);
    fputs("\";\n", to);
}

/* `below` ends with a '/'. */
static void put_directory(const char *path, const char *below, FILE *to)
{
    size_t bytes = strlen(path);

    fputs("        alias \"", to);
    put_text(path, DOLLAR, to);
    fprintf(to, "%s%s\";\n", bytes > 0 && path[bytes - 1] == '/' ? "" : "/", below);
}

/* Headers of a block hide all that surround it. Last-Modified tells seconds, in which a store can
 * be committed twice. */
static void put_headers(unsigned depth, const char *cache, const char *policy, FILE *to)
{
    int indent = (int)depth * 4;

    fprintf(to, "%*sadd_header Cache-Control %s always;\n", indent, "", cache);
    fprintf(to, "%*sadd_header Last-Modified \"\";\n", indent, "");
    fprintf(to, "%*sadd_header X-Content-Type-Options nosniff always;\n", indent, "");
    fprintf(to, "%*sadd_header Referrer-Policy no-referrer always;\n", indent, "");
    fprintf(to, "%*sadd_header Cross-Origin-Resource-Policy same-origin always;\n", indent, "");
    fprintf(to, "%*sadd_header Content-Security-Policy \"%s\" always;\n", indent, "", policy);
}

/* Writes a mount's name for a regular expression. */
static void put_pattern(const char *name, FILE *to)
{
    for (; *name; name++) {
        if (*name == '.')
            putc('\\', to);
        putc(*name, to);
    }
}

/* Begins a location of these paths below the mount; by (?s) a '.' can be a newline. */
static void begin_paths(const char *name, const char *paths, const char *settings, FILE *to)
{
    fputs("\n        location ~ \"(?s)^/", to);
    put_pattern(name, to);
    fprintf(to, "/(?:%s)\\z\" {\n%s", paths, settings);
}

static void put_paths(const char *name, const char *paths, const char *settings, FILE *to)
{
    begin_paths(name, paths, settings, to);
    fputs("        }\n", to);
}

static void put_kept_paths(const char *name, const char *paths, const char *settings, FILE *to)
{
    begin_paths(name, paths, settings, to);
    put_headers(3, "$gmsfs_keep", OF_FILES, to);
    fputs("        }\n", to);
}

/* Writes variables of the mount and of the file that an address stands for. */
static void put_places(const struct web *web, FILE *to)
{
    fputs("map $uri $gmsfs_mount {\n", to);
    for (size_t i = 0; i < web->mount_count; i++) {
        fputs("    \"~^/", to);
        put_pattern(web->mounts[i].name, to);
        fputs("/\" \"", to);
        put_text(web->mounts[i].path, DOLLAR, to);
        fputs("\";\n", to);
    }
    fputs("}\nmap $uri $gmsfs_file {\n", to);
    for (size_t i = 0; i < web->mount_count; i++) {
        fputs("    \"~(?s)^/", to);
        put_pattern(web->mounts[i].name, to);
        fputs("(?<gmsfs_below>/.*)\\z\" \"", to);
        put_text(web->mounts[i].path, DOLLAR, to);
        fputs("$gmsfs_below\";\n", to);
    }
    fputs("}\n\n", to);
}

#define TYPE(type) "            default_type \"" type "\";\n"
#define JSON       TYPE("application/json")
#define TEXT       TYPE("text/plain; charset=utf-8")
#define LISTED     "            autoindex on;\n"
#define KEPT_OPEN  "            keepalive_timeout 30s;\n"
#define SENT       "            sendfile on;\n" KEPT_OPEN
/* A read of events returns 16 KiB at most, and nginx takes less than it asked for as a failure. */
#define SMALL "            output_buffers 2 16k;\n"
#define TRUSTED                               \
    "            if ($gmsfs_trusted = 0) {\n" \
    "                return 403;\n"           \
    "            }\n"

/* Writes the location of bytes by their id, with the bounds of --pulls. */
static void put_bytes_by_id(const struct web *web, const char *name, FILE *to)
{
    begin_paths(name, BY_ID "/(?:allocations/[0-9]+|files/.+)", SENT, to);
    put_headers(3, "$gmsfs_keep", OF_FILES, to);
    /* Bounds of a location hide those around it. */
    if (web->pulls > 0)
        fprintf(to,
                "            limit_conn gmsfs_puller %u;\n"
                "            limit_conn gmsfs_pulls %u;\n"
                "            limit_conn gmsfs_client 32;\n"
                "            limit_conn gmsfs_all 512;\n",
                web->pulls > 1 ? web->pulls / 2 : 1, web->pulls);
    fputs("        }\n", to);
}

static void put_mount(const struct web *web, const struct web_mount *mount, FILE *to)
{
    const char *name = mount->name;

    fprintf(to, "\n    location /%s/ {\n", name);
    put_directory(mount->path, PROOF "/../", to);
    /* A mount has no links: one leads out of a directory that lies under a mount that is gone. */
    fputs("        disable_symlinks on from=$document_root;\n"
          "        error_page 403 = @closed;\n"
          "        error_page 404 500 = @unreadable;\n"
          "        error_page 405 = @method;\n"
          "        error_page 429 = @full;\n",
          to);
    put_paths(name, "", LISTED, to);
    put_paths(name, "device", JSON, to);
    put_paths(name, "metrics", TYPE("text/plain; version=0.0.4; charset=utf-8"), to);
    put_paths(name, "pools|" STORE "/(?:state|residency|layout_hash|pieces)", TEXT, to);
    put_paths(name, STORE "/layout", "", to);
    put_paths(name, "events|" STORE "/sessions", TEXT SMALL TRUSTED, to);
    put_paths(name, STORE "/info", JSON TRUSTED, to);
    put_paths(name, STORE "/metadata(?:/.*)?", LISTED, to);
    put_paths(name, STORE "/(?:allocations|files)(?:/.*)?", LISTED SENT, to);
    put_kept_paths(name, BY_ID "/pieces", TEXT KEPT_OPEN, to);
    put_kept_paths(name, BY_ID "/layout", KEPT_OPEN, to);
    put_bytes_by_id(web, name, to);
    fprintf(to,
            "\n        location /%s/ {\n"
            "            error_page 405 = @method;\n" /* and none for 404 */
            "            return 404;\n"
            "        }\n"
            "    }\n",
            name);
}

/* The list of mounts, as JSON; names need no escapes. nginx takes strings of 4096 bytes at most. */
static void put_list(const struct web *web, FILE *to)
{
    fputs("\n    location = /" WEB_PAGES "/mounts.json {\n        types { }\n"
          "        default_type application/json;\n        set $gmsfs_mounts '[",
          to);
    for (size_t i = 0; i < web->mount_count; i++) {
        if (i > 0)
            fputs(", ", to);
        if (i > 0 && i % NAMES_A_STRING == 0)
            fputs("';\n        set $gmsfs_mounts '$gmsfs_mounts", to);
        fprintf(to, "\"%s\"", web->mounts[i].name);
    }
    fputs("';\n        return 200 '$gmsfs_mounts]\\n';\n    }\n", to);
}

static void put_pages(const struct web *web, FILE *to)
{
    put_list(web, to);
    if (!web->pages) {
        fputs("\n    location ~ \"^/(?:" WEB_PAGES "/)?\\z\" {\n"
              "        default_type \"text/plain; charset=utf-8\";\n"
              "        return 404 \"This server has no pages: gmsfs web was started without "
              "--pages. /" WEB_PAGES "/mounts.json lists its mounts.\\n\";\n"
              "    }\n",
              to);
        return;
    }
    fputs("\n    location = / {\n        return 302 /" WEB_PAGES "/;\n    }\n", to);
    fputs("\n    location /" WEB_PAGES "/ {\n", to);
    put_directory(web->pages, "", to);
    fputs(pages, to);
    put_headers(2, "no-cache", OF_PAGES, to);
    fputs("    }\n", to);
}

static void put_tls(const struct web *web, FILE *to)
{
    put_setting(1, "ssl_certificate", web->cert, to);
    put_setting(1, "ssl_certificate_key", web->key, to);
    fputs("    ssl_protocols TLSv1.2 TLSv1.3;\n"
          "    ssl_session_tickets off;\n"
          "    # Where the kernel encrypts, sendfile(2) goes on.\n"
          "    ssl_conf_command Options KTLS;\n",
          to);
    if (!web->client_ca)
        return;
    put_setting(1, "ssl_client_certificate", web->client_ca, to);
    fputs("    ssl_verify_client on;\n"
          "    ssl_verify_depth 4;\n",
          to);
}

void web_write(const struct web *web, FILE *to)
{
    fputs(variables, to);
    if (web->pulls > 0)
        fputs(pull_zones, to);
    put_places(web, to);
    fprintf(to, "server {\n    listen %s%s;\n", web->listen, web->cert ? " ssl" : "");
    if (web->cert)
        put_tls(web, to);
    if (web->access_log)
        put_setting(1, "access_log", web->access_log, to);
    else
        fputs("    access_log off;\n", to);
    fputs(rules, to);
    put_headers(1, "no-store", OF_FILES, to);
    if (web->is_loopback && !web->cert)
        fputs("    if ($gmsfs_local_host = 0) {\n        return 421;\n    }\n", to);
    fputs("\n    location / {\n        return 404;\n    }\n", to);
    put_pages(web, to);
    for (size_t i = 0; i < web->mount_count; i++)
        put_mount(web, &web->mounts[i], to);
    fputs("}\n", to);
}

void web_write_all(const struct web *web, const struct web_process *process, FILE *to)
{
    static const struct {
        const char *setting, *file;
    } own[] = {{"client_body_temp_path", "body"},
               {"proxy_temp_path", "proxy"},
               {"fastcgi_temp_path", "fastcgi"},
               {"uwsgi_temp_path", "uwsgi"},
               {"scgi_temp_path", "scgi"}};

    if (process->user)
        fprintf(to, "user \"%s\" \"%s\";\n", process->user, process->group);
    put_own_path("pid", process->directory, "nginx.pid", to);
    fprintf(to,
            "daemon off;\n"
            "error_log stderr alert;\n"
            "worker_processes %u;\n"
            "worker_rlimit_nofile 8192;\n"
            "worker_shutdown_timeout %us;\n"
            "events {\n"
            "    worker_connections 2048;\n"
            "}\n"
            "http {\n",
            WEB_WORKERS, WEB_CUT_AFTER_S);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        put_own_path(own[i].setting, process->directory, own[i].file, to);
    web_write(web, to);
    fputs("}\n", to);
}

bool web_check_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t bytes = strspn(name, letters);

    return bytes > 0 && bytes <= WEB_MAX_NAME && !name[bytes] && name[0] != '.' &&
           strcmp(name, WEB_PAGES) != 0;
}
