# SPDX-License-Identifier: Apache-2.0
"""gmsfs.regions: a client's shared memory, registered, listed, opened, read and written."""

import errno
import multiprocessing.shared_memory
import os
import pickle
import socket
import struct
import threading
import unittest

import gmsfs.regions
from support import MOUNT, StoreCase


def memory(data):
    fd = os.memfd_create("client")
    os.write(fd, data)
    return fd


class RegionCase(unittest.TestCase):
    def setUp(self):
        self.regions = gmsfs.regions.open(MOUNT)
        self.addCleanup(self.regions.close)
        self.addCleanup(self.regions.unregister_all)

    def register(self, name, data, **arguments):
        fd = memory(data)
        self.addCleanup(os.close, fd)
        self.regions.register(name, "/key", len(data), fd=fd, **arguments)
        return fd

    def refused(self, code, reason, call, *arguments, **named):
        with self.assertRaises(gmsfs.regions.RegionError) as caught:
            call(*arguments, **named)
        self.assertEqual((caught.exception.errno, caught.exception.reason), (code, reason))
        return caught.exception


class Messages(unittest.TestCase):
    def test_a_request_with_stray_fields_is_answered_in_the_shape_of_any_other(self):
        for op in range(11, 15):
            request = bytearray(1176)
            struct.pack_into("=II", request, 0, 1, op)
            request[-1] = 1  # behind the last group that it counts
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
                made.connect(os.path.join(MOUNT, ".fds"))
                made.send(request)
                answer = made.recv(65536)
            self.assertEqual(len(answer), 24 + 16)  # header and struct gmsfs_fds_region_answer
            self.assertEqual(struct.unpack_from("=Ii", answer), (1, -errno.EINVAL))


class Registering(RegionCase):
    def test_what_a_client_registers_a_server_reads_and_writes(self):
        fd = self.register("in é", b"abcdefgh")
        with self.regions.open("in é") as region:
            self.assertEqual(region.read(2, 3), b"cde")
            self.assertEqual(region.read(6), b"gh")
            region.write(0, b"AB")
            self.assertEqual((region.info.key, region.info.references), ("/key", 1))
            self.assertTrue(region.info.writable and region.info.memory == "host")
        self.assertEqual(os.pread(fd, 3, 0), b"ABc")
        self.assertEqual(self.regions.get("in é").references, 0)

    def test_shared_memory_is_registered_by_its_key(self):
        shared = multiprocessing.shared_memory.SharedMemory(create=True, size=64)
        self.addCleanup(shared.close)
        shared.buf[:4] = b"data"
        self.regions.register("r", "/" + shared.name, 64)
        shared.unlink()
        with self.regions.open("r") as region:
            self.assertEqual(region.read(0, 4), b"data")

    def test_a_view_is_the_clients_memory_and_outlives_the_region(self):
        fd = self.register("r", b"x" * 9000)
        self.regions.register("part", "/key", 100, offset=5000, fd=fd)
        with self.regions.open("part") as region:
            view = region.view(writable=True)
        view[:4] = b"here"
        self.assertEqual((len(view), os.pread(fd, 5, 5000)), (100, b"herex"))

    def test_a_list_has_each_once_in_order(self):
        for name in ("b", "a"):
            self.register(name, b"x")
        self.regions.register_cuda("cu", bytes(range(64)), 2**64 - 32, device_id=3)
        self.assertEqual([info.name for info in self.regions], ["a", "b", "cu"])
        self.assertEqual([info.name for info in self.regions.list("system")], ["a", "b"])
        cuda = self.regions.get("cu")
        self.assertEqual((cuda.kind, cuda.byte_size, cuda.device_id), ("cuda", 2**64 - 32, 3))
        self.assertEqual((cuda.raw_handle, cuda.memory), (bytes(range(64)), None))
        self.assertIn("a", self.regions)
        self.assertEqual(self.regions.unregister_all("system"), 2)
        self.assertNotIn("a", self.regions)


