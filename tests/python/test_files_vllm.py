# SPDX-License-Identifier: Apache-2.0
"""vLLM's own loader on STORE/files beside the plain directory: the same tokens. gmsfs-engines(7) has its row.
Needs vllm, as test_vllm does."""

import os

from test_files_programs import FilesCase
from test_vllm import EngineCase, save_model


class Vllm(EngineCase, FilesCase):
    def test_its_own_loader(self):
        source = self.directory()
        save_model("llama", source)
        path = self.keep(source)
        self.assertEqual(sorted(os.listdir(path)), sorted(os.listdir(source)))
        self.assertEqual(self.run_to_the_end(path, "-"), self.run_to_the_end(source, "-"))
