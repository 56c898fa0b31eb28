/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake - a CUDA driver and NVML of ours, over files and mmap, for tests without a GPU
 *
 * libcuda.so.1 and libnvidia-ml.so.1 are built from this directory and found by LD_LIBRARY_PATH.
 * The machine that they show lies in the directory that GMSFS_FAKE_CUDA names; without it there is
 * no device. All processes with the same directory see the same GPUs.
 *
 * An address of the device is an address of the host. Physical memory is a file gpuN/mSEQ of that
 * directory, and its users hold a shared flock(2) on it: descriptors and mappings keep the lock,
 * in any process, and it ends with the last of them, however that one ends. So a file that can be
 * locked is free memory, and the account is exact over all processes without a daemon.
 *
 * Two more files describe a process: context.PID.GPU exists while it has a context there, and
 * leaked.PID.GPU after it freed one with streams or pinned memory left.
 *
 * As strict as the driver where gmsfs could go wrong: granularity 2 MiB; a handle is mapped whole
 * and from its start (else NOT_SUPPORTED); an imported handle cannot be exported; an exported
 * descriptor can be neither read nor mapped, and is not close-on-exec; bytes move only with a
 * context, and only where the access set for its device allows it; nothing works after fork(2);
 * calls that a capture forbids break it.
 *
 * DIRECTORY/control, if it exists, is read at every call; a word and its numbers on each line:
 *   devices N              their number (1)
 *   memory MIB             of each (1024)
 *   others MIB             memory of each that other programs hold (0)
 *   rdma 0|1               GPUDirect RDMA (1)
 *   peers 0|1              a GPU may be let in to another one's memory (1)
 *   lazy 0|1               a copy on a stream is done when a wait needs it, not before (0)
 *   fail CALL RESULT [FIRST [COUNT]]
 *                          this process's calls FIRST.. (1) of CALL fail, COUNT of them (0: all);
 *                          CALL `*` counts all calls. A changed file restarts the count
 *   slow CALL MS           each call takes that much longer
 *   hold CALL              each call begins when this line is gone
 *   poison MIB             reading memory of this size is CUDA_ERROR_ECC_UNCORRECTABLE
 *   lost ORDINAL           the device vanished: its calls fail with CUDA_ERROR_DEVICE_UNAVAILABLE
 *   xid ORDINAL CODE       NVML reports this Xid, once to each event set
 *   ecc ORDINAL            NVML reports an uncorrectable memory error, likewise
 */
#ifndef GMSFS_TESTS_FAKE_CUDA_FAKE_H
#define GMSFS_TESTS_FAKE_CUDA_FAKE_H

#include "cuda/driver_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FAKE_GRANULARITY (UINT64_C(2) << 20)
#define FAKE_MAX_DEVICES 16
#define FAKE_MAX_FAULTS  16
#define FAKE_MAX_EVENTS  64
#define FAKE_LEGACY      ((struct drv_stream *)1) /* CU_STREAM_LEGACY */

#define EXPORTED __attribute__((visibility("default")))

/* Declared as in the driver's header: a different definition does not compile. */
#define DRV_FUNCTION(symbol, parameters) EXPORTED enum drv_result symbol parameters;
#include "cuda/driver_functions.h"
#undef DRV_FUNCTION

/* ---- machine.c: the control file ----------------------------------------------------------- */

struct machine_event {
    unsigned gpu;
    unsigned xid; /* 0 for an uncorrectable memory error */
};

struct machine {
    unsigned devices;
    uint64_t memory_bytes;
    uint64_t others_bytes;
    uint64_t poison_bytes; /* 0 if none */
    bool rdma;
    bool peers;
    bool lazy;
    bool lost[FAKE_MAX_DEVICES];
    struct machine_event events[FAKE_MAX_EVENTS];
    unsigned event_count;
};

/* Returns the directory, or NULL. */
const char *machine_dir(void);
/* Fixes machine_dir for this thread, because getenv must not run while the program changes its
 * environment. NULL: as the environment says. */
void machine_stay(const char *dir);
/* Reads the present control file. */
void machine_read(struct machine *machine);
void machine_uuid(unsigned gpu, struct drv_uuid *uuid);
void machine_uuid_text(unsigned gpu, char *text, size_t bytes); /* GPU-… */
void machine_pci_id(unsigned gpu, char *text, size_t bytes);
/* Begins each call: waits for `slow`, and returns the result of `fail`, or whether this process may
 * call at all. */
enum drv_result machine_enter(const char *call);
/* The first half of it, for calls of any process. */
enum drv_result machine_judge(const char *call);
/* The same for cuInit, after which this process may make the other calls. */
enum drv_result machine_init(void);

#define ENTER()                                             \
    do {                                                    \
        enum drv_result entered_ = machine_enter(__func__); \
        if (entered_ != DRV_SUCCESS)                        \
            return entered_;                                \
    } while (0)

/* ---- account.c: physical memory of all processes ------------------------------------------- */

struct account_memory {
    unsigned gpu;
    unsigned long seq;
    uint64_t bytes;
};

/* Returns a descriptor that holds the new memory, or a negative errno (-ENOMEM). */
int account_create(unsigned gpu, uint64_t bytes, struct account_memory *memory);
/* Returns another one, opened with `flags` of open(2). */
int account_open(const struct account_memory *memory, int flags);
/* Returns a descriptor for the memory behind `fd`; -EINVAL if that is no memory of this machine. */
int account_import(int fd, struct account_memory *memory);
/* Call it when this process's last hold has gone. */
void account_settle(const struct account_memory *memory);
/* Exact; without `others`. */
uint64_t account_used(unsigned gpu);

/* ---- device.c ------------------------------------------------------------------------------ */

