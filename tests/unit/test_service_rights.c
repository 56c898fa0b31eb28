/* SPDX-License-Identifier: Apache-2.0 */
/* Rights without a kernel in front of them, which a second front end relies on. */
#include "service/admin.h"
#include "service/rights.h"
#include "service/stores.h"
#include "service/tickets.h"
#include "service/views.h"

#include "service_fixture.h"

#define OWNER  1000u
#define MEMBER 1001u
#define OTHER  1002u
#define HIDDEN 1003u /* its groups are not to be seen */
#define GROUP  2000u

static int in_group(const struct service_caller *caller, uint32_t gid)
{
    (void)caller;
    return gid == GROUP;
}

static int not_seen(const struct service_caller *caller, uint32_t gid)
{
    (void)caller;
    (void)gid;
    return -ESRCH;
}

static struct client client_of(uint32_t uid)
{
    struct client client = new_client(10 + uid, uid);

    if (uid == MEMBER)
        client.caller.has_group = in_group;
    if (uid == HIDDEN)
        client.caller.has_group = not_seen;
    return client;
}

/* `weights` is OWNER's and GROUP's. */
static void start(uint32_t mode)
{
    struct service_caller root = {.uid = 0};
    struct service_store_attr attr = {.which = CORE_ATTR_UID | CORE_ATTR_GID | CORE_ATTR_MODE,
                                      .uid = OWNER,
                                      .gid = GROUP,
                                      .mode = mode};

    service_start();
    require(in_step(service_store_set_attr(service, store_id(), &attr, &root)) == 0);
}

static int try_open(uint32_t uid, enum core_kind kind, bool read, bool write)
{
    struct client client = client_of(uid);
    int error = open_as(&client, kind, read, write);

    if (!error)
        close_file(client.ctl);
    return error;
}

TAP_TEST(the_mode_of_a_store_decides_which_user_opens_which_file)
{
    start(0750);
    check_int(try_open(OWNER, CORE_KIND_CTL, true, true), 0);
    check_int(try_open(MEMBER, CORE_KIND_CTL, true, false), 0);
    check_int(try_open(MEMBER, CORE_KIND_CTL, true, true), -EACCES);
    check_int(try_open(MEMBER, CORE_KIND_LOCK, false, true), -EACCES);
    check_int(try_open(OTHER, CORE_KIND_PSEUDO, true, false), -EACCES);
    check_int(try_open(FIXTURE_ADMIN, CORE_KIND_PSEUDO, true, false), -EACCES);
    check_int(try_open(0, CORE_KIND_LOCK, true, true), 0);
    service_end();
}

TAP_TEST(the_owners_bits_count_for_the_owner_even_where_others_may_more)
{
    start(0077);
    check_int(try_open(OWNER, CORE_KIND_PSEUDO, true, false), -EACCES);
    check_int(try_open(MEMBER, CORE_KIND_PSEUDO, true, false), 0);
    check_int(try_open(OTHER, CORE_KIND_PSEUDO, true, false), 0);
    service_end();
}

TAP_TEST(a_user_without_visible_groups_has_the_rights_of_the_group_or_of_others)
{
    start(0760);
    check_int(try_open(HIDDEN, CORE_KIND_LOCK, true, true), 0);
    service_end();
    start(0706);
    check_int(try_open(HIDDEN, CORE_KIND_LOCK, true, true), 0);
    service_end();
    start(0744);
    check_int(try_open(HIDDEN, CORE_KIND_PSEUDO, true, false), 0);
    check_int(try_open(HIDDEN, CORE_KIND_LOCK, true, true), -EACCES);
    service_end();
}

TAP_TEST(the_wrong_direction_is_eacces_for_root_too)
{
    start(0777);
    check_int(try_open(0, CORE_KIND_PSEUDO, true, true), -EACCES);
    check_int(try_open(0, CORE_KIND_COMMIT, true, false), -EACCES);
    check_int(try_open(0, CORE_KIND_ABORT, true, true), -EACCES);
    check_int(try_open(0, CORE_KIND_NONE, true, false), -EACCES);
    service_end();
}

