/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/xid.h"

#include <stddef.h>

/*
 * Why some stand where they do:
 *  63  rows are to be remapped; if bytes were lost, 48, 94 or 95 says so as well
 *  64  the same could not be noted, and the bad memory goes on being handed out
 *  92  single-bit errors were corrected, but so many that the next one may not be
 *  94  "contained" means that only programs that touched the page end. The page may be one of a
 *      store, and then each reader of it ends, until it is freed: the driver gives no such page out
 *  74  what came over NVLink may have come wrong
 * 154  says what should be done about an Xid that was told before, even "nothing"
 */
static const struct {
    unsigned number;
    enum xid_kind kind;
    const char *what;
} table[] = {
    {8, XID_HARMLESS, "a channel timed out"},
    {11, XID_HARMLESS, "invalid push buffer stream"},
    {13, XID_HARMLESS, "graphics engine exception"},
    {31, XID_HARMLESS, "page fault of a program"},
    {32, XID_HARMLESS, "invalid push buffer stream"},
    {43, XID_HARMLESS, "a program's channel stopped"},
    {44, XID_HARMLESS, "graphics engine fault at a context switch"},
    {45, XID_HARMLESS, "a program's channels were cleaned up"},
    {48, XID_SUSPECT, "uncorrectable memory error"},
    {57, XID_SUSPECT, "memory interface cannot be programmed"},
    {58, XID_SUSPECT, "memory interface is unstable"},
    {61, XID_SUSPECT, "internal micro-controller breakpoint"},
    {62, XID_SUSPECT, "internal micro-controller halted"},
    {63, XID_HARMLESS, "memory rows are noted for remapping"},
    {64, XID_SUSPECT, "memory rows cannot be noted for remapping"},
    {65, XID_HARMLESS, "video processor exception"},
    {68, XID_HARMLESS, "video decoder exception"},
    {69, XID_HARMLESS, "graphics engine class error"},
    {74, XID_SUSPECT, "NVLink error"},
    {79, XID_LOST, "the GPU has fallen off the bus"},
    {80, XID_SUSPECT, "corrupted data was sent to the GPU"},
    {92, XID_SUSPECT, "high rate of single-bit memory errors"},
    {93, XID_HARMLESS, "InfoROM wear limit"},
    {94, XID_SUSPECT, "contained memory error"},
    {95, XID_SUSPECT, "uncontained memory error"},
    {109, XID_HARMLESS, "a context switch timed out"},
    {119, XID_SUSPECT, "the GPU's system processor does not answer"},
    {120, XID_SUSPECT, "the GPU's system processor failed"},
    {137, XID_HARMLESS, "a program's access over NVLink was not allowed"},
    {140, XID_SUSPECT, "unrecovered memory error"},
    {154, XID_HARMLESS, "notice of what recovery is needed"},
};

enum xid_kind xid_judge(unsigned long long number, const char **what)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].number != number)
            continue;
        *what = table[i].what;
        return table[i].kind;
    }
    *what = "not one that gmsfs knows";
    return XID_SUSPECT;
}
