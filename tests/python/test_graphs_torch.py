# SPDX-License-Identifier: Apache-2.0
"""gmsfs.graphs with torch on a GPU: every output of every graph equals that of eager work, bit for bit. Needs
torch and a GPU."""

import gc
import os
import random
import subprocess
import sys
import threading
import unittest
from unittest import mock

import torch

import gmsfs
from gmsfs import graphs
from support import TIMEOUT, StoreCase, python

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
sys.path.insert(0, EXAMPLES)
import graph_shapes as example  # noqa: E402

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
else:

    @triton.jit
    def double_kernel(x, y, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        tl.store(y + at, tl.load(x + at, mask=inside) * 2, mask=inside)

    def double(x, y):
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)


MIB = 1 << 20
MODEL = example.Model()
LARGEST = example.LARGEST


def batch(tokens):
    return torch.randn(tokens, MODEL.width, device="cuda").to(torch.bfloat16)


class TorchCase(StoreCase):
    def setUp(self):
        super().setUp()
        mode = torch.inference_mode()
        mode.__enter__()
        self.addCleanup(mode.__exit__, None, None, None)
        MODEL(batch(LARGEST))
        torch.cuda.synchronize()
        self.pools = []

    def tearDown(self):
        self.x = self.y = None
        while self.pools:
            self.pools.pop().close()
        super().tearDown()

    def open(self, **options):
        self.pools.append(graphs.GraphPool(self.path, timeout=TIMEOUT, **options))
        pool = self.pools[-1]
        self.x, self.y = self.rows(pool), self.rows(pool)
        return pool

    def rows(self, pool):
        return pool.rows(LARGEST, (MODEL.width,), torch.bfloat16)

    def capture(self, pool, tokens, **options):
        return example.capture(pool, MODEL, self.x, self.y, tokens, **options)

    def check(self, pool, rounds=1):
        for _ in range(rounds):
            for tokens in random.sample(pool.shapes, len(pool.shapes)):
                given = batch(tokens)
                self.x.put(given)
                pool.replay(tokens)
                self.assertTrue(torch.equal(self.y.first(tokens), MODEL(given)), tokens)


def alone_bytes(tokens, x, y):
    """Returns the bytes that torch takes for this shape's graph in a pool of its own."""
    torch._C._cuda_clearCublasWorkspaces()
    mempool = torch.cuda.MemPool()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=mempool.id, stream=torch.cuda.Stream()):
        y.first(tokens).copy_(MODEL(x.first(tokens)))
    return sum(segment["total_size"] for segment in mempool.snapshot())


