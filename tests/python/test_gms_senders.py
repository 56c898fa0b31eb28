# SPDX-License-Identifier: Apache-2.0
"""Connections shared by several processes: the exits that a successor of sealed memory waits for, and
messages that carry unexpected descriptors."""

import contextlib
import json
import os
import select
import signal
import socket
import traceback

import gms_client
from gms_client import TIMEOUT, encode
from gms_support import GmsCase, store_file

HIDDEN = "not visible to the daemon, or was gone"
FENCE_REFUSED = "process fences are not supported by this server"


class Process:
    """A fork that does something, says so, and stays until it is killed."""

    def __init__(self, do, stays=True):
        self._said, said = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(do, said, stays)
        os.close(said)
        self.watch = os.pidfd_open(self.pid)

    @staticmethod
    def _run(do, said, stays):
        try:
            os.write(said, f"{do() or ''}\n".encode())
            os.close(said)
            while stays:
                signal.pause()
            os._exit(0)
        except BaseException:  # of a fork: the tests are the parent's
            traceback.print_exc()
        finally:
            os._exit(1)

    def result(self):
        """Waits for the process's function and returns its result."""
        if not select.select([self._said], [], [], TIMEOUT)[0]:
            raise TimeoutError("a process did not get so far")
        text = os.read(self._said, 4096).decode()
        if not text:
            raise AssertionError("a process failed; see above")
        return text.strip()

    def join(self):
        os.waitpid(self.pid, 0)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            self.join()

    def close(self):
        self.end()
        os.close(self.watch)
        os.close(self._said)


