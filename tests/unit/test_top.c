/* SPDX-License-Identifier: Apache-2.0 */
/* The screens of `gmsfs top` as text, and its keys; without a terminal. */
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "top/top.h"

#define NOW_MS 1795894500000u /* 2026-11-28 19:35:00 UTC */
#define ROWS   24u
#define WIDE   80u

static const char device[] =
    "'device': {'total_bytes': 104857600, 'used_bytes': 52428800, 'reserved_bytes': 10485760,"
    " 'freeing_bytes': 0, 'mapped_bytes': 0, 'health': 'ok', 'health_reason': null%s}";

static char shown[64 * 1024];

/* Parses JSON in which ' stands for ". */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_error_t error;
    json_t *json;

    for (char *at = copy; *at; at++)
        if (*at == '\'')
            *at = '"';
    json = json_loads(copy, 0, &error);
    if (!json)
        fprintf(stderr, "%s at %d of %s\n", error.text, error.position, copy);
    free(copy);
    return json;
}

static json_t *make_look(const char *more, const char *stores)
{
    char *text = NULL, *facts = NULL;
    json_t *look;

    check(asprintf(&facts, device, more) > 0);
    check(asprintf(&text, "{%s, 'stores': [%s]}", facts, stores) > 0);
    look = parse(text);
    check(look);
    free(facts);
    free(text);
    return look;
}

static const char three[] =
    "{'name': 'adapters', 'state': 'RO', 'bytes': 2097152, 'committed': true, 'residency': "
    "['device'], 'pool': 'a', 'held': 1, 'last_used_ms': 1795894000000, 'allocations': 1,"
    " 'sessions': [{'id': '7', 'mode': 'RO', 'status': 'held', 'pid': 12, 'uid': 0, 'comm': "
    "'vllm', 'since': '2026-11-28T19:34:00Z', 'files': 1}, {'id': 'w3', 'mode': 'RW', 'status': "
    "'waiting', 'pid': 13, 'uid': 1000, 'comm': 'train', 'since': '2026-11-28T19:34:50Z', "
    "'files': 0}]},"
    "{'name': 'kv', 'state': 'EMPTY', 'bytes': 0, 'committed': false, 'residency': [], 'pool': "
    "'default', 'held': 0, 'last_used_ms': 0, 'sessions': []},"
    "{'name': 'weights', 'state': 'COMMITTED', 'bytes': 41943040, 'committed': true, 'residency': "
    "['host'], 'moving': {'to': 'device', 'spare': false, 'done_bytes': 10485760, 'all_bytes': "
    "41943040}, 'pool': 'default', 'held': 0, 'last_used_ms': 1795894380000, 'sessions': []}";

static struct top *top;

static void open_top(const char *more, const char *stores)
{
    static const char *const mounts[] = {"/mnt/gpu0"};
    top = top_new();
    check(setlocale(LC_CTYPE, "C.UTF-8"));
    check(top);
    check_int(top_set_mounts(top, mounts, 1), 0);
    top_take_look(top, 0, make_look(more, stores), NULL, NOW_MS);
}

static void close_top(void)
{
    top_free(top);
}

TAP_AFTER_EACH(close_top)

/* Draws, and puts the lines into `shown`, without blanks at their ends. */
static const struct screen *draw(unsigned rows, unsigned columns)
{
    const struct screen *screen = top_draw(top, rows, columns, NOW_MS);
    size_t used = 0;

    check(screen);
    for (unsigned i = 0; i < rows; i++) {
        const struct line *line = &screen->lines[i];
        size_t bytes = line->used;

        check(line->width <= columns);
        while (bytes > 0 && line->text[bytes - 1] == ' ')
            bytes--;
        memcpy(shown + used, line->text, bytes);
        used += bytes;
        shown[used++] = '\n';
    }
    shown[used] = '\0';
    return screen;
}

/* Returns line number `row` of `shown`; valid until the next call. */
static const char *get_line(unsigned row)
{
    static char text[1024];
    const char *at = shown;

    while (row-- > 0)
        at += strcspn(at, "\n") + 1;
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(at, "\n"), at);
    return text;
}

