/* SPDX-License-Identifier: Apache-2.0 */
/* The table of backends: each row can be chosen, told apart and used. */
#include "copier/gpu.h"
#include "vmm/backends.h"
#include "vmm/vmm_backend.h"

#include "gmsfs_abi.h"
#include "tap.h"

TAP_TEST(each_backend_is_found_by_its_name_and_nothing_else_is)
{
    const struct backend *backend;
    size_t count = 0;

    for (; (backend = backends_at(count)); count++)
        check(backends_find(backend->name) == backend);
    check(count >= 2);
    check(backends_find("") == NULL);
    check(backends_find("tape") == NULL);
    check(backends_find("CUDA") == NULL);
}

TAP_TEST(the_first_backend_is_the_default)
{
    check(backends_find(NULL) == backends_at(0));
    check_str(backends_at(0)->name, "cuda");
}

TAP_TEST(backends_are_listed_as_a_sentence_wants_them)
{
    char text[BACKENDS_TEXT_BYTES];
    const struct backend *backend;

    check_str(backends_list(text), "cuda or host");
    for (size_t i = 0; (backend = backends_at(i)); i++)
        check(strstr(text, backend->name) != NULL);
}

TAP_TEST(each_backend_has_a_kind_of_memory_of_its_own)
{
    const struct backend *one, *other;

    for (size_t i = 0; (one = backends_at(i)); i++)
        for (size_t j = i + 1; (other = backends_at(j)); j++)
            check(one->memory != other->memory);
    check_int(backends_find("host")->memory, GMSFS_MEMORY_HOST);
    check_int(backends_find("cuda")->memory, GMSFS_MEMORY_CUDA);
}

/* vmm.c asks only of the others whether they are there. */
TAP_TEST(each_backend_has_all_that_is_called_unasked)
{
    const struct backend *backend;

    for (size_t i = 0; (backend = backends_at(i)); i++) {
        const struct vmm_backend *functions = backend->functions;

        check(functions->open && functions->close && functions->create && functions->grow &&
              functions->seal && functions->read && functions->write);
        check(!functions->lend == !functions->end_loan);
        check(backends_find_copier(backend->name) == backend->copier);
    }
}

TAP_TEST(a_spool_is_the_memory_itself_on_the_host_alone)
{
    check(!backends_keep_spools_apart(backends_find("host")));
    check(backends_keep_spools_apart(backends_find("cuda")));
}

TAP_TEST(memory_that_this_process_cannot_reach_has_a_copier)
{
    check(backends_find_copier("cuda") == &copier_gpu_cuda);
    check(backends_find_copier("host") == NULL);
    check(backends_find_copier("tape") == NULL);
    check(backends_find_copier("") == NULL);
}
