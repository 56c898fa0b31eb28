# SPDX-License-Identifier: Apache-2.0
"""torch tensors, over host memory; on a GPU where GMSFS_TEST_DEVICE is cuda. Needs torch."""

import os

import torch

import gmsfs
from support import TIMEOUT, StoreCase, command, python, write_model

DEVICE = os.environ.get("GMSFS_TEST_DEVICE", "cpu")
SAFETENSORS = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}


def bytes_of(tensor):
    if tensor.numel() == 0:
        return b""
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist())


def sample():
    """A tensor of every type that this torch has."""
    torch.manual_seed(9)
    tensors = {}
    for name in SAFETENSORS:
        dtype = getattr(torch, name, None)
        if dtype is not None:
            raw = torch.randint(
                0, 2 if name == "bool" else 256, (15 * dtype.itemsize,), dtype=torch.uint8
            )
            tensors[name] = raw.view(dtype).view(3, 5)
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 7)
    tensors["large"] = torch.rand(1000, 1000)
    return tensors


def as_model(tensors):
    model = {}
    for key, tensor in tensors.items():
        dtype = SAFETENSORS[str(tensor.dtype)[len("torch.") :]]
        shape = list(tensor.shape)
        if dtype == "F4":
            shape[-1] *= 2
        model[key] = (dtype, shape, bytes_of(tensor))
    return model


def read(store, **options):
    return store.tensors("torch", **options)


