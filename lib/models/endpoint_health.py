"""Ask a server what it is and has, and say in one line what is wrong with it.

`examine` reads the list of models, finds the one that is wanted, and recognises the kind of server by its list and by routes that only
this kind has. What it returns belongs to the receiver's identity: kind, version, and what the list says of the model's weights.

Not covered: whether the model answers well; `python -m lib check-endpoint` compares its replies with those of a local model.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from lib.models.endpoint_servers import OWNERS, SERVERS
from lib.models.endpoint_settings import KEY_VARIABLES, EndpointError, EndpointSettings, endpoint_key, hide_key

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS, SECONDS = 10.0, 60.0  # some servers answer nothing, not even their list, while the model is at work


class Served(msgspec.Struct, frozen=True):
    """What answers at an address.

    Attributes
    ----------
    kind : str
        A key of `SERVERS`.
    version : str
        As the server tells it; empty where it does not.
    model : str
        The wanted model, as the server lists it.
    models : tuple of str
        All it lists.
    details : dict
        What the list says of the model's weights (`root`, `meta`), without times and permissions.
    """

    kind: str
    version: str
    model: str
    models: tuple[str, ...]
    details: dict[str, Any] = {}


def native(
    settings: EndpointSettings, method: str, address: str, body: Any = None, *, seconds: float = SECONDS
) -> httpx.Response:
    """Ask one of a server's routes outside the OpenAI client, with the key where there is one.

    Raises
    ------
    EndpointError
        When no server is there, or none answers within `seconds`.
    """
    import httpx

    key = endpoint_key()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
        with httpx.Client(timeout=timeout, trust_env=not settings.loopback) as client:
            return client.request(method, address, json=body, headers=headers)
    except httpx.ReadTimeout:
        raise EndpointError(
            f"{address}: a server is there but said nothing for {seconds:g} s; is it busy or stuck?"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = hide_key(str(error)) or type(error).__name__
        kind = SERVERS["vllm" if settings.server == "auto" else settings.server]
        raise EndpointError(
            f"no server answers at {settings.url} ({reason}); start one, such as `{kind.start}`, or mend host and port "
            "(docs/endpoints.md)"
        ) from None


def examine(settings: EndpointSettings) -> Served:
    """Return what answers at `settings.url`.

    Raises
    ------
    EndpointError
        When no server answers, the path or the key is wrong, the answer is no list of models, or the model is not in it.
    """
    entries = _models(settings)
    names = tuple(str(entry["id"]) for entry in entries)
    kind = settings.server if settings.server != "auto" else _kind(settings, entries)
    wanted = _wanted(settings, names, kind)
    entry = next((entry for entry in entries if entry["id"] == wanted), {})
    details = {name: entry[name] for name in ("root", "meta") if entry.get(name) is not None}
    return Served(kind, _version(settings, kind), wanted, names, details)


def _models(settings: EndpointSettings) -> list[dict[str, Any]]:
    response = native(settings, "GET", f"{settings.url}/models")
    if response.status_code in (401, 403):
        sent = "the key it was sent" if endpoint_key() else "a request without a key"
        raise EndpointError(
            f"{settings.url} refuses {sent} (HTTP {response.status_code}); set {KEY_VARIABLES[0]} in the environment"
        )
    if response.status_code == 404:
        right = _right_path(settings)
        hint = f"it lies under {right}" if right else "most servers have it under /v1"
        raise EndpointError(f"{settings.url}: a server answers, but has no /models under this path; {hint}")
    if response.status_code != 200:
        raise EndpointError(f"{settings.url}/models: HTTP {response.status_code}: {_short(response.text)}")
    entries = _listed(response)
    if entries is None:
        raise EndpointError(
            f"{settings.url}/models: no list of models but {_short(response.text)!r}; is it an OpenAI-compatible server?"
        )
    return entries


def _listed(response: httpx.Response) -> list[dict[str, Any]] | None:
    """Return the entries of a list of models; None when it is something else."""
    try:
        data = response.json()["data"]
        return [entry for entry in data or () if isinstance(entry["id"], str)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _right_path(settings: EndpointSettings) -> str | None:
    """Return the address under which the list of models is, one step from the given one."""
    for other in (f"{settings.url}/v1", settings.root, f"{settings.url.rsplit('/', 1)[0]}/v1"):
        if other != settings.url and _listed(native(settings, "GET", f"{other}/models")) is not None:
            return other
    return None


def _wanted(settings: EndpointSettings, names: tuple[str, ...], kind: str) -> str:
    listed = ", ".join(names) or "none"
    if not settings.model:
        if len(names) == 1:
            return names[0]
        raise EndpointError(f"{settings.url}: name the model behind a '#'; the server has: {listed}")
    if settings.model in names or not SERVERS[kind].lists_all:
        return settings.model
    if f"{settings.model}:latest" in names:  # Ollama's full name of a model without a tag
        return f"{settings.model}:latest"
    near = difflib.get_close_matches(settings.model, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise EndpointError(f"{settings.url}: no model {settings.model!r}{hint} The server has: {listed}")


def _kind(settings: EndpointSettings, entries: list[dict[str, Any]]) -> str:
    """Recognise a server by what its list says of the owner, else by a route that no other kind has."""
    owners = {str(entry.get("owned_by")) for entry in entries}
    for owner, kind in OWNERS.items():
        if owner in owners:
            return kind
    if native(settings, "GET", f"{settings.root}/").text.startswith("Ollama is running"):
        return "ollama"
    described = _json(native(settings, "GET", f"{settings.root}/openapi.json"))
    return "transformers" if "/load_model" in (described.get("paths") or {}) else "other"


def _version(settings: EndpointSettings, kind: str) -> str:
    """Return the server's version, where it has a route that tells it."""
    routes = {
        "vllm": ("/version", "version"),
        "ollama": ("/api/version", "version"),
        "llamacpp": ("/props", "build_info"),
        "sglang": ("/get_server_info", "version"),
    }
    if kind not in routes:
        return ""
    path, field = routes[kind]
    return str(_json(native(settings, "GET", settings.root + path)).get(field) or "")


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if response.status_code == 200 and isinstance(value, dict) else {}


def _short(text: str) -> str:
    return hide_key(" ".join(text.split()))[:200]
