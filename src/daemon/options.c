/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "base/hex.h"
#include "daemon/option_values.h"
#include "vmm/backends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- accepted, and without meaning here ----------------------------------------------------- */

/* What mount(8), fstab and mount.fuse3 pass on and what is always so here. */
static const char *const IGNORED[] = {"rw",           "suid",        "nosuid",
                                      "dev",          "nodev",       "exec",
                                      "noexec",       "sync",        "async",
                                      "dirsync",      "atime",       "noatime",
                                      "diratime",     "nodiratime",  "relatime",
                                      "lazytime",     "nolazytime",  "norelatime",
                                      "nomand",       "strictatime", "defaults",
                                      "auto",         "noauto",      "user",
                                      "nouser",       "users",       "owner",
                                      "group",        "_netdev",     "nofail",
                                      "loud",         "silent",      "default_permissions",
                                      "nostrictatime"};

static bool options_is_ignored(const char *name, bool has_value)
{
    if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 || strcmp(name, "comment") == 0)
        return true;
    for (size_t i = 0; i < sizeof IGNORED / sizeof IGNORED[0]; i++) {
        if (!has_value && strcmp(name, IGNORED[i]) == 0)
            return true;
    }
    return false;
}

/* ---- what is beside the device ------------------------------------------------------------ */

static void note_needs_host(struct option_parser *parser, const struct option *option)
{
    if (!parser->needs_host.name[0])
        parser->needs_host = *option;
}

static int parse_host_tier(struct option_parser *parser, const struct option *option)
{
    struct daemon_options *o = parser->options;

    if (strcmp(option->name, "host_size") == 0)
        return option_parse_size(parser, option, OPTIONS_MIN_BYTES, OPTIONS_MAX_BYTES,
                                 &o->vmm.host_bytes);
    if (strcmp(option->name, "host_hugepages") == 0) {
        note_needs_host(parser, option);
        return option_parse_hugepages(parser, option, &o->vmm.host_hugepage_bytes);
    }
    return -ENOENT;
}

/* What becomes of stores' copies, whichever tiers there are. -ENOENT: the option is another. */
static int parse_copies(struct option_parser *parser, const struct option *option)
{
    struct daemon_options *o = parser->options;
    bool keeps = true;
    int error;

    if (strcmp(option->name, "keep_copy") == 0) {
        error = option_parse_yes(parser, option, &keeps);
        o->drops_copies = !keeps;
    } else if (strcmp(option->name, "min_stay") == 0) {
        error = option_parse_seconds(parser, option, &o->min_stay_ms);
    } else if (strcmp(option->name, "evict") == 0) {
        o->evicts_none = strcmp(option->value, "none") == 0;
        error = o->evicts_none || strcmp(option->value, "lru") == 0
                    ? 0
                    : option_refuse(parser, option, "expected none or lru");
    } else {
        return -ENOENT;
    }
    parser->tiers = *option;
    return error;
}

static int parse_disk_tier(struct option_parser *parser, const struct option *option)
{
    struct vmm_options *vmm = &parser->options->vmm;

    parser->spill = *option;
    if (strcmp(option->name, "spill") == 0)
        return option_parse_path(parser, option, vmm->spill);
    if (strcmp(option->name, "spill_size") == 0)
        return option_parse_size(parser, option, OPTIONS_MIN_BYTES, OPTIONS_MAX_BYTES,
                                 &vmm->spill_bytes);
    return -ENOENT;
}

static int check_tiers(const struct option_parser *parser)
{
    const struct vmm_options *vmm = &parser->options->vmm;

    if (vmm->host_bytes == 0 && parser->needs_host.name[0])
        return option_refuse(parser, &parser->needs_host,
                             "is for memory beside the device: give host_size=SIZE, too");
    if ((vmm->spill[0] != '\0') != (vmm->spill_bytes > 0))
        return option_refuse(parser, &parser->spill,
                             "is half of it: a disk beside the device is spill=DIRECTORY and "
                             "spill_size=SIZE");
    if (vmm->host_bytes == 0 && vmm->spill_bytes == 0 && parser->tiers.name[0])
        return option_refuse(parser, &parser->tiers,
                             "is for memory beside the device: give host_size=SIZE, too");
    return 0;
}

