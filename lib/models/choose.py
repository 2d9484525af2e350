"""Open a receiver by name, so that a notebook needs one parameter for any of them.

Not covered: whether a server behind an endpoint holds the model it names; see `lib.models.endpoint_health`.
"""

from __future__ import annotations

from functools import partial

from lib.models.endpoint_settings import PREFIX
from lib.models.receiver import Receiver
from lib.models.scripted import ScriptedReceiver, skimming_script
from lib.models.scripted_steps import CAREFUL, HASTY, STEADY, STUBBORN, how_sure, script_of
from lib.models.scripted_team import team_script, trusting_script

SCRIPTED = "scripted"
SCRIPTS = {
    SCRIPTED: (team_script, STEADY),
    "scripted-skimming": (skimming_script, HASTY),
    "scripted-trusting": (trusting_script, STEADY),
    "scripted-careful": (team_script, CAREFUL),
    "scripted-hasty": (team_script, HASTY),
    "scripted-stubborn": (team_script, STUBBORN),
}


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
        "scripted", or "scripted-skimming", which reads claims alone, or "scripted-trusting", whose agents believe each other, or
        "scripted-careful", "scripted-hasty" and "scripted-stubborn", which differ at the steps of a task; a short name of
        data/sources.toml; a local folder or GGUF file; a hub id, which needs `revision`; or
        "endpoint:http://host:port/v1#model", see `lib.models.endpoint_settings`.
    dtype, device, exact, revision
        As in `lib.models.weights.load_weights`; a scripted receiver and a server have no use for dtype and device.

    Raises
    ------
    ValueError
        When `exact` or `revision` is asked of a server, which computes as it was started.
    """
    if name in SCRIPTS:
        script, reader = SCRIPTS[name]
        return ScriptedReceiver(script_of(reader, script), name, partial(how_sure, reader=reader))
    if name.startswith(PREFIX):
        if exact or revision:
            raise ValueError(
                f"{name}: exact and revision are of models on this machine; a server computes as it was started, "
                "and a tokenizer's commit is its own setting, #revision="
            )
        from lib.models.endpoint_receiver import EndpointReceiver

        return EndpointReceiver(name)
    # Imported here, so that a scripted receiver costs no import of torch.
    from lib.models.transformers_receiver import TransformersReceiver

    return TransformersReceiver(name, dtype=dtype, device=device, exact=exact, revision=revision)
