/* SPDX-License-Identifier: Apache-2.0 */
#include "source/s3_config.h"

#include "base/scope.h"
#include "source/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES (1u << 20)

/* ---- INI texts ------------------------------------------------------------------------------- */

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

static const char *trim(const char *at, const char *end)
{
    while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    return end;
}

static bool is_word(const char *at, const char *end, const char *word)
{
    return (size_t)(end - at) == strlen(word) && memcmp(at, word, (size_t)(end - at)) == 0;
}

/* Returns the value, in the line, of this key; NULL: it is another line. */
static const char *match_key(const char *line, const char *end, const char *key)
{
    const char *equals = memchr(line, '=', (size_t)(end - line));

    return equals && is_word(line, trim(line, equals), key) ? skip_blanks(equals + 1, end) : NULL;
}

char *s3_config_find(const char *text, const char *section, const char *key, bool *has_section)
{
    bool is_inside = false;

    if (has_section)
        *has_section = false;
    for (const char *next; *text; text = next) {
        const char *end = text + strcspn(text, "\n"), *line = skip_blanks(text, end), *value;

        next = end + (*end == '\n');
        end = trim(line, end);
        if (line < end && *line == '[') {
            is_inside =
                end[-1] == ']' && is_word(skip_blanks(line + 1, end), trim(line, end - 1), section);
            if (has_section)
                *has_section = *has_section || is_inside;
        } else if (is_inside && line == text && (value = match_key(line, end, key))) {
            return strndup(value, (size_t)(end - value)); /* indented lines are of the line above */
        }
    }
    return NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns the text of a file; "" if there is none. NULL: no memory. */
static char *read_file(const char *variable, const char *below_home)
{
    const char *named = getenv(variable), *home = getenv("HOME");
    SCOPED_FREE char *path = NULL;
    char *text = calloc(1, FILE_BYTES + 1);

    if (asprintf(&path, "%s%s",
                 named && *named ? named
                 : home          ? home
                                 : "",
                 named && *named ? "" : below_home) < 0 ||
        !text) {
        free(text);
        return NULL;
    }
    FILE *file = fopen(path, "re");
    if (file) {
        text[fread(text, 1, FILE_BYTES, file)] = '\0';
        fclose(file);
    }
    return text;
}

struct files {
    char *credentials, *config;
    const char *profile;
    char *section; /* of the profile in the second file */
};

static char *find_in_files(const struct files *files, const char *key)
{
    char *value = s3_config_find(files->credentials, files->profile, key, NULL);

    return value ? value : s3_config_find(files->config, files->section, key, NULL);
}

/* The environment first. */
static char *find(const struct files *files, const char *variable, const char *other,
                  const char *key)
{
    const char *value = getenv(variable);

    if ((!value || !*value) && other)
        value = getenv(other);
    return value && *value ? strdup(value) : find_in_files(files, key);
}

static int read_all(const struct files *files, struct s3_config *config, struct failure *failure)
{
    const char *id = getenv("AWS_ACCESS_KEY_ID"), *token = getenv("AWS_SESSION_TOKEN");
    bool first = false, second = false;

    free(s3_config_find(files->credentials, files->profile, "", &first));
    free(s3_config_find(files->config, files->section, "", &second));
    if (getenv("AWS_PROFILE") && !first && !second)
        return failure_set(failure, -EINVAL,
                           "the profile '%.100s' (AWS_PROFILE) is neither in ~/.aws/credentials "
                           "nor in ~/.aws/config",
                           files->profile);
    if (id && *id) { /* of one place: never the identity of one and the secret of another */
        const char *secret = getenv("AWS_SECRET_ACCESS_KEY");

        config->keys.id = strdup(id);
        config->keys.secret = strdup(secret ? secret : "");
        config->keys.token = token && *token ? strdup(token) : NULL;
    } else {
        config->keys.id = find_in_files(files, "aws_access_key_id");
        config->keys.secret = find_in_files(files, "aws_secret_access_key");
        config->keys.token = find_in_files(files, "aws_session_token");
    }
    config->region = find(files, "AWS_REGION", "AWS_DEFAULT_REGION", "region");
    config->endpoint = find(files, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url");
    if (!config->region)
        config->region = strdup("us-east-1");
    if (config->keys.id && !config->keys.secret)
        return failure_set(failure, -EINVAL,
                           "there is an access key without its secret; set "
                           "AWS_SECRET_ACCESS_KEY or aws_secret_access_key");
    return config->region ? 0 : failure_no_memory(failure);
}

/* A region is a part of a server's name. */
static int check(struct s3_config *config, struct failure *failure)
{
    const char *allowed = "abcdefghijklmnopqrstuvwxyz0123456789-";
    char *endpoint = config->endpoint;

    if (config->region[strspn(config->region, allowed)] || strlen(config->region) > 64)
        return failure_set(failure, -EINVAL, "'%.100s' is no name of a region; set AWS_REGION",
                           config->region);
    if (endpoint && !url_trim_endpoint(endpoint))
        return failure_set(failure, -EINVAL,
                           "the endpoint '%.200s' is no address; set AWS_ENDPOINT_URL to "
                           "https://HOST or http://HOST",
                           endpoint);
    return 0;
}

int s3_config_read(struct s3_config *config, struct failure *failure)
{
    const char *profile = getenv("AWS_PROFILE");
    struct files files = {.profile = profile && *profile ? profile : "default"};
    int error;

    *config = (struct s3_config){0};
    files.credentials = read_file("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    files.config = read_file("AWS_CONFIG_FILE", "/.aws/config");
    if (asprintf(&files.section, "%s%s", strcmp(files.profile, "default") ? "profile " : "",
                 files.profile) < 0)
        files.section = NULL;
    error = files.credentials && files.config && files.section ? read_all(&files, config, failure)
                                                               : failure_no_memory(failure);
    free(files.credentials);
    free(files.config);
    free(files.section);
    return error ? error : check(config, failure);
}

void s3_config_free(struct s3_config *config)
{
    free(config->keys.id);
    free(config->keys.secret);
    free(config->keys.token);
    free(config->region);
    free(config->endpoint);
    *config = (struct s3_config){0};
}

/* ---- addresses ------------------------------------------------------------------------------- */

char *s3_config_url(const struct s3_config *config, const char *bucket, const char *key)
{
    SCOPED_FREE char *path = malloc(3 * strlen(key ? key : "") + 1);
    char *url = NULL;
    int written;

    if (!path)
        return NULL;
    url_encode(path, key ? key : "", URL_KEEP_SLASHES);
    if (config->endpoint)
        written = asprintf(&url, "%s/%s%s%s", config->endpoint, bucket, key ? "/" : "", path);
    else if (strchr(bucket, '.')) /* such a name is not in the certificate */
        written = asprintf(&url, "https://s3.%s.amazonaws.com/%s%s%s", config->region, bucket,
                           key ? "/" : "", path);
    else
        written = asprintf(&url, "https://%s.s3.%s.amazonaws.com/%s", bucket, config->region, path);
    return written < 0 ? NULL : url;
}
