/* SPDX-License-Identifier: Apache-2.0 */
/* Shortage: of memory, of descriptors, of huge pages; and signals meanwhile. */
#include "vmm_fixture.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>

#define NO_HUGE_PAGES "no free huge pages; try: echo 16 > /proc/sys/vm/nr_hugepages"

/* ---- shortage -------------------------------------------------------------------------------- */

TAP_TEST(memory_that_the_machine_lacks_is_enomem)
{
    struct vmm_piece piece;

    open_short_host(32 * MIB);
    check_int(vmm_create(vmm, 34 * MIB, true, &piece), -ENOMEM);
    check_int(piece.fd, -1);
    check_int(vmm_create(vmm, 1 * GIB, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, 32 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    close_short_host();
}

TAP_TEST(memory_beyond_this_real_machine_is_enomem_at_once)
{
    struct vmm_piece piece;

    open_host(INT64_MAX);
    check_int(vmm_create(vmm, UINT64_C(1) << 46, true, &piece), -ENOMEM);
    vmm_close(vmm);
}

TAP_TEST(sizes_beyond_any_file_are_enomem)
{
    struct vmm_piece piece;

    open_host(64 * MIB);
    check_int(vmm_create(vmm, UINT64_C(1) << 63, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, UINT64_MAX, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, INT64_MAX, true, &piece), -ENOMEM);
    vmm_close(vmm);
}

TAP_TEST(memory_that_the_cgroup_lacks_is_enomem)
{
    struct vmm_options options = {.backend = "host", .size_bytes = 16 * GIB};
    struct vmm_piece piece;

    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB, 32 * GIB));
    require(fake_root_put(root, "/proc/self/cgroup", "0::/job\n"));
    require(fake_root_put(root, "/proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 none rw\n"));
    require(fake_root_put_number(root, "/cg/job/memory.max", 256 * MIB));
    require(fake_root_put_number(root, "/cg/job/memory.current", 200 * MIB));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
    check_int(vmm_create(vmm, 26 * MIB, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, 24 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    close_short_host();
}

TAP_TEST(a_page_that_cannot_be_read_fails_the_sum)
{
    struct vmm_piece piece, cut;
    uint8_t sum[16];

    open_host(64 * MIB);
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
    cut = piece;
    cut.sealed = true;
    check_int(vmm_sum(vmm, &cut, 0, 4 * MIB, sum), 0);
    cut.fd_readonly = memfd_create("cut", MFD_CLOEXEC);
    require(ftruncate(cut.fd_readonly, 2 * MIB) == 0);
    check_int(vmm_sum(vmm, &cut, 0, 2 * MIB, sum), 0);
    check_int(vmm_sum(vmm, &cut, 0, 4 * MIB, sum), -EIO);
    close(cut.fd_readonly);
    close_host(&piece);
}

TAP_TEST(spool_that_cannot_grow_stays_as_it_was)
{
    struct vmm_piece piece;

    open_short_host(8 * MIB);
    require(vmm_create(vmm, 0, false, &piece) == 0);
    check_int(vmm_grow(vmm, &piece, 4 * MIB), 0);
    fill(&piece, 5, 0, 4 * MIB);
    check_int(vmm_grow(vmm, &piece, 100 * MIB), -ENOMEM);
    check_int(piece.aligned_bytes, 4 * MIB);
    check_int(size_of(piece.fd), 4 * MIB);
    check_int(committed_of(piece.fd), 4 * MIB);
    check(all_bytes_are(&piece, 5, 0, 4 * MIB));
    vmm_destroy(vmm, &piece);
    close_short_host();
}

static void *create_one(void *result)
{
    struct vmm_piece piece;

    *(int *)result = vmm_create(vmm, 32 * MIB, true, &piece);
    if (*(int *)result == 0)
        vmm_destroy(vmm, &piece);
    return NULL;
}

TAP_TEST(concurrent_creators_take_turns_where_room_is_short)
{
    pthread_t threads[THREADS];
    int results[THREADS];

    open_short_host(40 * MIB);
    for (int i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, create_one, &results[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_int(results[i], 0);
    }
    close_short_host();
}

static void ignore_signal(int number)
{
    (void)number;
}

TAP_TEST(storm_of_signals_does_not_stop_creation)
{
    struct sigaction action = {.sa_handler = ignore_signal}, before;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    auto_piece piece = {0};

    open_host(GIB);
    require(sigaction(SIGALRM, &action, &before) == 0);
    require(setitimer(ITIMER_REAL, &often, NULL) == 0);
    check_int(vmm_create(vmm, 192 * MIB, true, &piece), 0);
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    check_int(committed_of(piece.fd), 192 * MIB);
}

TAP_TEST(file_size_limit_is_efbig_and_no_signal)
{
    struct rlimit before, small;
    auto_piece piece = {0};

    open_host(64 * MIB);
    require(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 2 * MIB;
    require(setrlimit(RLIMIT_FSIZE, &small) == 0);
    check_int(vmm_create(vmm, 4 * MIB, true, &piece), -EFBIG);
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    require(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

/* Limits the process to `more` descriptors beyond the open ones. */
static int create_with_descriptors(int more)
{
    struct rlimit before, few;
    struct vmm_piece piece;
    int lowest = dup(0), rc;

    require(lowest >= 0);
    close(lowest);
    require(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    few.rlim_cur = (rlim_t)lowest + (rlim_t)more;
    require(setrlimit(RLIMIT_NOFILE, &few) == 0);
    rc = vmm_create(vmm, 2 * MIB, true, &piece);
    require(setrlimit(RLIMIT_NOFILE, &before) == 0);
    if (rc < 0)
        check(piece.fd == -1 && piece.fd_readonly == -1);
    vmm_destroy(vmm, &piece);
    return rc;
}

TAP_TEST(running_out_of_descriptors_is_emfile_and_leaks_none)
{
    int before = count_descriptors();

    open_host(64 * MIB);
    check_int(create_with_descriptors(0), -EMFILE);
    check_int(create_with_descriptors(1), -EMFILE);
    /* Two for the pair; the third reads the machine's free memory. */
    check_int(create_with_descriptors(2), -EMFILE);
    check_int(create_with_descriptors(3), 0);
    vmm_close(vmm);
    check_int(count_descriptors(), before);
}

TAP_TEST(opening_without_descriptors_is_emfile_and_says_so)
{
    struct vmm_options options = {.backend = "host", .size_bytes = GIB};
    struct rlimit before, none;
    int rc;

    require(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    require(setrlimit(RLIMIT_NOFILE, &none) == 0);
    rc = vmm_open(&options, &vmm, error, sizeof(error));
    require(setrlimit(RLIMIT_NOFILE, &before) == 0);
    check_int(rc, -EMFILE);
    check(strstr(error, "device host: ") == error);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

static uint64_t free_huge_bytes(void)
{
    struct headroom *headroom = NULL;
    struct headroom_pool pool = {0, 0};

    require(headroom_open("", &headroom) == 0);
    if (headroom_read_pool(headroom, 2 * MIB, &pool) < 0)
        pool.free_bytes = 0;
    headroom_close(headroom);
    return pool.free_bytes;
}

static void open_huge_host(void)
{
    require(try_open((struct vmm_options){
                .backend = "host", .size_bytes = GIB, .hugepage_bytes = 2 * MIB}) == 0);
}

TAP_TEST(huge_pages_of_another_size_are_einval)
{
    check_int(try_open((struct vmm_options){
                  .backend = "host", .size_bytes = GIB, .hugepage_bytes = 4 * MIB}),
              -EINVAL);
    check_str(error, "hugepages=4M: huge pages are of 2M or 1G; use one of these");
}

TAP_TEST(empty_pool_of_huge_pages_says_how_to_fill_it)
{
    struct vmm_options options = {.backend = "host", .size_bytes = GIB, .hugepage_bytes = 2 * MIB};
    const char *dir = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    char path[128];

    require(fake_root_make(root));
    snprintf(path, sizeof(path), "%s/nr_hugepages", dir);
    require(fake_root_put_number(root, path, 0));
    snprintf(path, sizeof(path), "%s/free_hugepages", dir);
    require(fake_root_put_number(root, path, 0));
    check_int(vmm_open_under(root, &options, &vmm, error, sizeof(error)), -ENOMEM);
    check(strstr(error, "hugepages-2048kB/nr_hugepages") != NULL);
    fake_root_remove(root);
}

TAP_TEST(machine_without_huge_pages_is_eopnotsupp)
{
    struct vmm_options options = {.backend = "host", .size_bytes = GIB, .hugepage_bytes = GIB};

    require(fake_root_make(root));
    check_int(vmm_open_under(root, &options, &vmm, error, sizeof(error)), -EOPNOTSUPP);
    check(strstr(error, "hugepages=1G: ") == error);
    fake_root_remove(root);
}

TAP_TEST(granularity_below_the_huge_page_is_einval)
{
    if (skip(free_huge_bytes() == 0, NO_HUGE_PAGES))
        return;
    check_int(try_open((struct vmm_options){.backend = "host",
                                            .size_bytes = GIB,
                                            .granularity_bytes = MIB,
                                            .hugepage_bytes = 2 * MIB}),
              -EINVAL);
}

TAP_TEST(huge_pages_are_written_and_read)
{
    struct vmm_piece piece;

    if (skip(free_huge_bytes() < 8 * MIB, NO_HUGE_PAGES))
        return;
    open_huge_host();
    require(vmm_create(vmm, 8 * MIB, true, &piece) == 0);
    check(all_bytes_are(&piece, 0, 0, 8 * MIB));
    write_and_read_back(&piece, 0, 8 * MIB);
    write_and_read_back(&piece, 2 * MIB - 1, 2);
    write_and_read_back(&piece, 3 * MIB, 4 * MIB + 7);
    close_host(&piece);
}

TAP_TEST(huge_piece_is_sealed_and_of_mode_0)
{
    struct vmm_piece piece;

    if (skip(free_huge_bytes() < 4 * MIB, NO_HUGE_PAGES))
        return;
    open_huge_host();
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
    check_int(mode_of(piece.fd), 0);
    check_int(fcntl(piece.fd, F_GET_SEALS) & SIZE_SEALS, SIZE_SEALS);
    check(ftruncate(piece.fd, 2 * MIB) < 0 && errno == EPERM);
    check_int(committed_of(piece.fd), 4 * MIB);
    close_host(&piece);
}

TAP_TEST(huge_spool_has_a_zero_tail)
{
    struct vmm_piece piece;

    if (skip(free_huge_bytes() < 8 * MIB, NO_HUGE_PAGES))
        return;
    open_huge_host();
    require(vmm_create(vmm, 0, false, &piece) == 0);
    require(vmm_grow(vmm, &piece, 2 * MIB) == 0);
    require(vmm_grow(vmm, &piece, 8 * MIB) == 0);
    fill(&piece, 9, 0, 8 * MIB);
    require(vmm_seal(vmm, &piece, 3 * MIB + 5) == 0);
    check_int(size_of(piece.fd), 4 * MIB);
    check(all_bytes_are(&piece, 9, 0, 3 * MIB + 5));
    check(all_bytes_are(&piece, 0, 3 * MIB + 5, 4 * MIB));
    close_host(&piece);
}

TAP_TEST(exhausted_pool_of_huge_pages_is_enomem_and_keeps_the_spool)
{
    uint64_t free_bytes = free_huge_bytes();
    struct vmm_piece piece;

    if (skip(free_bytes < 4 * MIB || free_bytes > GIB, NO_HUGE_PAGES))
        return;
    open_huge_host();
    require(vmm_create(vmm, 0, false, &piece) == 0);
    require(vmm_grow(vmm, &piece, 2 * MIB) == 0);
    fill(&piece, 3, 0, 2 * MIB);
    check_int(vmm_grow(vmm, &piece, free_bytes + 2 * MIB), -ENOMEM);
    check_int(piece.aligned_bytes, 2 * MIB);
    check_int(size_of(piece.fd), 2 * MIB);
    check(all_bytes_are(&piece, 3, 0, 2 * MIB));
    check_int(free_huge_bytes(), free_bytes - 2 * MIB);
    close_host(&piece);
}