class Shapes(TorchCase):
    def check_many(self, count):
        with self.open() as pool:
            for tokens in random.sample(example.shapes(count), count):
                self.capture(pool, tokens)
            self.check(pool, 2)
            stats = pool.stats
            most = alone_bytes(LARGEST, self.x, self.y) + stats.chunk_bytes
            self.assertLessEqual(stats.physical_bytes - stats.eager_bytes, most)
            for _ in range(2):
                pool.sleep()
                self.assertEqual(pool.stats.physical_bytes, 0)
                python(WRITE_8_GIB)
                pool.wake(TIMEOUT)
                self.check(pool)

    def test_24_shapes_in_random_order_are_right_also_after_sleep_and_what_others_wrote(self):
        self.check_many(24)

    def test_64_shapes_in_random_order_are_right_also_after_sleep_and_what_others_wrote(self):
        self.check_many(64)

    def test_shapes_of_one_space_and_late_ones_beside_it_are_right(self):
        with self.open() as pool:
            space, known = pool.space(), example.shapes(24)
            for tokens in reversed(known[::2]):
                self.capture(pool, tokens, space=space)
            for tokens in known[1::2]:
                self.capture(pool, tokens)
            self.check(pool, 2)

    def test_pieces_of_one_shape_hand_outputs_on(self):
        with self.open() as pool:
            first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with pool.capture(first, (512, 0)) as piece:
                middle = piece.keep(MODEL(self.x.first(512)))
            self.capture(pool, LARGEST)
            with pool.capture(second, (512, 1), space=piece.space):
                self.y.first(512).copy_(MODEL(middle))
            given = batch(512)
            self.x.put(given)
            pool.replay((512, 0))
            pool.replay((512, 1))
            self.assertTrue(torch.equal(self.y.first(512), MODEL(MODEL(given))))
            del middle

    def test_outputs_that_are_kept_are_right_after_their_replay(self):
        with self.open() as pool:
            for tokens in example.shapes(24):
                with pool.capture(torch.cuda.CUDAGraph(), tokens) as capture:
                    capture.keep(MODEL(self.x.first(tokens)))
            for tokens in random.sample(pool.shapes, 24):
                given = batch(tokens)
                self.x.put(given)
                pool.replay(tokens)
                self.assertTrue(torch.equal(pool[tokens].outputs[0], MODEL(given)), tokens)

    def test_several_streams_capture(self):
        with self.open() as pool:
            streams = [torch.cuda.Stream() for _ in range(5)]
            for tokens in random.sample(example.shapes(24), 24):
                self.capture(pool, tokens, stream=random.choice(streams))
            self.check(pool, 2)

    def test_threads_capture_each_on_a_stream_of_its_own(self):
        with self.open() as pool:
            problems, ready = [], threading.Barrier(3, timeout=TIMEOUT)

            def capture(mine):
                try:
                    with torch.inference_mode():
                        stream = torch.cuda.Stream()
                        MODEL(batch(LARGEST))  # this thread's handles of cuBLAS and cuDNN
                        torch.cuda.synchronize()
                        ready.wait()
                        for tokens in example.shapes(24)[mine::3]:
                            self.capture(pool, tokens, stream=stream)
                except BaseException as error:
                    problems.append(error)

            run_threads([(capture, one) for one in range(3)])
            self.assertEqual(problems, [])
            self.check(pool, 2)

    def test_triton_kernels_are_captured(self):
        if triton is None:
            self.skipTest("no Triton here")
        with self.open() as pool:
            for tokens in (64, 1024, 256):
                x, y = self.x.first(tokens), self.y.first(tokens)
                double(x, y)
                with pool.capture(torch.cuda.CUDAGraph(), tokens):
                    middle = torch.empty_like(x)
                    double(x, middle)
                    double(middle, y)
                    del middle
            for tokens in (1024, 64, 256) * 2:
                given = batch(tokens)
                self.x.put(given)
                pool.replay(tokens)
                self.assertTrue(torch.equal(self.y.first(tokens), 4 * given), tokens)

    def test_compiled_models_are_captured(self):
        if triton is None:
            self.skipTest("no Triton here")
        compiled = torch.compile(
            lambda x: MODEL(x), dynamic=False, options={"triton.cudagraphs": False}
        )
        with self.open() as pool:
            for tokens in (64, 1024, 256):
                compiled(self.x.first(tokens))
                with pool.capture(torch.cuda.CUDAGraph(), tokens):
                    self.y.first(tokens).copy_(compiled(self.x.first(tokens)))
            for tokens in (1024, 64, 256) * 2:
                given = batch(tokens)
                self.x.put(given)
                pool.replay(tokens)
                self.assertTrue(torch.equal(self.y.first(tokens), compiled(self.x.first(tokens))), tokens)


