/* SPDX-License-Identifier: Apache-2.0 */
/* A bar for each tier of each mount: the uses of its memory. */
#include "top/internal.h"

#include <stdio.h>
#include <string.h>

#define LEAST_LABEL 4u
#define MOST_LABEL  16u
#define TIER_WIDTH  6u
#define LEAST_BAR   12u
#define MOST_BAR    60u
#define TEXT_BYTES  320

/* The parts of a tier, in the order of the bar; the rest is free. */
struct part {
    enum style style;
    char sign;
    const char *name;
    uint64_t bytes;
};

#define PARTS 5u

struct bar {
    const char *tier;
    uint64_t total, free;
    struct part parts[PARTS];
};

/* Other processes of a GPU may have taken a part of the mount's share that it has not used yet. */
static void fill_device(struct bar *bar, const json_t *device)
{
    uint64_t used = json_get_number(device, "used_bytes"),
             reserved = json_get_number(device, "reserved_bytes"),
             freeing = json_get_number(device, "freeing_bytes"),
             mapped = json_get_number(device, "mapped_bytes"), taken = used + reserved, others = 0;
    const json_t *free_bytes = json_object_get(device, "free_bytes");

    bar->total = json_get_number(device, "total_bytes");
    bar->free = bar->total > taken ? bar->total - taken : 0;
    if (json_is_integer(free_bytes) && (uint64_t)json_integer_value(free_bytes) < bar->free)
        others = bar->free - (uint64_t)json_integer_value(free_bytes);
    bar->free -= others;
    bar->parts[0].bytes = used > freeing + mapped ? used - freeing - mapped : 0;
    bar->parts[1].bytes = reserved;
    bar->parts[2].bytes = freeing;
    bar->parts[3].bytes = mapped;
    bar->parts[4].bytes = others;
}

/* Returns false if the mount has no such tier. */
static bool make_bar(struct bar *bar, const json_t *device, unsigned tier)
{
    static const struct {
        const char *tier, *total, *used;
    } tiers[] = {{"device", "", ""},
                 {"host", "host_total_bytes", "host_used_bytes"},
                 {"disk", "spill_total_bytes", "spill_used_bytes"}};

    *bar = (struct bar){.tier = tiers[tier].tier,
                        .parts = {{STYLE_USED, '#', "used", 0},
                                  {STYLE_RESERVED, '+', "reserved", 0},
                                  {STYLE_FREEING, '~', "leaving", 0},
                                  {STYLE_MAPPED, '=', "mapped", 0},
                                  {STYLE_OTHERS, 'o', "others", 0}}};
    if (tier == 0) {
        fill_device(bar, device);
        return true;
    }
    bar->total = json_get_number(device, tiers[tier].total);
    bar->parts[0].bytes = json_get_number(device, tiers[tier].used);
    bar->free = bar->total > bar->parts[0].bytes ? bar->total - bar->parts[0].bytes : 0;
    return bar->total > 0;
}

/* "4.0 MiB of 64.0 MiB, 60.0 MiB free", and the parts that are not 0. */
static void format_bar(const struct bar *bar, char text[TEXT_BYTES])
{
    char size[SIZE_TEXT_BYTES], total[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES];
    int used =
        snprintf(text, TEXT_BYTES, "%s of %s, %s free", size_format(bar->parts[0].bytes, size),
                 size_format(bar->total, total), size_format(bar->free, left));

    for (unsigned i = 1; i < PARTS; i++)
        if (bar->parts[i].bytes > 0)
            used += snprintf(text + used, (size_t)(TEXT_BYTES - used), ", %s %s",
                             size_format(bar->parts[i].bytes, size), bar->parts[i].name);
}

/* A part that is not 0 has a character at least. */
static void put_bar(struct screen *screen, const struct bar *bar, unsigned width)
{
    unsigned inner = width - 2, left = inner;

    screen_put(screen, STYLE_STRONG, "[");
    for (unsigned i = 0; i < PARTS; i++) {
        uint64_t bytes = bar->parts[i].bytes;
        unsigned part = bar->total ? (unsigned)((unsigned __int128)bytes * inner / bar->total) : 0;

        part = part == 0 && bytes > 0 ? 1 : part;
        part = part > left ? left : part;
        screen_repeat(screen, bar->parts[i].style, bar->parts[i].sign, part);
        left -= part;
    }
    screen_repeat(screen, STYLE_PLAIN, '.', left);
    screen_put(screen, STYLE_STRONG, "]");
}

/* Writes the warnings that an operator has to read before the numbers. */
static void put_state(struct screen *screen, const json_t *device)
{
    const char *health = json_get_text(device, "health"),
               *reason = json_get_text(device, "health_reason");

    if (strcmp(health, "ok") != 0)
        screen_print(screen, STYLE_BAD, " %s%s%s%s", health, *reason ? " (" : "", reason,
                     *reason ? ")" : "");
    if (json_get_flag(device, "draining"))
        screen_put(screen, STYLE_WARNING, " drained");
    if (json_get_flag(device, "fenced"))
        screen_put(screen, STYLE_WARNING, " fenced");
}

