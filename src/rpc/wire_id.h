/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_id - the ids that GMS clients use for allocations, a store's incarnation, a token
 *
 * Pure; for src/rpc. A client of V1 chooses the id of its allocation, and the layout keeps it; it
 * may choose the id again for another one. All other objects, and all of V0, whose clients remember
 * ids, get a UUID4 text that is made of the store's UUID and the object's serial: so no id is given
 * twice and none has to be stored, because serials are never used again.
 */
#ifndef GMSFS_RPC_WIRE_ID_H
#define GMSFS_RPC_WIRE_ID_H

#include "core/core.h"
#include "rpc/message.h"

#define WIRE_ID_UUID_BYTES 37u /* with its NUL */

/* "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx", a UUID of version 4 of these bytes. */
void wire_id_format_uuid(const uint8_t bytes[16], char text[WIRE_ID_UUID_BYTES]);
/* Parses such a text. False: it is none; nothing is written. */
bool wire_id_parse_uuid(const char *text, size_t bytes, uint8_t uuid[16]);
/* "GPU-" and the unchanged bytes. */
#define WIRE_ID_GPU_BYTES (4u + WIRE_ID_UUID_BYTES)
void wire_id_format_gpu(const uint8_t bytes[16], char text[WIRE_ID_GPU_BYTES]);

/* Returns the id of this allocation: its own (V1), or one written into `text`. */
const char *wire_id_of(enum message_protocol protocol, const struct core_store *store,
                       const struct layout_allocation *allocation, char text[WIRE_ID_UUID_BYTES]);
/* NULL: no allocation of this layout has this id. `id` need not be terminated. */
const struct layout_allocation *wire_id_find(enum message_protocol protocol,
                                             const struct core_store *store,
                                             const struct layout *layout, const char *id,
                                             size_t id_bytes);

#endif
