/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xid - what the driver's error numbers say of memory that is kept
 *
 * Sources: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors, the catalog) and "GPU Memory
 * Error Management" (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt). Pure.
 */
#ifndef GMSFS_VMM_XID_H
#define GMSFS_VMM_XID_H

enum xid_kind {
    XID_HARMLESS, /* a program's own fault, an engine's, or a notice: kept bytes are as they were */
    XID_SUSPECT,  /* bytes may be damaged, or the GPU needs a reset */
    XID_LOST,     /* the GPU is gone */
};

/* A number that is not in the table is SUSPECT: to refuse a reader in vain is better than wrong
 * weights. what: a few words, never NULL. */
enum xid_kind xid_judge(unsigned long long number, const char **what);

#endif