/* Columns that are the same for all bars of a screen. */
struct columns {
    unsigned label, bar;
};

static void put_tier(struct screen *screen, const struct bar *bar, const char *label,
                     const json_t *device, const struct columns *widths)
{
    char text[TEXT_BYTES];

    format_bar(bar, text);
    screen_field(screen, STYLE_STRONG, label, widths->label, false);
    screen_put(screen, STYLE_PLAIN, " ");
    screen_field(screen, STYLE_PLAIN, bar->tier, TIER_WIDTH, false);
    screen_put(screen, STYLE_PLAIN, " ");
    put_bar(screen, bar, widths->bar);
    if (device)
        put_state(screen, device);
    screen_print(screen, STYLE_PLAIN, " %s", text);
}

/* Gives the labels their length, and the bars the rest of a line with labels and numbers. */
static struct columns choose_columns(const struct top *top)
{
    struct columns widths = {.label = LEAST_LABEL, .bar = 0};
    unsigned longest = 0, taken, width;
    char text[TEXT_BYTES];
    struct bar bar;

    for (size_t i = 0; i < top->mount_count; i++) {
        const json_t *device = look_device(&top->mounts[i]);
        width = screen_width(top->mounts[i].label);
        widths.label = width > widths.label ? width : widths.label;
        for (unsigned tier = 0; device && tier < 3; tier++) {
            if (!make_bar(&bar, device, tier))
                continue;
            format_bar(&bar, text);
            longest = strlen(text) > longest ? (unsigned)strlen(text) : longest;
        }
    }
    if (widths.label > MOST_LABEL)
        widths.label = MOST_LABEL;
    taken = widths.label + TIER_WIDTH + 3 + longest;
    width = top->screen.columns > taken ? top->screen.columns - taken : 0;
    widths.bar = width < LEAST_BAR ? LEAST_BAR : width > MOST_BAR ? MOST_BAR : width;
    return widths;
}

/* Counts the lines of a mount. */
static unsigned count_lines(const struct top *top, const struct mount_facts *mount,
                            const struct columns *widths)
{
    const json_t *device = look_device(mount);
    unsigned absent =
        mount->absent ? screen_count_lines(mount->absent, top->screen.columns - widths->label - 1)
                      : 0;

    if (!device)
        return absent ? absent : 1;
    return 1 + absent + (json_get_number(device, "host_total_bytes") > 0) +
           (json_get_number(device, "spill_total_bytes") > 0);
}

static void put_absent(struct screen *screen, const struct mount_facts *mount,
                       const struct columns *widths, unsigned room)
{
    const char *text = mount->absent ? mount->absent : "is being looked at";
    unsigned lines = screen_count_lines(text, screen->columns - widths->label - 1);

    screen_field(screen, STYLE_STRONG, mount->label, widths->label, false);
    screen_put(screen, STYLE_PLAIN, " ");
    screen_wrap(screen, mount->absent ? STYLE_BAD : STYLE_PLAIN, text, lines < room ? lines : room);
}

static void put_mount(struct screen *screen, const struct mount_facts *mount,
                      const struct columns *widths, unsigned room)
{
    const json_t *device = look_device(mount);
    struct bar bar;

    if (!device || mount->absent)
        put_absent(screen, mount, widths, room);
    for (unsigned tier = 0; device && tier < 3; tier++) {
        if (!make_bar(&bar, device, tier))
            continue;
        put_tier(screen, &bar, tier == 0 ? mount->label : "", tier == 0 ? device : NULL, widths);
        screen_next(screen);
    }
}

/* Finds the first mount to show so that the chosen store's mount is on the screen. */
static size_t find_first(const struct top *top, const struct columns *widths, unsigned room)
{
    const struct row *row = rows_chosen(top);
    size_t first = row ? row->mount + 1 : 0;
    unsigned lines = 0;

    while (first > 0 && lines + count_lines(top, &top->mounts[first - 1], widths) <= room)
        lines += count_lines(top, &top->mounts[--first], widths);
    return row && first > row->mount ? row->mount : first;
}

unsigned draw_bars(struct top *top, unsigned room)
{
    const struct columns widths = choose_columns(top);
    struct screen *screen = &top->screen;
    unsigned all = 0, begin = screen->at, used = 0;
    size_t i, first;

    for (i = 0; i < top->mount_count; i++)
        all += count_lines(top, &top->mounts[i], &widths);
    if (all > room && room > 1)
        room--; /* for the line that tells of the others */
    first = all > room ? find_first(top, &widths, room) : 0;
    for (i = first; i < top->mount_count; i++) {
        if (used > 0 && used + count_lines(top, &top->mounts[i], &widths) > room)
            break;
        put_mount(screen, &top->mounts[i], &widths, room);
        used = screen->at - begin;
    }
    if (i - first < top->mount_count) {
        screen_print(screen, STYLE_PLAIN, "%*s %zu more mounts", (int)widths.label, "",
                     top->mount_count - (i - first));
        screen_next(screen);
    }
    return screen->at - begin;
}