TAP_TEST(changes_by_path_need_the_right_before_the_session)
{
    start(0700);
    struct client owner = client_of(OWNER), other = client_of(OTHER);
    require(open_as(&owner, CORE_KIND_LOCK, true, true) == 0);
    struct service_entry entry = {.key = "k", .key_bytes = 1, .slot = LAYOUT_UNBOUND, .value = ""};
    struct service_actor by = {.store = store_id(), .caller = &other.caller};
    check_int(in_step(service_entry_put(service, &by, &entry)), -EACCES);
    /* Its own child, with the owner's session, but another user. */
    other.caller.processes[1] = owner.caller.processes[0];
    other.caller.process_count = 2;
    check_int(in_step(service_entry_put(service, &by, &entry)), -EACCES);
    check_int(open_as(&other, CORE_KIND_LOCK, true, false), -EACCES);
    by.caller = &owner.caller;
    check_int(in_step(service_entry_put(service, &by, &entry)), 0);
    by.store = 4711;
    check_int(in_step(service_entry_put(service, &by, &entry)), -ENOENT);
    close_file(owner.ctl);
    service_end();
}

TAP_TEST(a_files_direction_decides_what_it_may_change_and_see)
{
    start(0777);
    struct client writer = client_of(OTHER), reader = client_of(OTHER);
    struct service_info info;
    struct service_export export = {0};
    const struct layout_entry *entry;
    const struct layout *layout;
    uint8_t name[16];
    require(open_as(&writer, CORE_KIND_LOCK, false, true) == 0);
    require(open_as(&reader, CORE_KIND_LOCK, true, false) == 0);
    struct service_actor by = {.file = reader.ctl};
    check_int(in_step(service_clear(service, &by)), -EBADF);
    check_int(service_view_info(service, reader.ctl, &info), 0);
    by.file = writer.ctl;
    check_int(in_step(service_clear(service, &by)), 0);
    check_int(service_view_info(service, writer.ctl, &info), -EBADF);
    check_int(service_view_layout(service, writer.ctl, &layout, name), -EBADF);
    check_int(service_view_entry(service, writer.ctl, "k", 1, &layout, &entry), -EBADF);
    writer.answers = 0;
    check_int(in_step(service_export(service, writer.ctl, &export, &writer.request)), 0);
    check_int(writer.error, -EBADF);
    check_int(service_view_info(service, 4711, &info), -EBADF);
    by.file = 4711;
    check_int(in_step(service_clear(service, &by)), -EBADF);
    close_file(writer.ctl);
    close_file(reader.ctl);
    service_end();
}

TAP_TEST(a_file_without_a_session_acts_for_the_processes_of_its_user)
{
    start(0777);
    struct client opener = client_of(OTHER), writer = client_of(OWNER);
    struct service_entry entry = {.key = "k", .key_bytes = 1, .slot = LAYOUT_UNBOUND, .value = ""};
    require(open_as(&opener, CORE_KIND_COMMIT, false, true) == 0);
    require(open_as(&writer, CORE_KIND_LOCK, true, true) == 0);
    struct service_actor by = {.file = opener.ctl, .caller = &opener.caller};
    check_int(in_step(service_entry_put(service, &by, &entry)), -ENOLCK);
    by.caller = &writer.caller;
    check_int(in_step(service_entry_put(service, &by, &entry)), 0);
    by.caller = NULL;
    check_int(in_step(service_entry_put(service, &by, &entry)), -ENOLCK);
    close_file(opener.ctl);
    close_file(writer.ctl);
    service_end();
}

static int revoke_by(struct client *by, uint64_t file, uint64_t number)
{
    by->answers = 0;
    check_int(in_step(service_revoke(service, file, number, false, &by->request)), 0);
    check_int(by->answers, 1);
    return by->error;
}

TAP_TEST(sessions_are_revoked_by_root_the_owner_and_the_user_that_mounted)
{
    const struct {
        uint32_t uid;
        int error;
    } tries[] = {{OTHER, -EPERM}, {MEMBER, -EPERM}, {OWNER, 0}, {FIXTURE_ADMIN, 0}, {0, 0}};

    start(0777);
    for (unsigned i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        struct client victim = client_of(MEMBER), by = client_of(tries[i].uid);
        require(open_as(&victim, CORE_KIND_LOCK, true, true) == 0);
        require(open_as(&by, CORE_KIND_ABORT, false, true) == 0);
        uint64_t number = core_get_writer(service_get_core(service), store_id())->id;
        check_int(revoke_by(&by, by.ctl, number), tries[i].error);
        check_int(revoke_by(&by, by.ctl, 4711), tries[i].error ? tries[i].error : -ENOENT);
        check_int(revoke_by(&victim, victim.ctl, number), -EPERM);
        close_file(by.ctl);
        close_file(victim.ctl);
    }
    struct client unopened = client_of(0);
    check_int(revoke_by(&unopened, 4711, 1), -EBADF);
    service_end();
}

