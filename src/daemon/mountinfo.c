/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/mountinfo.h"

#include "base/file_io.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static bool is_octal(char c)
{
    return c >= '0' && c <= '7';
}

/* Copies up to the next space, with \040 and its like resolved. Returns the text after it; NULL if
 * it does not fit or nothing follows. */
static const char *parse_field(const char *at, char *to, size_t room)
{
    size_t bytes = 0;

    while (*at != ' ' && *at != '\n' && *at != '\0') {
        char c = *at++;
        if (c == '\\' && is_octal(at[0]) && is_octal(at[1]) && is_octal(at[2])) {
            c = (char)((at[0] - '0') << 6 | (at[1] - '0') << 3 | (at[2] - '0'));
            at += 3;
        }
        if (bytes + 1 >= room)
            return NULL;
        to[bytes++] = c;
    }
    to[bytes] = '\0';
    return *at == ' ' ? at + 1 : NULL;
}

/* Returns the number of this option; 0 if it is not there. */
static unsigned find_number(const char *options, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = options; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, bytes) == 0)
            return (unsigned)strtoul(at + bytes, NULL, 10);
    }
    return 0;
}

int mountinfo_parse_line(const char *line, struct mountinfo *mount)
{
    int head = 0;

    /* id parent major:minor root path options [tags...] - type source options */
    if (sscanf(line, "%d %*d %u:%u %*s %n", &mount->id, &mount->major, &mount->minor, &head) != 3 ||
        head == 0)
        return -EINVAL;
    const char *at = parse_field(line + head, mount->path, sizeof mount->path);
    at = at ? strstr(at, " - ") : NULL;
    at = at ? parse_field(at + 3, mount->type, sizeof mount->type) : NULL;
    if (!at)
        return -EINVAL;
    at = strchr(at, ' '); /* after the source */
    mount->uid = find_number(at ? at + 1 : NULL, "user_id=");
    mount->gid = find_number(at ? at + 1 : NULL, "group_id=");
    return 0;
}

/* Calls `see` for each mount until it returns true. Returns 0 or a negative errno. */
static int each_mount(bool (*see)(void *context, const struct mountinfo *mount), void *context)
{
    SCOPED_FILE FILE *table = fopen(MOUNTINFO_FILE, "re");
    SCOPED_FREE char *line = NULL;
    size_t room = 0;
    struct mountinfo mount;

    if (!table)
        return -errno;
    while (getline(&line, &room, table) > 0) {
        if (mountinfo_parse_line(line, &mount) == 0 && see(context, &mount))
            break;
    }
    return 0;
}

struct search {
    const char *path;
    dev_t device;
    struct mountinfo *found;
    bool is_found;
};

static int find(bool (*see)(void *context, const struct mountinfo *mount), struct search *search)
{
    int error = each_mount(see, search);

    return error ? error : search->is_found ? 0 : -ENOENT;
}

static bool see_path(void *context, const struct mountinfo *mount)
{
    struct search *search = context;

    if (strcmp(mount->path, search->path) == 0) {
        *search->found = *mount; /* the last one is on top */
        search->is_found = true;
    }
    return false;
}

int mountinfo_find_path(const char *path, struct mountinfo *mount)
{
    return find(see_path, &(struct search){.path = path, .found = mount});
}

static bool see_device(void *context, const struct mountinfo *mount)
{
    struct search *search = context;

    search->is_found = makedev(mount->major, mount->minor) == search->device;
    if (search->is_found)
        *search->found = *mount;
    return search->is_found;
}

int mountinfo_find_device(dev_t device, struct mountinfo *mount)
{
    return find(see_device, &(struct search){.device = device, .found = mount});
}

static bool see_mount(void *context, const struct mountinfo *mount)
{
    struct search *search = context;

    /* Ids are used again, so the device has to match too. */
    search->is_found = mount->id == search->found->id && mount->major == search->found->major &&
                       mount->minor == search->found->minor;
    return search->is_found;
}

bool mountinfo_has(const struct mountinfo *mount)
{
    struct mountinfo wanted = *mount;
    struct search search = {.found = &wanted};
    int error = each_mount(see_mount, &search);

    if (error)
        log_warning("cannot read /proc/self/mountinfo: %s", strerror(-error));
    return error || search.is_found;
}

bool mountinfo_hides_processes(void)
{
    SCOPED_FILE FILE *table = fopen(MOUNTINFO_FILE, "re");
    SCOPED_FREE char *line = NULL;
    size_t room = 0;
    bool hides = false;

    while (table && getline(&line, &room, table) > 0) {
        const char *option = strstr(line, " /proc ") ? strstr(line, "hidepid=") : NULL;
        if (option)
            hides = strncmp(option, "hidepid=0", 9) != 0 && strncmp(option, "hidepid=off", 11) != 0;
    }
    return hides;
}
