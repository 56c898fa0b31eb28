# SPDX-License-Identifier: Apache-2.0
"""What --model-loader-extra-config says to the load format gmsfs."""

from __future__ import annotations

import math
from typing import Any, Dict, NamedTuple

TIMEOUT_SECONDS = 600.0  # for the lock, and for an engine that is loading

RANK = "{rank}"  # in a path: the number of the rank

EXAMPLE = '--model-loader-extra-config \'{"store": "/mnt/gms/gpu0/NAME"}\''


class Settings(NamedTuple):
    path: str  # of the store; with RANK in it, of the store of each rank
    timeout: float  # seconds
    others: Dict[str, Any]  # of vLLM's own loader


def read(extra: Any) -> Settings:
    """Raises ValueError, which names the key."""
    others = dict(extra or {})
    path = others.pop("store", None)
    if not isinstance(path, str) or not path:
        raise ValueError(f"load format gmsfs: no store is named; give {EXAMPLE}")
    timeout = others.pop("timeout", TIMEOUT_SECONDS)
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
        raise ValueError(f'{path}: "timeout" is a number of seconds, not {timeout!r}')
    return Settings(path, float(timeout), others)