TAP_TEST(administration_is_for_root_and_the_user_that_mounted)
{
    const uint32_t refused[] = {OWNER, MEMBER, OTHER}, admitted[] = {0, FIXTURE_ADMIN};
    const uint8_t all[16] = {0};
    uint64_t left;

    start(0777);
    for (unsigned i = 0; i < 3; i++) {
        struct service_peer peer = {.uid = refused[i]};
        check_int(in_step(service_drain(service, &peer, true)), -EPERM);
        check_int(in_step(service_serve(service, &peer)), -EPERM);
        check_int(in_step(service_drain_end(service, &peer, &left)), -EPERM);
        check_int(in_step(service_trust(service, &peer, all)), -EPERM);
        check_int(service_may_unmount(service, &peer), -EPERM);
    }
    for (unsigned i = 0; i < 2; i++) {
        struct service_peer peer = {.uid = admitted[i]};
        check_int(in_step(service_drain(service, &peer, true)), 0);
        check_int(in_step(service_drain_end(service, &peer, &left)), 0);
        check_int(in_step(service_serve(service, &peer)), 0);
        check_int(in_step(service_trust(service, &peer, all)), 0);
        check_int(service_may_unmount(service, &peer), 0);
    }
    const struct core_store *store = core_find_store(service_get_core(service), store_id());
    struct service_peer owner = {.uid = OWNER}, other = {.uid = OTHER};
    check_int(in_step(service_trust(service, &owner, store->uuid)), 0);
    check_int(in_step(service_trust(service, &other, store->uuid)), -EPERM);
    service_end();
}

TAP_TEST(stores_come_and_go_by_administrators)
{
    struct service_caller other = {.uid = OTHER}, admin = {.uid = FIXTURE_ADMIN};
    uint64_t id = 0;

    start(0777);
    check_int(in_step(service_store_create(service, "x", &other, 0755, &id)), -EACCES);
    check_int(in_step(service_store_create(service, "device", &admin, 0755, &id)), -EPERM);
    check_int(in_step(service_store_create(service, "x", &admin, 0755, &id)), 0);
    check_int(in_step(service_store_rename(service, id, "y", 0, &other)), -EACCES);
    check_int(in_step(service_store_remove(service, id, &other)), -EACCES);
    check_int(in_step(service_store_rename(service, id, "y", 0, &admin)), 0);
    check_int(in_step(service_store_remove(service, id, &admin)), 0);
    service_end();
}

TAP_TEST(an_unused_store_goes_by_its_ctl_for_administrators)
{
    struct client admin = client_of(FIXTURE_ADMIN), owner = client_of(OWNER);

    start(0777);
    require(open_as(&owner, CORE_KIND_CTL, true, true) == 0);
    check_int(in_step(service_store_remove_unused(service, owner.ctl)), -EACCES);
    close_file(owner.ctl);
    require(open_as(&admin, CORE_KIND_CTL, true, false) == 0);
    check_int(in_step(service_store_remove_unused(service, admin.ctl)), -EBADF);
    close_file(admin.ctl);
    require(open_as(&admin, CORE_KIND_CTL, true, true) == 0);
    check_int(in_step(service_store_remove_unused(service, admin.ctl)), 0);
    check(core_find_store_name(service_get_core(service), "weights") == NULL);
    check_int(in_step(service_store_remove_unused(service, admin.ctl)), -ESTALE);
    close_file(admin.ctl);
    service_end();
}

/* Returns the last event, which must have this type. */
static void check_event_by(enum core_event_type type, const struct client *by)
{
    const struct core *core = service_get_core(service);
    const struct core_event *event = core_find_event(core, core->next_event - 1);

    require(event != NULL);
    check_int(event->type, type);
    check_int(event->uid, by->caller.uid);
    check_int(event->process.pid, by->caller.processes[0].pid);
}

TAP_TEST(events_of_stores_name_the_process_that_asked_and_not_the_owner)
{
    struct client admin = client_of(FIXTURE_ADMIN), root = client_of(0);
    struct service_store_attr attr = {.which = CORE_ATTR_UID, .uid = OWNER};
    uint64_t id = 0;

    start(0755);
    check_int(in_step(service_store_create(service, "x", &admin.caller, 0755, &id)), 0);
    check_event_by(CORE_EVENT_STORE_CREATED, &admin);
    check_int(in_step(service_store_set_attr(service, id, &attr, &root.caller)), 0);
    check_int(in_step(service_store_rename(service, id, "y", 0, &admin.caller)), 0);
    check_event_by(CORE_EVENT_STORE_RENAMED, &admin);
    check_int(in_step(service_store_remove(service, id, &admin.caller)), 0);
    check_event_by(CORE_EVENT_STORE_REMOVED, &admin);
    service_end();
}

