/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deeds - operations on a mount, done while one call of its daemon fails or its worker is killed
 *
 * Words are gmsctl's; W/ and M/ stand for the store and the mount. Each deed starts from the same
 * store: committed, with the allocations `a` (64 KiB that begin with "committed") and `b`, and the
 * entry `key`. For faults.c and kills.c.
 */
#ifndef GMSFS_TESTS_FAULT_DEEDS_H
#define GMSFS_TESTS_FAULT_DEEDS_H

#include <stddef.h>

/* Makes that store in place of any other, by a full cycle of lock, memory, bytes, commit, read. */
#define DEEDS_BEGIN                                                                        \
    "connect M/ region-unregister-all self 0 disconnect "                                  \
    "open W/lock rw clear alloc 65536 1 a tag alloc 100 1 b tag open W/allocations/a rw "  \
    "pwrite 0 committed use 0 put key value none 0 commit close "                          \
    "reader W open W/allocations/a r pread 0 9 connect M/ use 1 export 0 0 redeem last 8 " \
    "peek 0 0 9"

struct deed {
    const char *group, *name, *words;
    /* A process that holds the lock until the deed is seen to wait, or prints "waits"; NULL if
     * none. A deed with an `alarm` has its signal then, and the process holds the lock until the
     * deed has ended. */
    const char *holder;
    /* Run afterwards without a fault: it prints the same whenever the deed succeeded. */
    const char *after;
};