/* Finds the GPU of an ordinal under CUDA_VISIBLE_DEVICES. DRV_INVALID_DEVICE;
 * DRV_DEVICE_UNAVAILABLE if it has vanished. */
enum drv_result device_find(drv_device device, unsigned *gpu);
/* Returns this process's ordinal of a GPU; -1 if it does not see it. */
drv_device device_ordinal(unsigned gpu);
/* Reads CUDA_VISIBLE_DEVICES, which is never read again. */
void device_choose_visible(void);

/* ---- memory.c: handles of this process ----------------------------------------------------- */

extern pthread_mutex_t
    fake_mutex; /* guards all tables of this process; the calls take it themselves */

struct handle {
    drv_memory id; /* 0 if free */
    struct account_memory memory;
    bool imported;
    struct drv_memory_prop prop;
    void *hold; /* all of it, without access: keeps the memory, and cuMemMap duplicates it */
};

struct handle *handle_find(drv_memory id);

/* ---- map.c --------------------------------------------------------------------------------- */

/* Returns whether the device of the current context may read these bytes, or write them, over any
 * number of adjacent mappings. */
bool map_allows(drv_pointer address, size_t bytes, bool to_write);
/* Returns the id of the memory mapped there; 0 if none is. */
uint64_t map_get_memory_bytes(drv_pointer address);
/* Adds memory of cuMemAlloc: one entry that is no part of a reservation. */
int map_add_allocation(void *address, const struct account_memory *memory,
                       const struct drv_context *context);
int map_remove_allocation(drv_pointer address, struct account_memory *memory);
/* The size asked of cuMemAlloc, and its start. Returns false if none is there. */
struct map_allocation {
    drv_pointer address;
    uint64_t bytes;
    struct account_memory memory;
    unsigned long long id;
};
bool map_get_allocation(drv_pointer address, struct map_allocation *allocation);
/* Sets the size asked for, a part of its memory's. */
void map_set_asked(drv_pointer address, uint64_t bytes);
/* Returns the first remaining one of a context; 0 if none. */
drv_pointer map_find_allocation(const struct drv_context *context);

/* ---- queue.c ------------------------------------------------------------------------------- */

/* Returns false if out of memory. */
bool queue_add(const struct drv_stream *stream, void *to, const void *from, size_t bytes);
/* Returns a mark behind all requests until now, for queue_run. */
unsigned long queue_mark(void);
/* Does the work of one stream, of all that block (FAKE_LEGACY) or (NULL) of all. */
void queue_run(const struct drv_stream *stream, unsigned long upto);
/* Returns whether queue_run would have something to do. */
bool queue_has(const struct drv_stream *stream, unsigned long upto);

/* ---- nvml.c -------------------------------------------------------------------------------- */

struct nvml_device;
/* GMS clients find a GPU's socket by these; the daemon calls neither. */
EXPORTED int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct nvml_device **device);
EXPORTED int nvmlDeviceGetUUID(struct nvml_device *device, char *uuid, unsigned bytes);

/* ---- copy.c -------------------------------------------------------------------------------- */

/* Returns whether this process has pinned memory. */
bool copy_has_pinned(void);
/* Frees a context's memory of cuMemAlloc as it ends. */
void copy_drop_all(const struct drv_context *context);

/* Not called by gmsfs, but by its bench. */
EXPORTED enum drv_result cuMemcpyPeer(drv_pointer to, struct drv_context *to_context,
                                      drv_pointer from, struct drv_context *from_context,
                                      size_t bytes);

/* ---- ipc.c --------------------------------------------------------------------------------- */

/* Shares memory of cuMemAlloc with other processes; gmsfs does not, but its tests' clients do. */
EXPORTED enum drv_result cuIpcGetMemHandle(struct drv_ipc_handle *handle, drv_pointer address);
/* Call it when the memory was freed: its handle opens no longer. */
void ipc_forget(const struct map_allocation *allocation);

/* ---- stream.c ------------------------------------------------------------------------------ */

struct drv_context {
    uint32_t magic;
    unsigned gpu;
    drv_device device;
    unsigned retained; /* of a primary one */
};

/* For tests, which find them by dlsym(3). A reset ends all allocations of the primary context, and
 * all references to it; it can be retained again, with the same address. */
EXPORTED enum drv_result cuDevicePrimaryCtxReset_v2(drv_device device);
EXPORTED enum drv_result cuCtxCreate_v2(struct drv_context **context, unsigned flags,
                                        drv_device device);
EXPORTED enum drv_result cuCtxDestroy_v2(struct drv_context *context);
/* Checks the contexts; copies between devices need no access here. */
EXPORTED enum drv_result cuCtxEnablePeerAccess(struct drv_context *peer, unsigned flags);
EXPORTED enum drv_result cuStreamBeginCapture_v2(struct drv_stream *stream,
                                                 enum drv_capture_mode mode);
EXPORTED enum drv_result cuStreamEndCapture(struct drv_stream *stream, void **graph);
EXPORTED enum drv_result cuMemGetAccess(unsigned long long *flags,
                                        const struct drv_location *location, drv_pointer address);

/* Returns whether the legacy stream would wait for it. For the special streams: yes. */
bool stream_is_blocking(const struct drv_stream *stream);
/* Returns the current one of this thread, or NULL. */
struct drv_context *context_current(void);
/* Checks a call that may not be made while a stream is capturing in the thread's mode: breaks the
 * captures that it disturbs. */
enum drv_result capture_check_unsafe(void);
/* Checks work for a stream. *capturing: it is to be recorded, not done. Synchronous calls use the
 * legacy stream, which breaks captures of the context's blocking streams. */
enum drv_result capture_check_stream(struct drv_stream *stream, bool *capturing);
enum drv_result capture_check_legacy(void);

#endif
