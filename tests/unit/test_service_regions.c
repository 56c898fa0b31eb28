/* SPDX-License-Identifier: Apache-2.0 */
/* Registering while others register, a shortage of descriptors, and the life of the descriptors. */
#include "service/admin.h"
#include "service/regions.h"
#include "service/service_internal.h"
#include "service/tickets.h"

#include "service_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define ANNA 1001u
#define BEN  1002u

struct asking {
    struct client client; /* first */
    enum service_region_reason reason;
    int fd; /* the descriptor that was given away */
};

static struct asking new_asking(uint32_t uid)
{
    return (struct asking){.client = new_client(5, uid), .fd = -1};
}

static void ask(struct asking *asking, const char *name, uint32_t owner)
{
    struct service_caller owner_caller = {.uid = owner, .gid = owner};
    const struct service_peer peer = {.uid = asking->client.caller.uid,
                                      .process = asking->client.caller.processes[0]};
    struct service_region_wish wish = {.kind = REGION_SYSTEM,
                                       .name = name,
                                       .name_bytes = strlen(name),
                                       .key = "/key",
                                       .key_bytes = 4,
                                       .byte_size = 100,
                                       .owner = &owner_caller};

    asking->fd = wish.fd = memfd_create("object", MFD_CLOEXEC);
    require(wish.fd >= 0 && ftruncate(wish.fd, 100) == 0);
    check_int(in_step(service_region_register(service, &peer, &wish, &asking->reason,
                                              &asking->client.request)),
              0);
}