/* Draws a screen of the usual size, and checks one of its lines. */
#define check_line(row, text)           \
    do {                                \
        draw(ROWS, WIDE);               \
        check_str(get_line(row), text); \
    } while (0)

static struct top_order press(const char *keys)
{
    struct top_order order = {0};

    for (; *keys; keys++)
        order = top_press(top, (unsigned char)*keys);
    return order;
}

/* Checks the order of the stores, by their first letters. */
#define check_order(letters)                              \
    do {                                                  \
        char got_[8] = "";                                \
        draw(ROWS, WIDE);                                 \
        for (unsigned i_ = 0; i_ < strlen(letters); i_++) \
            got_[i_] = get_line(3 + i_)[0];               \
        check_str(got_, letters);                         \
    } while (0)

static void take_event(const char *text)
{
    top_take_event(top, 0, text, strlen(text));
}

TAP_TEST(the_screen_of_a_mount_is_this)
{
    open_top("", three);

    take_event("{\"seq\":3,\"time_ms\":1795894429685,\"event\":\"committed\",\"store\":"
               "\"weights\",\"session\":1,\"pid\":28774,\"comm\":\"bash\"}");
    take_event("of the middle of a line\"}");
    draw(ROWS, WIDE);
    check_str(shown,
              "gmsfs top  19:35:00 UTC  1 mount, 3 stores\n"
              "gpu0 device [#####+....] 50.0 MiB of 100.0 MiB, 40.0 MiB free, 10.0 MiB reserved\n"
              "STORE         STATE          BYTESv PLACE             HOLD  WAIT   IDLE POOL\n"
              "weights       COMMITTED    40.0 MiB host>device 25%      0     0  2 min default\n"
              "adapters      RO            2.0 MiB device               1     1      - a\n"
              "kv            EMPTY             0 B -                    0     0      - default\n"
              "\n\n\n\n\n\n\n"
              " weights  0 holders, 0 waiters  moving to device: 10.0 MiB of 40.0 MiB  generati\n"
              "\n\n\n\n"
              " events (UTC)\n"
              " 19:33:49  gpu0/weights  committed  session 1  pid 28774 bash\n"
              "\n\n\n"
              " ? help q quit / filter <> sort Tab sessions r revoke p promote d demote D drain\n");
}

static json_t *make_pools_look(uint64_t done_bytes)
{
    char *text = NULL, *facts = NULL;
    json_t *look;

    check(asprintf(&facts, device, "") > 0);
    check(asprintf(&text,
                   "{%s, 'stores': [{'name': 'w', 'state': 'COMMITTED', 'bytes': 41943040, "
                   "'committed': true, 'residency': ['device'], 'sessions': [], 'moving': {'to': "
                   "'host', 'done_bytes': %llu, 'all_bytes': "
                   "41943040}}], 'pools': [{'name': 'default', 'class': 'standard', 'used': "
                   "41943040, 'min': 0, 'max': null}, {'name': 'chat', 'class': 'high', 'used': "
                   "10485760, 'min': 4194304, 'max': 20971520}]}",
                   facts, (unsigned long long)done_bytes) > 0);
    look = parse(text);
    free(facts);
    free(text);
    return look;
}

TAP_TEST(pools_and_moves_take_the_place_of_the_stores)
{
    open_top("", "");

    top_take_look(top, 0, make_pools_look(10485760), NULL, NOW_MS);
    top_take_look(top, 0, make_pools_look(20971520), NULL, NOW_MS + 2000);
    press("P");
    check_line(2, "POOL               CLASS            USED        KEPT     AT MOST");
    check_str(get_line(3), "default            standard     40.0 MiB           -    no limit");
    check_str(get_line(4),
              "chat               high         10.0 MiB     4.0 MiB    20.0 MiB [######......]");
    check_str(get_line(5),
              "MOVE               TO               DONE          OF        RATE        LEFT");
    check_str(get_line(6),
              "w                  host         20.0 MiB    40.0 MiB   5.0 MiB/s         4 s");
    press("G"); /* all lines fit */
    check_line(2, "POOL               CLASS            USED        KEPT     AT MOST");
    press("P");
    check_line(3, "w             COMMITTED    40.0 MiB device>host 50%      0     0      -");
}

