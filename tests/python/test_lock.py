# SPDX-License-Identifier: Apache-2.0
"""Locks, errors, sleeping and waking, fork, the end of a process."""

import copy
import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import gmsfs
from support import MOUNT, TIMEOUT, StoreCase, command, python

HOLD = (
    "import sys, gmsfs\n"
    "store = gmsfs.open(sys.argv[1], 'rw')\n"
    "print('held', flush=True)\n"
    "sys.stdin.read()\n"
)

# Sends SIGUSR1 to a process that waits for the lock.
INTERRUPT = (
    "import os, signal, sys, time\n"
    "while ' waiting ' not in open(sys.argv[1] + '/sessions').read():\n"
    "    time.sleep(0.01)\n"
    "os.kill(int(sys.argv[2]), signal.SIGUSR1)\n"
)


class Holder:
    """Another process that has the writer's lock for the length of a `with`."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout.readline() == b"held\n"
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(TIMEOUT)


class Locks(StoreCase):
    def test_without_waiting_a_lock_that_is_held_would_block(self):
        with Holder(self.path):
            with self.assertRaisesRegex(gmsfs.WouldBlock, "another session has the lock") as caught:
                gmsfs.open(self.path, "rw", timeout=0)
        self.assertIsInstance(caught.exception, BlockingIOError)

    def test_a_wait_ends_with_its_time(self):
        with Holder(self.path):
            with self.assertRaisesRegex(gmsfs.Timeout, "gmsfs status") as caught:
                gmsfs.open(self.path, "rw", timeout=0.01)
        self.assertIsInstance(caught.exception, TimeoutError)

    def test_a_lock_that_nobody_has_and_that_does_not_come_says_why(self):
        for kind, timeout in (gmsfs.WouldBlock, 0), (gmsfs.Timeout, 0.01):
            with self.assertRaisesRegex(kind, "nothing is committed in it"):
                gmsfs.open(self.path, timeout=timeout)
        gmsfs.publish(self.path, {"t": b"1"})
        command("demote", "-q", "--to", "none", self.path)
        with self.assertRaisesRegex(gmsfs.Error, "its bytes were given up; load or publish them anew"):
            gmsfs.open(self.path, timeout=0)

    def test_a_wait_ends_with_the_grant(self):
        with Holder(self.path) as process:
            os.kill(process.pid, signal.SIGKILL)
            with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
                self.assertTrue(store.writable)

    def test_ctrl_c_ends_a_wait_at_once_and_leaves_no_waiter(self):
        waiter = (
            "import sys, gmsfs\n"
            "try:\n"
            "    gmsfs.open(sys.argv[1], 'rw')\n"
            "except KeyboardInterrupt:\n"
            "    print(open(sys.argv[1] + '/sessions').read().count(' waiting '))\n"
        )
        with Holder(self.path):
            process = subprocess.Popen(
                [sys.executable, "-c", waiter, self.path], stdout=subprocess.PIPE, text=True
            )
            while " waiting " not in read(os.path.join(self.path, "sessions")):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.communicate(timeout=TIMEOUT)[0], "0\n")
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT):
            pass

    def test_reading_where_nothing_is_committed_would_block(self):
        with self.assertRaises(gmsfs.WouldBlock):
            gmsfs.open(self.path, timeout=0)

    def test_a_mode_that_there_is_not_is_refused(self):
        with self.assertRaisesRegex(ValueError, '"rw_or_ro"'):
            gmsfs.open(self.path, "w")

    def test_a_time_is_rounded_up_and_can_be_without_end(self):
        with Holder(self.path):
            with self.assertRaises(gmsfs.Timeout):  # not WouldBlock, as without waiting
                gmsfs.open(self.path, "rw", timeout=1e-6)
        for timeout in (float("inf"), 1e30):
            gmsfs.open(self.path, "rw", timeout=timeout).close()

    def test_arguments_that_make_no_sense_are_refused(self):
        for arguments in (
            {"timeout": -1},
            {"timeout": float("nan")},
            {"mode": ["rw"]},
            {"mode": "ro", "reserve_bytes": 4096},
            {"mode": "rw", "reserve_bytes": -1},
            {"mode": "rw", "reserve_bytes": 1 << 64},
            {"token": "zz" * 16},
            {"token": "00"},
        ):
            with self.assertRaisesRegex(ValueError, "timeout|mode|reserve|token", msg=arguments):
                gmsfs.open(self.path, **{"timeout": 0, **arguments})
        with self.assertRaisesRegex(ValueError, "NUL"):
            gmsfs.open(self.path + "\0other", "rw")

    def test_arguments_of_another_type_are_named(self):
        for arguments in ({"timeout": "x"}, {"timeout": True}, {"reserve_bytes": "1"}, {"token": 16}):
            with self.assertRaisesRegex(TypeError, "number|digits", msg=arguments):
                gmsfs.open(self.path, **{"mode": "rw", "timeout": 0, **arguments})

    def test_a_value_over_the_bound_is_refused_with_the_bound(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.metadata["most"] = bytes(1 << 20)
            with self.assertRaisesRegex(gmsfs.Error, "at most 1 MiB") as caught:
                store.metadata["more"] = bytes((1 << 20) + 1)
        self.assertEqual(caught.exception.errno, errno.EFBIG)

    def test_a_token_of_no_session_is_said_to_be_so(self):
        with self.assertRaisesRegex(gmsfs.Stale, "no session has this token"):
            gmsfs.open(self.path, token="00" * 16)


class Errors(StoreCase):
    def test_an_error_names_the_store_the_call_the_cause_and_the_way_out(self):
        with self.assertRaises(gmsfs.Error) as caught:
            gmsfs.open(self.path + ".no")
        error = caught.exception
        self.assertEqual(
            (error.errno, error.filename, error.call),
            (errno.ENOENT, self.path + ".no", "gmsfs_open"),
        )
        self.assertEqual(
            str(error),
            f"{self.path}.no: gmsfs_open: No such file or directory: no such store; "
            "'gmsfs status' lists them, and mkdir makes one",
        )
        self.assertEqual(str(pickle.loads(pickle.dumps(error))), str(error))

    def test_a_directory_that_is_no_store_is_said_to_be_none(self):
        for path in ("/tmp", os.path.join(MOUNT, "device")):
            with self.assertRaisesRegex(gmsfs.Error, f"{path}: .* no store of a gmsfs mount"):
                gmsfs.open(path)

    def test_changing_needs_the_writers_lock(self):
        with self.published() as store:
            for change in (
                lambda: store.metadata.__setitem__("key", b""),
                store.commit,
                store.abort,
            ):
                with self.assertRaises(gmsfs.NoLock):
                    change()

    def test_a_closed_store_says_so(self):
        gmsfs.publish(self.path, {"t": b"1"})
        store = gmsfs.open(self.path)
        store.close()
        store.close()
        for use in (store.tensors, store.sleep, lambda: store.info, lambda: store.metadata["t"]):
            with self.assertRaisesRegex(ValueError, "is closed"):
                use()

    def test_a_closed_store_is_not_entered(self):
        with self.published() as store:
            pass
        with self.assertRaisesRegex(ValueError, "is closed"):
            with store:
                pass

    def test_a_lock_is_neither_copied_nor_pickled(self):
        with self.published() as store:
            for thing in (store, store.buffers()[0]):
                for way in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "neither copied nor sent"):
                        way(thing)

    def test_a_library_of_another_kind_is_refused(self):
        program = (
            "import gmsfs\n"
            "try:\n"
            "    gmsfs.open('/x')\n"
            "except gmsfs.LibraryError as error:\n"
            "    print(error)\n"
        )
        environment = dict(os.environ, GMSFS_LIBRARY="libc.so.6")
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            text=True,
            timeout=TIMEOUT,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        self.assertIn("libc.so.6 is not libgmsfs.so.0", said)
        environment["GMSFS_LIBRARY"] = "/nowhere/libgmsfs.so.0"
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            text=True,
            timeout=TIMEOUT,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        self.assertIn("GMSFS_LIBRARY", said)


def woken_by_threads(store):
    """Returns the results of wake() in two threads that have both seen the store asleep and unlocked."""
    both, said = threading.Barrier(2, timeout=TIMEOUT), []

    class Watched(gmsfs.Store):
        @property
        def mode(self):
            mode = super().mode
            if threading.current_thread() not in met:
                met.add(threading.current_thread())
                both.wait()
            return mode

    def wake():
        try:
            said.append(store.wake(TIMEOUT))
        except gmsfs.Error as error:
            said.append(error)

    met, store.__class__ = set(), Watched
    threads = [threading.Thread(target=wake) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.__class__ = gmsfs.Store
    return said


class Sleeping(StoreCase):
    def test_a_sleeper_wakes_with_every_view_at_its_place_and_new_bytes(self):
        gmsfs.publish(self.path, {"t": b"old!"})
        with gmsfs.open(self.path) as store:
            view = store.views()["t"]
            store.sleep()
            self.assertTrue(store.asleep)
            self.assertEqual(self.state(), "COMMITTED")
            gmsfs.publish(self.path, {"t": b"new!"})
            store.wake(TIMEOUT)
            self.assertEqual(bytes(view), b"new!")
            self.assertEqual((store.generation, store.mode), (2, "ro"))
            del view

    def test_strict_wants_the_same_bytes(self):
        gmsfs.publish(self.path, {"t": b"old!"})
        with gmsfs.open(self.path) as store:
            store.views()
            store.sleep()
            gmsfs.publish(self.path, {"t": b"new!"})
            with self.assertRaises(gmsfs.Stale):
                store.wake(TIMEOUT, strict=True)
            self.assertEqual((store.asleep, store.mode), (True, ""))
            store.wake(TIMEOUT)

    def test_who_mapped_nothing_has_nothing_that_could_be_stale(self):
        gmsfs.publish(self.path, {"t": b"old!"})
        with gmsfs.open(self.path) as store:
            store.sleep()
            gmsfs.publish(self.path, {"t": b"longer"})
            store.wake(TIMEOUT, strict=True)
            self.assertEqual((store.generation, bytes(store.views()["t"])), (2, b"longer"))

    def test_another_layout_is_stale(self):
        gmsfs.publish(self.path, {"t": b"old!"})
        with gmsfs.open(self.path) as store:
            store.views()
            store.sleep()
            gmsfs.publish(self.path, {"t": b"longer"})
            with self.assertRaisesRegex(gmsfs.Stale, "is not the one that was unmapped"):
                store.wake(TIMEOUT)

    def test_waking_waits_for_a_writer_only_so_long(self):
        with self.published() as store:
            store.views()
            store.sleep()
            with Holder(self.path):
                with self.assertRaises(gmsfs.Timeout):
                    store.wake(timeout=0.01)
            store.wake(TIMEOUT)

    def test_a_sleeper_whose_bytes_were_given_up_is_told_as_one_who_opens_it(self):
        with self.published() as store:
            bytes(store.views()["t"])
            store.sleep()
            command("demote", "-q", "--to", "none", self.path)
            with self.assertRaisesRegex(gmsfs.Error, "its bytes were given up; load or publish them anew"):
                store.wake(timeout=0)

    def test_what_keeps_a_reader_out_is_said_alike_of_both_ways_to_its_lock(self):
        for code in errno.ENODATA, errno.EIO, errno.ENODEV, errno.EDQUOT:
            asked = gmsfs.errors.make(code, self.path, "gmsfs_connect")
            woken = gmsfs.errors.make(code, self.path, "gmsfs_remap_all_vas")
            self.assertTrue(asked.why)
            self.assertEqual(asked.why, woken.why)

    def test_a_sleeper_whose_waking_was_interrupted_can_wake_later(self):
        def interrupt(*_):
            raise InterruptedError

        gmsfs.publish(self.path, {"t": b"1"})
        before = signal.signal(signal.SIGUSR1, interrupt)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        with gmsfs.open(self.path) as store:
            view = store.views()["t"]
            store.sleep()
            with Holder(self.path):
                other = subprocess.Popen(
                    [sys.executable, "-c", INTERRUPT, self.path, str(os.getpid())]
                )
                with self.assertRaises(InterruptedError):
                    store.wake()
                other.wait(TIMEOUT)
                self.assertNotIn(" waiting ", read(os.path.join(self.path, "sessions")))
                self.assertTrue(store.asleep)
            store.wake(TIMEOUT)
            self.assertEqual(bytes(view), b"1")
            del view

    def test_a_change_of_store_that_was_interrupted_leaves_the_store_that_there_was(self):
        program = (
            "import os, signal, sys, threading, time, gmsfs\n"
            "def interrupt():\n"
            "    while ' waiting ' not in open(sys.argv[2] + '/sessions').read():\n"
            "        time.sleep(0.01)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n"
            "with gmsfs.open(sys.argv[1]) as store:\n"
            "    view = store.views()['t']\n"
            "    threading.Thread(target=interrupt).start()\n"
            "    try:\n"
            "        store.retarget(sys.argv[2])\n"
            "    except KeyboardInterrupt:\n"
            "        print(store.asleep, store.mode, bytes(view))\n"
            "    del view\n"
        )
        other = self.make_other()
        for path in self.path, other:
            gmsfs.publish(path, {"t": b"1"})
        with Holder(other):
            self.assertEqual(python(program, self.path, other), "False ro b'1'\n")
        self.assertNotIn(" waiting ", read(os.path.join(other, "sessions")))

    def test_sleeping_and_waking_twice_are_as_once(self):
        with self.published() as store:
            view = store.views()["t"]
            store.sleep()
            store.sleep()
            self.assertEqual(store.wake(TIMEOUT), store.wake(TIMEOUT))
            self.assertEqual((store.mode, bytes(view)), ("ro", b"1"))
            del view

    def test_threads_that_wake_it_together_are_as_one(self):
        for mode in "ro", "rw_data":
            with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
                store.publish({"t": b"1"}, stay=mode == "ro", seal=mode != "ro")
                view = store.views()["t"]
                store.sleep()
                self.assertEqual(woken_by_threads(store), [store.info.moves] * 2)
                self.assertEqual((store.asleep, store.mode, bytes(view)), (False, mode, b"1"))
                del view

    def test_a_sleeper_that_never_mapped_anything_is_told_to_wake(self):
        with self.published() as store:
            store.sleep()
            with self.assertRaisesRegex(gmsfs.NoLock, "it sleeps; wake"):
                store.views()
            store.wake(TIMEOUT)
            self.assertEqual(bytes(store.views()["t"]), b"1")

    def test_a_sleeper_gives_out_nothing_that_would_fault(self):
        with self.published() as store:
            store.views()
            store.sleep()
            for ask in (store.views, store.tensors, store.specs, store.buffers):
                with self.assertRaisesRegex(gmsfs.NoLock, "it sleeps; wake"):
                    ask()

    def test_a_writer_that_has_committed_is_told_how_to_go_on(self):
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            store.publish({"t": b"1"})
            with self.assertRaisesRegex(gmsfs.NoLock, "stay=True"):
                store.views()

    def test_a_writer_that_ended_gives_out_nothing_of_the_next_ones_layout(self):
        gmsfs.publish(self.path, {"t": b"1"})
        for end in (gmsfs.Store.commit, gmsfs.Store.abort):
            with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
                store.views()
                end(store)
                gmsfs.publish(self.path, {"other": b"22"}, timeout=TIMEOUT)
                with self.assertRaisesRegex(gmsfs.NoLock, "gave its lock back"):
                    store.views()

    def test_a_sleeper_that_is_dropped_gives_everything_back(self):
        gmsfs.publish(self.path, {"t": b"1"})
        store = gmsfs.open(self.path)
        view = store.views()["t"]
        store.sleep()
        store.close()
        del view
        self.assertEqual(self.state(), "COMMITTED")


def told_before_fork(call):
    try:
        call()
    except gmsfs.Error as error:
        return error.errno == errno.ECHILD and "before fork" in str(error)
    return False


class Processes(StoreCase):
    def test_a_child_of_fork_is_told_and_does_no_harm(self):
        with self.published() as store:
            view = store.views()["t"]
            calls = (
                store.tensors,
                lambda: store.tensors("numpy"),
                store.buffers,
                lambda: store.info,
                lambda: store.mode,
                lambda: store.generation,
            )
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if all(told_before_fork(call) for call in calls) else 2
                finally:
                    store.close()
                    del store, view
                    os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            self.assertEqual(bytes(view), b"1")
            self.assertEqual(self.state(), "RO")
            del view

    def test_a_process_may_end_with_everything_open(self):
        gmsfs.publish(self.path, {"t": b"1"})
        program = (
            "import sys, numpy, gmsfs\n"
            "store = gmsfs.open(sys.argv[1])\n"
            "tensors = store.tensors()\n"
            "cycle = [tensors, store.views()]; cycle.append(cycle)\n"
            "sys.modules['kept'] = tensors['t']\n"
            "print('end')\n"
        )
        self.assertEqual(python(program, self.path), "end\n")

    def test_the_end_of_a_process_releases_the_lock(self):
        gmsfs.publish(self.path, {"t": b"1"})
        python("import sys, gmsfs; store = gmsfs.open(sys.argv[1], 'rw')", self.path)
        self.wait_until(lambda: self.state() == "COMMITTED", "the lock is still held")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