class Failing(RegionCase):
    def test_why_it_failed_is_said(self):
        fd = self.register("r", b"x" * 10)
        register = self.regions.register
        self.refused(errno.EEXIST, "exists", register, "r", "/key", 1, fd=fd)
        self.refused(errno.EINVAL, "bad_range", register, "s", "/key", 11, fd=fd)
        self.refused(errno.EINVAL, "bad_range", register, "s", "/key", 1, -1, fd=fd)
        self.refused(errno.EINVAL, "no_size", register, "s", "/key", 0, fd=fd)
        self.refused(errno.EINVAL, "bad_name", register, "", "/key", 1, fd=fd)
        self.refused(errno.EINVAL, "bad_name", register, "n" * 256, "/key", 1, fd=fd)
        self.refused(errno.EINVAL, "bad_key", register, "s", "//", 1, fd=fd)
        self.refused(errno.ENOENT, "no_object", register, "s", "/gmsfs_no_such_object", 1)
        self.refused(errno.ENOENT, "no_object", register, "s", "none/a", 1)
        error = self.refused(
            errno.EINVAL, "bad_handle", self.regions.register_cuda, "s", b"short", 1
        )
        self.assertIn("64 bytes", str(error))
        self.assertEqual(pickle.loads(pickle.dumps(error)).reason, "bad_handle")

    def test_what_is_of_another_type_or_no_such_number_is_refused_as_python_does(self):
        fd = self.register("r", b"x" * 10)
        register, cuda = self.regions.register, self.regions.register_cuda
        for call in (
            lambda: register("s", "/key", 1, fd="3"),
            lambda: register("s", "/key", 1, fd=fd, gid="users"),
            lambda: register("s", "/key", 1.5, fd=fd),
            lambda: cuda("s", 64, 1),
            lambda: self.regions.get("r", uid="root"),
            lambda: self.regions.list(uid=1.5),
            lambda: self.regions.open("r", uid=b"0"),
            lambda: self.regions.open("r").write(0, 5),
            lambda: self.regions.open("r").write(0.5, b"x"),
            lambda: self.regions.open("r").read(0.0, 4),
            lambda: self.regions.open("r").read(0, 4.0),
        ):
            with self.assertRaises(TypeError):
                call()
        for call in (
            lambda: register("s", "/key", 1, fd=-1),
            lambda: register("s", "/key", 1, fd=2**32 + fd),
            lambda: register("s", "/key", 1, fd=fd, groups=[-1]),
            lambda: self.regions.unregister("r", uid=2**32),
            lambda: self.regions.list(uid=-1),
            lambda: gmsfs.regions.open(MOUNT + "\0"),
        ):
            with self.assertRaises(ValueError):
                call()
        with self.regions.open("r") as region:
            self.assertEqual(region.read(), b"x" * 10)

    def test_what_is_not_there_is_a_key_error_or_none(self):
        self.assertIsNone(self.regions.get("none"))
        with self.assertRaises(KeyError):
            self.regions.open("none")
        with self.assertRaises(KeyError):
            self.regions.unregister("none")

    def test_a_region_of_the_other_kind_is_told_as_such(self):
        self.register("r", b"x")
        with self.assertRaisesRegex(KeyError, "r: a region of kind system, not cuda"):
            self.regions.unregister("r", kind="cuda")
        with self.assertRaisesRegex(KeyError, "^'none'$"):
            self.regions.unregister("none", kind="cuda")
        self.assertIsNone(self.regions.get("r", kind="cuda"))
        for call in (self.regions.get, self.regions.unregister):
            with self.assertRaisesRegex(ValueError, "kind is .*not 'gpu'"):
                call("r", kind="gpu")
        for call in (self.regions.list, self.regions.unregister_all):
            with self.assertRaisesRegex(ValueError, "kind is .*not 'gpu'"):
                call("gpu")
        self.regions.unregister("r", kind="system")

    def test_an_access_outside_says_where(self):
        self.register("r", b"x" * 10)
        with self.regions.open("r") as region:
            self.refused(errno.ERANGE, "bad_offset", region.read, 10, 1)
            self.refused(errno.ERANGE, "bad_offset", region.read, -1, 1)
            self.refused(errno.ERANGE, "bad_end", region.read, 5, 6)
            self.refused(errno.ERANGE, "bad_end", region.write, 9, b"xx")

    def test_memory_that_shrinks_is_an_error(self):
        fd = self.register("r", b"x" * 8192)
        with self.regions.open("r") as region:
            os.ftruncate(fd, 4096)
            self.refused(errno.ENODATA, "shrunk", region.read)
            self.refused(errno.ENODATA, "shrunk", region.write, 8000, b"x")
            self.refused(errno.ENODATA, "shrunk", region.view)
            self.assertEqual(os.fstat(fd).st_size, 4096)

    def test_what_is_closed_says_so(self):
        self.register("r", b"x")
        region = self.regions.open("r")
        region.close()
        region.close()
        with self.assertRaises(ValueError):
            region.read()
        other = gmsfs.regions.open(MOUNT)
        other.close()
        with self.assertRaises(ValueError):
            other.list()


    def test_a_name_or_key_that_is_no_str_is_a_type_error(self):
        self.register("r", b"x")
        for name in (b"r", 7, None, ["r"]):
            for call in (self.regions.get, self.regions.open, self.regions.unregister):
                with self.subTest(name=name, call=call), self.assertRaisesRegex(TypeError, "is a string"):
                    call(name)
            with self.assertRaisesRegex(TypeError, "is a string"):
                self.regions.register(name, "/key", 1)
        with self.assertRaisesRegex(TypeError, "is a string"):
            self.regions.register("s", b"/key", 1)
        with self.assertRaises(TypeError):
            self.regions.register("s", "/key", "1")
        self.assertEqual([info.name for info in self.regions], ["r"])