/* Draws pools in a pane of 7 lines, and checks how the first and the last one begin. */
static void check_pools(const char *first, const char *last)
{
    draw(TOP_LEAST_ROWS, WIDE);
    check_int(strncmp(get_line(2), first, strlen(first)), 0);
    check_int(strncmp(get_line(8), last, strlen(last)), 0);
}

TAP_TEST(the_last_pools_fill_their_pane)
{
    open_top("", "");
    char text[1024] = "{'device': {}, 'stores': [], 'pools': [";
    size_t used = strlen(text);

    for (int i = 0; i < 20; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s{'name': 'p%02d'}",
                                 i ? "," : "", i);
    strcpy(text + used, "]}");
    top_take_look(top, 0, parse(text), NULL, NOW_MS);
    press("P");
    check_pools("POOL", "p05");
    press("j");
    check_pools("p00", "p06");
    press("G");
    check_pools("p14", "no store moves");
    top_press(top, TOP_PAGE_DOWN);
    check_pools("p14", "no store moves");
    press("k");
    check_pools("p13", "p19");
    top_press(top, TOP_PAGE_UP);
    check_pools("p07", "p13");
}

TAP_TEST(keys_sort_and_invert)
{
    open_top("", three);

    check_order("wak"); /* by bytes */
    press("I");
    check_order("kaw");
    press("I<<");
    check_order("akw"); /* by name */
    press(">>>>");
    check_order("akw"); /* by holders */
    top_press(top, TOP_F1 + 5);
    top_press(top, TOP_F1 + 5);
    check_order("kwa"); /* by idle time: never, 120 s, now */
}

TAP_TEST(a_filter_is_typed_and_dropped)
{
    open_top("", three);

    press("/WEI\xc3\xa4");
    check_int(draw(ROWS, WIDE)->cursor_row, ROWS - 1);
    check_str(get_line(ROWS - 1), " filter: WEI\xc3\xa4");
    check_str(get_line(3), "no store has this in name, state, place or pool");
    top_press(top, TOP_BACKSPACE);
    check_order("w");
    check_str(get_line(0), "gmsfs top  19:35:00 UTC  1 mount, 3 stores  1 with 'WEI'");
    top_press(top, TOP_ENTER);
    check_int(draw(ROWS, WIDE)->cursor_row, -1);
    check_order("w");
    top_press(top, TOP_ESCAPE);
    check_order("wak");
    press("/default");
    check_order("wk"); /* pools too */
}

TAP_TEST(deeds_are_asked_for_and_only_y_agrees)
{
    open_top(", 'spill_total_bytes': 1, 'host_total_bytes': 1", three);
    struct top_order order;

    check_int(press("p").deed, TOP_NOTHING);
    check_line(ROWS - 1, " promote weights to its device? y/N");
    check_int(press("n").deed, TOP_NOTHING);
    check_int(press("y").deed, TOP_NOTHING); /* the question is over */
    check_int(press("p\r").deed, TOP_NOTHING);
    order = press("py");
    check_int(order.deed, TOP_PROMOTE);
    check_str(order.mount, "/mnt/gpu0");
    check_str(order.store, "weights");
    order = press("dy"); /* it is on the host */
    check_int(order.deed, TOP_DEMOTE);
    check_str(order.place, "disk");
    order = press("jD");
    check_line(ROWS - 1,
               " drain adapters: tell its 1 holder to leave, then demote it to host? y/N");
    order = press("Y");
    check_int(order.deed, TOP_DRAIN);
    check_str(order.store, "adapters");
    check_str(order.place, "host");
    check_int(press("q").deed, TOP_QUIT);
}

