# SPDX-License-Identifier: Apache-2.0
"""The two examples of recovery, as a user runs them. Needs torch and transformers."""

import os
import shutil
import subprocess
import sys
import unittest

from support import MOUNT, SCRATCH, TIMEOUT

EXAMPLES = os.path.join(os.path.dirname(__file__), "../../examples")


class Recovery(unittest.TestCase):
    def run_example(self, name):
        model = os.path.join(SCRATCH, "small-model")
        self.addCleanup(shutil.rmtree, model, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, os.path.join(EXAMPLES, name), MOUNT, model],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_a_successor_maps_the_weights_of_an_engine_that_was_killed(self):
        said = self.run_example("successor.py")
        self.assertRegex(said, r"first engine: model made and weights loaded and published in \d+\.\d ms")
        self.assertRegex(said, r"successor: model made and weights mapped in \d+\.\d ms")
        self.assertIn("its successor: generates the same tokens", said)

    def test_a_shadow_wakes_into_the_lock_that_a_dead_engine_lost(self):
        said = self.run_example("shadow.py")
        self.assertRegex(said, r"its shadow: first token \d+\.\d ms later")
        self.assertIn("its shadow: has the dead engine's block", said)
        self.assertIn("its shadow: generates the same tokens", said)
