/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xid - judges the driver's error numbers by their effect on kept memory
 *
 * Sources: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors, the catalog) and "GPU Memory
 * Error Management" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt). Pure.
 */
#ifndef GMSFS_VMM_XID_H
#define GMSFS_VMM_XID_H

enum xid_kind {
    XID_HARMLESS, /* a fault of a program or an engine, or a notice: kept bytes are unchanged */
    XID_SUSPECT,  /* bytes may be damaged, or the GPU needs a reset */
    XID_LOST,     /* the GPU is gone */
};

/* An unknown number is SUSPECT: refusing a reader needlessly is better than wrong weights. meaning:
 * a few words, never NULL. */
enum xid_kind xid_judge(unsigned long long number, const char **meaning);

#endif