TAP_TEST(of_several_sessions_one_is_chosen_first)
{
    open_top("", three);
    struct top_order order;

    press("r");
    check_line(ROWS - 1, " no session holds the store or waits for it");
    press("jr");
    check_line(ROWS - 1, " several sessions: choose one, then r again");
    check_str(get_line(14), "      7 RO      held    pid 12      uid 0       1 min vllm");
    check_str(get_line(15), "     w3 RW      waiting pid 13      uid 1000     10 s train");
    press("jr");
    check_line(ROWS - 1, " revoke waiter w3 (RW, pid 13 train) of adapters? y/N");
    order = press("y");
    check_int(order.deed, TOP_REVOKE);
    check_str(order.session, "w3");
    press("kr");
    check_line(ROWS - 1, " revoke session 7 (RO, pid 12 vllm) of adapters? y/N");
}

TAP_TEST(a_mount_without_a_slower_tier_demotes_nothing_and_a_drain_can_be_ended)
{
    open_top("", "{'name': 'w', 'state': 'RO', 'draining': true, 'sessions': []}");

    check_int(press("dy").deed, TOP_NOTHING);
    press("d");
    draw(ROWS, WIDE);
    check(strstr(shown, "no slower tier"));
    check_int(press("Dy").deed, TOP_UNDRAIN);
    check(strstr(shown, "RO drained"));
}

TAP_TEST(all_parts_of_a_bar_are_shown)
{
    static const char *const mounts[] = {"/mnt/gpu0"};
    top = top_new();
    check_int(top_set_mounts(top, mounts, 1), 0);
    check_line(1, "gpu0 is being looked at");
    check_str(get_line(3), "the stores are being looked at");
    top_take_look(top, 0,
                  parse("{'device': {'total_bytes': 104857600, 'used_bytes': 62914560, "
                        "'reserved_bytes': 10485760, 'freeing_bytes': 10485760, 'mapped_bytes': "
                        "10485760, 'free_bytes': 20971520, 'other_bytes': 999999999, 'health': "
                        "'suspect', 'health_reason': 'Xid 48', 'draining': true}, 'stores': []}"),
                  NULL, NOW_MS);
    draw(ROWS, 160);
    check_str(get_line(1),
              "gpu0 device [###############+++~~~===ooo...........] suspect (Xid 48) drained "
              "40.0 MiB of 100.0 MiB, 20.0 MiB free, 10.0 MiB reserved, 10.0 MiB leaving, 10.0 Mi");
}

TAP_TEST(a_mount_that_is_not_there_is_shown_with_the_way_out)
{
    static const char *const mounts[] = {"/mnt/gpu0", "/mnt/gpu1"};
    open_top("", three);

    check_int(top_set_mounts(top, mounts, 2), 0);
    top_take_look(top, 1, parse("{'health': 'dead', 'device': null, 'stores': []}"),
                  "DEAD: clear it away", NOW_MS);
    check_line(2, "gpu1 DEAD: clear it away");
    check_str(get_line(4),
              "gpu0/weights  COMMITTED    40.0 MiB host>device 25%      0     0  2 min default");
    check_int(top_set_mounts(top, mounts + 1, 1), 0); /* the first one was unmounted */
    check_line(1, "gpu1 DEAD: clear it away");
    check_str(get_line(3), "no stores");
    check_int(top_set_mounts(top, NULL, 0), 0);
    draw(ROWS, WIDE);
    check_str(get_line(2), "there is no gmsfs mount; 'gmsfs mount' makes one");
}

TAP_TEST(of_more_mounts_than_fit_the_chosen_ones_is_shown)
{
    char names[32][24];
    const char *mounts[32];
    top = top_new();
    for (int i = 0; i < 32; i++) {
        snprintf(names[i], sizeof(names[i]), "/mnt/g%d", i);
        mounts[i] = names[i];
    }
    check_int(top_set_mounts(top, mounts, 32), 0);
    for (size_t i = 0; i < 32; i++)
        top_take_look(top, i, make_look("", "{'name': 'w', 'state': 'RO', 'sessions': []}"), NULL,
                      NOW_MS);
    draw(ROWS, WIDE);
    check(strstr(shown, "\ng0   device ["));
    check(strstr(shown, "\n     25 more mounts\n"));
    press("G");
    draw(ROWS, WIDE);
    check(strstr(shown, "\ng31  device ["));
    check(!strstr(shown, "\ng0   device ["));
}