class Reading(StoreCase):
    def setUp(self):
        super().setUp()
        self.expected = sample()
        self.load(as_model(self.expected))

    def test_tensors_are_those_of_the_file_bit_for_bit(self):
        with gmsfs.open(self.path) as store:
            tensors = read(store)
            self.assertEqual(set(tensors), set(self.expected))
            for name, tensor in tensors.items():
                self.assertEqual(tensor.dtype, self.expected[name].dtype, name)
                self.assertEqual(tensor.shape, self.expected[name].shape, name)
                self.assertEqual(tensor.device.type, DEVICE, name)
                self.assertEqual(bytes_of(tensor), bytes_of(self.expected[name]), name)
            del tensor, tensors

    def test_tensors_share_the_memory_of_the_mapping(self):
        with gmsfs.open(self.path) as store:
            spec, buffer = store.specs()["large"], store.buffers()[0]
            first, second = read(store)["large"], read(store)["large"]
            self.assertEqual(first.data_ptr(), buffer.address + spec.offset)
            self.assertEqual(second.data_ptr(), first.data_ptr())
            del first, second, buffer

    def test_a_product_is_right(self):
        with gmsfs.open(self.path) as store:
            weight = read(store)["large"]
            x = torch.rand(4, 1000, device=DEVICE)
            expected = x.cpu().double() @ self.expected["large"].double()
            torch.testing.assert_close((x @ weight).cpu().double(), expected, rtol=1e-2, atol=1e-2)
            del weight

    def test_a_tensor_outlives_the_store_and_so_does_what_is_made_of_it(self):
        with gmsfs.open(self.path) as store:
            part = torch.nn.Parameter(read(store)["large"][7:9], requires_grad=False)
        self.assertEqual(self.state(), "COMMITTED")
        self.assertTrue(torch.equal(part.cpu(), self.expected["large"][7:9]))
        del part

    def test_the_lock_goes_with_the_last_tensor_of_a_store_that_nobody_closed(self):
        tensor = read(gmsfs.open(self.path))["large"][3]
        self.assertEqual(self.state(), "RO")
        del tensor
        self.assertEqual(self.state(), "COMMITTED")

    def test_an_exception_that_unwinds_frees_tensors_and_stays_what_it_is(self):
        for _ in range(20):
            with self.assertRaises(ZeroDivisionError):
                [read(gmsfs.open(self.path, timeout=TIMEOUT)), read(gmsfs.open(self.path)), 1 // 0]
        self.assertEqual(self.state(), "COMMITTED")

    def test_a_process_may_end_with_tensors_in_any_place(self):
        program = (
            "import sys, torch, gmsfs\n"
            "store = gmsfs.open(sys.argv[1])\n"
            "tensors = store.tensors('torch')\n"
            "torch.kept = tensors['large']\n"
            "cycle = [tensors]; cycle.append(cycle)\n"
            "print('end')\n"
        )
        self.assertEqual(python(program, self.path), "end\n")

    def test_a_sleeper_wakes_to_the_new_bytes_under_its_tensors(self):
        with gmsfs.open(self.path) as store:
            tensor = read(store)["large"]
            store.sleep()
            changed = dict(self.expected, large=self.expected["large"] * 2)
            command(
                "load", "-q", self.path, write_model(self.file("b.safetensors"), as_model(changed))
            )
            store.wake(TIMEOUT)
            self.assertTrue(torch.equal(tensor.cpu(), changed["large"]))
            del tensor

    def test_strides_are_followed(self):
        self.commit_raw({"t": (b'{"dtype":"torch.uint8","shape":[4,2],"stride":[1,4]}', 0)})
        with gmsfs.open(self.path) as store:
            self.assertEqual(read(store)["t"].stride(), (1, 4))

    def test_a_reader_gets_a_copy_where_torch_does_not_take_the_offset(self):
        self.commit_raw(
            {
                "odd": (b'{"dtype":"torch.float64","shape":[3]}', 13),
                "twin": (b'{"dtype":"torch.float64","shape":[3]}', 13),
                "even": (b'{"dtype":"torch.float64","shape":[3]}', 16),
            }
        )
        with gmsfs.open(self.path) as store:
            with self.assertWarnsRegex(UserWarning, "copies of this process: 1, 24 bytes, .*'odd'"):
                tensors = read(store)
            self.assertEqual(bytes_of(tensors["odd"]), bytes(24))
            self.assertEqual(tensors["odd"].data_ptr() % 8, 0)
            self.assertEqual(tensors["odd"].data_ptr(), tensors["twin"].data_ptr())
            if tensors["odd"].device.type == "cpu":
                self.assertEqual(store.tensors("numpy", ["odd"])["odd"].shape, (3,))


class Publishing(StoreCase):
    def test_what_is_published_is_what_another_process_reads(self):
        expected = sample()
        on_device = {
            name: tensor.view(torch.uint8).to(DEVICE).view(tensor.dtype) if tensor.dim() else tensor
            for name, tensor in expected.items()
        }
        gmsfs.publish(self.path, on_device)
        command(
            "verify", "-q", self.path, write_model(self.file("m.safetensors"), as_model(expected))
        )
        program = (
            "import sys, torch, gmsfs\n"
            "with gmsfs.open(sys.argv[1]) as store:\n"
            "    print(store.tensors('torch')['large'].double().sum().item())\n"
        )
        self.assertAlmostEqual(
            float(python(program, self.path)), expected["large"].double().sum().item(), places=3
        )

    def test_the_layout_hash_is_that_of_gmsfs_load(self):
        expected = sample()
        self.load(as_model(expected))
        with gmsfs.open(self.path) as store:
            loaded = store.layout_hash
        gmsfs.publish(self.path, expected)
        with gmsfs.open(self.path) as store:
            self.assertEqual(store.layout_hash, loaded)

    def test_tensors_from_the_host_and_views_of_any_kind_arrive_straight(self):
        whole = torch.arange(24.0).reshape(4, 6)
        odd = {
            "transposed": whole.t(),
            "every second": whole[::2, 1::2],
            "expanded": torch.tensor([1.0]).expand(3, 4),
            "conjugated": torch.tensor([1 + 2j]).conj(),
            "parameter": torch.nn.Parameter(whole),
            "bytes": b"\x05\x06",
        }
        gmsfs.publish(self.path, odd)
        with gmsfs.open(self.path) as store:
            found = read(store)
            self.assertEqual(found["bytes"].tolist(), [5, 6])
            del odd["bytes"]
            for name, tensor in odd.items():
                self.assertTrue(
                    torch.equal(found[name].cpu(), tensor.detach().resolve_conj()), name
                )
            del found

    def test_tied_weights_are_stored_once(self):
        embedding = torch.nn.Embedding(100, 64).to(DEVICE)
        head = torch.nn.Linear(64, 100, bias=False).to(DEVICE)
        head.weight = embedding.weight
        model = torch.nn.ModuleDict({"embed": embedding, "head": head})
        gmsfs.publish(self.path, model.state_dict())
        with gmsfs.open(self.path) as store:
            tensors = read(store)
            self.assertEqual(tensors["embed.weight"].data_ptr(), tensors["head.weight"].data_ptr())
            model.load_state_dict(tensors, assign=True)
            del tensors

    def test_what_has_no_bytes_is_refused(self):
        for tensor in (torch.empty(2, device="meta"), torch.eye(2).to_sparse()):
            with self.assertRaisesRegex(gmsfs.Error, "cannot be stored"):
                gmsfs.publish(self.path, {"t": tensor})

    def test_what_only_stands_for_a_tensor_is_refused_by_name(self):
        class Wrapper(torch.Tensor):  # as a DTensor or a MaskedTensor is made
            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            @classmethod
            def __torch_dispatch__(cls, function, types, arguments=(), named=None):
                raise NotImplementedError(str(function))

        with self.assertRaisesRegex(gmsfs.Error, "tensor 'second': .*a Wrapper has no memory"):
            gmsfs.publish(self.path, {"first": torch.ones(3), "second": Wrapper(torch.ones(3))})
        self.assertEqual(self.state(), "EMPTY")

    def test_a_writer_changes_tensors_in_place(self):
        gmsfs.publish(self.path, {"t": torch.zeros(4)})
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            read(store)["t"].fill_(7)
            store.commit()
        with gmsfs.open(self.path) as store:
            self.assertEqual(read(store)["t"].tolist(), [7.0] * 4)
