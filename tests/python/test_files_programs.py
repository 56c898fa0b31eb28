# SPDX-License-Identifier: Apache-2.0
"""Programs that know nothing of gmsfs, each on STORE/files beside the plain directory: the same outputs bit
for bit. gmsfs-engines(7) has a row for each program. Tests of a program that this Python does not have are
skipped."""

import importlib.util
import os
import subprocess
import sys
import unittest

import numpy

from support import TIMEOUT, StoreCase, command

sys.path.append(os.path.join(os.path.dirname(__file__), "../tools"))

FILE_BYTES = 8 << 20  # of the file whose mappings are measured
# A process that opens a file as a program does and reads all of it. For each line of its input it prints the
# SHA-256 of the bytes, and Rss and Pss in kB of its mappings of the file.
MEASURED = """
import os, sys, hashlib
path = sys.argv[1]
{open}
def kb(name):
    total, mine = 0, False
    for line in open("/proc/self/smaps"):
        if "-" in line.split(" ")[0]:
            mine = line.rstrip().endswith(path)
        elif mine and line.startswith(name + ":"):
            total += int(line.split()[1])
    return total
digest = lambda: hashlib.sha256(memoryview(array).cast("B")).hexdigest()
digest()
print("open", flush=True)
for _ in sys.stdin:
    print(digest(), kb("Rss"), kb("Pss"), flush=True)
"""
NUMPY = "import numpy; array = numpy.memmap(path, dtype='uint8', mode='r')"
MMAP = "import mmap; file = open(path, 'rb'); array = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
SAFE_OPEN = """
import safetensors
with safetensors.safe_open(path, "pt") as file:
    array = file.get_tensor("w").numpy()
"""
TORCH_LOAD = "import torch; array = torch.load(path, mmap=True)['w'].numpy()"
LOAD_FILE = "import safetensors.torch; array = safetensors.torch.load_file(path)['w'].numpy()"
# The logits of llama.cpp. Its package imports more than is here, so its library is opened by itself; lazily,
# because it was built for a newer C++ library than Debian's and never calls the function that is missing.
LLAMA_CPP = """
import importlib.util
sys.setdlopenflags(os.RTLD_LAZY)
sys.path += importlib.util.find_spec("llama").submodule_search_locations
from _llama_cpp_cpu import ffi, lib
lib.llama_backend_init()
model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
options = lib.llama_context_default_params()
options.n_ctx, options.n_threads, options.n_threads_batch = 64, 1, 1
context = lib.llama_init_from_model(model, options)
prompt = ffi.new("llama_token[]", [1, 2, 3, 4, 5])
assert lib.llama_decode(context, lib.llama_batch_get_one(prompt, len(prompt))) == 0
count = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
array = ffi.buffer(lib.llama_get_logits_ith(context, -1), 4 * count)[:]
"""


def needs(*modules):
    """Skips a test if a module is missing."""
    missing = [module for module in modules if not importlib.util.find_spec(module)]
    return unittest.skipIf(missing, f"no {', '.join(missing)} here")