TAP_TEST(the_chosen_store_stays_chosen_while_others_come_and_go)
{
    open_top("", three);

    press("j"); /* adapters */
    top_take_look(top, 0,
                  make_look("", "{'name': 'a', 'bytes': 4, 'sessions': []}, {'name': 'adapters', "
                                "'bytes': 1, 'sessions': []}, {'name': 'b', 'bytes': 3, "
                                "'sessions': []}, {'name': 'c', 'bytes': 2, 'sessions': []}"),
                  NULL, NOW_MS);
    check_str(press("py").store, "adapters");
    check_order("abca");
    top_take_look(top, 0, make_look("", "{'name': 'z', 'bytes': 4, 'sessions': []}"), NULL, NOW_MS);
    check_str(press("py").store, "z"); /* it was removed */
    top_take_look(top, 0, make_look("", ""), NULL, NOW_MS);
    check_int(press("py").deed, TOP_NOTHING);
}

TAP_TEST(the_rate_of_a_move_comes_from_two_looks)
{
    static const char moving[] =
        "{'name': 'w', 'state': 'COMMITTED', 'moving': {'to': 'host', 'spare': true, 'done_bytes': "
        "%d, 'all_bytes': 104857600}, 'sessions': []}";
    open_top("", "");
    char text[256];

    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text), moving, i * 52428800);
        top_take_look(top, 0, make_look("", text), NULL, NOW_MS + (unsigned)i * 500);
        draw(ROWS, WIDE);
        check_int(strstr(shown, "0 waiters  copied to host: 0 B of 100.0 MiB  gen") != NULL, !i);
        check_int(strstr(shown, "copied to host: 50.0 MiB of 100.0 MiB, 100.0 MiB/s") != NULL, i);
    }
}

TAP_TEST(a_store_that_does_not_get_on_tells_why)
{
    open_top("", "{'name': 'w', 'sessions': [], 'behind': 'kv', 'obstacle': {'to': 'host', 'text': "
                 "'the host is full'}, 'last_error': 'no tensors'}");

    check_line(14, " waits for memory behind: kv");
    check_str(get_line(15), " not moved to host: the host is full");
    check_str(get_line(16), " last commit refused: no tensors");
}

TAP_TEST(names_stay_text_and_columns_stay_straight)
{
    open_top("",
             "{'name': 'e\xcc\x81', 'bytes': 5, 'state': 'RO', 'sessions': []}," /* combining */
             "{'name': '\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b"
             "\xe6\xa8\xa1\xe5\x9e\x8b', 'bytes': 4, 'state': 'RO', 'sessions': []}," /* wide */
             "{'name': '\\u001b[2J\\u0007', 'bytes': 3, 'state': 'RO', 'sessions': []},"
             "{'name': 'a\xe2\x80\xaez', 'bytes': 2, 'state': 'RO', 'sessions': []}");

    check_line(3,
               "e\xcc\x81             RO                5 B device               0     0      -");
    check_str(get_line(4), "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1\xe5\x9e"
                           "\x8b~ RO                4 B device               0     0      -");
    check_str(get_line(5),
              "?[2J?         RO                3 B device               0     0      -");
}

TAP_TEST(every_size_is_filled_and_a_small_one_says_so)
{
    open_top(", 'host_total_bytes': 1, 'spill_total_bytes': 1", three);

    for (int i = 0; i < 100; i++)
        take_event("{\"time_ms\":1795894429685,\"event\":\"committed\",\"store\":\"w\"}");
    for (unsigned rows = TOP_LEAST_ROWS; rows < 60; rows++) {
        for (unsigned columns = TOP_LEAST_COLUMNS; columns < 200; columns += 7) {
            draw(rows, columns);
            check(strncmp(get_line(rows - 1), " ? help q quit", 14) == 0);
            check(strstr(shown, "\nweights "));
        }
    }
    draw(TOP_LEAST_ROWS - 1, WIDE);
    check_str(get_line(0), "needs 40 x 10, has 80 x 9");
    draw(1, 1);
    check_str(get_line(0), "n");
}