class Freeing(TorchCase):
    def test_the_largest_freed_is_back_on_the_device_and_a_larger_one_comes_later(self):
        with self.open() as pool:
            for tokens in (1, 4096, 512, 128):
                self.capture(pool, tokens)
            self.check(pool)
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            free, _ = torch.cuda.mem_get_info()
            freed = pool.drop(4096)
            self.assertGreater(freed, 0)
            self.wait_until(
                lambda: torch.cuda.mem_get_info()[0] - free >= freed - 4 * MIB,
                f"the device did not get {freed} bytes back",
            )
            self.check(pool)
            self.capture(pool, LARGEST)
            self.check(pool, 2)

    def test_a_cached_tensor_is_found_and_named(self):
        with self.open() as pool:
            self.capture(pool, 128)
            cache, before = {}, pool.stats
            with self.assertRaisesRegex(gmsfs.errors.Leak, r"\(1000, 1000\), called 'mask'") as caught:
                with pool.capture(torch.cuda.CUDAGraph(), 256):
                    cache["mask"] = torch.ones(1000, 1000, device="cuda")
                    self.y.first(256).copy_(MODEL(self.x.first(256)))
            self.assertEqual([block.nbytes for block in caught.exception.blocks], [4000000])
            cache.clear()
            pool.shrink()
            self.assertEqual(pool.stats, before._replace(high_bytes=pool.stats.high_bytes))
            self.capture(pool, 256)
            self.check(pool)

    def test_a_workspace_of_cublas_is_found(self):
        with self.open() as pool:
            self.capture(pool, 128)
            with mock.patch.object(pool._torch, "clear_workspaces"):
                with self.assertRaisesRegex(gmsfs.errors.Leak, "nothing in Python holds") as caught:
                    self.capture(pool, 256, stream=torch.cuda.Stream())
            self.assertGreaterEqual(max(block.nbytes for block in caught.exception.blocks), 4 * MIB)
            self.capture(pool, 256)
            self.check(pool)

    def test_hundreds_of_shapes_come_and_go(self):
        with self.open() as pool:
            for number in range(600):
                graph = torch.cuda.CUDAGraph()
                with pool.capture(graph, number):
                    self.y.first(1).copy_(self.x.first(1))
                if number >= 8:
                    pool.drop(number - 8, shrink=False)
            self.capture(pool, 1024)
            self.x.put(batch(1))
            pool.replay(599)
            self.assertTrue(torch.equal(self.y.first(1), self.x.first(1)))

    def test_what_cuda_forbids_in_a_capture_ends_it_and_harms_no_graph(self):
        with self.open() as pool:
            self.capture(pool, 128)
            for _ in range(2):
                with self.assertRaises(RuntimeError):
                    with pool.capture(torch.cuda.CUDAGraph(), 256):
                        MODEL(self.x.first(256)).cpu()
            self.capture(pool, 256)
            self.check(pool, 2)

    def test_no_memory_in_a_capture_is_an_exception_and_harms_no_graph(self):
        with self.open() as pool:
            for tokens in (1, 512):
                self.capture(pool, tokens)
            before = pool.stats
            torch.cuda.empty_cache()
            free, _ = torch.cuda.mem_get_info()
            hog = torch.empty(free - 96 * MIB, dtype=torch.uint8, device="cuda")
            with self.assertRaises(torch.cuda.OutOfMemoryError):
                self.capture(pool, LARGEST)
            del hog
            torch.cuda.empty_cache()
            pool.shrink()
            self.assertEqual(pool.stats, before._replace(high_bytes=pool.stats.high_bytes))
            self.check(pool)
            self.capture(pool, LARGEST)
            self.check(pool)

    def test_an_arena_is_disturbed_by_no_replay_and_freed(self):
        with self.open() as pool:
            arena = pool.arena()
            with arena.use():
                held = torch.arange(MIB, device="cuda")
            for tokens in (512, LARGEST):
                self.capture(pool, tokens)
            self.check(pool)
            self.assertTrue(torch.equal(held, torch.arange(MIB, device="cuda")))
            with self.assertRaises(gmsfs.Busy):
                arena.free()
            del held
            arena.free()
            self.check(pool)


    def test_an_output_that_outlives_its_pool_is_no_other_pools_memory(self):
        pool = self.open()
        with pool.capture(torch.cuda.CUDAGraph(), 64) as capture:
            out = capture.keep(MODEL(self.x.first(64)))
        pool.close()
        self.x = self.y = None
        self.pools.clear()
        del pool, capture
        gc.collect()
        with self.open() as pool:
            for tokens in (1, 512):
                self.capture(pool, tokens)
            live = pool.stats.live
            del out
            torch.cuda.empty_cache()  # torch gives it back now
            self.assertEqual(pool.stats.live, live)
            self.check(pool)


