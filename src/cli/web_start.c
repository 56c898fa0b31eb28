/* SPDX-License-Identifier: Apache-2.0 */
/* web_start - the user, the private directory, and the exec of nginx */
#include "cli/web_start.h"

#include "base/child.h"
#include "base/scope.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 3000

/* ---- the user ------------------------------------------------------------------------------- */

static int web_refuse_user(const char *name)
{
    return cli_error(
        "there is no user '%s' for the server; make one ('useradd --system "
        "--shell /usr/sbin/nologin %s'), name another with --user, or start it as an ordinary user",
        name, name);
}

/* Without root's rights only the starting user can serve. */
static int web_check_own(const char *name, uid_t uid)
{
    const struct passwd *found = name ? getpwnam(name) : NULL;

    if (!name || (found && found->pw_uid == uid))
        return CLI_OK;
    return cli_error("--user %s: only root can start the server as another user", name);
}

int web_find_user(const char *name, struct web_user *user)
{
    gid_t groups[2];
    int count = 2;

    *user = (struct web_user){.uid = geteuid(), .gid = getegid()};
    if (user->uid != 0)
        return web_check_own(name, user->uid);
    name = name ? name : WEB_USUAL_USER;
    const struct passwd *found = getpwnam(name);
    if (!found)
        return web_refuse_user(name);
    user->uid = found->pw_uid;
    user->gid = found->pw_gid;
    if (user->uid == 0)
        return cli_error("the user '%s' is root; the server needs one of its own (--user)", name);
    if (getgrouplist(name, user->gid, groups, &count) < 0 || count > 1)
        return cli_error(
            "the user '%s' is in other groups than its own, whose files it could serve; name "
            "one of its own with --user",
            name);
    const struct group *group = getgrgid(user->gid);
    if (!group)
        return web_refuse_user(name);
    user->name = cli_need(strdup(name));
    user->group = cli_need(strdup(group->gr_name));
    return CLI_OK;
}

/* ---- mounts --------------------------------------------------------------------------------- */

struct web_look {
    const char *path;
    const struct web_user *user;
};

/* Writes the errno of a look as that user; runs in a child, which may hang. */
static void web_look_as_user(const void *context, int to)
{
    const struct web_look *look = context;
    struct stat status;
    int error = 0;

    if (look->user->name &&
        (setgroups(0, NULL) != 0 || setgid(look->user->gid) != 0 || setuid(look->user->uid) != 0))
        error = errno;
    else if (chdir(look->path) != 0 || stat("device", &status) != 0)
        error = errno;
    if (write(to, &error, sizeof(error)) != sizeof(error))
        _exit(EXIT_FAILURE);
}

int web_check_mount(const char *path, const struct web_user *user)
{
    struct web_look look = {.path = path, .user = user};
    int seen = 0, error = child_ask(web_look_as_user, &look, LOOK_MS, &seen);

    if (error == 0 && seen == EACCES)
        return cli_error(
            "'%s' is closed to the user that serves (%u); mount it with -o allow_other, or "
            "serve it as the user that mounted it",
            path, (unsigned)user->uid);
    if (error == -ETIMEDOUT)
        cli_error("warning: '%s' does not answer; it is served once it does", path);
    else if (error || seen)
        cli_error("warning: '%s' cannot be read (%s); it is served once it can be", path,
                  strerror(error ? -error : seen));
    return CLI_OK;
}

/* ---- nginx ---------------------------------------------------------------------------------- */

/* Returns the path of nginx, which lies beside root's commands; NULL: none. */
static char *web_find_nginx(void)
{
    const char *searched = getenv("PATH");
    SCOPED_FREE char *places =
        cli_format("%s:/usr/local/sbin:/usr/sbin:/sbin", searched ? searched : "");
    char *rest = places, *place, *path;

    while ((place = strsep(&rest, ":"))) {
        if (place[0] != '/')
            continue;
        path = cli_format("%s/nginx", place);
        if (access(path, X_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

/* Makes a directory that only the starting user can look into. free(3) it; NULL after the error. A
 * TMPDIR that root got from a user (sudo -E) is not used: its owner could put another directory in
 * place of this one, and nginx reads the configuration at each reload. */
static char *web_make_directory(void)
{
    const char *temporary = geteuid() == 0 ? NULL : getenv("TMPDIR");

    if (!temporary || temporary[0] != '/')
        temporary = "/tmp";
    char *path = cli_format("%s/gmsfs-web-XXXXXX", temporary);
    if (mkdtemp(path))
        return path;
    cli_error("cannot make a directory for the configuration in '%s': %s", temporary,
              strerror(errno));
    free(path);
    return NULL;
}

static int web_write_file(const struct web *web, const struct web_process *process,
                          const char *path)
{
    FILE *file = fopen(path, "wxe");
    int error = file ? 0 : errno;

    if (file) {
        web_write_all(web, process, file);
        error = ferror(file) ? EIO : 0;
        if (fclose(file) != 0)
            error = errno;
    }
    if (error)
        cli_error("cannot write '%s': %s", path, strerror(error));
    return error ? CLI_FAILURE : CLI_OK;
}

/* Makes a pipe: its reading end sends SIGTERM to this process once no writing end is open. */
static int web_make_leash(int ends[2])
{
    return pipe(ends) == 0 && fcntl(ends[0], F_SETOWN, getpid()) == 0 &&
                   fcntl(ends[0], F_SETSIG, SIGTERM) == 0 &&
                   fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK) == 0
               ? 0
               : -errno;
}

/* Starts the process beside nginx, which is this one. It alone has the pipe's writing end, so nginx
 * ends with it, also where it is killed. */
static int web_start_beside(const struct web *web, const char *directory, uid_t uid)
{
    int ends[2], error = web_make_leash(ends);
    pid_t nginx = getpid(), pid = error ? -1 : fork();

    if (pid < 0)
        return cli_error("cannot start a process beside nginx: %s",
                         strerror(error ? -error : errno));
    if (pid == 0)
        web_stand_beside(web, directory, uid, nginx);
    close(ends[1]);
    return CLI_OK;
}

int web_start(const struct web *web, const struct web_user *user)
{
    struct web_process process = {.user = user->name, .group = user->group};
    SCOPED_FREE char *nginx = web_find_nginx();
    SCOPED_FREE char *directory = NULL;
    char file[PATH_MAX + sizeof("/nginx.conf")]; /* the directory's path is shorter than PATH_MAX */

    if (!nginx)
        return cli_error("nginx is not here; Debian's package nginx-light has it");
    directory = web_make_directory();
    if (!directory)
        return CLI_FAILURE;
    process.directory = directory;
    snprintf(file, sizeof(file), "%s/nginx.conf", directory);
    if (chdir("/") == 0 && web_write_file(web, &process, file) == CLI_OK &&
        web_start_beside(web, directory, user->uid) == CLI_OK) {
        execl(nginx, "nginx", "-e", "stderr", "-p", directory, "-c", file, (char *)NULL);
        cli_error("cannot run '%s': %s", nginx, strerror(errno));
        return CLI_FAILURE; /* the process beside removes the directory */
    }
    unlink(file);
    rmdir(directory);
    return CLI_FAILURE;
}