static const struct deed DEEDS[] = {
    {"look", "read",
     "open W/state r read 99 open W/info r read 9999 open W/layout r read 9999 "
     "open W/layout_hash r read 99 open W/sessions r read 999 open M/device r read 9999 "
     "open M/metrics r read 9999 open M/events r read 4096 open W/metadata/key r read 9 "
     "stat W/allocations/a",
     NULL, NULL},
    {"look", "poll", "open W/state r read 99 poll pri 1 open M/events r poll in 100", NULL, NULL},
    {"look", "xattr",
     "getxattr W/allocations/a user.gmsfs.rank "
     "getxattr W/metadata/key user.gmsfs.offset",
     NULL, NULL},
    {"look", "ioctl", "open W/ctl r info get key", NULL, NULL},
    {"lock", "ro", "open W/lock r read 64 close", NULL, NULL},
    {"lock", "rw", "open W/lock rw read 64 close", NULL, NULL},
    {"lock", "auto", "open W/auto rw read 64 close", NULL, NULL},
    {"lock", "acquire", "open W/ctl rw acquire rw 1000 info release acquire ro 0 release", NULL,
     NULL},
    {"lock", "acquire-export",
     "open W/ctl rw acquire-export ro 1000 connect M/ try redeem last 8 export 0 0 redeem last 8",
     NULL, NULL},
    {"lock", "join", "open W/ctl rw acquire rw 1000 info open W/ctl rw join last release", NULL,
     NULL},
    {"lock", "refused", "open W/ctl rw acquire rw 0 open W/ctl rw acquire rw 20", NULL, NULL},
    {"lock", "wait", "open W/lock rw read 64", "open W/lock r", NULL},
    {"lock", "wait-acquire", "open W/ctl rw acquire rw 20000 info", "open W/lock rw", NULL},
    {"lock", "wait-interrupted", "alarm 0 open W/lock rw", "open W/lock r", NULL},
    {"lock", "wait-again",
     "open W/ctl rw open W/lock rw use 0 try acquire-again rw 20 use 1 close use 0 "
     "acquire rw 20000 info",
     NULL, NULL},
    {"lock", "wait-reserve", "open W/ctl rw acquire-reserve rw 20000 4194304 info",
     "open W/lock rw", NULL},
    {"lock", "revoke", "open W/abort w try write hex:7265766f6b6520393939", NULL, NULL},
    {"memory", "alloc", "open W/lock rw alloc 65536 1 n t alloc 100 3 m t commit", NULL,
     "open W/allocations/n r pread 0 4"},
    {"memory", "free", "open W/lock rw free 1 commit", NULL, NULL},
    {"memory", "clear", "open W/lock rw clear abort", NULL, "open W/metadata/key r read 9"},
    {"memory", "truncate",
     "open W/lock rw open W/allocations/n rwc ftruncate 100000 "
     "pwrite 70000 hello use 0 commit",
     NULL, "open W/allocations/n r pread 70000 5"},
    {"memory", "give-back",
     "open W/lock rw open W/allocations/a rw ftruncate 0 ftruncate 65536 "
     "use 0 commit",
     NULL, "open W/allocations/a r pread 0 9"},
    {"memory", "spool",
     "open W/lock rw open W/allocations/n rwc fill 150000 fsync fill 10 "
     "close use 0 commit",
     NULL, "open W/allocations/n r pread 149995 9"},
    {"memory", "spool-commit", "open W/lock rw open W/allocations/n rwc fill 150000 use 0 commit",
     NULL, "open W/allocations/n r pread 149995 9"},
    {"memory", "implicit", "open W/allocations/n rwc fill 100000 open W/commit w write 1", NULL,
     "open W/allocations/n r pread 99998 9"},
    {"memory", "lost-write", "open W/allocations/n rwc fill 100000 close", NULL, NULL},
    {"memory", "read", "open W/allocations/a r pread 0 9", NULL, NULL},
    {"memory", "pieces", "open W/pieces r read 999", NULL, NULL},
    {"memory", "overwrite",
     "open W/lock rw open W/allocations/a rw pwrite 0 COMMITTED use 0 "
     "commit",
     NULL, "open W/allocations/a r pread 0 9"},
    {"memory", "names",
     "open W/lock rw rename W/allocations/a W/allocations/c "
     "setxattr W/allocations/c user.gmsfs.tag other unlink W/allocations/b commit",
     NULL, "getxattr W/allocations/c user.gmsfs.tag"},
    {"memory", "abort",
     "open W/lock rw alloc 65536 1 n t open W/allocations/a rw pwrite 0 x "
     "use 0 abort",
     NULL, NULL},
    {"memory", "reserve",
     "open W/ctl rw acquire-reserve rw 1000 4194304 alloc 65536 3 n0 t "
     "open W/allocations/s rwc fill 100000 use 0 commit",
     NULL, "open W/allocations/s r pread 99998 2"},
    {"memory", "reserve-more",
     "open W/ctl rw acquire rw 1000 reserve 1048576 0 reserve 2097152 1 reserve 3145728 4 "
     "alloc 65536 2 n0 t reserve 0 0 commit",
     NULL, "open W/allocations/n1 r pread 0 4"},
    {"memory", "wait", "open W/lock rw clear alloc 8388608 1 n t commit", NULL,
     "open W/allocations/n r pread 8388604 4"},
    {"entries", "put", "open W/lock rw put k2 v2 0 8 delete key get k2 commit", NULL,
     "open W/metadata/k2 r read 9"},
    {"entries", "files",
     "open W/lock rw open W/metadata/k3 wc write three close "
     "rename W/metadata/k3 W/metadata/k4 setxattr W/metadata/k4 user.gmsfs.allocation a "
     "unlink W/metadata/key use 0 commit",
     NULL, "open W/metadata/k4 r read 9"},
    /* {"v": 1, "metadata": [["k5", nil, 0, "vv"], ["k6", nil, 0, "w"]]} */
    {"entries", "bulk",
     "open W/ctl rw acquire rw 1000 write "
     "hex:82a17601a86d657461646174619294a26b35c000c402767694a26b36c000c40177 apply commit",
     NULL, NULL},
    {"entries", "commit-stay", "open W/lock rw put k2 v2 none 0 commit-stay info", NULL,
     "open W/metadata/k2 r read 9"},
    {"entries", "group", "open W/lock rw commit-group 000102030405060708090a0b0c0d0e0f", NULL,
     NULL},
    {"stores", "make",
     "mkdir M/s2 chmod M/s2 0700 open M/s2/lock rw alloc 100 1 x t commit close "
     "rename M/s2 M/s3 rmdir M/s3",
     NULL, NULL},
    {"stores", "exchange", "mkdir M/s2 exchange M/s2 W exchange M/s2 W rmdir M/s2", NULL, NULL},
    {"stores", "drain", "connect M/ ask drain 0 ask drain-end 0 ask serve 0", NULL, NULL},
    {"stores", "drain-revoke",
     "open W/ctl rw acquire rw 1000 alloc 65536 1 n t open W/allocations/n rw pwrite 0 x "
     "connect M/ ask drain 1 ask drain-end 0 ask serve 0",
     NULL, NULL},
    {"stores", "drain-broken-off", "connect M/ ask drain 0 disconnect", NULL,
     "open W/lock rw read 2"},
    {"stores", "govern", "connect M/ ask govern 0 ask govern 0", NULL, NULL},
    {"stores", "govern-broken-off", "connect M/ ask govern 0 disconnect", NULL,
     "connect M/ ask govern 0"},
    {"stores", "log", "connect M/ ask log 4 ask log 0 ask log 3", NULL, NULL},
    {"stores", "store-drain",
     "open W/ctl r acquire ro 1000 connect M/ ask-of drain W 1000 ask-of holders W 1 "
     "ask-of serve W 0",
     NULL, NULL},
    {"stores", "store-drain-broken-off", "connect M/ ask-of drain W 0 disconnect", NULL,
     "open W/lock rw read 2"},
    {"tickets", "export",
     "open W/lock r connect M/ export 0 0 redeem last 1 peek 1 0 4 "
     "export 0 0 redeem last 8",
     NULL, NULL},
    {"tickets", "writable",
     "open W/lock rw connect M/ export-rw 0 0 redeem last 8 poke 0 0 "
     "COMMITTED commit",
     NULL, "open W/allocations/a r pread 0 9"},
    {"regions", "object",
     "connect M/ region-register self r /key memfd:4096 64 100 region-list self 0 a "
     "region-unregister self 1 r",
     NULL, NULL},
    {"regions", "handle", "connect M/ region-register-cuda self cu 64 region-unregister-all self 2",
     NULL, NULL},
    {"regions", "allocation",
     "connect M/ region-register self w weights/a none 0 9 region-list self 1 a "
     "region-unregister-all self 0",
     NULL, "open W/lock rwn"},
    /* The order only begins a move: a move that fails leaves the bytes where they are. */
    {"places", "demote", "open W/residency rw write host rest", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"places", "promote", "open W/residency rw write host rest write device rest", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"places", "wait",
     "open W/residency rw write host rest reader W open W/allocations/a r pread 0 9", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"spares", "spare", "open W/residency rw write +host rest try write -host", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"spares", "touched",
     "open W/residency rw write +host rest open W/lock rw open W/allocations/a rw "
     "pwrite 0 committed use 1 abort",
     NULL, NULL},
    {"places", "anywhere",
     "open W/residency rw write host rest open W/ctl rw acquire-any ro 0 connect M/ export 0 0 "
     "redeem last 8 peek 0 0 9",
     NULL, NULL},
    {"spares", "replaced",
     "open W/residency rw write host rest open W/ctl rw acquire-replace rw 0 clear "
     "alloc 100 1 n t commit",
     NULL, "open W/allocations/n r pread 0 4"},
    /* 1,920 KiB of the host's 2 MiB are left, and 1,984 are needed. */
    {"spares", "gives-way",
     "open W/residency rw write +host rest mkdir M/s2 open M/s2/lock rw alloc 2031616 1 x t commit "
     "close open M/s2/residency rw write host rest close rmdir M/s2",
     NULL, "reader W open W/allocations/a r pread 0 9"},
    {"spares", "given-up", "open W/residency rw write host rest write none", NULL, NULL},
    {"spills", "down-and-up", "open W/residency rw write disk rest write device rest", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"spills", "by-the-host",
     "open W/residency rw write host rest write disk rest open W/allocations/a r pread 0 9", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    /* 64 KiB of a device of 1 MiB are left, too little for the store: one of the two has to
     * leave. */
    {"evictions", "alloc",
     "mkdir M/s2 open M/s2/lock rw alloc 983040 1 x t commit close rmdir M/s2", NULL,
     "reader W open W/allocations/a r pread 0 9"},
    {"evictions", "reader",
     "open W/residency rw write host rest mkdir M/s2 open M/s2/lock rw alloc 983040 1 x t commit "
     "close reader W open W/allocations/a r pread 0 9 close rmdir M/s2",
     NULL, "reader W open W/allocations/a r pread 0 9"},
    {"evictions", "reserve",
     "mkdir M/s2 open M/s2/ctl rw acquire-reserve rw 2000 983040 alloc 983040 1 x t commit close "
     "rmdir M/s2",
     NULL, "reader W open W/allocations/a r pread 0 9"},
    /* chat max=1G slots=9 class=high, and chat - */
    {"budgets", "pool",
     "open M/pools rw write hex:63686174206d61783d314720736c6f74733d3920636c6173733d686967680a "
     "setxattr W "
     "user.gmsfs.pool chat open W/lock rw alloc 65536 1 n t commit close removexattr W "
     "user.gmsfs.pool use 0 write hex:63686174202d0a",
     NULL, NULL},
    {"budgets", "pin", "setxattr W user.gmsfs.pin 1 removexattr W user.gmsfs.pin", NULL, NULL},
    {"writes", "append",
     "open W/lock rw open W/allocations/n rwac write hello write world fsync write again use 0 "
     "commit",
     NULL, "open W/allocations/n r pread 0 15"},
    {"writes", "append-entry",
     "open W/lock rw open W/metadata/k7 wac write three write four close use 0 commit", NULL,
     "open W/metadata/k7 r read 19"},
    {"writes", "fallocate",
     "open W/lock rw open W/allocations/n rwc fallocate 0 0 100000 pwrite 70000 hello use 0 "
     "commit",
     NULL, "open W/allocations/n r pread 70000 5"},
    {"lists", "directories",
     "open W/lock rw alloc 65536 5 n t readdir W 64 readdir W/allocations 64 readdir M/ 64 abort",
     NULL, NULL},
    {"seals", "data",
     "open W/data rw open W/allocations/a rw pwrite 0 COMMITTED open W/seal w write 1 close "
     "use 1 pwrite 9 -and-more",
     NULL, "open W/data rw read 99 open W/allocations/a rw pread 0 18"},
    {"seals", "adopted",
     "open W/data rw open W/seal w write 1 close use 0 close open W/data rw read 99 "
     "open W/allocations/a rw pread 0 9 close close open W/lock rw clear commit",
     NULL, NULL},
    {"wakes", "state", "open W/state r read 99 say waits await COMMITTED 10000", "open W/lock rw",
     NULL},
    /* For a mount with `gms`. */
    {"gms", "v0-writer",
     "gms v0 gms-lock rw 1000 gms-ask allocate - 65536 gms-ask export - 0 gms-ask put k1 0 "
     "gms-ask get k1 0 gms-ask keys - 0 gms-ask list - 0 gms-ask commit - 0 gms-closed",
     NULL, "gms v0 gms-lock ro 1000 gms-ask list - 0 gms-ask get k1 0"},
    {"gms", "v0-reader",
     "gms v0 gms-lock ro 1000 gms-ask list - 0 gms-ask export - 0 gms-ask hash - 0 "
     "gms-ask get key 0",
     NULL, NULL},
    {"gms", "v0-wait",
     "gms v0 gms-lock rw 20000 gms-ask allocate - 100 gms-ask free - 0 gms-ask delete key 0",
     "open W/lock r", NULL},
    {"gms", "v1-writer",
     "gms v1 gms-lock rw 0 gms-ask allocate one 65536 gms-ask allocate two 65536 gms-ask export "
     "one "
     "0 "
     "gms-ask free two 0 gms-ask list - 0 gms-ask commit - 0",
     NULL, "gms v1 gms-lock ro 0 gms-ask list - 0"},
    {"gms", "fence", "fence M/ up try open W/lock rwn fence M/ abort open W/lock rw read 2", NULL,
     NULL},
    {"gms", "v1-wait", "gms v1 gms-lock ro 0 gms-ask list - 0", "open W/lock rw", NULL},
    {"gms", "v1-abort", "gms v1 gms-lock rw 0 gms-ask allocate one 65536 gms-ask abort - 0", NULL,
     NULL},
    {"tickets", "foreign", "connect M/ request 00112233445566778899aabbccddeeff 8 receive", NULL,
     NULL},
};

#endif