/* With or without dashes, and NVML's GPU- before it. */
static int parse_uuid(const struct option_parser *parser, const struct option *option)
{
    const char *from = option->value + (strncmp(option->value, "GPU-", 4) == 0 ? 4 : 0);
    uint8_t uuid[16] = {0};
    size_t digits = 0;
    uint8_t any = 0;

    for (const char *at = from; *at; at++) {
        if (*at == '-' && (digits == 8 || digits == 12 || digits == 16 || digits == 20) &&
            at[-1] != '-')
            continue;
        int digit = hex_digit(*at);
        if (digit < 0 || digits == 32)
            goto bad;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
        any |= (uint8_t)digit;
        digits++;
    }
    if (digits != 32 || !any)
        goto bad;
    memcpy(parser->options->vmm.uuid, uuid, sizeof uuid);
    return 0;
bad:
    return option_refuse(parser, option,
                         "expected 32 hex digits that are not all zero, such as "
                         "6f1c2d3e-0a1b-4c5d-8e9f-001122334455");
}

static int parse_backend(struct option_parser *parser, const struct option *option)
{
    const struct backend *backend = backends_find(option->value);
    char known[BACKENDS_TEXT_BYTES];

    if (!backend)
        return option_refuse(parser, option, "expected %s", backends_list(known));
    parser->options->vmm.backend = backend->name;
    parser->has_backend = true;
    return 0;
}

/* What it names, the backend finds out. */
static int parse_device(const struct option_parser *parser, const struct option *option)
{
    struct vmm_options *vmm = &parser->options->vmm;

    if (strlen(option->value) >= sizeof vmm->device)
        return option_refuse(parser, option, "expected an index, a GPU-UUID or a PCI id");
    strcpy(vmm->device, option->value);
    return 0;
}

/* ---- for GMS clients --------------------------------------------------------------------- */

static void note_needs_gms(struct option_parser *parser, const struct option *option)
{
    if (!parser->needs_gms.name[0])
        parser->needs_gms = *option;
}

static int parse_gms(struct option_parser *parser, const struct option *option)
{
    struct daemon_options *o = parser->options;

    note_needs_gms(parser, option);
    if (strcmp(option->name, "gms_dir") == 0)
        return option_parse_path(parser, option, o->gms_dir);
    if (strcmp(option->name, "gms_ordinal") == 0) {
        parser->has_ordinal = true;
        return option_parse_number(parser, option, OPTIONS_MAX_ORDINAL, &o->gms_ordinal);
    }
    if (strcmp(option->name, "gms_mode") == 0)
        return option_parse_mode(parser, option, &o->gms_mode);
    return -ENOENT;
}

/* Who sees all GPUs counts them as `device` does, where that is an index. */
static void set_ordinal(const struct option_parser *parser)
{
    struct daemon_options *o = parser->options;

    if (o->gms && !parser->has_ordinal)
        option_read_number(o->vmm.device, OPTIONS_MAX_ORDINAL, &o->gms_ordinal);
}

/* What only the options together tell. */
static int check_gms(const struct option_parser *parser)
{
    static const struct option gms = {.name = "gms"};
    static const uint8_t none[16];
    const struct daemon_options *o = parser->options;

    if (!o->gms && parser->needs_gms.name[0])
        return option_refuse(parser, &parser->needs_gms,
                             "is for GMS clients: give the option gms, too");
    if (o->gms && backends_find(o->vmm.backend)->memory == VMM_MEMORY_HOST &&
        memcmp(o->vmm.uuid, none, sizeof none) == 0)
        return option_refuse(parser, &gms,
                             "clients look for a GPU's UUID, and host memory has none: give "
                             "uuid=GPU-6f1c2d3e-0a1b-4c5d-8e9f-001122334455 or the like, too");
    return 0;
}

