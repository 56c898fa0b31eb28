/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_id - what GMS clients call an allocation, a store's incarnation, a token
 * Pure; for src/rpc. A client of V1 chooses the id of what it allocates, and the layout keeps it;
 * it may choose it again for something else. Anything else, and everything for V0, whose clients
 * remember ids, is known by a UUID4 text that is made of its store's UUID and its serial: so none
 * is given twice and none has to be stored, for serials are never used again.
 */
#ifndef GMSFS_RPC_WIRE_ID_H
#define GMSFS_RPC_WIRE_ID_H

#include "core/core.h"
#include "rpc/message.h"

#define WIRE_ID_UUID_BYTES 37u /* with its NUL */

/* "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx", a UUID of version 4 of these bytes. */
void wire_id_format_uuid(const uint8_t bytes[16], char text[WIRE_ID_UUID_BYTES]);
/* The bytes of such a text. False: it is none; nothing is written. */
bool wire_id_parse_uuid(const char *text, size_t bytes, uint8_t uuid[16]);
/* "GPU-" and the bytes as they are. */
#define WIRE_ID_GPU_BYTES (4u + WIRE_ID_UUID_BYTES)
void wire_id_format_gpu(const uint8_t bytes[16], char text[WIRE_ID_GPU_BYTES]);

/* The id of this allocation: its own (V1), or written into `text`. */
const char *wire_id_of(enum message_protocol protocol, const struct core_store *store,
                       const struct layout_allocation *allocation, char text[WIRE_ID_UUID_BYTES]);
/* NULL: none in this layout is called that. `id` need not be terminated. */
const struct layout_allocation *wire_id_find(enum message_protocol protocol,
                                             const struct core_store *store,
                                             const struct layout *layout, const char *id,
                                             size_t id_bytes);

#endif
