# SPDX-License-Identifier: Apache-2.0
"""Arguments that are numbers: ctypes would cut a number that is too large for a field."""

import operator
from typing import Any


def whole_number(what: str, number: Any, least: int, most: int) -> int:
    """TypeError, or ValueError, where it is none from `least` to `most`."""
    try:
        value = operator.index(number)
    except TypeError:
        raise TypeError(f"{what} is a whole number, not {number!r}") from None
    if not least <= value <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}, not {value}")
    return value
