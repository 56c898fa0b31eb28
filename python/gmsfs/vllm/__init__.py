# SPDX-License-Identifier: Apache-2.0
"""A load format for vLLM, and a backend of its sleep mode; gmsfs-vllm(7) is their manual.

    vllm serve MODEL --load-format gmsfs --model-loader-extra-config '{"store": PATH}'

vLLM finds register() by the entry point `vllm.general_plugins` of this package, in each of its processes.
This file imports neither vLLM nor torch.
"""

from __future__ import annotations

LOAD_FORMAT = "gmsfs"
SLEEP_BACKEND = "gmsfs"


def register() -> None:
    """Makes the load format and the sleep backend known; vLLM calls it several times in one process. Raises
    ImportError for a version of vLLM that is not known, or that lacks a hook."""
    from . import loader

    loader.register()


__all__ = ["LOAD_FORMAT", "SLEEP_BACKEND", "register"]
