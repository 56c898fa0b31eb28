/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cuda_choose.h"

#include "base/file_io.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_INDEX_DIGITS 3
#define UUID_TEXT_BYTES  41 /* GPU-8-4-4-4-12 */

static bool is_index(const char *device)
{
    size_t digits = strspn(device, "0123456789");

    return digits > 0 && digits <= MAX_INDEX_DIGITS && device[digits] == '\0';
}

/* The driver also takes a unique prefix. */
static bool is_uuid(const char *device)
{
    const char *hex = device + 4;

    return strncmp(device, "GPU-", 4) == 0 && *hex && strlen(device) < UUID_TEXT_BYTES &&
           strspn(hex, "0123456789abcdefABCDEF-") == strlen(hex);
}

/* Parses BUS:DEVICE, with an optional domain before and function behind, into the form of the
 * kernel and the driver. */
static bool parse_pci_id(const char *device, char pci_id[CUDA_PCI_ID_BYTES])
{
    unsigned long part[4] = {0}; /* domain, bus, device, function */
    size_t at = 1, parts = 0;
    const char *colon = strchr(device, ':');
    char *end;

    if (colon && strchr(colon + 1, ':'))
        at = 0;
    for (const char *from = device; at < 4; from = end + 1) {
        if (!isxdigit((unsigned char)*from))
            return false;
        part[at++] = strtoul(from, &end, 16);
        parts++;
        if (*end == '\0')
            break;
        if (*end != (at == 3 ? '.' : ':'))
            return false;
    }
    if (parts < 2 || at < 3 || *end != '\0')
        return false;
    if (part[0] > 0xffff || part[1] > 0xff || part[2] > 0x1f || part[3] > 7)
        return false;
    snprintf(pci_id, CUDA_PCI_ID_BYTES, "%04lx:%02lx:%02lx.%lx", part[0] & 0xffff, part[1] & 0xff,
             part[2] & 0x1f, part[3] & 7);
    return true;
}

/* Reads the UUID from the kernel's module, without starting the driver library. */
static bool read_uuid(const char *root, const char *pci_id, char uuid[UUID_TEXT_BYTES])
{
    char path[4096], line[256];
    bool found = false;
    SCOPED_FILE FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/gpus/%s/information", root, pci_id);
    file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, "GPU UUID: %40s", uuid) == 1 && is_uuid(uuid);
    return found;
}

int cuda_choose(const char *root, const char *device, struct cuda_choice *choice, char *why,
                size_t why_bytes)
{
    char uuid[UUID_TEXT_BYTES];

    *choice = (struct cuda_choice){.pci_id = ""};
    if (!*device)
        return 0;
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    if (is_index(device) || is_uuid(device)) {
        setenv("CUDA_VISIBLE_DEVICES", device, 1);
        return 0;
    }
    if (strncasecmp(device, "MIG", 3) == 0) {
        snprintf(why, why_bytes,
                 "device=%s: MIG slices are not supported; name a whole GPU (nvidia-smi -L lists "
                 "them)",
                 device);
        return -EOPNOTSUPP;
    }
    if (!parse_pci_id(device, choice->pci_id)) {
        snprintf(why, why_bytes,
                 "device=%s: expected an index such as 0, a GPU-UUID or a PCI id such as "
                 "0000:17:00.0; nvidia-smi -L lists them",
                 device);
        return -EINVAL;
    }
    if (read_uuid(root, choice->pci_id, uuid))
        setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    else
        unsetenv("CUDA_VISIBLE_DEVICES");
    return 0;
}
