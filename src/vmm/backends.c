/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/backends.h"

#include "copier/gpu.h"
#include "vmm/vmm_backend.h"

#include <stdio.h>
#include <string.h>

/* doc/recipes.md lists the other steps for a new one. */
static const struct backend BACKENDS[] = {
    {BACKENDS_DEFAULT, "a GPU's memory, through the CUDA driver", VMM_MEMORY_CUDA,
     &vmm_backend_cuda, &copier_gpu_cuda},
    {"host", "this machine's memory (memfd)", VMM_MEMORY_HOST, &vmm_backend_host, NULL},
};

#define BACKEND_COUNT (sizeof(BACKENDS) / sizeof(BACKENDS[0]))

const struct backend *backends_at(size_t number)
{
    return number < BACKEND_COUNT ? &BACKENDS[number] : NULL;
}

const struct backend *backends_find(const char *name)
{
    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        if (!name || strcmp(name, BACKENDS[i].name) == 0)
            return &BACKENDS[i];
    }
    return NULL;
}

const struct copier_gpu *backends_find_copier(const char *name)
{
    const struct backend *backend = backends_find(name);

    return backend ? backend->copier : NULL;
}

bool backends_keep_spools_apart(const struct backend *backend)
{
    return backend->functions->settle != NULL;
}

const char *backends_list(char text[BACKENDS_TEXT_BYTES])
{
    size_t at = 0;

    for (size_t i = 0; i < BACKEND_COUNT; i++) {
        const char *before = i == 0 ? "" : i + 1 < BACKEND_COUNT ? ", " : " or ";
        at +=
            (size_t)snprintf(text + at, BACKENDS_TEXT_BYTES - at, "%s%s", before, BACKENDS[i].name);
        if (at >= BACKENDS_TEXT_BYTES)
            break;
    }
    return text;
}
