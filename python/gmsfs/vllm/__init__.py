# SPDX-License-Identifier: Apache-2.0
"""A load format for vLLM, a backend of its sleep mode, and a KV connector; gmsfs-vllm(7) is their manual.

    vllm serve MODEL --load-format gmsfs --model-loader-extra-config '{"store": PATH}'

vLLM finds register() by the entry point `vllm.general_plugins` of this package, in each of its processes.
This file imports neither vLLM nor torch.
"""

from __future__ import annotations

import logging
from typing import Sequence

from ..hooks import KIND, LOAD_FORMAT, Hook, check_version
from ..hooks import check as check_hooks
from . import hooks

SLEEP_BACKEND = "gmsfs"


def register() -> None:
    """Makes the load format and the sleep backend known; vLLM calls it several times in one process. A vLLM
    that cannot have them starts without them, and its log says why: the engine may use another format."""
    try:
        check(hooks.HOOKS, hooks.OLDEST)
        from . import loader

        loader.register()
    except Exception as error:  # an import of vLLM's modules can fail in any way, and must not end vLLM
        logging.getLogger("vllm.gmsfs").warning(
            "gmsfs: vLLM starts without the load format %s: %s: %s", LOAD_FORMAT, type(error).__name__, error
        )


def check(wanted: Sequence[Hook], oldest: str, kind: str = KIND) -> None:
    """Raises HookMissing, an ImportError, for a version of vLLM that is not known, or that lacks a hook."""
    import vllm

    check_version("vLLM", vllm.__version__, oldest, hooks.NEWEST, kind)
    check_hooks("vLLM", vllm.__version__, wanted, kind)


__all__ = ["LOAD_FORMAT", "SLEEP_BACKEND", "register"]
