/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that `gmsfs pull` is given. */
#include "cli/pull.h"

#include "base/scope.h"
#include "cli/store_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_LIST_BYTES ((size_t)1 << 20)
#define MAX_URLS       4096u

static int add_url(struct pull *pull, const char *url, size_t bytes)
{
    if (pull->url_count >= MAX_URLS)
        return cli_error("more than %u URLs", MAX_URLS);
    pull->urls = cli_need(reallocarray(pull->urls, pull->url_count + 1, sizeof(char *)));
    pull->urls[pull->url_count++] = cli_need(strndup(url, bytes));
    return CLI_OK;
}

/* Only the form: peer_nodes_add() reads the whole. */
static bool is_url(const char *text)
{
    return strncasecmp(text, "http://", strlen("http://")) == 0 ||
           strncasecmp(text, "https://", strlen("https://")) == 0;
}

/* Takes the URL of a line, between blanks; behind it, or alone, '#' begins a remark. */
static int add_line(struct pull *pull, const char *path, size_t number, const char *line,
                    size_t bytes)
{
    static const char blanks[] = " \t\r";
    SCOPED_FREE char *text = cli_need(strndup(line, bytes));
    const char *url = text + strspn(text, blanks), *more;

    if (*url == '\0' || *url == '#')
        return CLI_OK;
    size_t used = strcspn(url, blanks);
    more = url + used + strspn(url + used, blanks);
    if (is_url(url) && (*more == '\0' || *more == '#'))
        return add_url(pull, url, used);
    return cli_error("%s: line %zu: '%s' is no URL of a store; write one URL a line, such as "
                     "http://HOST:PORT/MOUNT/STORE/",
                     path, number, url);
}

static int add_lines(struct pull *pull, const char *path, const char *text)
{
    int status = CLI_OK;

    for (size_t number = 1; status == CLI_OK && *text; number++) {
        size_t bytes = strcspn(text, "\n");

        status = add_line(pull, path, number, text, bytes);
        text += bytes + (text[bytes] == '\n');
    }
    return status;
}

static int add_file(struct pull *pull, const char *path)
{
    SCOPED_FREE uint8_t *text = NULL;
    size_t bytes, before = pull->url_count;
    int status, error = store_read_bytes(path, MAX_LIST_BYTES, &text, &bytes);

    if (error)
        return cli_error("%s: cannot read: %s; behind '@' stands a file with a URL on each line",
                         path, error == -ENOMEM ? "it has more than 1M" : strerror(-error));
    if (memchr(text, '\0', bytes))
        return cli_error("%s: is no text: it has a byte 0", path);
    status = add_lines(pull, path, (const char *)text);
    if (status == CLI_OK && pull->url_count == before) {
        cli_error("%s: it has no URL", path);
        status = CLI_FAILURE;
    }
    return status;
}

int pull_add_operand(struct pull *pull, const char *operand)
{
    return operand[0] == '@' ? add_file(pull, operand + 1)
                             : add_url(pull, operand, strlen(operand));
}

void pull_free_urls(struct pull *pull)
{
    for (size_t i = 0; i < pull->url_count; i++)
        free(pull->urls[i]);
    free(pull->urls);
}