class Launching(TorchCase):
    def test_graphs_on_two_streams_order_themselves(self):
        with self.open() as pool:
            x, y = self.rows(pool), self.rows(pool)
            self.capture(pool, 512)
            with pool.capture(torch.cuda.CUDAGraph(), "other"):
                y.first(512).copy_(MODEL(x.first(512)))
            mine, other = batch(512), batch(512)
            self.x.put(mine)
            x.put(other)
            want = [MODEL(mine), MODEL(other)]
            torch.cuda.synchronize()
            streams, wrong = [torch.cuda.Stream() for _ in range(2)], []
            for _ in range(200):
                for stream, graph, out, right in zip(
                    streams, (pool[512].graph, pool["other"].graph), (self.y, y), want
                ):
                    with torch.cuda.stream(stream):
                        graph.replay()  # bare
                        wrong.append((out.first(512) != right).any())
            torch.cuda.synchronize()
            self.assertEqual(sum(map(int, wrong)), 0)

    def test_two_threads_launch_at_the_same_time(self):
        with self.open() as pool:
            pairs = {"one": (self.x, self.y), "two": (self.rows(pool), self.rows(pool))}
            for name, (x, y) in pairs.items():
                with pool.capture(torch.cuda.CUDAGraph(), name):
                    y.first(300).copy_(MODEL(x.first(300)))
            batches = [batch(300) for _ in range(20)]
            want = [MODEL(given) for given in batches]
            torch.cuda.synchronize()
            wrong, problems = [], []

            def launch(name):
                x, y = pairs[name]
                try:
                    with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
                        for _ in range(200):
                            number = random.randrange(20)
                            x.put(batches[number])
                            pool.replay(name)
                            wrong.append((y.first(300) != want[number]).any())
                        torch.cuda.current_stream().synchronize()
                except BaseException as error:
                    problems.append(error)

            run_threads([(launch, name) for name in pairs])
            self.assertEqual(problems, [])
            self.assertEqual((len(wrong), sum(map(int, wrong))), (400, 0))

    def test_a_second_replay_is_refused_while_one_runs_if_so_wanted(self):
        with self.open(guard="refuse") as pool:
            for tokens in (1, LARGEST):
                self.capture(pool, tokens)
            torch.cuda.synchronize()
            for _ in range(3):
                pool.replay(LARGEST)
                with self.assertRaises(gmsfs.Busy), torch.cuda.stream(torch.cuda.Stream()):
                    pool.replay(1)
                torch.cuda.synchronize()
            with torch.inference_mode():
                for tokens in (1, LARGEST):
                    given = batch(tokens)
                    self.x.put(given)
                    torch.cuda.synchronize()
                    pool.replay(tokens)
                    torch.cuda.synchronize()
                    self.assertTrue(torch.equal(self.y.first(tokens), MODEL(given)))


class Processes(TorchCase):
    def test_two_processes_take_turns_over_one_store(self):
        program = os.path.abspath(__file__)
        workers = [
            subprocess.Popen(
                [sys.executable, program, "turns", self.path, str(seed)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for seed in range(2)
        ]
        for worker in workers:
            said, _ = worker.communicate(timeout=TIMEOUT)
            self.assertEqual((worker.returncode, said.splitlines()[-1:]), (0, ["right"]), said)
        self.assertEqual(self.state(), "COMMITTED")
        graphs.GraphPool(self.path, timeout=TIMEOUT).close()  # frees the memory kept for the graphs

    def test_a_process_that_ends_without_closing_ends_well(self):
        for how in ("pass", "pool.sleep()", "del graph", "sys.exit()"):
            self.assertEqual(python(END % how, EXAMPLES, self.path), "captured\n")
            self.wait_until(lambda: self.state() == "EMPTY", "a session stayed")


def take_turns(path, seed):
    random.seed(seed)
    pool = graphs.GraphPool(path, asleep=True)
    x = y = None
    with torch.inference_mode():
        for _ in range(10):
            pool.wake(TIMEOUT)
            if x is None:
                x, y = (pool.rows(LARGEST, (MODEL.width,), torch.bfloat16) for _ in "xy")
                MODEL(x.first(LARGEST))
                for tokens in random.sample(example.shapes(24), 8):
                    example.capture(pool, MODEL, x, y, tokens)
            example.check(pool, MODEL, x, y)
            pool.sleep(keep=True)
    print("right")


def run_threads(targets):
    threads = [threading.Thread(target=target, args=(one,)) for target, one in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


WRITE_8_GIB = """
import torch
held = torch.full((8 << 30,), 255, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
"""

END = """
import sys
sys.path.insert(0, sys.argv[1])
import graph_shapes as graphs, torch, gmsfs.graphs
pool = gmsfs.graphs.GraphPool(sys.argv[2])
model = graphs.Model()
x, y = (pool.rows(64, (model.width,), torch.bfloat16) for _ in "xy")
with torch.inference_mode():
    model(x.all)
    graph = graphs.capture(pool, model, x, y, 64)
print("captured", flush=True)
%s
"""


if __name__ == "__main__":
    if sys.argv[1:2] == ["turns"]:
        take_turns(sys.argv[2], int(sys.argv[3]))
    else:
        unittest.main()
