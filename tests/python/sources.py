# SPDX-License-Identifier: Apache-2.0
"""Python files out of an engine's wheel on the package index: pip says where it is, and no more of it is
read than these files. Nothing is installed or imported."""

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
import zipfile

PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (24, 28, 31, 34, 35)]
AHEAD_BYTES = 1 << 16  # for the many small reads of a zip file's directory


class Missing(Exception):
    """A name or an argument that a release does not have."""


class Remote(io.RawIOBase):
    """A file of a web server, by ranges."""

    def __init__(self, url):
        super().__init__()
        self.url, self.at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
            self.size = int(answer.headers["Content-Length"])

    def seekable(self):
        return True

    def readable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=os.SEEK_SET):
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.size}[whence]
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        wanted = urllib.request.Request(self.url, headers={"Range": f"bytes={self.at}-{end - 1}"})
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            if answer.status != 206:
                raise OSError(f"{self.url}: no ranges")
            data = answer.read()
        buffer[: len(data)] = data
        self.at += len(data)
        return len(data)


def find_wheel(requirement, place):
    """Address and version of a wheel that pip does not fetch; nothing is written to the directory `place`."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--dry-run"]
    command += ["--ignore-installed", "--no-deps", "--target", place, "--report", "-"]
    command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", "3.12"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    done = subprocess.run([*command, requirement], check=True, stdout=subprocess.PIPE, timeout=300)
    (found,) = json.loads(done.stdout)["install"]
    return found["download_info"]["url"], found["metadata"]["version"]


def newest(name):
    """The version of the newest release on the package index that has a wheel."""
    with tempfile.TemporaryDirectory() as place:
        return find_wheel(name, place)[1]


class Release:
    """The Python files of one release, kept in a directory once they are read."""

    def __init__(self, directory, name, version):
        self.name, self.version = name, version
        self.place = os.path.join(directory, f"{name}-{version}")
        self.wheel = None
        self.trees = {}

    def read(self, path):
        """A file's text, or None if there is none."""
        kept = os.path.join(self.place, path)
        if not os.path.exists(kept):
            if os.path.exists(kept + ".none"):
                return None
            text = self.fetch(path)
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            partial = kept + (".none" if text is None else "") + f".{os.getpid()}"
            with open(partial, "wb") as file:
                file.write(text or b"")
            os.rename(partial, partial.rpartition(".")[0])
            if text is None:
                return None
        with open(kept, encoding="utf-8") as file:
            return file.read()

    def fetch(self, path):
        if self.wheel is None:
            url, _ = find_wheel(f"{self.name}=={self.version}", self.place)
            self.wheel = zipfile.ZipFile(io.BufferedReader(Remote(url), AHEAD_BYTES))
        try:
            return self.wheel.read(path)
        except KeyError:
            return None

    def tree(self, module):
        """The syntax tree of a module, or None."""
        if module not in self.trees:
            path = module.replace(".", "/")
            text = self.read(f"{path}.py")
            text = self.read(f"{path}/__init__.py") if text is None else text
            self.trees[module] = None if text is None else ast.parse(text)
        return self.trees[module]

    def find(self, target):
        """(node, module) of a dotted name: the longest part of it that is a module, and names in it."""
        words = target.split(".")
        for count in range(len(words) - 1, 0, -1):
            module = ".".join(words[:count])
            if self.tree(module) is None:
                continue
            node = self.tree(module)
            for word in words[count:]:
                node, module = self.member(node, module, word, target)
            return node, module
        raise Missing(f"{target}: no such module")

    def member(self, node, module, word, target):
        for one in node.body:
            if word in names_of(one):
                if isinstance(one, ast.ImportFrom):
                    return self.find(f"{origin(one, module)}.{word}")
                return one, module
        for base in getattr(node, "bases", ()):
            try:
                parent, where = self.find(f"{module}.{ast.unparse(base)}")
                return self.member(parent, where, word, target)
            except Missing:
                pass
        raise Missing(f"{target}: {module} has no {word}")

    def check(self, target, arguments):
        """Raises Missing unless the release has the name, as a function with these arguments if any."""
        node, _ = self.find(target)
        if not arguments:
            return
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            raise Missing(f"{target} is no function")
        has = node.args
        every = [*has.posonlyargs, *has.args, has.vararg, *has.kwonlyargs, has.kwarg]
        lacking = set(arguments).difference(one.arg for one in every if one)
        if lacking:
            raise Missing(f"{target} has no argument {', '.join(sorted(lacking))}")


def names_of(node):
    """Returns the names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.If):  # "if TYPE_CHECKING:" declares names made by the module's __getattr__
        return [name for one in node.body if isinstance(one, ast.AnnAssign) for name in names_of(one)]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    return []


def origin(node, module):
    """The module that a `from ... import` names."""
    if not node.level:
        return node.module
    package = module.split(".")[: -node.level]
    return ".".join([*package, node.module] if node.module else package)
