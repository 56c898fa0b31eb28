/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/target_group.h"

#include "cli/cli.h"
#include "cli/output.h"
#include "cli/store_make.h"
#include "cli/store_memory.h"

int target_group_end_commit(struct target *const *targets, const struct store_group *group,
                            const uint8_t id[DIGEST_BYTES], bool immutable, int error)
{
    int status = CLI_OK;

    if (error) {
        const struct target *fault = targets[store_group_find_fault(group, id, error)];

        store_explain_commit(fault->handle, &fault->memory, immutable, error);
        store_group_say_partial(group, id);
        return CLI_FAILURE;
    }
    store_make_keep();
    output_set_done();
    for (size_t i = 0; i < group->count; i++) {
        int checked = target_check_committed(targets[i]);
        status = checked == CLI_OK ? status : checked;
    }
    return status;
}
