# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of python/gmsfs: a store for each test on the mount made by tests/64-python.bats,
safetensors files, and the gmsfs command."""

import errno
import json
import os
import struct
import subprocess
import sys
import time
import unittest

import gmsfs

MOUNT = os.environ["GMSFS_TEST_MOUNT"]
COMMAND = os.environ["GMSFS"]
SCRATCH = os.environ["GMSFS_TEST_DIR"]
TIMEOUT = 240 * int(os.environ.get("GMSFS_TEST_SLOW", "1"))


def command(*arguments):
    """Runs `gmsfs ...`, which must succeed. Returns its output."""
    done = subprocess.run(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        text=True,
    )
    if done.returncode:
        raise AssertionError(
            f"gmsfs {' '.join(arguments)}: exit status {done.returncode}: {done.stdout}"
        )
    return done.stdout


def python(program, *arguments):
    """Runs a Python program in a process of its own, which must succeed. Returns its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT,
        text=True,
    )
    if done.returncode:
        raise AssertionError(f"exit status {done.returncode}: {done.stdout}")
    return done.stdout


def write_model(path, tensors, metadata=None):
    """A safetensors file of {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(
            struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())
        )
    return path


class StoreCase(unittest.TestCase):
    """Each test has an empty store at self.path."""

    def setUp(self):
        self.path = os.path.join(MOUNT, self.id().rsplit(".", 1)[-1])
        os.mkdir(self.path)

    def published(self):
        """The store with one tensor, open for reading."""
        gmsfs.publish(self.path, {"t": b"1"})
        return gmsfs.open(self.path)

    def make_other(self):
        """Another store, until the test ends."""
        other = self.path + ".other"
        os.mkdir(other)
        self.addCleanup(os.rmdir, other)
        return other

    def tearDown(self):
        def gone():
            try:
                os.rmdir(self.path)
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                return False
            return True

        self.wait_until(gone, "the test left a session behind")

    def wait_until(self, condition, otherwise):
        """Waits, e.g. for the effects of a process's end: the kernel tells the daemon a moment later."""
        end = time.monotonic() + TIMEOUT / 6
        while not condition():
            self.assertLess(time.monotonic(), end, otherwise)
            time.sleep(0.01)

    def file(self, name):
        """The path of a file of this test alone: a class can inherit tests of another."""
        return os.path.join(SCRATCH, f"{type(self).__name__}-{os.path.basename(self.path)}-{name}")

    def load(self, tensors, metadata=None):
        """Loads tensors by the command."""
        model = write_model(self.file("model.safetensors"), tensors, metadata)
        command("load", "-q", self.path, model)
        return model

    def state(self):
        with open(os.path.join(self.path, "state"), encoding="ascii") as file:
            return file.read().strip()

    def commit_raw(self, entries, size=4096):
        """Commits one allocation of `size` bytes with entries of any values: {key: (value, offset)}."""
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            handle = store._live()
            handle.call("gmsfs_clear_all_handles")
            slot = gmsfs.store.ctypes.c_uint64()
            handle.call("gmsfs_allocate_handle", size, b"raw", None, gmsfs.store.ctypes.byref(slot))
            for key, (value, offset) in entries.items():
                store.metadata.put(key, value, slot.value, offset)
            store.commit()
