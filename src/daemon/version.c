/* SPDX-License-Identifier: Apache-2.0 */
/* `gmsfs version`, for people and for a keeper that asks whether this build can continue its
 * mount. */
#include "daemon/abi.h"
#include "daemon/daemon.h"
#include "daemon/program.h"

#include <stdio.h>
#include <string.h>

#define EXIT_WRONG_ARGUMENTS 2

static int print_json(void)
{
    const struct abi_number *abi;
    char text[ABI_TEXT_BYTES];

    printf("{\"version\":\"" GMSFS_VERSION "\",\"shared\":{");
    abi_write(text);
    for (char *at = text, *end; *at; at = end) {
        size_t name = strcspn(at, "=");
        end = at + strcspn(at, " ");
        printf("%s\"%.*s\":%.*s", at == text ? "" : ",", (int)name, at, (int)(end - at - name - 1),
               at + name + 1);
        end += *end == ' ';
    }
    printf("},\"meaning\":{");
    for (size_t i = 0; (abi = abi_at(i)); i++)
        printf("%s\"%s\":\"%s\"", i == 0 ? "" : ",", abi->name, abi->meaning);
    puts("}}");
    return 0;
}

static int can_follow(const char *there)
{
    char own[ABI_TEXT_BYTES];
    struct failure failure;
    int error = abi_check(there, &failure);

    abi_write(own);
    if (error)
        puts(failure.text);
    else
        printf(PROGRAM_FOLLOWS "%s\n", own);
    return error ? 1 : 0;
}

int daemon_version_main(int argc, char **argv)
{
    size_t flag = strlen(PROGRAM_FOLLOW_FLAG);

    if (argc == 2 && strcmp(argv[1], "--json") == 0)
        return print_json();
    if (argc == 2 && strncmp(argv[1], PROGRAM_FOLLOW_FLAG, flag) == 0)
        return can_follow(argv[1] + flag);
    return EXIT_WRONG_ARGUMENTS;
}
