/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

static const struct {
    const char *name;
    size_t at; /* in struct nvml */
} symbols[] = {
#define NVML_FUNCTION(symbol, parameters) {#symbol, offsetof(struct nvml, symbol)},
    NVML_FUNCTIONS
#undef NVML_FUNCTION
};

int nvml_open(struct nvml *nvml, char *why, size_t why_bytes)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *reason = dlerror();

        snprintf(why, why_bytes, "%s", reason ? reason : LIBRARY " cannot be opened");
        return -ENODEV;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *address = dlsym(library, symbols[i].name);

        if (!address) {
            snprintf(why, why_bytes, LIBRARY " has no %s", symbols[i].name);
            dlclose(library);
            return -ENODEV;
        }
        memcpy((char *)nvml + symbols[i].at, &address, sizeof(address));
    }
    enum nvml_result result = nvml->nvmlInit_v2();
    if (result == NVML_DONE)
        return 0; /* the library stays: its functions are in the table */
    snprintf(why, why_bytes, "nvmlInit_v2: error %d", (int)result);
    dlclose(library);
    return -ENODEV;
}
