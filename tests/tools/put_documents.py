#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""put_documents.py LIBRARY STORE BYTES: puts documents of entries into a store until it is refused.

Says `full COUNT ERRNO` then, keeps the lock, and tries again from time to time, until it is killed."""

import ctypes
import errno
import sys
import time

VALUE_BYTES = 1000
UNBOUND = 2**64 - 1
RW = 2


class Entry(ctypes.Structure):
    _fields_ = [
        ("key", ctypes.c_char_p),
        ("value", ctypes.c_char_p),
        ("value_bytes", ctypes.c_size_t),
        ("slot", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    ]


library = ctypes.CDLL(sys.argv[1])
library.gmsfs_metadata_put_many.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
]
library.gmsfs_connect.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
count = int(sys.argv[3]) // VALUE_BYTES
handle = None
is_writer = False
documents = 0
told = False


def put():
    global handle, is_writer
    if not handle:
        made = ctypes.c_void_p()
        error = library.gmsfs_open(sys.argv[2].encode(), ctypes.byref(made))
        if error:
            return error
        handle = made
    if not is_writer:
        error = library.gmsfs_connect(handle, RW, 10000)
        if error:
            return error
        is_writer = True
    entries = (Entry * count)()
    for i in range(count):
        entries[i] = Entry(b"d%d.%d" % (documents, i), b"v" * VALUE_BYTES, VALUE_BYTES, UNBOUND, 0)
    return library.gmsfs_metadata_put_many(handle, entries, count, None)


while True:
    error = put()
    documents += error == 0
    if error and (not told or error != -errno.ENOMEM):
        print("full", documents, errno.errorcode[-error], flush=True)
        told = True
    if error and error != -errno.ENOMEM:
        sys.exit(1)
    if error:
        time.sleep(0.2)