static int parse_valued(struct option_parser *parser, const struct option *option)
{
    struct daemon_options *o = parser->options;
    const char *name = option->name;

    if (strcmp(name, "backend") == 0)
        return parse_backend(parser, option);
    if (strcmp(name, "device") == 0)
        return parse_device(parser, option);
    if (strcmp(name, "size") == 0)
        return option_parse_size(parser, option, OPTIONS_MIN_BYTES, OPTIONS_MAX_BYTES,
                                 &o->vmm.size_bytes);
    if (strcmp(name, "granularity") == 0)
        return option_parse_granularity(parser, option, &o->vmm.granularity_bytes);
    if (strcmp(name, "hugepages") == 0)
        return option_parse_hugepages(parser, option, &o->vmm.hugepage_bytes);
    if (strcmp(name, "uuid") == 0)
        return parse_uuid(parser, option);
    if (strcmp(name, "alloc_timeout") == 0)
        return option_parse_seconds(parser, option, &o->alloc_timeout_ms);
    if (strcmp(name, "writer_patience") == 0)
        return option_parse_seconds(parser, option, &o->patience_ms);
    if (strcmp(name, "copier_idle") == 0)
        return option_parse_seconds(parser, option, &o->vmm.copier_idle_ms);
    if (strcmp(name, "spool_max") == 0)
        return option_parse_size(parser, option, OPTIONS_MIN_BYTES, OPTIONS_MAX_BYTES,
                                 &o->spool_max_bytes);
    if (strcmp(name, "audit") == 0)
        return option_parse_path(parser, option, o->audit);
    if (strcmp(name, "uid") == 0)
        return option_parse_id(parser, option, &o->uid);
    if (strcmp(name, "gid") == 0)
        return option_parse_id(parser, option, &o->gid);
    if (strcmp(name, "log_level") == 0)
        return log_parse_level(option->value, &o->log_level)
                   ? option_refuse(parser, option, "expected error, warning, info or debug")
                   : 0;
    if (strcmp(name, "keep_copy") == 0 || strcmp(name, "evict") == 0 ||
        strcmp(name, "min_stay") == 0)
        return parse_copies(parser, option);
    if (strncmp(name, "host_", 5) == 0)
        return parse_host_tier(parser, option);
    if (strncmp(name, "spill", 5) == 0)
        return parse_disk_tier(parser, option);
    if (strncmp(name, "gms_", 4) == 0)
        return parse_gms(parser, option);
    return -ENOENT;
}

/* Options that take no value. */
static bool parse_word(struct option_parser *parser, const struct option *option)
{
    struct daemon_options *o = parser->options;

    if (strcmp(option->name, "allow_other") == 0) {
        o->allow_other = OPTIONS_YES;
    } else if (strcmp(option->name, "no_allow_other") == 0) {
        o->allow_other = OPTIONS_NO;
    } else if (strcmp(option->name, "debug") == 0) {
        o->debug = true;
    } else if (strcmp(option->name, "gms") == 0) {
        o->gms = true;
    } else if (strcmp(option->name, "gms_keep") == 0) {
        o->gms_keep = true;
        note_needs_gms(parser, option);
    } else {
        return false;
    }
    return true;
}

static int parse_option(struct option_parser *parser, const struct option *option)
{
    if (options_is_ignored(option->name, option->has_value) ||
        (!option->has_value && parse_word(parser, option)))
        return 0;
    if (!option->has_value && strcmp(option->name, "ro") == 0)
        return option_refuse(parser, option,
                             "a mount that nobody may write to holds nothing; "
                             "take modes (chmod) to keep writers out");
    if (!option->has_value && strcmp(option->name, "remount") == 0)
        return option_refuse(parser, option, "options of a mount cannot be changed; unmount first");
    int error = parse_valued(parser, option);
    if (error == -ENOENT)
        return option_refuse(parser, option,
                             "there is no such option; `gmsfs mount --help` lists them");
    return error;
}

/* One element of a list; `text` is not terminated. */
static int parse_element(struct option_parser *parser, const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    struct option option = {.has_value = equals != NULL};
    size_t name_bytes = equals ? (size_t)(equals - text) : bytes;
    size_t value_bytes = equals ? bytes - name_bytes - 1 : 0;
    bool too_long = name_bytes >= sizeof option.name || value_bytes >= sizeof option.value;

    if (bytes == 0)
        return 0;
    if (name_bytes >= sizeof option.name)
        name_bytes = sizeof option.name - 1;
    memcpy(option.name, text, name_bytes);
    /* Automounters leave notes of any length. */
    if (options_is_ignored(option.name, option.has_value))
        return 0;
    if (too_long)
        return option_refuse(parser, &option, "is too long");
    if (equals) {
        memcpy(option.value, equals + 1, value_bytes);
        if (value_bytes == 0)
            return option_refuse(parser, &option, "a value is missing");
    }
    return parse_option(parser, &option);
}

static int parse_list(struct option_parser *parser, const char *list)
{
    parser->options->has_list = true;
    for (;;) {
        size_t bytes = strcspn(list, ",");
        int error = parse_element(parser, list, bytes);
        if (error || list[bytes] == '\0')
            return error;
        list += bytes + 1;
    }
}

