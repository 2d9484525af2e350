"""Which server is asked, and how: the name of an endpoint receiver, read and checked.

    endpoint:http://127.0.0.1:8000/v1#Qwen/Qwen2.5-7B-Instruct
    endpoint:http://127.0.0.1:8000/v1#my-model#tokenizer=/models/my-model#max_concurrency=32#timeout_s=120

After the address comes the model as the server calls it, then settings as `name=value`, all apart by `#`: one text that needs no quotes in
a shell, in YAML or in a list. So a run's parameters name server, model and settings, and its result cannot be taken for another's.

A key comes from the environment alone, from LAB_ENDPOINT_KEY or else OPENAI_API_KEY, each time it is sent. `hide_key` takes it
out of whatever a server says.

Not covered: several servers behind one name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

PREFIX = "endpoint:"
KEY_VARIABLES = ("LAB_ENDPOINT_KEY", "OPENAI_API_KEY")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SECRET = ("key", "token", "secret", "password", "authorization", "auth", "headers")

Server = Literal["auto", "vllm", "sglang", "ollama", "llamacpp", "llama-cpp-python", "transformers", "other"]


class EndpointError(Exception):
    """A server that cannot be asked; the message says what is wrong and what to do."""


class EndpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and how to ask.

    Attributes
    ----------
    url : str
        The address that the routes `/models` and `/chat/completions` stand under; it mostly ends in `/v1`.
    model : str
        As the server calls it; empty takes the one model of a server that has one.
    tokenizer, revision : str
        The model's tokenizer: a folder, a GGUF file, a short name of data/sources.toml, or a hub id with its commit. Empty counts tokens on
        the server where it can, and gives no log-probabilities.
    server : str
        What the server is; "auto" asks it.
    schema : str
        "server": strict JSON by the server's own constrained decoding. "check": free replies, checked afterwards. "auto": by
        kind of server.
    max_concurrency : int
        Requests under way at once.
    timeout_s : float
        Seconds that one request may take.
    max_retries : int
        Further tries of a request that met a full or failing server.
    extra : dict
        Further fields of every request's body, such as `{"chat_template_kwargs": {"enable_thinking": false}}`.
    """

    url: str
    model: str = ""
    tokenizer: str = ""
    revision: str = ""
    server: Server = "auto"
    schema: Literal["auto", "server", "check"] = "auto"
    max_concurrency: int = 8
    timeout_s: float = 600.0
    max_retries: int = 4
    extra: dict[str, Any] = {}

    @property
    def root(self) -> str:
        """The address of the server's own routes: `url` without `/v1`."""
        return self.url.removesuffix("/v1")

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine, where no proxy may stand between."""
        return urlsplit(self.url).hostname in _LOOPBACK


def read_settings(given: str | Mapping[str, Any]) -> EndpointSettings:
    """Return the settings that an endpoint's name, or a mapping of them, says.

    Raises
    ------
    EndpointError
        Naming the setting that is unknown or does not fit, or what is wrong with the address. Nothing of a key is repeated.
    """
    values = _of_name(given) if isinstance(given, str) else dict(given)
    if "url" not in values:
        raise EndpointError("endpoint: url is missing; give the server's address, such as http://127.0.0.1:8000/v1")
    names = EndpointSettings.__struct_fields__
    if unknown := [name for name in values if name not in names]:
        secret = any(word in name.lower() for name in unknown for word in ("key", "secret", "password"))
        hint = f"; a key is read from {' or '.join(KEY_VARIABLES)} alone, never from a parameter" if secret else ""
        raise EndpointError(f"endpoint: unknown setting {unknown[0]!r}; there are: {', '.join(names)}{hint}")
    try:
        settings = msgspec.convert(values, EndpointSettings, strict=False)
    except msgspec.ValidationError as error:
        raise EndpointError(f"endpoint: {error}") from None
    for name, low in (("max_concurrency", 1), ("max_retries", 0), ("timeout_s", 0.001)):
        if not low <= getattr(settings, name) <= 100_000:
            raise EndpointError(f"endpoint: {name}={getattr(settings, name)}; it must be at least {low} and finite")
    if secret_field := next(
        (name for name in settings.extra if name.lower() in _SECRET or "key" in name.lower()), None
    ):
        raise EndpointError(
            f"endpoint: extra holds {secret_field!r}; a key is read from {' or '.join(KEY_VARIABLES)} alone"
        )
    return msgspec.structs.replace(settings, url=_address(settings.url))


def _of_name(name: str) -> dict[str, Any]:
    """Split `endpoint:URL#MODEL#setting=value...`."""
    url, *rest = name.removeprefix(PREFIX).split("#")
    values: dict[str, Any] = {"url": url, "model": rest[0] if rest else ""}
    for part in rest[1:]:
        setting, equals, value = part.partition("=")
        if not equals:
            raise EndpointError(
                f"endpoint: {part!r} is no setting; write name=value after the model, each behind a '#'"
            )
        values[setting.strip()] = value
    if "extra" in values:
        try:
            values["extra"] = msgspec.json.decode(values["extra"])
        except msgspec.DecodeError as error:
            raise EndpointError(f"endpoint: extra is no JSON object: {error}") from None
    return values


def _address(url: str) -> str:
    """Return an address without its last slash, or refuse one that cannot be the base of an endpoint's routes."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise EndpointError(f"endpoint: the address cannot be read: {error}") from None
    if "@" in parts.netloc or parts.query:
        raise EndpointError(
            f"endpoint: an address with a name, a password or a query is stored with every run; put the key into {KEY_VARIABLES[0]}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise EndpointError(f"endpoint: {url!r} is no address; write it as http://127.0.0.1:8000/v1")
    plain = url.rstrip("/")
    if plain.endswith("/completions"):
        base = plain.removesuffix("/completions").removesuffix("/chat")
        raise EndpointError(f"endpoint: {url} is the address of one route; give what stands before it, {base}")
    return plain


def endpoint_key() -> str | None:
    """Return the key of the environment, or None."""
    found = (os.environ.get(name, "").strip() for name in KEY_VARIABLES)
    return next((key for key in found if key), None)


def hide_key(text: str) -> str:
    """Return a text in which no key of the environment stands; a server may repeat the one it was sent."""
    for name in KEY_VARIABLES:
        if key := os.environ.get(name, "").strip():
            text = text.replace(key, f"[{name}]")
    return text
