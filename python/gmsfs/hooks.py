# SPDX-License-Identifier: Apache-2.0
"""The names of an engine that a plug-in needs: a table of them is held against the engine as it starts.

Tests hold the same tables against the sources of every version that is supported.
"""

from __future__ import annotations

import inspect
import pkgutil
from typing import Any, List, NamedTuple, Sequence, Tuple


LOAD_FORMAT = "gmsfs"


class Hook(NamedTuple):
    """A function or attribute of an engine."""

    target: str  # dotted name: module, class, function
    arguments: Tuple[str, ...] = ()  # names that its parameters must have; () for none
    since: str = "0"  # the first version that is known to have it
    until: str = ""  # the first version in which it is not needed any more


class HookMissing(RuntimeError):
    """An engine that has changed where the plug-in holds on to it."""


def numbers(version: str) -> Tuple[int, ...]:
    """The leading numbers of a version: (0, 5, 23) of "0.5.23.post1"."""
    found: List[int] = []
    for word in version.replace("+", ".").split("."):
        if not word.isdigit():
            break
        found.append(int(word))
    return tuple(found)


def wanted(hooks: Sequence[Hook], version: str) -> List[Hook]:
    """The hooks that this version of the engine must have."""
    number = numbers(version)
    return [
        hook
        for hook in hooks
        if numbers(hook.since) <= number and not (hook.until and number >= numbers(hook.until))
    ]


def resolve(target: str) -> Any:
    """The object of a dotted name, whose module is imported. HookMissing if there is none."""
    try:
        return pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise HookMissing(f"{target} is not there ({error})") from error


def check(engine: str, version: str, hooks: Sequence[Hook]) -> None:
    """Raises HookMissing, which names every hook that this version lacks."""
    missing = []
    for hook in wanted(hooks, version):
        try:
            found = resolve(hook.target)
        except HookMissing as error:
            missing.append(str(error))
            continue
        has = inspect.signature(found).parameters if hook.arguments else ()
        lacking = set(hook.arguments).difference(has)
        if lacking:
            missing.append(f"{hook.target} has no argument {', '.join(sorted(lacking))}")
    if missing:
        raise HookMissing(
            f"{engine} {version}: load format {LOAD_FORMAT}: {'; '.join(missing)}. Use a version of {engine} that "
            "gmsfs-engines(7) names, or another load format"
        )