static const struct region *find(uint32_t uid, const char *name)
{
    return regions_find_name(&service_get_core(service)->regions, uid, name, strlen(name));
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int unregister(uint32_t uid, uint32_t owner, const char *name)
{
    const struct service_peer peer = {.uid = uid};
    uint64_t count;

    return in_step(
        service_region_unregister(service, &peer, owner, REGION_ANY, name, strlen(name), &count));
}

TAP_TEST(nothing_is_answered_before_the_keeper_has_the_descriptor)
{
    struct asking anna = new_asking(ANNA);

    service_start();
    defers = true;
    ask(&anna, "r", ANNA);
    check_int(anna.client.answers, 0);
    check(find(ANNA, "r") == NULL);
    run_deferred();
    check_int(anna.client.answers, 1);
    check_int(anna.client.error, 0);
    check(find(ANNA, "r") != NULL && is_open(anna.fd));
    check_int(unregister(ANNA, ANNA, "r"), 0);
    check(!is_open(anna.fd));
    service_end();
}

TAP_TEST(of_two_that_register_one_name_at_once_one_has_it)
{
    struct asking first = new_asking(ANNA), second = new_asking(ANNA);

    service_start();
    defers = true;
    ask(&first, "r", ANNA);
    ask(&second, "r", ANNA);
    run_deferred();
    check_int(first.client.answers, 1);
    check_int(second.client.answers, 1);
    struct asking *loser = first.client.error ? &first : &second;
    check_int(first.client.error + second.client.error, -EEXIST);
    check_int(loser->reason, SERVICE_REGION_EXISTS);
    check(!is_open(loser->fd));
    check_int(service_get_core(service)->regions.items.count, 1);
    service_end();
}

static int admit_none(void)
{
    return -ENOSPC;
}

TAP_TEST(where_no_descriptor_is_left_that_is_a_bound)
{
    struct asking anna = new_asking(ANNA);

    service_start();
    fixture_on_admit = admit_none;
    ask(&anna, "r", ANNA);
    fixture_on_admit = NULL;
    check_int(anna.client.error, -ENOSPC);
    check_int(anna.reason, SERVICE_REGION_BOUND);
    check(!is_open(anna.fd) && find(ANNA, "r") == NULL);
    service_end();
}

TAP_TEST(a_drain_that_begins_meanwhile_is_told)
{
    const struct service_peer root = {.uid = 0};
    struct asking anna = new_asking(ANNA);

    service_start();
    defers = true;
    ask(&anna, "r", ANNA);
    require(in_step(service_drain(service, &root, false)) == 0);
    run_deferred();
    check_int(anna.client.error, -ENODEV);
    check_int(anna.reason, SERVICE_REGION_DRAINED);
    check(!is_open(anna.fd));
    service_end();
}

TAP_TEST(only_root_acts_for_others)
{
    struct asking anna = new_asking(ANNA), root = new_asking(0);

    service_start();
    ask(&anna, "r", BEN);
    check_int(anna.client.error, -EPERM);
    check_int(anna.reason, SERVICE_REGION_NOT_OWNER);
    check(!is_open(anna.fd) && find(BEN, "r") == NULL);
    ask(&root, "r", BEN);
    check_int(root.client.error, 0);
    check_int(unregister(ANNA, BEN, "r"), -EPERM);
    check_int(unregister(ANNA, BEN, "none"), -EPERM);
    check_int(unregister(FIXTURE_ADMIN, BEN, "r"), -EPERM); /* the user that mounted is not root */
    check_int(unregister(0, BEN, "r"), 0);
    service_end();
}

TAP_TEST(an_open_region_is_its_owners_and_gets_its_descriptor)
{
    struct asking anna = new_asking(ANNA);
    struct client stranger = new_client(6, BEN);
    struct service_open open = {.kind = CORE_KIND_REGION, .read = true};
    const struct service_peer peer = {.uid = ANNA};
    struct service_descriptor descriptor;
    struct service_redeemed redeemed;
    uint8_t ticket[16];

    service_start();
    ask(&anna, "r", ANNA);
    open.serial = find(ANNA, "r")->id;
    require(in_step(service_open(service, &open, &stranger.caller, &stranger.request)) == 0);
    check_int(stranger.error, -EACCES);
    require(in_step(service_open(service, &open, &anna.client.caller, &anna.client.request)) == 0);
    uint64_t file = anna.client.answer.file;
    check_int(in_step(service_region_release(service, file)), -ENOLCK);
    check_int(in_step(service_region_hold(service, file, ANNA, ticket)), 0);
    check_int(in_step(service_redeem(service, ticket, &peer, &redeemed)), 0);
    check_int(service_get_descriptor(service, &redeemed, 0, &descriptor), 0);
    check_int(descriptor.fd, anna.fd);
    check(!descriptor.is_own);
    check_int(unregister(ANNA, ANNA, "r"), 0);
    check(is_open(anna.fd));
    close_file(file);
    check(!is_open(anna.fd));
    check_int(service_get_descriptor(service, &redeemed, 0, &descriptor), -ESTALE);
    service_end();
}

static int get_descriptor(uint32_t uid, const char *name)
{
    struct service_descriptor descriptor;

    return service_get_region_descriptor(service, find(uid, name)->id, &descriptor);
}

static void forget_kept_of(const struct region *region)
{
    size_t i = 0;

    while (i < kept_count && kept[i].id != region->memory)
        i++;
    require(i < kept_count);
    forget_kept(i);
}

TAP_TEST(only_a_region_that_lost_its_descriptor_with_a_worker_is_stale)
{
    struct asking anna = new_asking(ANNA), ben = new_asking(BEN);

    service_start();
    ask(&anna, "lost", ANNA);
    ask(&ben, "held", BEN);
    require(find(ANNA, "lost") && find(BEN, "held"));
    forget_kept_of(find(ANNA, "lost"));
    service_restart();
    require(find(ANNA, "lost") && find(BEN, "held"));
    check_int(get_descriptor(ANNA, "lost"), -ESTALE);
    check_int(get_descriptor(BEN, "held"), 0);
    check_int(unregister(ANNA, ANNA, "lost"), 0); /* and can be registered anew */
    ask(&anna, "lost", ANNA);
    check_int(get_descriptor(ANNA, "lost"), 0);
    check_int(unregister(ANNA, ANNA, "lost"), 0);
    check_int(unregister(BEN, BEN, "held"), 0);
    service_end();
}
