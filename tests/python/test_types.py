# SPDX-License-Identifier: Apache-2.0
"""Type annotations: each function and method that the package offers has them, and says that it does."""

import inspect
import os
import unittest

import gmsfs
import gmsfs.graphs
import gmsfs.regions

MODULES = (gmsfs, gmsfs.graphs, gmsfs.regions)


def offered():
    """Yields (name, function) for all public functions and methods."""
    for module in MODULES:
        for name, thing in vars(module).items():
            if name.startswith("_") or not getattr(thing, "__module__", "").startswith("gmsfs"):
                continue
            if inspect.isclass(thing):
                yield from of_class(name, thing)
            elif inspect.isfunction(thing):
                yield name, thing


def of_class(name, kind):
    for method, thing in (pair for base in kind.__mro__ for pair in vars(base).items()):
        if isinstance(thing, property):
            thing = thing.fget
        thing = inspect.unwrap(thing) if callable(thing) else thing
        own = inspect.isfunction(thing) and thing.__module__.startswith("gmsfs")
        if own and (not method.startswith("_") or method == "__init__"):
            yield f"{name}.{method}", thing


class Types(unittest.TestCase):
    def test_each_parameter_and_result_is_annotated(self):
        seen = 0
        for name, function in offered():
            with self.subTest(of=name):
                signature = inspect.signature(function)
                bare = [
                    one.name
                    for one in list(signature.parameters.values())
                    if one.annotation is one.empty and one.name not in ("self", "cls")
                ]
                self.assertEqual(bare, [])
                self.assertIsNot(signature.return_annotation, signature.empty)
            seen += 1
        self.assertGreater(seen, 80)

    def test_the_package_says_that_it_has_types(self):
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(gmsfs.__file__), "py.typed")))