TAP_TEST(attributes_change_by_the_rules_of_chmod_and_chown)
{
    struct service_caller owner = {.uid = OWNER, .gid = OWNER, .has_group = in_group};
    struct service_caller other = {.uid = OTHER};
    struct service_store_attr mode = {.which = CORE_ATTR_MODE, .mode = 0700};
    struct service_store_attr own = {.which = CORE_ATTR_GID, .gid = OWNER};
    struct service_store_attr foreign = {.which = CORE_ATTR_GID, .gid = 4711};
    struct service_store_attr away = {.which = CORE_ATTR_UID, .uid = OTHER};

    start(0777);
    check_int(in_step(service_store_set_attr(service, store_id(), &mode, &other)), -EPERM);
    check_int(in_step(service_store_set_attr(service, store_id(), &mode, &owner)), 0);
    check_int(in_step(service_store_set_attr(service, store_id(), &own, &owner)), 0);
    check_int(in_step(service_store_set_attr(service, store_id(), &foreign, &owner)), -EPERM);
    check_int(in_step(service_store_set_attr(service, store_id(), &away, &owner)), -EPERM);
    check_int(in_step(service_store_touch(service, store_id(), &owner)), 0);
    check_int(in_step(service_store_touch(service, store_id(), &other)), -EACCES);
    service_end();
}

/* ---- processes that end sessions when they exit ---------------------------------------------- */

TAP_TEST(a_process_is_watched_once_however_many_sessions_it_has)
{
    struct client clients[5];

    start(0777);
    for (unsigned i = 0; i < 5; i++) {
        open_ctl(&clients[i], 42);
        acquire(&clients[i], LOCK_WISH_RW, 0);
        check_int(clients[i].answers, i == 0); /* the others wait */
    }
    check_int(fixture_watches, 1);
    exit_process((struct core_process){42, 1});
    check_int(fixture_watches, 0);
    for (unsigned i = 0; i < 5; i++)
        close_file(clients[i].ctl);
    check_int(service_get_core(service)->sessions.count, 0);
    service_end();
}

TAP_TEST(a_session_ends_with_its_process_only_where_its_maker_wanted_that)
{
    struct client client;
    struct service_acquire wanted = {.wish = LOCK_WISH_RW};

    start(0777);
    open_ctl(&client, 42);
    require(in_step(service_acquire(service, client.ctl, &wanted, &client.caller,
                                    &client.request)) == 0);
    check_int(client.error, 0);
    check_int(fixture_watches, 0);
    exit_process((struct core_process){42, 1});
    check_int(service_get_core(service)->sessions.count, 1);
    close_file(client.ctl);
    service_end();
}

TAP_TEST(a_pid_that_is_used_again_ends_the_sessions_of_its_former_process)
{
    struct client before, after;

    start(0777);
    open_ctl(&before, 42);
    acquire(&before, LOCK_WISH_RW, 0);
    open_ctl(&after, 42);
    after.caller.processes[0].start = 2;
    acquire(&after, LOCK_WISH_RW, 0);
    check_answer(&after, 0);
    check_int(service_get_core(service)->sessions.count, 1);
    check_int(fixture_watches, 1);
    close_file(before.ctl);
    close_file(after.ctl);
    service_end();
}

TAP_TEST(processes_that_are_watched_are_shared_by_users)
{
    struct client client;
    int error = 0;
    unsigned count = 0;

    start(0777);
    struct client holder;
    open_ctl(&holder, 1);
    acquire(&holder, LOCK_WISH_RW, 0);
    static struct client hogs[64];
    for (; count < 64 && !error; count++) {
        hogs[count] = new_client(1000 + count, OTHER);
        require(open_as(&hogs[count], CORE_KIND_CTL, true, true) == 0);
        acquire(&hogs[count], LOCK_WISH_RW, 0);
        error = hogs[count].answers ? hogs[count].error : 0;
    }
    check_int(error, -EDQUOT);
    check(count > 20 && count < 34);
    client = new_client(7, MEMBER);
    require(open_as(&client, CORE_KIND_CTL, true, true) == 0);
    acquire(&client, LOCK_WISH_RW, 0);
    check_int(client.answers, 0); /* it waits, and is watched */
    const struct core *core = service_get_core(service);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_int(event->type, CORE_EVENT_BOUND);
    check_str(event->bound, "processes");
    check_int(event->uid, OTHER);
    service_end();
}
