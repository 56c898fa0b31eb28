/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"

#include "base/hex.h"
#include "base/size.h"
#include "vmm/backends.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OPTION_NAME_BYTES  64u
#define OPTION_VALUE_BYTES 256u

/* One `name=value` of -o. */
struct option {
    char name[OPTION_NAME_BYTES];
    char value[OPTION_VALUE_BYTES];
    bool has_value;
};

struct option_parser {
    struct daemon_options *options;
    const char *source; /* NULL if none was given */
    bool has_backend, has_ordinal;
    struct option needs_gms;  /* the first one that does; no name if none */
    struct option needs_host; /* the same for host_size */
    struct option spill;      /* the last one of the disk tier */
    struct option tiers;      /* the last one of any tier besides the device */
    char *error;
    size_t error_bytes;
};

#define SIZE_EXPECTED "a size such as 256M, 4G or 1T"

/* Makes the error one line without control characters. Returns -EINVAL. */
static int option_finish_error(const struct option_parser *parser)
{
    for (char *at = parser->error; *at; at++) {
        if (iscntrl((unsigned char)*at))
            *at = '?';
    }
    return -EINVAL;
}

__attribute__((format(printf, 3, 4))) static int option_refuse(const struct option_parser *parser,
                                                               const struct option *option,
                                                               const char *format, ...)
{
    char reason[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(parser->error, parser->error_bytes, "option %s%s%s: %s", option->name,
             option->has_value ? "=" : "", option->has_value ? option->value : "", reason);
    return option_finish_error(parser);
}

static int parse_size(const struct option_parser *parser, const struct option *option,
                      uint64_t max_bytes, uint64_t *bytes)
{
    char least[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    uint64_t value = 0;
    int error = size_parse(option->value, &value);

    if (error == -EINVAL)
        return option_refuse(parser, option, "expected " SIZE_EXPECTED);
    if (error || value < OPTIONS_MIN_BYTES || value > max_bytes)
        return option_refuse(parser, option, "expected a size from %s to %s",
                             size_format(OPTIONS_MIN_BYTES, least), size_format(max_bytes, most));
    *bytes = value;
    return 0;
}

static int option_take_size(struct option_parser *parser, const struct option *option, void *at)
{
    return parse_size(parser, option, OPTIONS_MAX_BYTES, at);
}

static int option_take_granularity(struct option_parser *parser, const struct option *option,
                                   void *at)
{
    uint64_t bytes = 0;
    int error = parse_size(parser, option, OPTIONS_MAX_GRANULARITY, &bytes);

    if (error)
        return error;
    if ((bytes & (bytes - 1)) != 0)
        return option_refuse(parser, option, "expected a power of two, such as 2M");
    *(uint64_t *)at = bytes;
    return 0;
}

static int option_take_hugepages(struct option_parser *parser, const struct option *option,
                                 void *at)
{
    uint64_t bytes = 0;

    if (size_parse(option->value, &bytes) || (bytes != 2ull << 20 && bytes != 1ull << 30))
        return option_refuse(parser, option, "expected 2M or 1G");
    *(uint64_t *)at = bytes;
    return 0;
}

/* Seconds with up to three decimals. */
static int option_take_seconds(struct option_parser *parser, const struct option *option, void *at)
{
    const char *text = option->value;
    uint64_t seconds = 0, thousandths = 0;

    if (!isdigit((unsigned char)*text))
        goto bad;
    for (; isdigit((unsigned char)*text); text++) {
        seconds = seconds * 10 + (uint64_t)(*text - '0');
        if (seconds > OPTIONS_MAX_SECONDS)
            goto bad;
    }
    if (*text == '.') {
        text++;
        for (uint64_t weight = 100; weight && isdigit((unsigned char)*text); weight /= 10)
            thousandths += (uint64_t)(*text++ - '0') * weight;
    }
    if (*text != '\0')
        goto bad;
    *(uint64_t *)at = seconds * 1000 + thousandths;
    return 0;
bad:
    return option_refuse(parser, option,
                         "expected seconds from 0 to %u, with at most three decimals",
                         OPTIONS_MAX_SECONDS);
}

/* Relative paths are refused: the daemon's directory is not the caller's. */
static int option_take_path(struct option_parser *parser, const struct option *option, void *at)
{
    if (option->value[0] != '/' || strlen(option->value) >= OPTIONS_PATH_BYTES)
        return option_refuse(parser, option, "expected an absolute path");
    strcpy(at, option->value);
    return 0;
}

/* Returns false if it is not a number, or larger than `max`. */
static bool option_read_number(const char *text, uint32_t max, uint32_t *number)
{
    uint64_t value = 0;
    const char *at = text;

    for (; isdigit((unsigned char)*at) && value <= max; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (*at != '\0' || at == text || value > max)
        return false;
    *number = (uint32_t)value;
    return true;
}

static int parse_number(const struct option_parser *parser, const struct option *option,
                        uint32_t max, uint32_t *number)
{
    if (!option_read_number(option->value, max, number))
        return option_refuse(parser, option, "expected a number from 0 to %" PRIu32, max);
    return 0;
}

static int option_take_ordinal(struct option_parser *parser, const struct option *option, void *at)
{
    parser->has_ordinal = true;
    return parse_number(parser, option, OPTIONS_MAX_ORDINAL, at);
}

static int option_take_id(struct option_parser *parser, const struct option *option, void *at)
{
    return parse_number(parser, option, OPTIONS_NO_ID - 1, at);
}

/* Into a uint32_t. */
static int option_take_mode(struct option_parser *parser, const struct option *option, void *at)
{
    uint32_t value = 0;
    const char *text = option->value;

    for (; *text >= '0' && *text <= '7' && value <= 0777; text++)
        value = value * 8 + (uint32_t)(*text - '0');
    if (*text != '\0' || text == option->value || value > 0777)
        return option_refuse(parser, option, "expected an octal mode from 0 to 777, such as 660");
    *(uint32_t *)at = value;
    return 0;
}

/* Into a bool, which becomes true. */
static int option_take_word(struct option_parser *parser, const struct option *option, void *at)
{
    (void)parser, (void)option;
    *(bool *)at = true;
    return 0;
}

/* Options of mount(8), fstab and mount.fuse3 that have no effect here, because they are always
 * so. */
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

/* ---- tiers besides the device --------------------------------------------------------------- */

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

/* Accepts it with or without dashes, and with NVML's prefix GPU-. */
static int take_uuid(struct option_parser *parser, const struct option *option, void *to)
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
    memcpy(to, uuid, sizeof uuid);
    return 0;
bad:
    return option_refuse(parser, option,
                         "expected 32 hex digits that are not all zero, such as "
                         "6f1c2d3e-0a1b-4c5d-8e9f-001122334455");
}

static int take_backend(struct option_parser *parser, const struct option *option, void *at)
{
    const struct backend *backend = backends_find(option->value);
    char known[BACKENDS_TEXT_BYTES];

    if (!backend)
        return option_refuse(parser, option, "expected %s", backends_list(known));
    *(const char **)at = backend->name;
    parser->has_backend = true;
    return 0;
}

/* The backend checks the device's name. */
static int take_device(struct option_parser *parser, const struct option *option, void *at)
{
    if (strlen(option->value) >= sizeof parser->options->vmm.device)
        return option_refuse(parser, option, "expected an index, a GPU-UUID or a PCI id");
    strcpy(at, option->value);
    return 0;
}

static int take_keep_copy(struct option_parser *parser, const struct option *option, void *at)
{
    bool drops = strcmp(option->value, "no") == 0;

    if (!drops && strcmp(option->value, "yes") != 0)
        return option_refuse(parser, option, "expected yes or no");
    *(bool *)at = drops;
    return 0;
}

static int take_evict(struct option_parser *parser, const struct option *option, void *at)
{
    bool evicts_none = strcmp(option->value, "none") == 0;

    if (!evicts_none && strcmp(option->value, "lru") != 0)
        return option_refuse(parser, option, "expected none or lru");
    *(bool *)at = evicts_none;
    return 0;
}

static int take_level(struct option_parser *parser, const struct option *option, void *at)
{
    return log_parse_level(option->value, at)
               ? option_refuse(parser, option, "expected error, warning, info or debug")
               : 0;
}

static int take_allow_other(struct option_parser *parser, const struct option *option, void *at)
{
    (void)parser;
    *(enum options_choice *)at =
        strcmp(option->name, "allow_other") == 0 ? OPTIONS_YES : OPTIONS_NO;
    return 0;
}

/* ---- for GMS clients --------------------------------------------------------------------- */

/* A client that sees all GPUs counts them as `device` does if that is an index. */
static void set_ordinal(const struct option_parser *parser)
{
    struct daemon_options *o = parser->options;

    if (o->gms && !parser->has_ordinal)
        option_read_number(o->vmm.device, OPTIONS_MAX_ORDINAL, &o->gms_ordinal);
}

/* Checks that need all options. */
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

/* ---- the table --------------------------------------------------------------------------- */

/* The option without which another one is useless. */
enum option_part {
    OF_ALL,
    OF_HOST,  /* host_size */
    OF_DISK,  /* the other half of spill and spill_size */
    OF_TIERS, /* any of them */
    OF_GMS,   /* gms */
};

#define OPTION_AT(member) offsetof(struct daemon_options, member)

static const struct known_option {
    const char *name;
    int (*take)(struct option_parser *parser, const struct option *option, void *at);
    size_t at; /* offset in the options */
    enum option_part part;
    bool is_word; /* it takes no value */
} known_options[] = {
    {"backend", take_backend, OPTION_AT(vmm.backend), OF_ALL, false},
    {"device", take_device, OPTION_AT(vmm.device), OF_ALL, false},
    {"size", option_take_size, OPTION_AT(vmm.size_bytes), OF_ALL, false},
    {"granularity", option_take_granularity, OPTION_AT(vmm.granularity_bytes), OF_ALL, false},
    {"hugepages", option_take_hugepages, OPTION_AT(vmm.hugepage_bytes), OF_ALL, false},
    {"uuid", take_uuid, OPTION_AT(vmm.uuid), OF_ALL, false},
    {"alloc_timeout", option_take_seconds, OPTION_AT(alloc_timeout_ms), OF_ALL, false},
    {"writer_patience", option_take_seconds, OPTION_AT(patience_ms), OF_ALL, false},
    {"copier_idle", option_take_seconds, OPTION_AT(vmm.copier_idle_ms), OF_ALL, false},
    {"spool_max", option_take_size, OPTION_AT(spool_max_bytes), OF_ALL, false},
    {"audit", option_take_path, OPTION_AT(audit), OF_ALL, false},
    {"trace", option_take_path, OPTION_AT(trace), OF_ALL, false},
    {"keep_journal", option_take_path, OPTION_AT(keep_journal), OF_ALL, false},
    {"uid", option_take_id, OPTION_AT(uid), OF_ALL, false},
    {"gid", option_take_id, OPTION_AT(gid), OF_ALL, false},
    {"log", take_level, OPTION_AT(log_level), OF_ALL, false},
    {"log_level", take_level, OPTION_AT(log_level), OF_ALL, false},
    {"keep_copy", take_keep_copy, OPTION_AT(drops_copies), OF_TIERS, false},
    {"min_stay", option_take_seconds, OPTION_AT(min_stay_ms), OF_TIERS, false},
    {"evict", take_evict, OPTION_AT(evicts_none), OF_TIERS, false},
    {"host_size", option_take_size, OPTION_AT(vmm.host_bytes), OF_ALL, false},
    {"host_hugepages", option_take_hugepages, OPTION_AT(vmm.host_hugepage_bytes), OF_HOST, false},
    {"spill", option_take_path, OPTION_AT(vmm.spill), OF_DISK, false},
    {"spill_size", option_take_size, OPTION_AT(vmm.spill_bytes), OF_DISK, false},
    {"gms_dir", option_take_path, OPTION_AT(gms_dir), OF_GMS, false},
    {"gms_ordinal", option_take_ordinal, OPTION_AT(gms_ordinal), OF_GMS, false},
    {"gms_mode", option_take_mode, OPTION_AT(gms_mode), OF_GMS, false},
    {"allow_other", take_allow_other, OPTION_AT(allow_other), OF_ALL, true},
    {"no_allow_other", take_allow_other, OPTION_AT(allow_other), OF_ALL, true},
    {"debug", option_take_word, OPTION_AT(debug), OF_ALL, true},
    {"gms", option_take_word, OPTION_AT(gms), OF_ALL, true},
    {"gms_keep", option_take_word, OPTION_AT(gms_keep), OF_GMS, true},
};

static const struct known_option *find_known(const struct option *option)
{
    for (size_t i = 0; i < sizeof known_options / sizeof known_options[0]; i++) {
        const struct known_option *known = &known_options[i];
        if (strcmp(known->name, option->name) == 0 && !(known->is_word && option->has_value))
            return known;
    }
    return NULL;
}

/* Notes options for checks that need all of them. */
static void note_part(struct option_parser *parser, enum option_part part,
                      const struct option *option)
{
    if (part == OF_HOST && !parser->needs_host.name[0])
        parser->needs_host = *option;
    if (part == OF_GMS && !parser->needs_gms.name[0])
        parser->needs_gms = *option;
    if (part == OF_DISK)
        parser->spill = *option;
    if (part == OF_TIERS)
        parser->tiers = *option;
}

static int parse_option(struct option_parser *parser, const struct option *option)
{
    const struct known_option *known = find_known(option);

    if (options_is_ignored(option->name, option->has_value))
        return 0;
    if (!option->has_value && strcmp(option->name, "ro") == 0)
        return option_refuse(parser, option,
                             "a read-only mount could hold no memory; "
                             "take modes (chmod) to keep writers out");
    if (!option->has_value && strcmp(option->name, "remount") == 0)
        return option_refuse(parser, option, "options of a mount cannot be changed; unmount first");
    if (!known)
        return option_refuse(parser, option,
                             "there is no such option; `gmsfs mount --help` lists them");
    note_part(parser, known->part, option);
    return known->take(parser, option, (char *)parser->options + known->at);
}

/* Parses one element of a list; `text` is not terminated. */
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

static int say(const struct option_parser *parser, const char *problem, const char *argument)
{
    snprintf(parser->error, parser->error_bytes, "%s%s", problem, argument);
    return option_finish_error(parser);
}

/* Parses -f, -d, -o LIST, -oLIST and the long flags. *i moves on if the value is the next
 * argument. */
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

/* The first field of fstab may name the backend; any other word is for people. */
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
