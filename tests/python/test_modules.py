# SPDX-License-Identifier: Apache-2.0
"""torch modules in a store: gmsfs.torch.publish and attach; on a GPU where GMSFS_TEST_DEVICE is cuda. Needs
torch."""

import os
import unittest
import weakref

import torch
from torch import nn

import gmsfs
import gmsfs.torch
from support import MOUNT, TIMEOUT, StoreCase, python, write_model


class Custom(nn.Parameter):
    """A parameter class with attributes, as engines define them."""


class Tied(nn.Module):
    """Ties, a view of a parameter as a parameter, buffers of both kinds, a batch norm that counts."""

    def __init__(self, seed=1):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.lower = nn.Parameter(self.layers[0].weight.detach()[8:])
        self.own = Custom(torch.rand(16, dtype=torch.float32))
        self.own.weight_loader = "kept"
        self.register_buffer("table", torch.arange(16, dtype=torch.float32).reshape(1, 16))
        self.register_buffer("inv_freq", 1 / torch.arange(1, 17), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens) * self.inv_freq + self.table + self.own
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(self.norm(x))


DEVICE = os.environ.get("GMSFS_TEST_DEVICE", "cpu")
TOKENS = (torch.arange(12) % 50).to(DEVICE)


def made(seed=1):
    """On the device from the start: a module that moves there loses its views."""
    with torch.device(DEVICE):
        return Tied(seed).eval()


def on_meta():
    with torch.device("meta"):
        return Tied()


def publish(path, seed=1, **options):
    model = made(seed)
    expected = model(TOKENS).detach()
    shared = gmsfs.torch.publish(model, path, timeout=TIMEOUT, **options)
    return model, shared, expected


