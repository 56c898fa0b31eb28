# SPDX-License-Identifier: Apache-2.0
"""Which versions of vLLM this package knows."""

from __future__ import annotations

import os
import re
from typing import Tuple

Version = Tuple[int, ...]

OLDEST: Version = (0, 21)
NEWEST: Version = (0, 33)
SLEEP: Version = (0, 27)  # the oldest whose interface of a sleep backend is used
UNTESTED = "GMSFS_UNTESTED"  # a variable: 1 lets every version try


def parse(text: str) -> Version:
    """The first two numbers of a version, such as (0, 32) of 0.32.0+cpu."""
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ImportError(f"gmsfs: {text!r} is no version of vLLM; use a released one")
    return int(found[1]), int(found[2])


def check(text: str) -> Version:
    """The version, parsed. Raises ImportError for one that is not known."""
    version = parse(text)
    if not OLDEST <= version <= NEWEST and os.environ.get(UNTESTED) != "1":
        raise ImportError(
            f"gmsfs: the load format gmsfs is for vLLM {_join(OLDEST)} to {_join(NEWEST)}, this is {text}; "
            f"use one of those versions, or set {UNTESTED}=1 to try it all the same"
        )
    return version


def _join(version: Version) -> str:
    return ".".join(map(str, version))
