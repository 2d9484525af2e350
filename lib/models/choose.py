"""Open a receiver by name, so that a notebook needs one parameter for any of them.

Not covered: receivers behind an endpoint.
"""

from __future__ import annotations

from lib.models.receiver import Receiver
from lib.models.scripted import ScriptedReceiver, skimming_script
from lib.models.scripted_team import team_script, trusting_script

SCRIPTED = "scripted"
SCRIPTS = {SCRIPTED: team_script, "scripted-skimming": skimming_script, "scripted-trusting": trusting_script}


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
        "scripted", or "scripted-skimming", which reads claims alone, or "scripted-trusting", whose agents believe each other; a
        short name of data/sources.toml; a local folder or GGUF file; or a hub id, which needs `revision`.
    dtype, device, exact, revision
        As in `lib.models.weights.load_weights`; a scripted receiver has no use for them.
    """
    if name in SCRIPTS:
        return ScriptedReceiver(SCRIPTS[name], name)
    # Imported here, so that a scripted receiver costs no import of torch.
    from lib.models.transformers_receiver import TransformersReceiver

    return TransformersReceiver(name, dtype=dtype, device=device, exact=exact, revision=revision)
