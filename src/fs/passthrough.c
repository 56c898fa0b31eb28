/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/passthrough.h"

#include <linux/fuse.h>
#include <string.h>

#define INIT_PASSTHROUGH (1u << 5) /* of flags2: bit 37 */
#define OPEN_PASSTHROUGH (1u << 7)
#define STACK_DEPTH      1u /* the registered files are in memory, upon no other file system */

bool passthrough_is_offered(const void *init, size_t bytes)
{
    struct fuse_init_in request;

    if (bytes < sizeof(struct fuse_in_header) + sizeof request)
        return false;
    memcpy(&request, (const uint8_t *)init + sizeof(struct fuse_in_header), sizeof request);
    return (request.flags & FUSE_INIT_EXT) && (request.flags2 & INIT_PASSTHROUGH);
}

bool passthrough_is_agreed(const void *answer, size_t bytes)
{
    struct fuse_init_out agreed;

    if (bytes < sizeof(struct fuse_out_header) + sizeof agreed)
        return false;
    memcpy(&agreed, (const uint8_t *)answer + sizeof(struct fuse_out_header), sizeof agreed);
    return (agreed.flags & FUSE_INIT_EXT) && (agreed.flags2 & INIT_PASSTHROUGH);
}

void passthrough_agree(struct fuse_init_out *answer)
{
    answer->flags |= FUSE_INIT_EXT;
    answer->flags2 |= INIT_PASSTHROUGH;
    answer->unused[0] = STACK_DEPTH; /* max_stack_depth */
}

void passthrough_open(struct fuse_open_out *answer, uint32_t backing)
{
    answer->open_flags |= OPEN_PASSTHROUGH;
    answer->padding = backing; /* backing_id */
}
