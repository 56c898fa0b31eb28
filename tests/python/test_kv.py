# SPDX-License-Identifier: Apache-2.0
"""gmsfs.kv: blocks in a sealed store, read by the next process after the last one was killed at any moment.
Needs torch."""

import os
import random
import signal
import time
import traceback
from unittest import mock

import torch

import gmsfs
import gmsfs.kv
from support import TIMEOUT, StoreCase

BLOCK, COUNT = 64 << 10, 8
FAILED = 100  # the exit status of a child that raised

torch.set_num_threads(1)  # so that torch works in a child of fork()


def key_of(number):
    return number.to_bytes(4, "little") * 8


def block_of(key):
    """Returns the content of the block with this key, computed from the key alone."""
    return torch.tensor(list(key), dtype=torch.uint8).repeat(BLOCK // len(key))


def opened(path, **options):
    return gmsfs.kv.Blocks(path, BLOCK, COUNT, timeout=TIMEOUT, **options)


def write_for_ever(path, stop_in=""):
    """Puts blocks until it is killed; by itself at the step that `stop_in` names, once twelve were put."""
    tier = opened(path)
    number = max((int.from_bytes(key[:4], "little") for key in tier.keys()), default=0)
    if stop_in:
        for number in range(number + 1, number + 13):
            tier.put(key_of(number), block_of(key_of(number)))
        die_in(tier, *stop_in.split(":"))
    while True:
        number += 1
        tier.put(key_of(number), block_of(key_of(number)))


def count_whole(path):
    """How many blocks the store has. All must be whole."""
    with opened(path) as tier:
        for key in tier.keys():
            assert torch.equal(tier.get(key).cpu(), block_of(key)), key.hex()
        return len(tier)


def start(call, *arguments):
    """Runs call() in a child, which exits with its result. Returns the child's id. A writer waits for the
    exit of all processes that could write sealed memory: so each user is a child, and this process never
    opens the store."""
    child = os.fork()
    if child:
        return child
    try:
        os._exit(call(*arguments))
    except BaseException:  # noqa: BLE001 - no child goes on as the test
        traceback.print_exc()
        os._exit(FAILED)


def end(child):
    """Its exit status, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_in(tier, moment, half):
    """SIGKILL at a step of the next put: before it, or once the first half of its bytes is there."""

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    mark, write = tier._mark, tier._write

    def half_a_block(slots, keys, parts):
        tier._blocks[slots[0]][: BLOCK // 2].copy_(parts[0][0][: BLOCK // 2])
        kill()

    def marked(slots, mark_of):
        if mark_of == 0 and moment == "unmark" or mark_of and moment == "mark":
            if half == "after":
                mark(slots, mark_of)
            kill()
        mark(slots, mark_of)

    tier._mark = marked
    tier._write = half_a_block if moment == "data" else write


class Blocks(StoreCase):
    def assert_whole(self, tier):
        for key in tier.keys():
            self.assertTrue(torch.equal(tier.get(key).cpu(), block_of(key)), key.hex())

    def test_the_next_process_has_what_the_last_one_put(self):
        with opened(self.path) as tier:
            self.assertFalse(tier.adopted)
            for number in (1, 2, 3):
                tier.put(key_of(number), block_of(key_of(number)))
            self.assertIsNone(tier.get(key_of(4)))
            self.assertIn(key_of(2), tier)
        with opened(self.path) as tier:
            self.assertTrue(tier.adopted)
            self.assertEqual(tier.keys(), [key_of(number) for number in (1, 2, 3)])
            self.assert_whole(tier)

    def test_the_block_that_was_not_used_for_the_longest_time_goes(self):
        with opened(self.path) as tier:
            for number in range(COUNT):
                tier.put(key_of(number), block_of(key_of(number)))
            tier.get(key_of(0))
            tier.put(key_of(99), block_of(key_of(99)))
            self.assertEqual(len(tier), COUNT)
            self.assertIn(key_of(0), tier)
            self.assertNotIn(key_of(1), tier)
            tier.drop(key_of(5))
        with opened(self.path) as tier:
            self.assertNotIn(key_of(1), tier)
            self.assertNotIn(key_of(5), tier)
            self.assertEqual(len(tier), COUNT - 1)
            self.assert_whole(tier)

    def test_a_block_is_replaced_in_its_place(self):
        with opened(self.path) as tier:
            tier.put(b"k", torch.zeros(BLOCK // 4))
            tier.put(b"k", torch.ones(BLOCK // 4))
            self.assertEqual(len(tier), 1)
        with opened(self.path) as tier:
            self.assertEqual(tier.get(b"k").view(torch.float32).unique().tolist(), [1.0])

    def test_several_blocks_are_put_and_read_in_parts(self):
        keys = [key_of(number) for number in (1, 2, 3)]
        whole = torch.stack([block_of(key) for key in keys])
        widths = (BLOCK // 4, BLOCK // 2, BLOCK // 4)
        with opened(self.path) as tier:
            tier.put(key_of(9), block_of(key_of(9)))
            tier.put_many(keys, whole.split(widths, dim=1))
        with opened(self.path) as tier:
            self.assertEqual(tier.keys(), [key_of(9), *keys])
            self.assert_whole(tier)
            parts = list(tier.get_many(keys[::-1], widths))
            self.assertEqual([part.shape for part in parts], [(3, width) for width in widths])
            self.assertTrue(torch.equal(torch.cat(parts, 1), whole.flip(0)))
            with self.assertRaises(KeyError):
                next(tier.get_many([key_of(4)], widths))
            tier.drop(key_of(1), key_of(4), key_of(2), key_of(1))
            self.assertEqual(tier.keys(), [key_of(9), key_of(3)])
        with opened(self.path) as tier:
            self.assertEqual(sorted(tier.keys()), sorted([key_of(9), key_of(3)]))

    def test_more_blocks_than_a_store_has_and_twice_one_key_are_refused(self):
        keys = [key_of(number) for number in range(COUNT + 1)]
        with opened(self.path) as tier:
            for wrong in (keys, [keys[0], keys[0]], []):
                with self.assertRaisesRegex(gmsfs.BadArgument, "from 1 to 8 blocks of different keys"):
                    tier.put_many(wrong, [torch.zeros(len(wrong), BLOCK, dtype=torch.uint8)])
            tier.put_many(keys[:COUNT], [torch.stack([block_of(key) for key in keys[:COUNT]])])
            tier.put_many(keys[COUNT:], [block_of(keys[COUNT])[None]])
            self.assertNotIn(keys[0], tier)
            self.assert_whole(tier)

    def test_the_places_of_blocks_that_could_not_be_put_are_used_again(self):
        keys = [key_of(number) for number in range(COUNT)]
        with opened(self.path) as tier:
            for _ in range(2):
                with self.assertRaises((IndexError, RuntimeError)):
                    tier.put_many(keys, [torch.zeros(COUNT + 1, BLOCK, dtype=torch.uint8)])
            tier.put_many(keys, [torch.stack([block_of(key) for key in keys])])
            self.assertEqual(tier.keys(), keys)
            self.assert_whole(tier)

    def test_no_half_written_block_is_returned_wherever_the_writer_dies(self):
        for moment in ("unmark:before", "unmark:after", "data:half", "mark:before", "mark:after"):
            with self.subTest(moment):
                self.assertEqual(end(start(write_for_ever, self.path, moment)), -signal.SIGKILL)
                lost = 0 if moment in ("unmark:before", "mark:after") else 1
                self.assertEqual(end(start(count_whole, self.path)), COUNT - lost)

    def test_no_half_written_block_is_returned_after_a_kill_at_any_moment(self):
        chance = random.Random(1)
        for _ in range(20):
            writer = start(write_for_ever, self.path)
            time.sleep(chance.uniform(0, 0.05))
            os.kill(writer, signal.SIGKILL)
            self.assertEqual(end(writer), -signal.SIGKILL)
            self.assertIn(end(start(count_whole, self.path)), range(COUNT + 1))

    def test_a_store_of_another_model_or_size_is_refused(self):
        opened(self.path, fingerprint={"model": "a"}).close()
        with self.assertRaisesRegex(gmsfs.Mismatch, "model: the store has 'a', this process wants 'b'"):
            opened(self.path, fingerprint={"model": "b"})
        with self.assertRaisesRegex(gmsfs.Mismatch, "blocks: the store has '8', this process wants '9'"):
            gmsfs.kv.Blocks(self.path, BLOCK, 9, fingerprint={"model": "a"}, timeout=TIMEOUT)
        self.assertEqual(self.state(), "LAYOUT_COMMITTED")

    def test_a_store_of_something_else_is_refused_and_keeps_it(self):
        gmsfs.publish(self.path, {"weight": bytes(100)})
        with self.assertRaisesRegex(gmsfs.Mismatch, f"{self.path}: .*something else than blocks"):
            opened(self.path)
        with gmsfs.open(self.path, timeout=TIMEOUT) as store:
            self.assertEqual(list(store.views()), ["weight"])

    def test_a_device_that_failed_keeps_no_lock(self):
        tier = opened(self.path)
        tier._blocks = mock.Mock(is_cuda=True)
        with mock.patch("torch.cuda.current_stream", side_effect=RuntimeError("device failed")):
            self.assertRaisesRegex(RuntimeError, "device failed", tier.close)
        self.assertIsNone(tier.store._handle)

    def test_a_store_that_was_lost_is_not_written(self):
        with opened(self.path) as tier:
            tier.put(key_of(1), block_of(key_of(1)))
            tier.store.close()
            for call in (lambda: tier.drop(key_of(1)), lambda: tier.put(key_of(2), block_of(key_of(2)))):
                self.assertRaisesRegex(ValueError, "is closed", call)
        with opened(self.path) as tier:
            self.assertEqual(tier.keys(), [key_of(1)])

    def test_keys_and_blocks_that_do_not_fit_are_named(self):
        with opened(self.path) as tier:
            for key in (b"", bytes(33), "text"):
                with self.assertRaisesRegex(gmsfs.BadArgument, "a key is 1 to 32 bytes"):
                    tier.put(key, block_of(key_of(1)))
            with self.assertRaisesRegex(gmsfs.BadArgument, "it has 4 bytes, and a block of this store has"):
                tier.put(b"k", torch.zeros(1))
            with self.assertRaisesRegex(gmsfs.BadArgument, "it has 0 bytes, and a block of this store has"):
                tier.put(b"k", torch.zeros(0))
            self.assertEqual(len(tier), 0)
