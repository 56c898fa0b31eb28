/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/identity.h"

#include "base/array.h"
#include "triton/opener_message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_TOKENS 4096u

struct token {
    char text[OPENER_TOKEN_BYTES + 1]; /* padded with zeros */
    uint32_t uid;
};

struct identity_tokens {
    struct token *list;
    size_t count, room;
};

static int add(struct identity_tokens *tokens, const char *text, uint32_t uid)
{
    if (ARRAY_RESERVE(tokens->list, tokens->room, tokens->count + 1) != 0)
        return -ENOMEM;
    struct token *token = &tokens->list[tokens->count++];
    memset(token, 0, sizeof *token);
    memcpy(token->text, text, strlen(text));
    token->uid = uid;
    return 0;
}

/* Parses "TOKEN UID". Returns the reason it is invalid, or NULL. */
static const char *parse_line(char *line, char **token, uint32_t *uid)
{
    char *words[3] = {NULL}, *rest = NULL, *end;

    for (int i = 0; i < 3; i++)
        words[i] = strtok_r(i == 0 ? line : NULL, " \t\r\n", &rest);
    if (!words[1] || words[2])
        return "it is not TOKEN UID";
    if (strlen(words[0]) < IDENTITY_MIN_TOKEN_BYTES || strlen(words[0]) > OPENER_TOKEN_BYTES)
        return "a token has 16 to 256 characters";
    for (const char *at = words[0]; *at; at++) {
        if (*at < '!' || *at > '~')
            return "a token is of printable ASCII characters";
    }
    errno = 0;
    unsigned long number = strtoul(words[1], &end, 10);
    if (errno || *end || words[1][0] < '0' || words[1][0] > '9' || number >= IDENTITY_NOBODY)
        return "the UID is not a user's number";
    *token = words[0];
    *uid = (uint32_t)number;
    return NULL;
}

static int read_lines(FILE *file, const char *path, struct identity_tokens *tokens,
                      struct failure *failure)
{
    char line[1024], *token;
    const char *wrong;
    uint32_t uid;
    int error = 0;

    for (unsigned number = 1; !error && fgets(line, sizeof line, file); number++) {
        if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#')
            continue;
        wrong = parse_line(line, &token, &uid);
        if (wrong || tokens->count == MAX_TOKENS)
            error = failure_set(failure, -EINVAL, "%s: line %u: %s", path, number,
                                wrong ? wrong : "there are more tokens than are taken (4096)");
        else if (add(tokens, token, uid) != 0)
            error = failure_no_memory(failure);
    }
    memset(line, 0, sizeof line);
    return error;
}

/* A user that could read or replace the file could act as any user in it. */
static int check_file(int fd, const char *path, struct failure *failure)
{
    struct stat facts;

    if (fstat(fd, &facts) != 0)
        return failure_set(failure, -errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & 077) != 0)
        return failure_set(failure, -EPERM,
                           "%s: a file of tokens must be a regular file of this user with mode "
                           "0600: chmod 0600 it",
                           path);
    return 0;
}

int identity_read_tokens(const char *path, struct identity_tokens **tokens, struct failure *failure)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct identity_tokens *new;

    if (fd < 0)
        return failure_set(failure, -errno, "%s: %s", path, strerror(errno));
    int error = check_file(fd, path, failure);
    if (error) {
        close(fd);
        return error;
    }
    new = calloc(1, sizeof *new);
    FILE *file = fdopen(fd, "r");
    if (!new || !file) {
        if (file)
            fclose(file);
        else
            close(fd);
        free(new);
        return failure_no_memory(failure);
    }
    error = read_lines(file, path, new, failure);
    fclose(file);
    if (error) {
        identity_free_tokens(new);
        return error;
    }
    *tokens = new;
    return 0;
}

void identity_free_tokens(struct identity_tokens *tokens)
{
    if (!tokens)
        return;
    free(tokens->list);
    free(tokens);
}

uint32_t identity_of_token(const struct identity_tokens *tokens, const char *token)
{
    struct token asked = {0};
    uint32_t uid = IDENTITY_NOBODY;
    size_t bytes = strlen(token);

    if (!tokens || bytes > OPENER_TOKEN_BYTES)
        return IDENTITY_NOBODY;
    memcpy(asked.text, token, bytes);
    for (size_t i = 0; i < tokens->count; i++) {
        unsigned differs = 0;
        for (size_t at = 0; at < sizeof asked.text; at++)
            differs |= (unsigned)(asked.text[at] ^ tokens->list[i].text[at]);
        if (!differs)
            uid = tokens->list[i].uid;
    }
    return uid;
}
