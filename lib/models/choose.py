"""Open a receiver by name, so that a notebook needs one parameter for any of them.

Not covered: receivers behind an endpoint.
"""

from __future__ import annotations

from lib.models.receiver import Receiver
from lib.models.scripted import ScriptedReceiver

SCRIPTED = "scripted"


def open_receiver(
    name: str = "qwen-coder-0.5b",
    *,
    dtype: str = "auto",
    device: str = "auto",
    exact: bool = False,
    revision: str | None = None,
) -> Receiver:
    """Return the receiver called `name`.

    Parameters
    ----------
    name : str
        "scripted"; a short name of data/sources.toml; a local folder or GGUF file; or a hub id, which needs `revision`.
    dtype, device, exact, revision
        As in `lib.models.weights.load_weights`; a scripted receiver has no use for them.
    """
    if name == SCRIPTED:
        return ScriptedReceiver()
    # Imported here, so that the scripted receiver costs no import of torch.
    from lib.models.transformers_receiver import TransformersReceiver

    return TransformersReceiver(name, dtype=dtype, device=device, exact=exact, revision=revision)