static int say(const struct option_parser *parser, const char *what, const char *argument)
{
    snprintf(parser->error, parser->error_bytes, "%s%s", what, argument);
    return option_finish_error(parser);
}

/* -f, -d, -o LIST, -oLIST and the long ones. *i goes on when the value is the next argument. */
static int parse_flag(struct option_parser *parser, int argc, char **argv, int *i)
{
    const char *flag = argv[*i];
    struct daemon_options *o = parser->options;

    if (strcmp(flag, "-f") == 0 || strcmp(flag, "--foreground") == 0) {
        o->foreground = true;
    } else if (strcmp(flag, "-d") == 0 || strcmp(flag, "--debug") == 0) {
        o->debug = true;
    } else if (strcmp(flag, "-h") == 0 || strcmp(flag, "--help") == 0) {
        o->help = true;
    } else if (strcmp(flag, "-V") == 0 || strcmp(flag, "--version") == 0) {
        o->version = true;
    } else if (strcmp(flag, "--takeover") == 0) {
        o->takeover = true;
    } else if (strcmp(flag, "-o") == 0) {
        if (++*i == argc)
            return say(parser, "-o: a list of options is missing", "");
        return parse_list(parser, argv[*i]);
    } else if (strncmp(flag, "-o", 2) == 0) {
        return parse_list(parser, flag + 2);
    } else {
        return say(parser, "there is no such flag; `gmsfs mount --help` lists them: ", flag);
    }
    return 0;
}

static int parse_operand(struct option_parser *parser, const char *operand)
{
    if (parser->source)
        return say(parser, "one mount point at a time; not understood: ", operand);
    if (parser->options->mountpoint)
        parser->source = parser->options->mountpoint;
    parser->options->mountpoint = operand;
    return 0;
}

/* fstab's first field may name the backend; any other word is for people. */
static void take_source(struct option_parser *parser)
{
    const struct backend *backend = parser->source ? backends_find(parser->source) : NULL;

    if (backend && !parser->has_backend)
        parser->options->vmm.backend = backend->name;
}

int options_parse(int argc, char **argv, struct daemon_options *options, char *why,
                  size_t why_bytes)
{
    struct option_parser parser = {.options = options, .error = why, .error_bytes = why_bytes};
    bool flags_over = false;

    *options = (struct daemon_options){
        .vmm.backend = backends_find(NULL)->name,
        .alloc_timeout_ms = OPTIONS_ALLOC_TIMEOUT_S * 1000ull,
        .patience_ms = OPTIONS_PATIENCE_S * 1000ull,
        .vmm.copier_idle_ms = OPTIONS_COPIER_IDLE_S * 1000ull,
        .min_stay_ms = OPTIONS_MIN_STAY_S * 1000ull,
        .uid = OPTIONS_NO_ID,
        .gid = OPTIONS_NO_ID,
        .gms_mode = OPTIONS_GMS_MODE,
        .log_level = LOG_LEVEL_INFO,
    };
    for (int i = 1; i < argc; i++) {
        int wrong = 0;
        if (!flags_over && strcmp(argv[i], "--") == 0)
            flags_over = true;
        else if (!flags_over && argv[i][0] == '-' && argv[i][1] != '\0')
            wrong = parse_flag(&parser, argc, argv, &i);
        else
            wrong = parse_operand(&parser, argv[i]);
        if (wrong)
            return wrong;
    }
    take_source(&parser);
    if (!options->spool_max_bytes)
        options->spool_max_bytes = backends_keep_spools_apart(backends_find(options->vmm.backend))
                                       ? OPTIONS_SPOOL_MAX_GPU
                                       : OPTIONS_SPOOL_MAX_BYTES;
    if (options->help || options->version)
        return 0;
    int wrong = check_gms(&parser);
    if (!wrong)
        wrong = check_tiers(&parser);
    if (wrong)
        return wrong;
    set_ordinal(&parser);
    if (!options->mountpoint || !*options->mountpoint)
        return say(&parser, "a mount point is missing: gmsfs mount [-f] [-o OPTIONS] DIRECTORY",
                   "");
    options->foreground |= options->debug;
    if (options->debug)
        options->log_level = LOG_LEVEL_DEBUG;
    return 0;
}