class Measured:
    """A process of MEASURED."""

    def __init__(self, case, how, path):
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEASURED.format(open=how), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        case.processes.append(self)
        case.assertEqual(self.process.stdout.readline(), "open\n")

    def ask(self):
        """Returns the sum of its bytes, Rss and Pss."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        digest, rss, pss = self.process.stdout.readline().split()
        return digest, int(rss), int(pss)

    def end(self):
        if self.process.poll() is None:
            self.process.communicate(timeout=TIMEOUT)


class FilesCase(StoreCase):
    def setUp(self):
        super().setUp()
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.end()
        super().tearDown()

    def keep(self, source):
        """Puts a directory into the store as it is. Returns the path of its files."""
        command("load", "-q", "--files", self.path, source)
        return os.path.join(self.path, "files")

    def directory(self):
        path = self.file("model")
        os.makedirs(path, exist_ok=True)
        return path


class MappedCase(FilesCase):
    """Two processes map one file. A writer replaces the store meanwhile, if they closed the file, and else
    waits for them."""

    def check(self, how, name, save, keeps_open=False):
        source = self.directory()
        save(os.path.join(source, name), 1)
        path = os.path.join(self.keep(source), name)
        plain = self.sum_of(how, os.path.join(source, name))
        both = Measured(self, how, path), Measured(self, how, path)
        for process in both:
            digest, rss, pss = process.ask()
            self.assertEqual(digest, plain)
            self.assertGreaterEqual(rss, FILE_BYTES // 1024)
            self.assertLessEqual(pss, rss // 2 + 64, "its memory is not counted once")
        save(os.path.join(source, name), 2)
        if keeps_open:
            with self.assertRaisesRegex(AssertionError, "exit status 3"):
                command("load", "-q", "--timeout", "0", "--files", self.path, source)
        else:
            self.keep(source)
            new = self.sum_of(how, path)
            self.assertNotEqual(new, plain)
            self.assertEqual(new, self.sum_of(how, os.path.join(source, name)))
        for process in both:
            self.assertEqual(process.ask()[0], plain)
            process.end()

    def sum_of(self, how, path):
        process = Measured(self, how, path)
        digest = process.ask()[0]
        process.end()
        return digest


class Mapped(MappedCase):
    @staticmethod
    def save_bytes(path, seed):
        numpy.random.default_rng(seed).integers(0, 256, FILE_BYTES, numpy.uint8).tofile(path)

    @staticmethod
    def save_safetensors(path, seed):
        import safetensors.numpy

        data = numpy.random.default_rng(seed).standard_normal(FILE_BYTES // 8)
        safetensors.numpy.save_file({"w": data}, path)

    @staticmethod
    def save_torch(path, seed):
        import torch

        torch.manual_seed(seed)
        torch.save({"w": torch.rand(FILE_BYTES // 4)}, path)

    def test_numpy_memmap(self):
        self.check(NUMPY, "w.bin", self.save_bytes, keeps_open=True)

    def test_mmap(self):
        self.check(MMAP, "w.bin", self.save_bytes, keeps_open=True)

    @needs("safetensors", "torch")
    def test_safetensors_safe_open(self):
        self.check(SAFE_OPEN, "model.safetensors", self.save_safetensors)

    @needs("safetensors", "torch")
    def test_safetensors_load_file(self):
        self.check(LOAD_FILE, "model.safetensors", self.save_safetensors)

    @needs("torch")
    def test_torch_load(self):
        self.check(TORCH_LOAD, "model.pt", self.save_torch)


class Normal:
    """Gives bytes of normally distributed 32-bit floats."""

    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)

    def randbytes(self, count):
        return self.random.normal(0, 0.2, count // 4).astype("<f4").tobytes()


@needs("llama")
class LlamaCpp(MappedCase):
    def test_llama(self):
        self.check(LLAMA_CPP, "model.gguf", self.save_llama)

    @staticmethod
    def save_llama(path, seed):
        """A llama without a vocabulary, of FILE_BYTES and a little more."""
        import make_gguf

        width, inner, tokens, blocks = 256, 512, 1024, 3
        values = [
            ("general.architecture", "string", "llama"),
            ("llama.context_length", "u32", 64),
            ("llama.embedding_length", "u32", width),
            ("llama.block_count", "u32", blocks),
            ("llama.feed_forward_length", "u32", inner),
            ("llama.attention.head_count", "u32", 4),
            ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5),
            ("llama.vocab_size", "u32", tokens),
            ("tokenizer.ggml.model", "string", "no_vocab"),
        ]
        shapes = {"attn_norm": [width], "ffn_norm": [width]}
        shapes |= {f"attn_{name}": [width, width] for name in ("q", "k", "v", "output")}
        shapes |= {"ffn_gate": [width, inner], "ffn_up": [width, inner], "ffn_down": [inner, width]}
        tensors = [
            ("token_embd.weight", "F32", [width, tokens]),
            ("output_norm.weight", "F32", [width]),
            ("output.weight", "F32", [width, tokens]),
        ]
        for block in range(blocks):
            tensors += [(f"blk.{block}.{name}.weight", "F32", shape) for name, shape in shapes.items()]
        with open(path, "wb") as file:
            file.write(make_gguf.model(values, tensors, chance=Normal(seed)))


@needs("transformers", "torch")
class Transformers(FilesCase):
    def check(self, name):
        import torch
        import transformers
        from test_transformers import MODELS, PROMPT, generate

        source = self.directory()
        torch.manual_seed(3)
        config = MODELS[name]()
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(source, max_shard_size="40KB")
        plain = transformers.AutoModelForCausalLM.from_pretrained(source).eval()
        path = self.keep(source)
        model = transformers.AutoModelForCausalLM.from_pretrained(path).eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(model(PROMPT).logits, plain(PROMPT).logits))
        self.assertEqual(generate(model), generate(plain))
        for (key, ours), (_, theirs) in zip(
            model.state_dict().items(), plain.state_dict().items(), strict=True
        ):
            self.assertTrue(torch.equal(ours, theirs), key)
        is_mapped = self.find_mappings(path)
        private = {key for key, one in model.named_parameters() if not is_mapped(one.data_ptr())}
        # transformers fuses the experts of a layer, which are a tensor each in the file.
        self.assertEqual(private, {key for key, _ in model.named_parameters() if ".experts." in key})

    @staticmethod
    def find_mappings(path):
        """Returns a function that tells whether an address lies in a mapping of a file below the path."""
        spans = []
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                if path + "/" in line:
                    spans.append([int(end, 16) for end in line.split()[0].split("-")])
        return lambda address: any(start <= address < end for start, end in spans)

    def test_llama(self):
        self.check("llama")

    def test_llama_with_a_tied_head(self):
        self.check("llama_tied")

    def test_gpt2(self):
        self.check("gpt2")

    def test_a_mixture_of_experts(self):
        self.check("mixtral")


@needs("onnx", "onnxruntime")
class OnnxRuntime(FilesCase):
    def test_external_data(self):
        import onnx
        import onnxruntime

        width = 1024
        random = numpy.random.default_rng(1)
        weights = random.standard_normal((width, width), numpy.float32)
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
            "model",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, width])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, width])],
            [onnx.numpy_helper.from_array(weights, "w")],
        )
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
        )
        source = self.directory()
        onnx.save(
            model, os.path.join(source, "model.onnx"), save_as_external_data=True, location="weights.data"
        )
        self.assertGreaterEqual(os.path.getsize(os.path.join(source, "weights.data")), weights.nbytes)
        given = {"x": random.standard_normal((2, width), numpy.float32)}
        outputs = [
            onnxruntime.InferenceSession(
                os.path.join(directory, "model.onnx"), providers=["CPUExecutionProvider"]
            ).run(None, given)[0]
            for directory in (source, self.keep(source))
        ]
        self.assertEqual(outputs[0].tobytes(), outputs[1].tobytes())