class ManyUsers(RegionCase):
    def in_threads(self, run, count=8):
        wrong = []

        def guarded(number):
            try:
                run(number)
            except BaseException as error:  # told by the test, in its own thread
                wrong.append(error)

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if wrong:
            raise wrong[0]

    def test_threads_register_open_list_and_unregister_at_once(self):
        fd = memory(b"x" * 64)
        self.addCleanup(os.close, fd)

        def run(number):
            for round in range(20):
                self.regions.register(f"own{number}", "/key", 64, fd=fd)
                with self.regions.open(f"own{number}") as region:
                    region.write(number, bytes([round]))
                    self.assertEqual(region.read(number, 1), bytes([round]))
                self.assertIn(f"own{number}", [info.name for info in self.regions])
                self.regions.unregister(f"own{number}")
                self.assertNotIn(f"own{number}", self.regions)

        self.in_threads(run)
        self.assertEqual(self.regions.list(), [])

    def test_threads_that_want_one_name_are_told_who_came_first(self):
        fd = memory(b"x" * 64)
        self.addCleanup(os.close, fd)

        def run(number):
            for _ in range(20):
                try:
                    self.regions.register("common", "/key", 64, fd=fd)
                except gmsfs.regions.RegionError as error:
                    self.assertEqual(error.reason, "exists")
                try:
                    with self.regions.open("common") as region:
                        self.assertEqual(region.read(0, 1), b"x")
                    self.regions.unregister("common")
                except KeyError:
                    pass

        self.in_threads(run)
        self.assertLessEqual(self.regions.unregister_all(), 1)

    def test_who_calls_while_another_thread_closes_comes_to_an_end_or_is_told(self):
        self.register("r", b"x" * 4096)
        for _ in range(30):
            regions = gmsfs.regions.open(MOUNT)
            region = regions.open("r")
            calls = (region.read, lambda: region.view()[0], regions.list, lambda: regions.get("r"))
            started = threading.Barrier(len(calls) + 1)

            def run(number):
                started.wait()
                with self.assertRaisesRegex(ValueError, "closed"):
                    while True:
                        calls[number]()

            closer = threading.Thread(target=lambda: (started.wait(), region.close(), regions.close()))
            closer.start()
            self.in_threads(run, len(calls))
            closer.join()
        self.assertEqual(self.regions.get("r").references, 0)

    def test_a_region_goes_on_behind_its_unregistering_and_the_end_of_what_opened_it(self):
        self.register("r", b"abc")
        other = gmsfs.regions.open(MOUNT)
        region = other.open("r")
        self.regions.unregister("r")
        other.close()
        self.in_threads(lambda number: self.assertEqual(region.read(), b"abc"))
        region.write(0, b"A")
        self.assertEqual(bytes(region.view()), b"Abc")
        self.assertTrue(self.regions.get("r").draining)
        region.close()
        self.assertIsNone(self.regions.get("r"))
        for call in (region.read, region.view, region.fileno):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()
        for call in (other.list, other.unregister_all, lambda: other.open("r"), lambda: other.get("r")):
            with self.assertRaisesRegex(ValueError, "closed"):
                call()

    def child(self, run):
        """How a child of fork() ended that ran this; 0: well."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                run()
                status = 0
            finally:
                os._exit(status)
        return os.waitpid(pid, 0)[1]

    def test_a_child_of_fork_may_read_and_gives_nothing_of_its_parents_back(self):
        self.register("r", b"abc")
        region = self.regions.open("r")

        def run():
            self.refused(errno.ECHILD, "fine", self.regions.list)
            self.refused(errno.ECHILD, "fine", self.regions.unregister, "r")
            self.assertEqual(region.read(), b"abc")
            region.close()
            self.regions.close()
            with gmsfs.regions.open(MOUNT) as own:
                self.assertEqual(own.get("r").references, 1)

        self.assertEqual(self.child(run), 0)
        self.assertEqual(self.regions.get("r").references, 1)
        region.close()
        self.assertEqual(self.regions.get("r").references, 0)


class OfStores(StoreCase):
    def test_committed_memory_is_a_region_for_readers(self):
        self.commit_raw({})
        store = os.path.basename(self.path)
        (allocation,) = os.listdir(os.path.join(self.path, "allocations"))
        with gmsfs.regions.open(MOUNT) as regions:
            regions.register("w", f"{store}/{allocation}", 64, offset=32)
            with regions.open("w") as region:
                self.assertTrue(region.info.is_allocation and not region.info.writable)
                self.assertEqual(region.read(), bytes(64))
                self.assertEqual(bytes(region.view()), bytes(64))
                with self.assertRaises(gmsfs.regions.RegionError):
                    region.view(writable=True)
            self.assertEqual(self.state(), "RO")
            regions.unregister("w")
        self.assertEqual(self.state(), "COMMITTED")
