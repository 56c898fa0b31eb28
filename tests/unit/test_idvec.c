/* SPDX-License-Identifier: Apache-2.0 */
#include "base/idvec.h"
#include "tap.h"

struct item {
    uint64_t id;
    bool goes;
};

static struct item items[6] = {{2, true}, {3, false},  {5, true},
                               {7, true}, {11, false}, {13, true}};

static struct idvec all_items(void)
{
    struct idvec vec = {0};

    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        require(idvec_append(&vec, &items[i]) == 0);
    return vec;
}

static bool take(void *item, void *context)
{
    size_t *taken = context;
    const struct item *at = item;

    *taken += at->goes;
    return at->goes;
}

TAP_TEST(items_taken_out_at_once_leave_the_others_in_order)
{
    struct idvec vec = all_items();
    size_t taken = 0;

    idvec_remove_if(&vec, take, &taken);
    check_int(taken, 4);
    check_int(vec.count, 2);
    check(idvec_find(&vec, 3) == &items[1] && idvec_find(&vec, 11) == &items[4]);
    check(idvec_find(&vec, 2) == NULL && idvec_find(&vec, 13) == NULL);
    check(idvec_remove(&vec, 11) == &items[4]);
    check(idvec_append(&vec, &items[5]) == 0 && idvec_find(&vec, 13) == &items[5]);
    idvec_free(&vec);
}

TAP_TEST(a_walk_goes_on_after_the_last_id_even_if_items_were_taken_out)
{
    struct idvec vec = all_items();

    check(idvec_find_after(&vec, 0) == &items[0]);
    check(idvec_find_after(&vec, 3) == &items[2]);
    check(idvec_remove(&vec, 5) == &items[2]);
    check(idvec_find_after(&vec, 3) == &items[3]);
    check(idvec_find_after(&vec, 4) == &items[3]);
    check(idvec_find_after(&vec, 13) == NULL && idvec_find_after(&vec, UINT64_MAX) == NULL);
    idvec_free(&vec);
}

TAP_TEST(an_id_that_was_removed_is_not_found)
{
    struct idvec vec = all_items();

    check(idvec_remove(&vec, 5) == &items[2]);
    check(idvec_remove(&vec, 5) == NULL && idvec_find(&vec, 5) == NULL);
    check(idvec_find(&vec, 7) == &items[3]);
    check(idvec_insert(&vec, &items[2]) == 0 && idvec_find(&vec, 5) == &items[2]);
    idvec_free(&vec);
}

TAP_TEST(neighbours_are_found_and_so_is_each_id_that_is_none)
{
    static const uint64_t ids[] = {2, 3, 5, 13, 7, 11, 4, 5, 20, 2};
    struct idvec vec = all_items();
    size_t at = 0;

    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        check(idvec_find_near(&vec, ids[i], &at) == idvec_find(&vec, ids[i]));
    check(idvec_find_near(&vec, 13, &at) == &items[5]);
    check(idvec_remove(&vec, 13) == &items[5]); /* `at` is behind the end */
    check(idvec_remove(&vec, 11) == &items[4]);
    check(idvec_find_near(&vec, 13, &at) == NULL);
    check(idvec_find_near(&vec, 7, &at) == &items[3]);
    idvec_free(&vec);
}

#define FIRST_ID 100
#define IDS      10

/* Each set of IDS ids in a row, with any gaps. */
TAP_TEST(whatever_gaps_there_are_an_id_is_found_where_it_is)
{
    struct item row[IDS];

    for (unsigned set = 0; set < 1u << IDS; set++) {
        struct idvec vec = {0};
        const struct item *next[IDS + 3] = {0};
        for (unsigned i = 0; i < IDS; i++) {
            row[i] = (struct item){.id = FIRST_ID + i};
            if (set >> i & 1)
                require(idvec_append(&vec, &row[i]) == 0);
        }
        for (int i = IDS; i >= 0; i--)
            next[i] = i < IDS && set >> i & 1 ? &row[i] : next[i + 1];
        for (unsigned i = 0; i < IDS + 2; i++) {
            const struct item *here = i < IDS && set >> i & 1 ? &row[i] : NULL;
            check(idvec_find(&vec, FIRST_ID + i) == here);
            check(idvec_find_after(&vec, FIRST_ID + i - 1) == next[i]);
        }
        check(idvec_find(&vec, 0) == NULL && idvec_find_after(&vec, 0) == next[0]);
        idvec_free(&vec);
    }
}
