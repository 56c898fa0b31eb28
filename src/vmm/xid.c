/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/xid.h"

#include <stddef.h>

/*
 * Xids that the catalog answers with a reset of the GPU are SUSPECT, those that it ignores or
 * answers with a restart of the program are HARMLESS. Further reasons:
 *  63  rows are to be remapped; if bytes were lost, 48, 94 or 95 comes as well
 *  64  such rows could not be noted, and the bad memory stays in use
 *  80  one corrupted command was noticed, but others may not have been
 *  92  each of these errors was corrected; an uncorrected one is 48, 94 or 95
 *  94  "contained" means that only programs that touched the page end. The page may be one of a
 *      store, and then each reader of it ends, until it is freed: the driver reuses no such page
 *  74  data over NVLink may have arrived damaged
 * 154  says how to recover from an earlier Xid, even by "nothing"
 * 171, 172  come with 48, and are judged by themselves in case that is missed
 */
static const struct {
    unsigned first, last;
    enum xid_kind kind;
    const char *meaning;
} table[] = {
    {8, 8, XID_HARMLESS, "a channel timed out"},
    {11, 11, XID_HARMLESS, "invalid push buffer stream"},
    {13, 13, XID_HARMLESS, "graphics engine exception"},
    {14, 14, XID_HARMLESS, "error that a program injected"},
    {25, 25, XID_HARMLESS, "invalid push buffer stream"},
    {31, 31, XID_HARMLESS, "page fault of a program"},
    {32, 32, XID_HARMLESS, "invalid push buffer stream"},
    {37, 38, XID_HARMLESS, "driver firmware error"},
    {39, 41, XID_HARMLESS, "copy engine exception"},
    {43, 43, XID_HARMLESS, "a program's channel stopped"},
    {44, 44, XID_HARMLESS, "graphics engine fault at a context switch"},
    {45, 45, XID_HARMLESS, "a program's channels were cleaned up"},
    {46, 46, XID_SUSPECT, "the GPU stopped processing"},
    {48, 48, XID_SUSPECT, "uncorrectable memory error"},
    {57, 57, XID_SUSPECT, "memory interface cannot be programmed"},
    {58, 58, XID_SUSPECT, "memory interface is unstable"},
    {60, 60, XID_HARMLESS, "video processor exception"},
    {61, 61, XID_SUSPECT, "internal micro-controller breakpoint"},
    {62, 62, XID_SUSPECT, "internal micro-controller halted"},
    {63, 63, XID_HARMLESS, "memory rows are noted for remapping"},
    {64, 64, XID_SUSPECT, "memory rows cannot be noted for remapping"},
    {65, 65, XID_HARMLESS, "video encoder exception"},
    {66, 67, XID_HARMLESS, "illegal access by the driver"},
    {68, 68, XID_HARMLESS, "video decoder exception"},
    {69, 69, XID_HARMLESS, "graphics engine class error"},
    {70, 72, XID_HARMLESS, "copy engine exception"},
    {74, 74, XID_SUSPECT, "NVLink error"},
    {75, 77, XID_HARMLESS, "copy engine exception"},
    {78, 78, XID_HARMLESS, "a virtual GPU cannot be started"},
    {79, 79, XID_LOST, "the GPU has fallen off the bus"},
    {80, 80, XID_SUSPECT, "corrupted data was sent to the GPU"},
    {82, 82, XID_HARMLESS, "JPEG engine exception"},
    {83, 84, XID_HARMLESS, "video decoder exception"},
    {85, 85, XID_HARMLESS, "copy engine exception"},
    {86, 86, XID_HARMLESS, "optical flow engine exception"},
    {88, 89, XID_HARMLESS, "video decoder exception"},
    {92, 92, XID_HARMLESS, "high rate of corrected memory errors"},
    {93, 93, XID_HARMLESS, "InfoROM wear limit"},
    {94, 94, XID_SUSPECT, "contained memory error"},
    {95, 95, XID_SUSPECT, "uncontained memory error"},
    {96, 98, XID_HARMLESS, "video decoder exception"},
    {99, 105, XID_HARMLESS, "JPEG engine exception"},
    {106, 107, XID_HARMLESS, "test message"},
    {108, 108, XID_HARMLESS, "a program's access over NVLink was not translated"},
    {109, 109, XID_SUSPECT, "a context switch timed out"},
    {110, 110, XID_SUSPECT, "security fault"},
    {119, 119, XID_SUSPECT, "the GPU's system processor does not answer"},
    {120, 120, XID_SUSPECT, "the GPU's system processor failed"},
    {121, 121, XID_HARMLESS, "corrected error of the link to the CPU"},
    {126, 135, XID_HARMLESS, "copy engine exception"},
    {136, 136, XID_SUSPECT, "NVLink training failed"},
    {137, 137, XID_HARMLESS, "a program's access over NVLink was not allowed"},
    {139, 139, XID_HARMLESS, "optical flow engine exception"},
    {140, 140, XID_SUSPECT, "unrecovered memory error"},
    {141, 141, XID_HARMLESS, "CUDA fast path error"},
    {143, 143, XID_SUSPECT, "the GPU cannot be initialised"},
    {144, 150, XID_SUSPECT, "NVLink error"},
    {154, 154, XID_HARMLESS, "notice of the recovery that is needed"},
    {155, 155, XID_SUSPECT, "NVLink error"},
    {156, 156, XID_SUSPECT, "a unit of the GPU is retired"},
    {158, 158, XID_SUSPECT, "fatal timeout of the GPU"},
    {162, 165, XID_HARMLESS, "power smoothing"},
    {167, 167, XID_SUSPECT, "fatal timeout of PCIe"},
    {169, 169, XID_SUSPECT, "internal micro-controller halted"},
    {171, 171, XID_SUSPECT, "uncorrectable error of the memory"},
    {172, 172, XID_SUSPECT, "uncorrectable error of a cache"},
};

enum xid_kind xid_judge(unsigned long long number, const char **meaning)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (number < table[i].first || number > table[i].last)
            continue;
        *meaning = table[i].meaning;
        return table[i].kind;
    }
    *meaning = "unknown to gmsfs";
    return XID_SUSPECT;
}
