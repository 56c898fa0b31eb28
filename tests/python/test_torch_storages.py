# SPDX-License-Identifier: Apache-2.0
"""torch saves, copies, sends and counts changes of a store's tensors as it does with those of safetensors'
load_file. Needs torch; without safetensors only the store's tensors are tested. Runs on a GPU if
GMSFS_TEST_DEVICE is cuda."""

import copy
import io
import os
import pickle
import unittest

import torch
import torch.multiprocessing

import gmsfs
from support import TIMEOUT, StoreCase
from test_torch import DEVICE, as_model, bytes_of

try:
    from safetensors.torch import load_file, save_model
except ImportError:
    load_file = save_model = None


def sample():
    torch.manual_seed(3)
    return {
        "norm": torch.rand(128),
        "large": torch.rand(512, 512),
        "bf16": torch.rand(16, 16).bfloat16(),
        "small": torch.arange(5, dtype=torch.int8),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 7),
    }


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def loaded(data):
    return torch.load(io.BytesIO(data), weights_only=True)


class Model(torch.nn.Module):
    """A parameter for each tensor."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))


def answer(received, answers):
    """Runs in another process: sends back the bytes of the received tensor."""
    answers.put(bytes_of(received.get(timeout=TIMEOUT)))


# ---- the table: operations on the tensors, each returning its effects -------------------------


def cover(tensors):
    """A storage covers its tensor and nothing else."""
    return {name: tensor.untyped_storage().nbytes() - tensor.nbytes for name, tensor in tensors.items()}


def kind(tensors):
    """Offset, whether it is a leaf, wants a gradient, lies in one piece."""
    return {
        (
            tensor.storage_offset(),
            tensor.is_leaf,
            tensor.requires_grad,
            tensor.is_contiguous(),
        )
        for tensor in tensors.values()
    }


def save_one(tensors):
    """torch.save of a small one writes little, and it comes back."""
    data = saved(tensors["norm"])
    return len(data) < 4096, torch.equal(loaded(data), tensors["norm"])


def save_all(tensors):
    """So does torch.save of all tensors, of every type."""
    data = saved(tensors)
    back = loaded(data)
    total = sum(tensor.nbytes for tensor in tensors.values())
    return len(data) < total + 8192, all(torch.equal(back[name], tensors[name]) for name in tensors)


def copy_one(tensors):
    """A deep copy has its bytes alone, and so has a pickle."""
    return (
        copy.deepcopy(tensors["norm"]).untyped_storage().nbytes(),
        len(pickle.dumps(tensors["norm"])) < 4096,
    )


def change_another(tensors):
    """An in-place change of one does not stop backward through another."""
    x = torch.ones(128, device=DEVICE, requires_grad=True)
    before = tensors["norm"].clone()
    y = (x * tensors["norm"]).sum()
    tensors["large"].add_(1)
    tensors["bf16"].zero_()
    y.backward()
    return torch.equal(x.grad, before)


def change_the_same(tensors):
    """An in-place change of the same tensor stops backward through it."""
    x = torch.ones(128, device=DEVICE, requires_grad=True)
    y = (x * tensors["norm"]).sum()
    tensors["norm"].add_(1)
    try:
        y.backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return "not noticed"


def send_one(tensors):
    """Through a queue goes one tensor, which lies where both processes see it from then on."""
    context = torch.multiprocessing.get_context("spawn")
    sent, answers = context.Queue(), context.Queue()
    places = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    worker = context.Process(target=answer, args=(sent, answers))
    worker.start()
    try:
        sent.put(tensors["norm"])
        came = answers.get(timeout=TIMEOUT)
        worker.join(TIMEOUT)
    finally:
        worker.kill()
        worker.join()
    moved = {name for name, tensor in tensors.items() if tensor.data_ptr() != places[name]}
    shared = {name for name, tensor in tensors.items() if tensor.is_shared()}
    return came == bytes_of(tensors["norm"]), moved, shared


def save_as_model(tensors):
    """safetensors' save_model writes the tensors of a model."""
    path = os.path.join(os.environ["GMSFS_TEST_DIR"], "saved.safetensors")
    save_model(Model(tensors), path)
    back = load_file(path, device=DEVICE)
    return {name: torch.equal(back[name], tensors[name]) for name in sorted(back)}


