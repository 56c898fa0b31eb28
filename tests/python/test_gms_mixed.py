# SPDX-License-Identifier: Apache-2.0
"""GMS V0, V1, files and the commands on the same store: one lock, one queue, one layout, one event log."""

import json
import os
import subprocess
import sys

import gms_client
from gms_client import TIMEOUT, owned
from gms_support import MOUNT, PIECE, GmsCase, device, store_file, v0_path, v1_path, wait_until
from support import command, write_model

W = os.path.join(MOUNT, "weights")
TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gms.py")


def open_now(name, flags):
    """Opens a file of the store, or raises at once."""
    return os.open(os.path.join(W, name), flags | os.O_NONBLOCK | os.O_CLOEXEC)


class Mixed(GmsCase):
    def process(self, version, *operations):
        """gms.py in a process of its own, which has said `held` when this returns."""
        path = v0_path() if version == "v0" else v1_path()
        process = subprocess.Popen(
            [sys.executable, TOOL, version, path, *operations],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(self.end, process)
        for line in process.stdout:
            if line == "held\n":
                return process
        raise AssertionError("gms.py did not get so far")

    @staticmethod
    def end(process):
        process.kill()
        process.stdout.close()
        process.wait(TIMEOUT)

    def waiting_shell(self, line):
        """A shell that waits in an open of a file of the store."""
        before = self.waiters()
        shell = self.shell()
        shell.begin(line)
        wait_until(lambda: self.waiters() == before + 1, f"{line} waits")
        return shell

    def sessions(self):
        return [line.split() for line in store_file("weights", "sessions").splitlines()]


class Locks(Mixed):
    def test_files_are_kept_out_by_a_writer_at_a_socket(self):
        for session in (lambda: self.session("rw"), lambda: self.session_v1("rw")):
            holder = session()
            for name, flags in (("lock", os.O_RDWR), ("lock", os.O_RDONLY), ("auto", os.O_RDWR)):
                with self.assertRaises(BlockingIOError):
                    os.close(open_now(name, flags))
            self.assertEqual(store_file("weights", "state"), "RW\n")
            holder.close()
            self.wait_state("EMPTY")

    def test_a_waiting_file_is_granted_when_the_socket_closes(self):
        for session in (lambda: self.session("rw"), lambda: self.session_v1("rw")):
            holder = session()
            shell = self.waiting_shell("exec 3<>$S/lock")
            self.assertTrue(shell.waits())
            holder.close()
            self.assertEqual(shell.finish()[1], 0)
            self.assertRegex(shell.do("head -n 1 <&3"), "^RW ")
            shell.close()
            self.wait_state("EMPTY")

    def test_a_reader_at_a_file_keeps_writers_at_sockets_waiting(self):
        self.commit_content()
        shell = self.shell()
        shell.do("exec 3<$S/lock")
        self.assertEqual(self.probe()["ro_session_count"], 1)
        writer = self.waiting("rw")
        self.assertEqual(self.probe()["waiting_writers"], 1)
        shell.close()
        writer.granted()

    def test_all_kinds_are_granted_in_the_order_in_which_they_came(self):
        holder = self.session("rw")
        shell = self.waiting_shell("exec 3<>$S/lock")
        newer = self.waiting_v1("rw")
        older = self.waiting("rw")
        last = self.waiting_shell("exec 3<>$S/auto")
        self.assertEqual(self.probe()["waiting_writers"] >= 3, True)
        holder.close()
        self.assertEqual(shell.finish()[1], 0)
        newer.expect_silence(0.02)
        shell.do("exec 3>&-")
        newer.granted()
        older.expect_silence(0.02)
        newer.abort()
        older.granted()
        self.assertTrue(last.waits())
        older.close()
        self.assertEqual(last.finish()[1], 0)

    def test_readers_of_all_kinds_share(self):
        self.commit_content()
        shell = self.shell()
        shell.do("exec 3<$S/lock")
        first, second = self.session("ro"), self.session_v1("ro")
        self.assertEqual(self.probe()["ro_session_count"], 3)
        self.assertEqual(len(first.list()), len(second.list()))

    def test_a_waiting_writer_of_any_kind_holds_readers_of_all_kinds_off(self):
        for writer in (
            lambda: self.waiting("rw"),
            lambda: self.waiting_v1("rw"),
            lambda: self.waiting_shell("exec 3<>$S/lock"),
        ):
            self.commit_content()
            self.session("ro")
            writer()
            with self.assertRaises(BlockingIOError):
                os.close(open_now("lock", os.O_RDONLY))
            self.assertIsNone(self.v0().lock("ro", 0))
            self.close_all()
            wait_until(lambda: self.waiters() == 0, "no client waits")
            self.make_empty("weights")

    def test_a_session_at_a_socket_is_nobody_elses(self):
        """Not even that of files of the same process."""
        self.session("rw")
        with self.assertRaises(OSError):
            with open(os.path.join(W, "commit"), "w", encoding="ascii") as file:
                file.write("1")
        with self.assertRaises(BlockingIOError):
            os.close(open_now("allocations/a", os.O_RDWR | os.O_CREAT))
        self.assertEqual(self.state(), "RW")

    def test_sessions_tells_who_they_are(self):
        self.commit_content()
        self.session("ro")
        self.session_v1("ro")
        self.waiting("rw")
        pid, uid = str(os.getpid()), str(os.getuid())
        seen = sorted((line[1], line[2]) for line in self.sessions() if line[3:5] == [pid, uid])
        self.assertEqual(seen, [("RO", "held"), ("RO", "held"), ("RW", "waiting")])

    def test_a_writer_that_is_killed_is_forgotten(self):
        self.process("v0", *"lock rw - allocate 5 - say held pause".split()).kill()
        self.wait_state("EMPTY")

    def test_revoking_ends_a_connection(self):
        for version in "v0", "v1":
            client = self.session("rw") if version == "v0" else self.session_v1("rw")
            number = next(line[0] for line in self.sessions() if line[2] == "held")
            with open(os.path.join(W, "abort"), "w", encoding="ascii") as file:
                file.write(f"revoke {number}")
            client.expect_closed()
            self.wait_state("EMPTY")

    def test_revoking_ends_a_wait(self):
        self.session("rw")
        for wait in (lambda: self.waiting("rw"), lambda: self.waiting_v1("rw")):
            client = wait()
            number = next(line[0] for line in self.sessions() if line[2] == "waiting")
            with open(os.path.join(W, "abort"), "w", encoding="ascii") as file:
                file.write(f"revoke {number}")
            try:
                self.assertEqual(client.granted().get("success"), False)
            except (gms_client.Refused, gms_client.Closed):
                pass
            wait_until(client.is_closed, "the connection ends")
            self.assertEqual(self.waiters(), 0)


class Layouts(Mixed):
    def test_files_show_what_v0_committed(self):
        writer = self.session("rw")
        first, second = self.fill(writer)
        with owned(writer.export(second)[1]) as memory:
            os.pwrite(memory, b"bytes", 0)
        writer.commit()
        writer.close()
        names = sorted(os.listdir(os.path.join(W, "allocations")))
        self.assertEqual(names, ["a000000", "a000001"])
        with open(os.path.join(W, "allocations", names[1]), "rb") as file:
            self.assertEqual(file.read(5), b"bytes")
        self.wait_state("COMMITTED")
        path = os.path.join(W, "allocations", names[0])
        self.assertEqual(os.stat(path).st_size, 4096)
        self.assertEqual(os.getxattr(path, "user.gmsfs.tag"), b"weights")
        self.assertEqual(os.getxattr(path, "user.gmsfs.slot"), b"0")
        entry = os.path.join(W, "metadata", "first")
        with open(entry, "rb") as file:
            self.assertEqual(file.read(), b"one")
        self.assertEqual(os.getxattr(entry, "user.gmsfs.allocation"), b"a000000")
        self.assertEqual(os.getxattr(entry, "user.gmsfs.offset"), b"16")
        self.assertEqual(json.loads(store_file("weights", "info"))["generation"] > 0, True)

    def test_files_show_a_writers_working_copy(self):
        writer = self.session("rw")
        self.fill(writer)
        self.assertEqual(len(os.listdir(os.path.join(W, "allocations"))), 2)
        self.assertEqual(store_file("weights", "layout_hash"), "")

    def test_v0_and_v1_show_what_files_committed(self):
        shell = self.shell()
        shell.do("exec 3<>$S/lock")
        shell.do("truncate -s 5000 $S/allocations/mine; truncate -s 3M $S/allocations/other")
        shell.do("printf hello | dd of=$S/allocations/mine conv=notrunc status=none")
        shell.do("setfattr -n user.gmsfs.tag -v label $S/allocations/mine")
        shell.do("printf value >$S/metadata/key")
        shell.do("setfattr -n user.gmsfs.allocation -v mine $S/metadata/key")
        shell.do("setfattr -n user.gmsfs.offset -v 7 $S/metadata/key")
        shell.do("printf free >$S/metadata/unbound")
        shell.do("echo 1 >$S/commit; exec 3>&-")
        reader = self.session("ro")
        listed = reader.list()
        sizes = [(item["size"], item["aligned_size"]) for item in listed]
        self.assertEqual(sizes, [(5000, PIECE), (3 << 20, 2 * PIECE)])
        self.assertEqual([(i["tag"], i["layout_slot"]) for i in listed][0], ("label", 0))
        self.assertEqual(reader.list("label"), listed[:1])
        self.assertEqual(reader.get_entry("key"), (listed[0]["allocation_id"], 7, b"value"))
        for key in reader.keys():  # never one without an allocation
            self.assertIsNotNone(reader.get_entry(key))
        with owned(reader.export(listed[0]["allocation_id"])[1]) as memory:
            self.assertEqual(os.pread(memory, 5, 0), b"hello")
        newer = self.session_v1("ro")
        self.assertEqual([size for _, size in newer.list()], [PIECE, 2 * PIECE])
        with owned(newer.export(newer.list()[0][0])) as memory:
            self.assertEqual(os.pread(memory, 5, 0), b"hello")

    def test_v0_shows_what_v1_committed(self):
        writer = self.session_v1("rw")
        for name, size in ("a", PIECE), ("b", 3 * PIECE):
            writer.allocate(name, size)
            with owned(writer.export(name)) as memory:
                os.pwrite(memory, name.encode() * 4, 0)
        writer.commit()
        reader = self.session("ro")
        listed = reader.list()
        self.assertEqual(
            [(i["size"], i["aligned_size"], i["tag"], i["layout_slot"]) for i in listed],
            [(PIECE, PIECE, "default", 0), (3 * PIECE, 3 * PIECE, "default", 1)],
        )
        self.assertEqual(reader.keys(), [])
        self.assertNotEqual(reader.layout_hash(), "")
        for item, text in zip(listed, (b"aaaa", b"bbbb")):
            with owned(reader.export(item["allocation_id"])[1]) as memory:
                self.assertEqual(os.pread(memory, 4, 0), text)

    def test_v1_shows_what_v0_committed(self):
        writer = self.session("rw")
        for size in (1, PIECE + 1):
            made = writer.allocate(size)
            with owned(writer.export(made["allocation_id"])[1]) as memory:
                os.pwrite(memory, b"v0", 0)
        writer.commit()
        reader = self.session_v1("ro")
        self.assertEqual([size for _, size in reader.list()], [PIECE, 2 * PIECE])
        for name, _ in reader.list():
            with owned(reader.export(name)) as memory:
                self.assertEqual(os.pread(memory, 2, 0), b"v0")

    def test_ids_stay_the_same_for_all_who_read_the_layout(self):
        self.commit_content_v1()
        self.assertEqual(self.session("ro").list(), self.session("ro").list())
        self.assertEqual(self.session_v1("ro").list(), [("a", PIECE), ("b", PIECE)])

    def test_v0_never_gives_an_id_again_though_v1_does(self):
        """V0's clients cache by it."""
        seen = set()
        for _ in range(2):
            self.commit_content_v1()
            reader = self.session("ro")
            for item in reader.list():
                self.assertNotIn(item["allocation_id"], seen)
                seen.add(item["allocation_id"])
            reader.close()

    def test_what_gmsfs_load_made_is_read_by_v0(self):
        tensors = {"a": ("U8", [5], b"hello"), "b": ("F32", [2], bytes(8))}
        model = write_model(os.path.join(os.environ["GMSFS_TEST_DIR"], "m.safetensors"), tensors)
        command("load", "-q", W, model)
        reader = self.session("ro")
        name, offset, _ = reader.get_entry("a")
        with owned(reader.export(name)[1]) as memory:
            self.assertEqual(os.pread(memory, 5, offset), b"hello")

    def test_memory_is_given_back_by_all(self):
        wait_until(lambda: device()["used_bytes"] == 0, "nothing is used")
        self.commit_content()
        self.assertEqual(device()["used_bytes"], 3 * PIECE)
        self.session_v1("rw").abort()
        wait_until(lambda: device()["used_bytes"] == 0, "nothing is used again")


class Events(Mixed):
    def test_v0_tells_what_others_did(self):
        with self.logs(("rw_connected", 0), ("committed", 0)):
            self.commit_content_v1()
        with self.logs(
            ("allocations_cleared", 2), ("rw_connected", 0), ("rw_aborted", 0), ("allocations_cleared", 1)
        ):
            writer = self.session_v1("rw")
            writer.allocate("a", PIECE)
            writer.abort()
        with self.logs(("rw_connected", 0), ("committed", 0)):
            self.shell().do("exec 3<>$S/lock; echo 1 >$S/commit; exec 3>&-")
            self.wait_state("COMMITTED")

    def test_the_file_tells_what_clients_at_sockets_did(self):
        self.commit_content()
        with open(os.path.join(MOUNT, "events"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        last = [line for line in lines if line.get("store") == "weights"][-2:]
        self.assertEqual([line["event"] for line in last], ["rw_connected", "committed"])


class Sealed(Mixed):
    """A cache that outlives its engine, through sockets and files."""

    def seal_by_file(self):
        shell = self.shell()
        shell.do("exec 3<>$S/data")
        self.assertRegex(shell.do("head -n 1 <&3"), "^RW ")
        shell.do("truncate -s 5000 $S/allocations/cache")
        shell.do("printf before | dd of=$S/allocations/cache conv=notrunc status=none")
        shell.do("echo 1 >$S/seal")
        return shell

    def test_a_seal_by_a_file_is_adopted_by_v0(self):
        shell = self.seal_by_file()
        seen = self.probe()
        self.assertEqual((seen["state"], seen["committed"], seen["layout_committed"]), ("RW", False, True))
        self.assertEqual(store_file("weights", "layout_hash"), seen["memory_layout_hash"] + "\n")
        shell.close()
        self.wait_state("LAYOUT_COMMITTED")
        client = self.session("rw_data_or_rw", granted="rw_data")
        listed = client.list()
        self.assertEqual([item["size"] for item in listed], [5000])
        with owned(client.export(listed[0]["allocation_id"])[1]) as memory:
            self.assertEqual(os.pread(memory, 6, 0), b"before")
            os.pwrite(memory, b"after!", 0)
        self.assertEqual(store_file("weights", "layout_hash"), client.layout_hash() + "\n")

    def test_a_seal_by_v0_is_adopted_by_a_file(self):
        make = "lock rw - allocate 5000 - export last write 0 before seal say held pause"
        process = self.process("v0", *make.split())
        self.end(process)
        self.wait_state("LAYOUT_COMMITTED")
        shell = self.shell()
        shell.do("exec 3<>$S/data")
        self.assertRegex(shell.do("head -n 1 <&3"), "^RW_DATA ")
        self.assertEqual(shell.do("head -c 6 $S/allocations/a000000; echo").rstrip("\n"), "before")
        shell.do("printf after! | dd of=$S/allocations/a000000 conv=notrunc status=none")
        shell.close()
        self.wait_state("LAYOUT_COMMITTED")
        client = self.session("rw_data_or_rw", granted="rw_data")
        with owned(client.export(client.list()[0]["allocation_id"])[1]) as memory:
            self.assertEqual(os.pread(memory, 6, 0), b"after!")

    def test_a_successor_waits_until_nobody_can_write_any_more(self):
        """The predecessor closed its connection, but lives and has its descriptor."""
        make = "lock rw - allocate 5000 - export last seal close say held pause"
        process = self.process("v0", *make.split())
        successor = self.v0()
        successor.ask("rw_data_or_rw")
        successor.expect_silence(0.2)
        process.kill()
        self.assertEqual(successor.granted()["granted_lock_type"], "rw_data")

    def test_a_writer_at_lock_or_v1_starts_empty(self):
        for take in (
            lambda: self.shell().do("exec 3<>$S/lock; ls $S/allocations"),
            lambda: "\n".join(name for name, _ in self.session_v1("rw").list()),
        ):
            self.seal_content()
            self.assertEqual(take(), "")
            self.close_all()
            self.wait_state("EMPTY")

    def test_an_allocation_opened_for_writing_adopts_the_bytes(self):
        process = self.process("v0", *"lock rw - allocate 5000 - seal say held pause".split())
        self.end(process)
        self.wait_state("LAYOUT_COMMITTED")
        shell = self.shell()
        shell.do("exec 3<>$S/allocations/a000000")
        self.assertEqual([line[1] for line in self.sessions() if line[2] == "held"], ["RW_DATA"])
        shell.do("printf by-file >&3; exec 3>&-")
        self.wait_state("LAYOUT_COMMITTED")

    def test_data_is_a_writers_lock_where_nothing_is_sealed(self):
        self.commit_content()
        shell = self.shell()
        shell.do("exec 3<>$S/data")
        self.assertRegex(shell.do("head -n 1 <&3"), "^RW ")


class Names(Mixed):
    """Sockets follow the name of a store, sessions the store."""

    def test_a_store_that_took_the_name_is_what_new_clients_find(self):
        self.commit_content()
        reader = self.session("ro")
        following, former = W + ".next", W + ".former"
        os.mkdir(following)
        os.rename(W, former)
        try:
            os.rename(following, W)
            self.assertEqual(len(reader.list()), 2)
            self.assertEqual(self.state(), "EMPTY")
            self.session("rw").close()
            self.wait_state("EMPTY")
            os.rename(W, following)
        finally:
            os.rename(former, W)
            os.rmdir(following)
        self.assertEqual(self.state(), "RO")
        reader.close()
        self.wait_state("COMMITTED")
