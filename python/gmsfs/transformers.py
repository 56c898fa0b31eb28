# SPDX-License-Identifier: Apache-2.0
"""Models of Hugging Face transformers whose weights lie in a store.

    import gmsfs.transformers

    model = gmsfs.transformers.from_pretrained("path/or/name", "/mnt/gms/gpu0/weights")

Of all processes that say so, the first loads the model and publishes it; the others attach.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Optional

import torch
import transformers

from .opening import open_weights
from .torch import Shared, attach, publish

# What differs between two copies of one model's configuration.
_NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype")


def from_pretrained(
    source: Any,
    store: Any,
    *,
    model_class: Any = None,
    timeout: Optional[float] = None,
    **options: Any,
) -> Any:
    """A model for inference, in eval(), whose parameters lie in the store at the path `store`.

    source: what transformers' from_pretrained takes (a directory, or a name of the hub). A process that
    attaches reads its config.json and generation_config.json alone.
    model_class: the class; None is the one that the configuration names.
    options: of transformers' from_pretrained, such as dtype, for the process that loads.
    timeout: seconds to wait for the store's lock, and for a process that is loading; None without end.
    model.gmsfs is the gmsfs.torch.Shared: report(), sleep(), wake(), and close(). A store of another model,
    dtype or class raises gmsfs.Mismatch with both sides.
    """
    config = options.pop("config", None) or transformers.AutoConfig.from_pretrained(source)
    model_class = model_class or _find_class(source, config)
    dtype = _find_dtype(config, options)
    wanted = _fingerprint(model_class, config, dtype)
    opened = open_weights(store, timeout)
    try:
        if opened.writable:
            model = model_class.from_pretrained(source, config=config, **{**options, "dtype": dtype}).eval()
            shared = publish(model, opened, fingerprint=wanted)
        else:
            model, shared = _attach(source, opened, model_class, config, dtype, wanted)
    except BaseException:
        opened.close()
        raise
    model.gmsfs = shared
    return model


def _find_class(source: Any, config: Any) -> Any:
    for name in config.architectures or ():
        found = getattr(transformers, name, None)
        if found is not None:
            return found
    raise ValueError(
        f"{source}: transformers {transformers.__version__} has no class {config.architectures}; "
        "give model_class="
    )


def _find_dtype(config: Any, options: Dict[str, Any]) -> Any:
    dtype = options.pop("dtype", None) or options.pop("torch_dtype", None)
    if dtype in (None, "auto"):
        dtype = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None) or torch.float32
    return getattr(torch, dtype.rpartition(".")[2]) if isinstance(dtype, str) else dtype


def _fingerprint(model_class: Any, config: Any, dtype: Any) -> Dict[str, str]:
    fields = {
        key: value for key, value in config.to_dict().items() if key not in _NOT_OF_THE_MODEL
    }
    text = json.dumps(fields, sort_keys=True, default=str)
    found = {
        "class": model_class.__name__,
        "dtype": str(dtype),
        "config": hashlib.sha256(text.encode()).hexdigest()[:32],
    }
    revision = getattr(config, "_commit_hash", None)
    return {**found, "revision": revision} if revision else found


def _attach(source: Any, store: Any, model_class: Any, config: Any, dtype: Any, wanted: Any) -> Any:
    with torch.device("meta"):
        model = model_class._from_config(config, dtype=dtype)
    shared: Shared = attach(model.eval(), store, fingerprint=wanted)
    if model.can_generate():
        try:
            model.generation_config = transformers.GenerationConfig.from_pretrained(source)
        except OSError:
            pass  # the model has no generation_config.json, and so the one of its configuration
    return model, shared
