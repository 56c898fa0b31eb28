# SPDX-License-Identifier: Apache-2.0
"""The names of an engine that a plug-in needs: a table of them is held against the engine as it starts.

Tests hold the same tables against the sources of every version that is supported.
"""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any, List, NamedTuple, Sequence, Tuple


LOAD_FORMAT = "gmsfs"
KIND = "load format"  # of plug-in, unless another one is given
UNTESTED = "GMSFS_UNTESTED"  # a variable: 1 lets every version try


class Hook(NamedTuple):
    """A function or attribute of an engine."""

    target: str  # dotted name: module, class, function
    arguments: Tuple[str, ...] = ()  # names that its parameters must have; () for none
    since: str = "0"  # the first version that is known to have it
    until: str = ""  # the first version in which it is not needed any more


class HookMissing(ImportError):
    """An engine of a version that is not known, or that has changed where the plug-in holds on to it."""


def numbers(version: str) -> Tuple[int, ...]:
    """The leading numbers of a version: (0, 5, 23) of "0.5.23.post1"."""
    found: List[int] = []
    for word in version.replace("+", ".").split("."):
        if not word.isdigit():
            break
        found.append(int(word))
    return tuple(found)


def check_version(engine: str, found: str, oldest: str, newest: str, kind: str = KIND) -> None:
    """Raises HookMissing for a version that is not known, unless GMSFS_UNTESTED lets it try. Compares as many
    numbers as `newest` has: 0.33.1 is 0.33."""
    number = numbers(found)[: len(numbers(newest))]
    if not numbers(oldest) <= number <= numbers(newest) and os.environ.get(UNTESTED) != "1":
        raise HookMissing(
            f"{kind} {LOAD_FORMAT} knows {engine} {oldest} to {newest}, and this is {found}; use one of "
            f"them, or set {UNTESTED}=1 to try it all the same"
        )


def wanted(hooks: Sequence[Hook], version: str) -> List[Hook]:
    """The hooks that this version of the engine must have."""
    number = numbers(version)
    return [
        hook
        for hook in hooks
        if numbers(hook.since) <= number and not (hook.until and number >= numbers(hook.until))
    ]


def resolve(target: str) -> Any:
    """Imports and returns the object of a dotted name. HookMissing if there is none."""
    words = target.split(".")
    try:
        found = importlib.import_module(words[0])
        for count, word in enumerate(words[1:], 2):
            if not hasattr(found, word) and inspect.ismodule(found):
                importlib.import_module(".".join(words[:count]))
            found = getattr(found, word)
    except Exception as error:  # a module of an engine can fail in any way, as for want of a CUDA library
        raise HookMissing(f"{target} is not there ({error})") from error
    return found


def check(engine: str, version: str, hooks: Sequence[Hook], kind: str = KIND) -> None:
    """Raises HookMissing, which names every hook that this version lacks."""
    missing = []
    for hook in wanted(hooks, version):
        try:
            found = resolve(hook.target)
            has = inspect.signature(found).parameters if hook.arguments else ()
        except HookMissing as error:
            missing.append(str(error))
        except (TypeError, ValueError) as error:
            missing.append(f"{hook.target} has no arguments that can be seen ({error})")
        else:
            lacking = set(hook.arguments).difference(has)
            if lacking:
                missing.append(f"{hook.target} has no argument {', '.join(sorted(lacking))}")
    if missing:
        raise HookMissing(
            f"{engine} {version}: {kind} {LOAD_FORMAT}: {'; '.join(missing)}. Use a version of {engine} "
            f"that gmsfs-{engine.lower()}(7) names, or another {kind}"
        )
