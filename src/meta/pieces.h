/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pieces - contents of a store: sums of its bytes in pieces, and the id that follows from them
 *
 * Pure. For the daemon, which writes the file `pieces` of a store, and for commands, which read it
 * from anywhere: its bytes are hostile. gmsfs(5), CONTENTS ID, has the format and the id. Each
 * allocation is cut every PIECES_BYTES from its beginning up to its size; the memory behind its
 * size does not count. So the id does not depend on device, granularity and names.
 */
#ifndef GMSFS_META_PIECES_H
#define GMSFS_META_PIECES_H

#include "base/digest.h"
#include "words.h"

#include <stddef.h>
#include <stdint.h>

#define PIECES_BYTES           (16u << 20)
#define PIECES_MAX_ALLOCATIONS 65536u
#define PIECES_MAX             1048576u
#define PIECES_MAX_TEXT_BYTES  (256u << 20)

struct layout;

struct pieces_allocation {
    uint64_t size_bytes;
    char *name; /* its file in `allocations/`; not part of the id */

    /* Planned. */
    size_t first_piece, piece_count;
};

struct pieces {
    struct pieces_allocation *allocations; /* by rank */
    size_t allocation_count;
    uint8_t id[DIGEST_BYTES];

    /* Planned. */
    uint8_t (*sums)[DIGEST_BYTES]; /* of the pieces, by rank and offset */
    size_t piece_count;
    uint64_t total_bytes; /* sum of the sizes */
};

struct piece_place {
    size_t rank;
    uint64_t offset_bytes, size_bytes;
};

/*
 * Takes the sizes and names of a layout's allocations, and plans its pieces; the sums and the id
 * are zeros. Free it, even after a failure. -E2BIG: more than PIECES_MAX; -ENOMEM.
 */
int pieces_of_layout(const struct layout *layout, struct pieces *pieces);
void pieces_free(struct pieces *pieces);

/* Returns the number of pieces of an allocation of this size. */
uint64_t pieces_count(uint64_t size_bytes);
/* Returns the place of a piece, which must exist. */
struct piece_place pieces_place(const struct pieces *pieces, size_t index);

/* Makes the id of a layout_contents_hash (layout.h) and the sums of the pieces. -ENOMEM */
int pieces_make_id(const uint8_t contents_hash[DIGEST_BYTES], const uint8_t (*sums)[DIGEST_BYTES],
                   size_t count, uint8_t id[DIGEST_BYTES]);

/* Returns the size of the text of such a layout's pieces, in time linear in the allocations. */
uint64_t pieces_text_bytes(const struct layout *layout);
/* Encodes the text, which the caller frees. -ENOMEM */
int pieces_encode(const struct pieces *pieces, char **text, size_t *text_bytes);
/* Decodes a text. Whether its id follows from its sums and a layout is not checked: the caller
 * makes the id from these and compares. Free the result, even after a failure. -EINVAL with
 * `wrong`; -EPROTONOSUPPORT with it: another version; -ENOMEM. */
int pieces_decode(const char *text, size_t text_bytes, struct pieces *pieces,
                  struct words_error *wrong);

/* Parses an id: 32 lower-case hex digits and nothing else. -EINVAL */
int pieces_parse_id(const char *text, uint8_t id[DIGEST_BYTES]);

#endif
