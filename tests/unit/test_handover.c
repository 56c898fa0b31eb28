/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the handover from one process to the next: all of it arrives unchanged, too large ones are
 * refused, and no descriptor is left over. */
#include "daemon/handover.h"
#include "wire_fixture.h"

#include <fcntl.h>
#include <stdlib.h>

#define FDS 12

static void fill(struct handover *handover, int fds[FDS])
{
    files_open(fds, FDS);
    handover_init(handover);
    abi_write(handover->abi);
    strcpy(handover->mountpoint, "/mnt/with blank\nand line");
    strcpy(handover->gms_dir, "/run/gms");
    handover->allow_other = true;
    handover->argc = 3;
    handover->argv[0] = strdup("mount");
    handover->argv[1] = strdup("-osize=1G,uid=3");
    handover->argv[2] = strdup("/mnt/with blank\nand line");
    handover->mount.id = 17;
    handover->mount.minor = 42;
    handover->fds[HANDOVER_FUSE] = fds[0];
    handover->fds[HANDOVER_LEDGER] = fds[1];
    handover->journal = (struct journal_files){fds[2], {fds[3], fds[4]}, {fds[5], fds[6]}};
    handover->gms.count = 1;
    handover->gms.items[0] =
        (struct gms_socket){.domain = 1, .protocol = 1, .fd = fds[7], .device = 5, .inode = 99};
    strcpy(handover->gms.items[0].path, "/tmp/a b.sock");
    for (int i = 8; i < FDS; i++)
        require(holdings_add(&handover->holdings, (uint64_t)i, fds[i], 4096) == 0);
}

static void check_same(const struct handover *got)
{
    check_str(got->mountpoint, "/mnt/with blank\nand line");
    check_str(got->gms_dir, "/run/gms");
    check_int(got->allow_other, true);
    check_int(got->is_detached, false);
    check_int(got->argc, 3);
    check_str(got->argv[1], "-osize=1G,uid=3");
    check_int(got->mount.id, 17);
    check_int(got->mount.minor, 42);
    check_int(got->fds[HANDOVER_AUDIT], -1);
    check_int(got->gms.count, 1);
    check_str(got->gms.items[0].path, "/tmp/a b.sock");
    check_int((long long)got->gms.items[0].inode, 99);
    check_int(holdings_count(&got->holdings), 4);
    check_int(holdings_count_bytes(&got->holdings), 4 * 4096);
}

TAP_TEST(all_of_it_comes_out_under_other_numbers)
{
    int before = count_open(), fds[FDS], moved[FDS];
    struct handover handover, got;
    struct handover_text text;
    struct failure failure;

    fill(&handover, fds);
    require(handover_encode(&handover, &text) == 0);
    check_int(text.count, FDS);
    check_int(handover_count_fds(text.bytes, text.size), FDS);
    for (int i = 0; i < FDS; i++)
        moved[i] = dup(text.fds[i]);
    require(handover_decode(text.bytes, text.size, moved, FDS, &got, &failure) == 0);
    check_same(&got);
    check_int(got.fds[HANDOVER_FUSE], moved[0]);
    check_int(fcntl(got.fds[HANDOVER_FUSE], F_GETFD), FD_CLOEXEC);
    handover_close(&got);
    handover_close(&handover);
    handover_text_free(&text);
    check_int(count_open(), before);
}

TAP_TEST(a_truncated_handover_is_refused_and_leaves_nothing_open)
{
    int before = count_open(), fds[FDS];
    struct handover handover, got;
    struct handover_text text;
    struct failure failure;

    fill(&handover, fds);
    require(handover_encode(&handover, &text) == 0);
    for (size_t size = 0; size < text.size; size += 7) {
        int moved[FDS];
        for (int i = 0; i < FDS; i++)
            moved[i] = dup(text.fds[i]);
        struct failure why;
        int error = handover_decode(text.bytes, size, moved, FDS, &got, &why);
        if (error == 0) /* only kept memory was missing */
            handover_close(&got);
        check_int(count_open(), before + FDS);
    }
    check_int(handover_decode(text.bytes, text.size - 1, NULL, 0, &got, &failure), -EPROTO);
    for (int i = 0; i < FDS; i++) /* under their own numbers they were the decoder's */
        close(fds[i]);
    holdings_free(&handover.holdings);
    for (int i = 0; i < handover.argc; i++)
        free(handover.argv[i]);
    handover_text_free(&text);
    check_int(count_open(), before);
}

TAP_TEST(numbers_that_differ_are_named)
{
    char text[ABI_TEXT_BYTES], other[2 * ABI_TEXT_BYTES];
    struct failure failure;

    abi_write(text);
    check_int(abi_check(text, &failure), 0);
    check_int(abi_check("", &failure), -EPROTONOSUPPORT);
    snprintf(other, sizeof other, "%s later=1", text);
    check_int(abi_check(other, &failure), -EPROTONOSUPPORT);
    require(strstr(failure.text, "later=1") != NULL);
    for (size_t i = 0; abi_at(i); i++) {
        char key[64], *at;
        snprintf(key, sizeof key, "%s=", abi_at(i)->name);
        strcpy(other, text);
        at = strstr(other, key) + strlen(key);
        *at = *at == '9' ? '8' : '9';
        check_int(abi_check(other, &failure), -EPROTONOSUPPORT);
        require(strstr(failure.text, abi_at(i)->meaning) != NULL);
    }
}