TAP_TEST(the_help_names_every_key_and_can_be_moved)
{
    open_top("", three);
    size_t rows = 0;

    press("?");
    draw(40, WIDE);
    for (const struct top_help *help = top_get_help(); help->keys; help++, rows++) {
        check(strncmp(get_line((unsigned)rows + 1) + 1, help->keys, strlen(help->keys)) == 0);
        check(strlen(help->text) + 14 < WIDE);
        check(strstr(shown, help->text));
    }
    check(rows > 10);
    top_press(top, TOP_DOWN);
    draw(40, WIDE);
    check_str(get_line(1), " Down, j      one row down");
    press("q"); /* ends the help alone */
    draw(ROWS, WIDE);
    check(strstr(shown, "gmsfs top"));
}

TAP_TEST(thousands_of_stores_are_scrolled)
{
    size_t room = 4096 * 64, used = 0;
    char *stores = malloc(room);

    for (int i = 0; i < 4096; i++)
        used += (size_t)snprintf(stores + used, room - used, "%s{'name': 's%04d', 'bytes': %d}",
                                 i ? "," : "", i, 5000 - i);
    open_top("", stores);
    free(stores);
    draw(ROWS, WIDE);
    check(strncmp(get_line(3), "s0000 ", 6) == 0);
    top_press(top, TOP_PAGE_DOWN);
    draw(ROWS, WIDE);
    check(strstr(shown, "\ns0010 "));
    top_press(top, TOP_END);
    draw(ROWS, WIDE);
    check(strstr(shown, "\ns4095 "));
    check(!strstr(shown, "\ns0010 "));
    check_str(press("py").store, "s4095");
    check_str(press("gpy").store, "s0000");
}

TAP_TEST(a_long_message_and_a_way_out_are_read_whole)
{
    static const char *const mounts[] = {"/a/gpu0", "/b/gpu0"};
    open_top("", three);

    top_set_message(top,
                    "gmsfs demote: /mnt/gpu0/weights: permission denied: only root, the user that "
                    "mounted it and the store's owner, alice (uid 1000), can move it",
                    true);
    check_line(ROWS - 2,
               " gmsfs demote: /mnt/gpu0/weights: permission denied: only root, the user that");
    check_str(get_line(ROWS - 1),
              " mounted it and the store's owner, alice (uid 1000), can move it");
    press("j");
    draw(ROWS, WIDE);
    check(strncmp(get_line(ROWS - 1), " ? help", 7) == 0);
    check_int(top_set_mounts(top, mounts, 2), 0);
    top_take_look(top, 0, parse("{'health': 'silent'}"),
                  "SILENT: no answer within 3 s; its daemon is stopped or stuck (gmsfs-mount(8), "
                  "PROCESSES)",
                  NOW_MS);
    draw(ROWS, WIDE);
    check_str(get_line(1), "/a/gpu0 SILENT: no answer within 3 s; its daemon is stopped or stuck");
    check_str(get_line(2), "        (gmsfs-mount(8), PROCESSES)");
    check_str(get_line(3), "/b/gpu0 is being looked at");
}

TAP_TEST(any_keys_on_any_screens_are_survived)
{
    static const char *const looks[] = {
        three,
        "",
        "{'name': 'only', 'state': 'RO', 'sessions': [{'id': '9', 'mode': '', 'status': 'held'}]}",
        "{'name': 'x', 'error': 'no', 'errno': 'EACCES', 'sessions': []}, {}",
        "{'name': 7, 'moving': {'to': 5}, 'residency': [1, 'device', 'host', 'disk'], 'sessions': "
        "3}",
    };
    open_top("", three);

    srand(1);
    for (int i = 0; i < 20000; i++) {
        unsigned key = (unsigned)rand() % (TOP_OTHER + 1);

        top_press(top, key ? key : 1);
        if (i % 50 == 0)
            top_take_look(top, 0, make_look("", looks[(unsigned)rand() % 5]), NULL,
                          NOW_MS + (unsigned)i);
        if (i % 10 == 0)
            draw(1 + (unsigned)rand() % 50, 1 + (unsigned)rand() % 120);
    }
}