class Modules(StoreCase):
    def attach(self, model=None, **options):
        model = on_meta() if model is None else model
        shared = gmsfs.torch.attach(model, self.path, timeout=TIMEOUT, **options)
        self.addCleanup(shared.close)
        return model.eval(), shared

    def published(self, **options):
        model, shared, expected = publish(self.path, **options)
        self.addCleanup(shared.close)
        return model, shared, expected

    def assert_in_store(self, shared, tensor):
        self.assertTrue(shared._is_inside(tensor))

    def test_publish_moves_parameters_and_keeps_objects(self):
        model = made()
        before = dict(model.named_parameters())
        expected = model(TOKENS).detach()
        shared = gmsfs.torch.publish(model, self.path, timeout=TIMEOUT)
        self.addCleanup(shared.close)
        self.assertEqual(self.state(), "RO")
        for name, parameter in model.named_parameters():
            self.assertIs(parameter, before[name])
            self.assert_in_store(shared, parameter)
            self.assertFalse(parameter.requires_grad)
        self.assertEqual(type(model.own), Custom)
        self.assertEqual(model.own.weight_loader, "kept")
        self.assertTrue(torch.equal(model(TOKENS), expected))

    def test_attach_to_meta_gives_the_same_outputs_ties_and_views(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        self.assertTrue(torch.equal(model(TOKENS), expected))
        self.assertIs(model.head.weight, model.embed.weight)
        size = model.lower.element_size() * model.lower.numel()
        self.assertEqual(model.lower.data_ptr(), model.layers[0].weight.data_ptr() + size)
        self.assertEqual(type(model.own), Custom)
        self.assertEqual(model.own.weight_loader, "kept")
        report = shared.report()
        self.assertEqual(report.left, {})
        self.assertEqual(
            set(report.private), {"table", "inv_freq", "norm.running_mean", "norm.running_var",
                                  "norm.num_batches_tracked"}
        )

    def test_a_module_moves_to_the_device_of_the_store(self):
        model = Tied().eval()
        expected = model(TOKENS.cpu())
        shared = gmsfs.torch.publish(model, self.path, timeout=TIMEOUT)
        self.addCleanup(shared.close)
        found = model(TOKENS)
        self.assertEqual(found.device.type, DEVICE)
        torch.testing.assert_close(found.cpu(), expected)

    def test_attach_replaces_what_a_module_has(self):
        _, _, expected = self.published()
        model = made(seed=2)
        before = model.own
        model, _ = self.attach(model)
        self.assertIs(model.own, before)
        self.assertTrue(torch.equal(model(TOKENS), expected))

    def test_attach_keeps_the_objects_of_a_module_on_meta(self):
        self.published()
        model = on_meta()
        before = dict(model.named_parameters())
        self.attach(model)
        for name, parameter in model.named_parameters():
            self.assertIs(parameter, before[name])
            self.assertIs(type(parameter), type(before[name]))
            self.assertFalse(parameter.is_meta)
            self.assertFalse(parameter.requires_grad)

    def test_a_parameter_that_something_refers_to_weakly_is_attached(self):
        _, _, expected = self.published()
        model = on_meta()
        kept = weakref.ref(model.own), weakref.WeakKeyDictionary({model.layers[0].weight: 1})
        model, _ = self.attach(model)
        self.assertEqual(type(model.own), Custom)
        self.assertTrue(torch.equal(model(TOKENS), expected))
        del kept

    def test_a_module_that_lost_its_tie_gets_it_back(self):
        _, _, expected = self.published()
        model = on_meta()
        model.head.weight = nn.Parameter(torch.empty(50, 16, device="meta"))
        model, _ = self.attach(model)
        self.assertIs(model.head.weight, model.embed.weight)
        self.assertTrue(torch.equal(model(TOKENS), expected))

    def test_buffers_can_be_written_to(self):
        self.published()
        model, _ = self.attach()
        model.train()
        model(TOKENS)
        model.table.add_(1)
        again, _ = self.attach()
        self.assertEqual(again.table[0, 0].item(), 0)

    def test_a_module_with_empty_parameters_computes_its_own_buffers(self):
        _, _, expected = self.published()
        with gmsfs.torch.empty_parameters():
            model = Tied()
        self.assertTrue(all(one.is_meta for one in model.parameters()))
        self.assertEqual(model.own.weight_loader, "kept")
        self.assertFalse(model.table.is_meta)
        model, _ = self.attach(model)
        self.assertTrue(torch.equal(model(TOKENS), expected))
        self.assertFalse(any(one.is_meta for one in Tied().parameters()))

    def test_the_same_module_has_the_same_hash(self):
        model, shared, _ = self.published()
        other = os.path.join(MOUNT, "same_module_other_store")
        kept, second, _ = publish(other)
        self.assertEqual(shared.store.layout_hash, second.store.layout_hash)
        second.close()
        del kept
        self.wait_until(lambda: self._removed(other), "a session stayed behind")

    def _removed(self, path):
        try:
            os.rmdir(path)
        except OSError:
            return False
        return True

    def test_slabs_hold_a_storage_each_at_most_once(self):
        _, shared, expected = self.published(chunk_bytes=4096)
        self.assertGreater(shared.store.info.allocations, 2)
        model, _ = self.attach()
        self.assertTrue(torch.equal(model(TOKENS), expected))

    def test_names_shapes_and_types_are_held_against_both_sides(self):
        self.published()
        model = on_meta()
        del model.own
        model.extra = nn.Parameter(torch.empty(3, device="meta"))
        model.layers[1] = nn.Linear(16, 17, device="meta")
        model.layers[2] = nn.Linear(16, 16, device="meta", dtype=torch.bfloat16)
        before = {name: id(one) for name, one in model.named_parameters()}
        with self.assertRaises(gmsfs.Mismatch) as caught:
            gmsfs.torch.attach(model, self.path, timeout=TIMEOUT)
        text = str(caught.exception)
        for words in (
            "the store lacks 'extra'",
            "the module has no 'own'",
            "'layers.1.weight' is float32[16, 16] in the store, float32[17, 16] in the module",
            "'layers.2.weight' is float32[16, 16] in the store, bfloat16[16, 16] in the module",
        ):
            self.assertIn(words, text)
        self.assertEqual({name: id(one) for name, one in model.named_parameters()}, before)
        self.assertTrue(all(one.is_meta for one in model.parameters()))

    def test_fingerprints_are_compared_field_by_field(self):
        self.published(fingerprint={"model": "tiny", "rank": 0})
        self.attach(fingerprint={"model": "tiny", "rank": 0})
        self.attach()
        with self.assertRaises(gmsfs.Mismatch) as caught:
            self.attach(fingerprint={"model": "tiny", "rank": 1, "dtype": "bfloat16"})
        text = str(caught.exception)
        self.assertIn("rank: the store has '0', this process wants '1'", text)
        self.assertIn("dtype: the store has None, this process wants 'bfloat16'", text)
        self.assertNotIn("model:", text)

    def test_a_store_without_a_fingerprint_fits_no_wanted_one(self):
        gmsfs.publish(self.path, {"weight": torch.ones(2)})
        words = f"{self.path}: .*the store has none, as after 'gmsfs load'"
        with self.assertRaisesRegex(gmsfs.Mismatch, words):
            self.attach(fingerprint={"model": "tiny"})

    def test_a_store_that_was_loaded_from_a_file_fits_a_module_with_its_names(self):
        linear = nn.Linear(4, 2)
        write = {
            name: ("F32", list(one.shape), one.detach().numpy().tobytes())
            for name, one in linear.named_parameters()
        }
        self.load(write)
        other = nn.Linear(4, 2, device="meta")
        self.attach(other)
        self.assertTrue(torch.equal(other.weight.cpu(), linear.weight))

    def test_buffers_on_meta_that_no_store_has_are_named(self):
        module = nn.Module()
        with torch.device("meta"):
            module.weight = nn.Parameter(torch.empty(2))
            module.register_buffer("table", torch.empty(2), persistent=False)
        self.load({"weight": ("F32", [2], bytes(8))})
        with self.assertRaisesRegex(gmsfs.Mismatch, "'table' are on the meta device and not in the store"):
            self.attach(module)

    def test_a_plain_attribute_on_meta_is_named(self):
        self.published()
        model = on_meta()
        model.cache = torch.empty(3, device="meta")
        with self.assertRaisesRegex(gmsfs.Mismatch, "'cache': a plain attribute"):
            self.attach(model)
        self.assertTrue(model.own.is_meta)

    def test_a_plain_attribute_that_is_a_buffer_stays_that_buffer(self):
        model = made()
        model.same = model.table
        shared = gmsfs.torch.publish(model, self.path, timeout=TIMEOUT)
        self.addCleanup(shared.close)
        other = on_meta()
        other.same = other.table
        self.attach(other)
        self.assertIs(other.same, other.table)
        self.assertTrue(torch.equal(other.same, model.table))

    def test_what_cannot_be_stored_is_refused_by_name(self):
        for tensor, words in (
            (torch.empty(2, device="meta"), "meta device"),
            (torch.zeros(2, 2).to_sparse(), "make it dense"),
        ):
            module = nn.Module()
            module.register_buffer("odd", tensor)
            with self.assertRaisesRegex(gmsfs.BadArgument, f"buffer 'odd'.*{words}"):
                gmsfs.torch.publish(module, self.path, timeout=TIMEOUT)
        self.assertEqual(self.state(), "EMPTY")

    def test_a_publish_that_fails_leaves_the_module_whole(self):
        model = made()
        expected = model(TOKENS).detach()
        store = gmsfs.open(self.path, "rw", timeout=TIMEOUT)
        store.commit = lambda stay: 1 / 0
        with self.assertRaises(ZeroDivisionError):
            gmsfs.torch.publish(model, store)
        store.close()
        self.assertEqual(self.state(), "EMPTY")
        self.assertTrue(torch.equal(model(TOKENS), expected))

    def test_what_leaves_the_store_is_reported(self):
        self.published()
        model, shared = self.attach()
        model.layers[1].weight.data = model.layers[1].weight.data.clone()
        report = shared.report()
        self.assertEqual(report.left, {"layers.1.weight": 16 * 16 * 4})
        self.assertEqual(report.private["layers.1.weight"], 16 * 16 * 4)
        model.layers[2].weight = nn.Parameter(torch.empty(0, device=DEVICE))
        self.assertIn("layers.2.weight", shared.report().left)

    def test_a_write_is_stopped_with_its_name(self):
        self.published()
        model, shared = self.attach()
        with shared.guard():
            model(TOKENS)
            with self.assertRaisesRegex(gmsfs.ReadOnly, "'layers.1.weight'"):
                model.layers[1].weight.add_(1)
            with self.assertRaisesRegex(gmsfs.ReadOnly, "'own'"):
                torch.add(model.own, 1, out=model.own.data)
            model.table.add_(1)

    def writes(self, model):
        """Ways to write to a shared parameter, by name."""
        weight, everything = model.layers[1].weight, list(model.parameters())

        def step(kind, **options):
            def run():
                for one in everything:
                    if one.is_floating_point():
                        one.requires_grad_(True)
                        one.grad = torch.ones_like(one)
                kind(everything, lr=0.1, **options).step()

            return run

        state = {name: torch.zeros_like(one) for name, one in model.state_dict().items()}
        return {
            "data": lambda: weight.data.add_(1),
            "an element of data": lambda: weight.data.__setitem__(0, 1),
            "a view": lambda: weight.detach()[1].t().mul_(2),
            "out=": lambda: torch.add(weight.detach(), 1, out=weight.detach()),
            "nn.init": lambda: nn.init.zeros_(weight),
            "a list": lambda: torch._foreach_add_([one.detach() for one in everything], 1),
            "indices": lambda: weight.detach().index_fill_(0, torch.tensor([0], device=DEVICE), 1),
            "SGD": step(torch.optim.SGD, foreach=False),
            "SGD, foreach": step(torch.optim.SGD, foreach=True),
            "AdamW": step(torch.optim.AdamW),
            "AdamW, fused": step(torch.optim.AdamW, fused=True),
            "load_state_dict": lambda: model.load_state_dict(state),
        }

    def test_every_way_to_write_is_stopped_with_a_name(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        names = {name for name, _ in model.named_parameters()}
        for way, write in self.writes(model).items():
            with self.subTest(way), shared.guard():
                # load_state_dict makes a RuntimeError of its own, with the names of the parameters
                with self.assertRaises((gmsfs.ReadOnly, RuntimeError)) as caught:
                    write()
                words = str(caught.exception).replace('"', "'")
                self.assertTrue(any(f"'{name}'" in words for name in names), words)
            for one in model.parameters():
                one.grad = None
                one.requires_grad_(False)
        again, _ = self.attach()
        self.assertTrue(torch.equal(again(TOKENS), expected))

    def test_a_private_guard_copies_what_is_written_to(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        with shared.guard(private=True):
            alias = model.own.data
            self.assertIs(alias.mul_(2), alias)
            model.embed.weight.data[1].mul_(2)
            model.own.mul_(0.5)
            self.assertTrue(torch.equal(alias, model.own))
        self.assertEqual(sorted(shared.report().left), ["embed.weight", "head.weight", "own"])
        self.assertIs(model.head.weight, model.embed.weight)
        self.assertEqual(model.own.weight_loader, "kept")
        first, _ = self.attach()
        self.assertTrue(torch.equal(model.own, first.own))
        self.assertTrue(torch.equal(model.embed.weight[1], first.embed.weight[1] * 2))
        self.assertTrue(torch.equal(model.embed.weight[2:], first.embed.weight[2:]))
        self.assertTrue(torch.equal(first(TOKENS), expected))

    def test_a_private_copy_keeps_views_of_one_memory(self):
        self.published()
        for name in ("lower", "layers.0.weight"):
            with self.subTest(name):
                model, shared = self.attach()
                with shared.guard(private=True):
                    model.get_parameter(name).data.zero_()
                self.assertTrue(torch.equal(model.lower, model.layers[0].weight[8:]))
                self.assertEqual(model.layers[0].weight[8:].data_ptr(), model.lower.data_ptr())
                self.assertEqual(bool(model.layers[0].weight.any()), name == "lower")
                self.assertEqual(sorted(shared.report().left), ["layers.0.weight", "lower"])

    def test_a_copy_onto_itself_leaves_a_parameter_shared(self):
        self.published()
        model, shared = self.attach()
        with shared.guard(private=True):
            model.own.data.copy_(model.own.data)
        self.assertEqual(shared.report().left, {})
        with shared.guard(), self.assertRaises(gmsfs.ReadOnly):
            model.own.data.copy_(model.own.data)

    def test_a_private_guard_names_a_parameter_that_an_older_tensor_shows(self):
        self.published()
        model, shared = self.attach()
        with self.assertRaisesRegex(gmsfs.ReadOnly, "'own'"):
            with shared.guard(private=True):
                older = model.own.data[:8]
                model.own.add_(1)
        self.assertFalse(torch.equal(older, model.own[:8]))

    def test_a_private_guard_stops_a_write_to_what_is_no_parameter_any_more(self):
        self.published()
        model, shared = self.attach()
        older = model.own.detach()
        with shared.guard(private=True):
            del model.own
            with self.assertRaisesRegex(gmsfs.ReadOnly, "at 0x"):
                older.add_(1)

    def test_an_assignment_to_data_writes_nothing_and_is_reported(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        with shared.guard():
            model.own.data = torch.zeros(16, device=DEVICE)
        self.assertEqual(list(shared.report().left), ["own"])
        again, _ = self.attach()
        self.assertTrue(torch.equal(again(TOKENS), expected))

    def test_an_optimizer_leaves_what_has_no_gradient(self):
        self.published()
        model, _ = self.attach()
        torch.optim.AdamW(model.parameters(), lr=0.1).step()

    def test_sleep_and_wake_at_the_same_addresses(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        before = model.own.data_ptr()
        shared.sleep()
        shared.wake(TIMEOUT)
        self.assertEqual(model.own.data_ptr(), before)
        self.assertTrue(torch.equal(model(TOKENS), expected))

    @unittest.skipUnless(DEVICE == "cuda", "a graph is captured on a GPU")
    def test_a_captured_graph_replays_after_sleep_and_wake(self):
        _, _, expected = self.published()
        model, shared = self.attach()
        model(TOKENS)  # cuBLAS allocates before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = model(TOKENS)
        for _ in range(2):
            shared.sleep()
            shared.wake(TIMEOUT)
            output.zero_()
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.allclose(output, expected, rtol=1e-5, atol=1e-5))

    @unittest.skipUnless(DEVICE == "cuda", "Triton compiles for a GPU")
    def test_a_compiled_module_computes_the_same_after_sleep_and_wake(self):
        self.published()
        model, shared = self.attach()
        for mode in ("default", "reduce-overhead"):
            with self.subTest(mode=mode), torch.no_grad():
                compiled = torch.compile(model, mode=mode)
                for _ in range(3):  # reduce-overhead captures its graph in the second run
                    before = compiled(TOKENS).clone()
                shared.sleep()
                shared.wake(TIMEOUT)
                self.assertTrue(torch.equal(compiled(TOKENS), before))

    def test_the_store_lives_as_long_as_the_module(self):
        _, first, _ = publish(self.path)
        first.close()
        model, shared = self.attach()
        store = shared.store
        del shared
        self._cleanups.clear()
        self.assertEqual(store.mode, "ro")
        del model
        with self.assertRaisesRegex(ValueError, "closed"):
            store.mode

    def test_another_process_attaches_after_the_first_was_killed(self):
        program = """if True:
            import os, signal, sys
            sys.path[:0] = os.environ["PYTHONPATH"].split(":")
            import test_modules
            test_modules.publish(sys.argv[1])
            print("published", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        """
        with self.assertRaisesRegex(AssertionError, "exit status -9: published"):
            python(program, self.path)
        model, _ = self.attach()
        self.assertTrue(torch.equal(model(TOKENS), made()(TOKENS)))

    def test_load_file_and_save_file_are_those_of_safetensors(self):
        os.rmdir(self.path)
        tensors = {"a": torch.rand(3, 5), "b": torch.arange(4)}
        gmsfs.torch.save_file(tensors, self.path, {"format": "pt"})
        found = gmsfs.torch.load_file(self.path)
        self.assertEqual(set(found), {"a", "b"})
        self.assertTrue(torch.equal(found["a"].cpu(), tensors["a"]))
        with gmsfs.torch.safe_open(self.path, framework="pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
        found.clear()

    def test_load_file_of_one_import_reads_what_load_wrote(self):
        model = write_model(self.file("m.safetensors"), {"w": ("F32", [2], b"\0\0\x80?\0\0\0@")})
        self.assertTrue(os.path.exists(model))
        self.load({"w": ("F32", [2], b"\0\0\x80?\0\0\0@")})
        self.assertEqual(gmsfs.torch.load_file(self.path, device="cpu")["w"].tolist(), [1.0, 2.0])