NAMES = sorted(sample())
TABLE = {
    cover: dict.fromkeys(NAMES, 0),
    kind: {(0, True, False, True)},
    save_one: (True, True),
    save_all: (True, True),
    copy_one: (512, True),
    change_another: True,
    change_the_same: True,
}
ON_HOST = {send_one: (True, {"norm"}, {"norm"})}
WITH_SAFETENSORS = {save_as_model: dict.fromkeys(NAMES, True)}


class Alike(StoreCase):
    def rows(self):
        rows = dict(TABLE)
        if DEVICE == "cpu":
            rows.update(ON_HOST)
        if save_model is not None:
            rows.update(WITH_SAFETENSORS)
        return rows.items()

    def test_torch_does_with_a_stores_tensors_what_it_does_with_those_of_load_file(self):
        file = self.load(as_model(sample()))
        for act, expected in self.rows():
            with self.subTest(act=act.__doc__, of="the store"):
                with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
                    tensors = store.tensors("torch")
                    self.assertEqual(act(tensors), expected)
                    del tensors
            self.load(as_model(sample()))  # the writer may have changed something
            if load_file is not None:
                with self.subTest(act=act.__doc__, of="load_file"):
                    self.assertEqual(act(load_file(file, device=DEVICE)), expected)


class Ties(StoreCase):
    """One memory under two names: load_file has none such, a model's state_dict() has."""

    def publish_tied(self):
        norm = torch.rand(128)
        gmsfs.publish(self.path, {"norm": norm, "tied": norm, "other": torch.rand(128)})

    def test_tied_tensors_have_one_storage_and_are_saved_once(self):
        self.publish_tied()
        with gmsfs.open(self.path) as store:
            tensors = store.tensors("torch")
            one, two = tensors["norm"], tensors["tied"]
            self.assertIsNot(one, two)
            self.assertEqual(one.untyped_storage()._cdata, two.untyped_storage()._cdata)
            self.assertEqual(one.untyped_storage().nbytes(), 512)
            self.assertLess(len(saved({"one": one, "two": two})), 512 + 2048)
            back = loaded(saved(tensors))
            self.assertEqual(back["norm"].data_ptr(), back["tied"].data_ptr())
            self.assertNotEqual(back["norm"].data_ptr(), back["other"].data_ptr())
            del one, two, tensors

    def test_a_change_of_one_is_noticed_by_backward_through_the_other(self):
        self.publish_tied()
        with gmsfs.open(self.path, "rw", timeout=TIMEOUT) as store:
            tensors = store.tensors("torch")
            x = torch.ones(128, device=DEVICE, requires_grad=True)
            y = (x * tensors["norm"]).sum()
            tensors["tied"].add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.backward()
            del tensors, y

    @unittest.skipIf(save_model is None, "safetensors is not there")
    def test_a_model_of_tied_tensors_is_saved_with_one_of_them(self):
        self.publish_tied()
        with gmsfs.open(self.path) as store:
            tensors = store.tensors("torch")
            path = self.file("model.safetensors")
            save_model(Model(tensors), path)
            self.assertEqual(sorted(load_file(path)), ["norm", "other"])
            del tensors

    def test_the_same_bytes_as_another_type_are_one_storage_too(self):
        self.commit_raw(
            {
                "floats": (b'{"dtype":"torch.float32","shape":[8]}', 512),
                "bits": (b'{"dtype":"torch.int32","shape":[2,4]}', 512),
                "part": (b'{"dtype":"torch.int32","shape":[4]}', 512),
            }
        )
        with gmsfs.open(self.path) as store:
            tensors = store.tensors("torch")
            storages = {name: tensor.untyped_storage() for name, tensor in tensors.items()}
            self.assertEqual(storages["floats"]._cdata, storages["bits"]._cdata)
            self.assertNotEqual(storages["floats"]._cdata, storages["part"]._cdata)
            self.assertEqual(storages["part"].nbytes(), 16)
            self.assertEqual(len({storage.data_ptr() for storage in storages.values()}), 1)
            del storages, tensors


class Lifetime(StoreCase):
    def test_the_last_slice_of_an_allocation_keeps_it_whatever_went_before(self):
        self.load(as_model(sample()))
        store = gmsfs.open(self.path)
        tensors = store.tensors("torch")
        last = tensors.pop("small")
        del tensors, store
        self.assertEqual(self.state(), "RO")
        self.assertEqual(last.tolist(), [0, 1, 2, 3, 4])
        storage = last.untyped_storage()
        del last
        self.assertEqual(self.state(), "RO")
        del storage
        self.assertEqual(self.state(), "COMMITTED")
