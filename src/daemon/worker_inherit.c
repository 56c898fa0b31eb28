/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that runs another program than its keeper: it shares no memory with the keeper and reads
 * all that it needs from the handover that it inherits (handover.h). */
#include "base/log.h"
#include "daemon/handover.h"
#include "daemon/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_handover(int fd, struct handover *handover, struct failure *failure)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0 || stat.st_size == 0)
        return failure_set(failure, -EPROTO, "the handover is empty");
    size_t size = (size_t)stat.st_size;
    char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED)
        return failure_set(failure, -errno, "cannot read the handover: %s", strerror(errno));
    int error = handover_decode(text, size, NULL, 0, handover, failure);
    munmap(text, size);
    return error;
}

static int take_options(struct handover *handover, struct daemon_options *options,
                        struct failure *failure)
{
    int error =
        options_parse(handover->argc, handover->argv, options, failure->text, sizeof failure->text);

    if (!error && strlen(handover->gms_dir) < sizeof options->gms_dir)
        strcpy(options->gms_dir, handover->gms_dir);
    return error;
}

int worker_main_inherited(int fd)
{
    struct handover handover;
    struct daemon_options options;
    struct failure failure;
    int error = read_handover(fd, &handover, &failure);

    close(fd);
    if (!error)
        error = take_options(&handover, &options, &failure);
    struct fs_ledger *ledger = NULL;
    if (!error) {
        error = fs_ledger_map(handover.fds[HANDOVER_LEDGER], &ledger);
        if (error)
            failure_set(&failure, error, "cannot map the ledger: %s", strerror(-error));
        close(handover.fds[HANDOVER_LEDGER]);
    }
    if (error) {
        log_error("the worker cannot start: %s", failure.text);
        return 1;
    }
    log_set_level(options.log_level);
    struct worker_setup setup = {
        .options = &options,
        .mountpoint = handover.mountpoint,
        .ledger = ledger,
        .allow_other = handover.allow_other,
        .control_fd = handover.fds[HANDOVER_CONTROL],
        .keep_fd = handover.fds[HANDOVER_KEEP],
        .journal = handover.journal,
        .gms_memory_fd = handover.fds[HANDOVER_GMS_MEMORY],
        .holdings = &handover.holdings,
        .keeper = getppid(),
    };
    return worker_main(&setup);
}
