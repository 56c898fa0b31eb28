/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/operands.h"

#include "cli/cli.h"
#include "gmsfs.h"

#include <string.h>

bool operands_are_of_one_store(const char *left, const char *right)
{
    size_t bytes = strcspn(left, "=");

    return bytes == strcspn(right, "=") && memcmp(left, right, bytes) == 0;
}

bool operands_have_store(char **operands, size_t count, const char *operand)
{
    for (size_t i = 0; i < count; i++)
        if (operands_are_of_one_store(operands[i], operand))
            return true;
    return false;
}

void operands_check(char **operands, size_t count, const char *source)
{
    size_t stores = 0;

    if (count == 0)
        cli_usage_error("a STORE=%s for each rank is needed", source);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strcspn(operands[i], "=");
        if (bytes == 0 || strlen(operands[i]) < bytes + 2)
            cli_usage_error("'%s': with --group, STORE=%s is needed", operands[i], source);
        stores += !operands_have_store(operands, i, operands[i]);
    }
    if (stores > GMSFS_GROUP_MAX)
        cli_usage_error("%zu stores are given; a group has at most %u", stores, GMSFS_GROUP_MAX);
}
