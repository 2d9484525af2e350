"""What a model would read, without its weights: token ids, the names of prompts, and who it is.

Context
-------
Before hours of work are started one wants to know how many tokens they are, and which replies are stored already. Both hang on
the model's tokenizer and on the identity of its weights, and neither needs the weights in memory.

Intuition
---------
`TransformersReceiver` names a prompt by its token ids and itself by the hash of its weight files, its settings and its precision. All
of that is known from the folder of the model. So `Unloaded` gives the same names, in a second instead of a minute.

How to read the result
----------------------
`exact` says whether ids are the model's own. Where a model is not on this machine, `Guessed` cuts texts into pieces of four bytes,
about as long as a token of English text; its counts are estimates, and its names fit no stored reply.

Not covered: replies; models behind an endpoint, which are guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from lib.models.choose import SCRIPTS, open_receiver
from lib.models.endpoint_settings import PREFIX, read_settings
from lib.models.receiver import Prompt, schema_text, text_key
from lib.seeds import digest, seed_of
from lib.sources import available, catalogue

GUESSED_BYTES = 4  # bytes of a guessed token
_FRAME = 5  # guessed tokens around a turn


class PromptReader(Protocol):
    """Who turns prompts into tokens and names; see the module header.

    Attributes
    ----------
    name, fingerprint : as of the receiver
    exact : whether the tokens are the receiver's own
    context : most tokens of prompt and reply; None where it is not known
    """

    name: str
    fingerprint: str
    exact: bool
    context: int | None

    def ids(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt, shape (n_tokens,)."""
        ...

    def text_ids(self, text: str) -> Sequence[int]:
        """Return the token ids of a text, shape (n_tokens,)."""
        ...

    def prompt_key(self, prompt: Prompt) -> str:
        """Return the receiver's name of the prompt."""
        ...


class Unloaded:
    """The tokens and the identity of a local model; arguments as in `TransformersReceiver`.

    Raises
    ------
    WeightsError, SourceError
        As `load_weights` does, but for what only loading would show.
    """

    exact = True

    def __init__(self, name: str, *, dtype: str = "auto", device: str = "auto", revision: str | None = None) -> None:
        import torch
        from transformers import AutoTokenizer, GenerationConfig

        from lib.models.chat import ChatEncoder
        from lib.models.packed_linear import can_pack
        from lib.models.transformers_receiver import eos_tokens, fingerprint_of
        from lib.models.weights import find_model, quiet_bars

        found = find_model(name, dtype=dtype, device=device, revision=revision)
        with quiet_bars():
            tokenizer = AutoTokenizer.from_pretrained(found.folder, local_files_only=True, trust_remote_code=False)
        if (found.folder / "generation_config.json").is_file():
            generation = GenerationConfig.from_pretrained(found.folder, local_files_only=True)
        else:
            generation = GenerationConfig.from_model_config(found.config)
        self.name = found.name
        self.encoder = ChatEncoder(tokenizer, found.name)
        self.context: int | None = int(found.config.max_position_embeddings)
        device_ = torch.device(found.device)
        self.fingerprint = fingerprint_of(
            found.sha256,
            found.config,
            eos_tokens(generation, tokenizer),
            str(found.dtype).removeprefix("torch."),
            device_.type,
            packed=can_pack(device_, found.dtype),
        )

    def ids(self, prompt: Prompt) -> list[int]:
        """See `PromptReader`."""
        return self.encoder.encode(prompt)

    def text_ids(self, text: str) -> Sequence[int]:
        """See `PromptReader`."""
        return self.encoder.encode_text(text)

    def prompt_key(self, prompt: Prompt) -> str:
        """See `PromptReader`."""
        return digest(self.encoder.encode(prompt), schema_text(prompt.schema), prompt.bias)


class Guessed:
    """Pieces of four bytes in the place of tokens, for a model that is not here."""

    exact = False
    context: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.fingerprint = f"guessed:{name}"

    def ids(self, prompt: Prompt) -> list[int]:
        """See `PromptReader`."""
        ids: list[int] = []
        for turn in prompt.turns:
            ids += [seed_of("turn", turn.role) % 1000] * _FRAME
            ids += self.text_ids(turn.text)
        return ids

    def text_ids(self, text: str) -> Sequence[int]:
        """See `PromptReader`."""
        data = text.encode("utf-8", "surrogatepass")
        pieces = (data[start : start + GUESSED_BYTES] for start in range(0, len(data), GUESSED_BYTES))
        return [1000 + int.from_bytes(piece, "big") for piece in pieces]

    def prompt_key(self, prompt: Prompt) -> str:
        """See `PromptReader`."""
        return text_key(prompt)


class Words:
    """The words that a receiver made of rules reads, and its own names."""

    exact = True
    context: int | None = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.receiver = open_receiver(name)
        self.fingerprint = self.receiver.fingerprint

    def ids(self, prompt: Prompt) -> list[int]:
        """See `PromptReader`."""
        return [token for turn in prompt.turns for token in self.text_ids(turn.text)]

    def text_ids(self, text: str) -> Sequence[int]:
        """See `PromptReader`."""
        return [seed_of("word", word) % 2**31 for word in text.split()]

    def prompt_key(self, prompt: Prompt) -> str:
        """See `PromptReader`."""
        return self.receiver.prompt_key(prompt)


def weights_are_here(name: str) -> bool:
    """Say whether a model of this name can be loaded without fetching anything: a hub id counts as not here."""
    return available(name) if name in catalogue() else Path(name).expanduser().exists()


def open_unloaded(name: str, *, dtype: str = "auto", device: str = "auto", revision: str | None = None) -> PromptReader:
    """Return who reads prompts as the receiver called `name` would; arguments as in `lib.models.open_receiver`.

    Raises
    ------
    EndpointError
        When the name of an endpoint cannot be read; no server is asked.
    """
    if name in SCRIPTS:
        return Words(name)
    if name.startswith(PREFIX):
        settings = read_settings(name)
        return Guessed(settings.model or settings.url)
    if weights_are_here(name):
        return Unloaded(name, dtype=dtype, device=device, revision=revision)
    return Guessed(name)