def end_orphan(watch):
    """Kills a process by its pidfd, and returns after its end."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(watch, signal.SIGKILL)
    select.select([watch], [], [], TIMEOUT)
    os.close(watch)


class Senders(GmsCase):
    def process(self, do, **options):
        return self.keep(Process(do, **options))

    def may_write(self):
        return sorted(json.loads(store_file("weights", "info"))["may_write"])

    def started(self):
        """Opens a writer with one allocation. Returns (writer, allocation id)."""
        writer = self.session("rw")
        return writer, writer.allocate(4096)["allocation_id"]

    def send_each(self, client, data, cuts):
        """The pieces of a frame, each by a process of its own; they stay."""
        ends = list(cuts) + [len(data)]
        processes = []
        for begin, end in zip([0] + list(cuts), ends):
            processes.append(self.process(lambda piece=data[begin:end]: client.send_raw(piece)))
            processes[-1].result()
        return [process.pid for process in processes]

    def test_the_child_that_writes_is_waited_for_when_who_connected_has_exited(self):
        def write():
            writer = self.session("rw")

            def go_on():
                while os.getppid() == connector:
                    select.select([], [], [], 0.005)
                memory = writer.export(writer.allocate(4096)["allocation_id"])[1]
                writer.commit_layout()
                writer.close()
                return memory

            connector = os.getpid()
            child = Process(go_on)
            os.write(ready, f"{child.pid}\n".encode())

        hears, ready = os.pipe()
        done, says = os.pipe()
        self.addCleanup(os.close, hears)
        parent = self.process(write, stays=False)
        parent.result()
        child = os.pidfd_open(int(os.read(hears, 64)))
        parent.join()
        os.close(ready)
        os.close(done)
        os.close(says)
        successor = None
        try:
            self.wait_state("LAYOUT_COMMITTED")
            self.assertEqual(len(self.may_write()), 1)
            successor = self.v0()
            successor.ask("rw_data_or_rw")
            successor.expect_silence(0.2)
        finally:
            end_orphan(child)
        self.assertEqual(successor.granted()["granted_lock_type"], "rw_data")
        self.assertEqual(self.may_write(), [])

    def seal(self):
        """In a process that keeps the memory for as long as it lives."""
        writer = self.session("rw")
        writer.export(writer.allocate(4096)["allocation_id"])
        writer.commit_layout()
        writer.close()

    def take_over(self, begun):
        """A process that maps the memory connects and sends the first `begun` bytes of a handshake; the test
        sends the rest. The memory is granted only after that process has exited."""

        def seal_and_connect():
            self.seal()
            client = self.v0()
            client.send_raw(data[:begun])
            socket.send_fds(there, [b"x"], [client.fileno()])

        data = encode({"type": "handshake_request", "lock_type": "rw_data_or_rw", "timeout_ms": None})
        here, there = socket.socketpair()
        with here, there:
            predecessor = self.process(seal_and_connect)
            predecessor.result()
            numbers = socket.recv_fds(here, 1, 1)[1]
        self.assertEqual(self.may_write(), [predecessor.pid])
        successor = self.keep(gms_client.V0(socket.socket(fileno=numbers[0])))
        successor.send_raw(data[begun:])
        successor.expect_silence(0.2)
        waiting = store_file("weights", "sessions")
        predecessor.end()
        self.assertEqual(successor.granted()["granted_lock_type"], "rw_data")
        self.assertEqual(self.may_write(), [])
        return waiting

    def test_who_has_the_memory_and_passes_its_connection_on_is_waited_for(self):
        self.assertIn(f" {os.getpid()} ", self.take_over(begun=0))

    def test_a_handshake_of_several_waits_for_all_that_have_the_memory(self):
        self.take_over(begun=5)

    def test_a_child_with_the_memory_adopts_it_again_on_its_parents_connection(self):
        def seal_and_adopt():
            self.seal()
            return client.lock("rw_data_or_rw")

        client = self.v0()
        child = self.process(seal_and_adopt)
        self.assertEqual(child.result(), "rw_data")
        self.assertEqual(self.may_write(), [child.pid])

    def test_a_child_that_asks_on_its_parents_connection_and_the_parent_are_both_waited_for(self):
        writer, allocation = self.started()
        child = self.process(lambda: writer.export(allocation)[1])
        child.result()
        self.assertEqual(self.may_write(), sorted([os.getpid(), child.pid]))

    def test_who_only_sent_something_else_is_not_waited_for(self):
        writer, allocation = self.started()
        child = self.process(lambda: len(writer.list()))
        self.assertEqual(child.result(), "1")
        os.close(writer.export(allocation)[1])
        self.assertEqual(self.may_write(), [os.getpid()])

    def test_requests_that_are_read_together_have_each_its_own_sender(self):
        """All wait for the grant, and are then read at once."""
        self.seal_content()
        reader = self.session("rw_data_or_rw", granted="rw_data")
        ids = [item["allocation_id"] for item in reader.list()]
        waiter = self.waiting("rw_data_or_rw")
        lists = encode({"type": "list_allocations_request", "tag": None})
        export = encode({"type": "export_allocation_request", "allocation_id": ids[0]})
        processes = []
        for data in lists, export, lists:
            processes.append(self.process(lambda data=data: waiter.send_raw(data)))
            processes[-1].result()
        asker = processes[1]
        reader.socket.shutdown(socket.SHUT_RDWR)  # the others have it as well
        waiter.granted()
        for _ in range(3):
            for number in waiter.receive()[1]:
                os.close(number)
        self.assertEqual(self.may_write(), sorted([asker.pid, os.getpid()]))

    def test_all_senders_of_one_request_are_waited_for(self):
        writer, allocation = self.started()
        data = encode({"type": "export_allocation_request", "allocation_id": allocation})
        pids = self.send_each(writer, data, (2, len(data) - 1))
        os.close(writer.result("export_allocation_response", descriptor=True)[1])
        self.assertEqual(self.may_write(), sorted(pids + [os.getpid()]))

    def test_a_request_of_too_many_senders_is_one_of_nobody(self):
        writer, allocation = self.started()
        data = encode({"type": "export_allocation_request", "allocation_id": allocation})
        self.send_each(writer, data, range(1, 10))
        os.close(writer.result("export_allocation_response", descriptor=True)[1])
        with self.assertRaisesRegex(gms_client.Refused, HIDDEN):
            writer.commit_layout()

    def test_a_sender_that_has_exited_is_lent_nothing_of_what_is_sealed(self):
        """It asked while its connection waited for the lock."""
        for reaped in True, False:
            self.seal_content()
            holder = self.session("rw_data_or_rw", granted="rw_data")
            allocation = holder.list()[0]["allocation_id"]
            waiter = self.waiting("rw_data_or_rw")
            sender = self.process(
                lambda: waiter.send("export_allocation_request", allocation_id=allocation), stays=False
            )
            sender.result()
            select.select([sender.watch], [], [], TIMEOUT)
            if reaped:
                sender.join()
            holder.close()
            waiter.granted()
            with self.assertRaisesRegex(gms_client.Refused, HIDDEN):
                waiter.result("export_allocation_response", descriptor=True)
            self.assertEqual(self.may_write(), [])
            waiter.close()
            self.wait_state("LAYOUT_COMMITTED")


class Descriptors(GmsCase):
    def send(self, client, message, count=1):
        """Sends a message with descriptors of a pipe; this process has closed its copies at the return."""
        read_end, write_end = os.pipe()
        with gms_client.owned(read_end):
            client.send_raw(encode(message), [write_end] * count)
            os.close(write_end)
            self.assertTrue(select.select([read_end], [], [], TIMEOUT)[0])
            self.assertEqual(os.read(read_end, 1), b"")

    def test_a_process_fence_with_its_descriptor_is_refused_in_words(self):
        for lock_type in "rw", "ro", "rw_or_ro":
            for identity in None, ["x", "y"]:
                client = self.v1()
                self.send(client, {"type": "handshake_request", "lock_type": lock_type,
                                   "expected_identity": identity, "process_fence": True})
                self.assert_refused(FENCE_REFUSED, client.granted)
                client.expect_closed()

    def test_no_other_first_message_of_v1_brings_one(self):
        wish = {"type": "handshake_request", "lock_type": "rw", "expected_identity": None}
        for message in wish, {**wish, "process_fence": False}, {"type": "get_checkpoint_state_request"}:
            client = self.v1()
            self.send(client, message)
            client.expect_closed()
        self.wait_state("EMPTY")

    def test_a_process_fence_in_a_session_brings_none(self):
        client = self.session_v1("rw")
        self.send(client, {"type": "handshake_request", "lock_type": "rw", "expected_identity": None,
                           "process_fence": True})
        client.expect_closed()
        self.wait_state("EMPTY")

    def test_v0_does_not_look_at_them(self):
        client = self.v0()
        self.send(client, {"type": "handshake_request", "lock_type": "rw", "timeout_ms": None}, 5)
        self.assertEqual(client.granted()["granted_lock_type"], "rw")
