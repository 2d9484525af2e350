"""The receiver behind a server: vLLM, SGLang, Ollama, llama.cpp, transformers serve, or anything that speaks OpenAI's chat route.

The turns of a prompt go to the server as messages, so that the model's own chat template frames them there as `lib.models.chat` does here.
Requests run side by side up to a bound; replies come back in the order asked. A full or failing server is asked again by the OpenAI
client: after what its Retry-After says, up to two minutes, else after 0.5, 1, 2 ... 8 seconds less a random quarter.

How to read the result. What concerns one prompt (too long, timed out, refused, broken off) is an error reply with the reason; what
concerns all (no server, wrong key, model gone) is an `EndpointError`. `tally` counts replies that were cut, empty, refused, failed or off
their schema. Token counts are the server's, None where it tells none. `token_ids` stay empty: no server gives them.

Log-probabilities of given texts need a server that has them and the model's tokenizer; see `lib.models.endpoint_scores`.

Not covered: streaming; a final assistant turn to be continued (refused by name); `Prompt.bias`, which works on one position and a
server's bias on all (left out, as every receiver without probabilities does); texts that spell special tokens, which a server reads as
such (an error reply where `tokenizer` is set, unnoticed without it); identical replies of one prompt in any company.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from lib.models.endpoint_health import examine, native
from lib.models.endpoint_reply import failed, read_reply, schema_fault
from lib.models.endpoint_servers import SERVERS
from lib.models.endpoint_settings import EndpointError, EndpointSettings, endpoint_key, hide_key, read_settings
from lib.models.receiver import Prompt, Reply, text_key
from lib.seeds import digest, seed_of

if TYPE_CHECKING:
    from lib.models.chat import ChatEncoder

ENGINE = "endpoint-1"  # part of the fingerprint: raise it when a change can alter replies
_T = TypeVar("_T")
_R = TypeVar("_R")


class EndpointReceiver:
    """A model behind an OpenAI-compatible server.

    Parameters
    ----------
    endpoint : str, mapping or EndpointSettings
        See `lib.models.endpoint_settings`.

    Attributes
    ----------
    served : Served
        What answers: kind, version, model.
    tally : Counter
        Replies that were ``cut``, ``empty``, ``refused``, ``failed`` or ``off_schema``, and ``retries``, since this object was made.
    strict : bool
        Whether the server itself keeps replies to their schema.

    Raises
    ------
    EndpointError
        When the server cannot be asked; see `lib.models.endpoint_health`.
    """

    def __init__(self, endpoint: str | Mapping[str, Any] | EndpointSettings) -> None:
        self.settings = endpoint if isinstance(endpoint, EndpointSettings) else read_settings(endpoint)
        self.served = examine(self.settings)
        self.kind = SERVERS[self.served.kind]
        if self.settings.schema == "server" and not self.kind.schema:
            raise EndpointError(f"schema=server: {self.kind.title} has no constrained decoding; say schema=check")
        self.strict = self.settings.schema != "check" and bool(self.kind.schema)
        self.name = f"{PurePath(self.served.model).name}@{urlsplit(self.settings.url).netloc}"
        self.tally: Counter[str] = Counter()
        self._counted: dict[str, int] = {}
        self._warned = False
        self._lock = Lock()  # requests side by side count their retries
        self.fingerprint = digest(
            ENGINE,
            self.settings.url,
            self.served.kind,
            self.served.version,
            self.served.model,
            json.dumps(self.served.details, sort_keys=True),
            self.strict,
            self.settings.tokenizer,
            json.dumps(self.settings.extra, sort_keys=True),
        )

    @cached_property
    def client(self) -> Any:
        """The OpenAI client; it reads the key anew for each request and holds none."""
        import openai

        return openai.OpenAI(
            base_url=self.settings.url,
            api_key=lambda: endpoint_key() or "none",  # a server without keys ignores it
            admin_api_key="",
            timeout=self.settings.timeout_s,
            max_retries=self.settings.max_retries,
            http_client=openai.DefaultHttpxClient(trust_env=not self.settings.loopback),
        )

    @cached_property
    def encoder(self) -> ChatEncoder | None:
        """The chat encoder of the model's own tokenizer, where the settings name one."""
        if not self.settings.tokenizer:
            return None
        from lib.models.chat import ChatEncoder
        from lib.models.weights import load_tokenizer

        return ChatEncoder(load_tokenizer(self.settings.tokenizer, self.settings.revision or None), self.name)

    def prompt_key(self, prompt: Prompt) -> str:
        """Name the prompt by its text and schema: what the server makes of it is the server's."""
        return text_key(prompt)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the model's tokens in each text, by the tokenizer of the settings or else the server's own route.

        Raises
        ------
        EndpointError
            When there is neither.
        """
        if self.encoder is not None:
            return [len(self.encoder.encode_text(text)) for text in texts]
        if self.kind.tokenize is None:
            raise EndpointError(
                f"{self.name}: {self.kind.title} counts no tokens of a text; add the model's tokenizer to the receiver's name, "
                "#tokenizer=<folder, GGUF file or hub id>"
            )
        new = [text for text in dict.fromkeys([*texts, ""]) if text not in self._counted]
        self._counted |= dict(zip(new, self.side_by_side(self._tokens_there, new), strict=True))
        return [
            self._counted[text] - self._counted[""] for text in texts
        ]  # an empty text has what the server puts first

    def tokens_there(self, text: str) -> list[int]:
        """Return the token ids that the server's own route makes of a text, with what it puts first."""
        route = self.kind.tokenize
        if route is None:
            raise EndpointError(f"{self.name}: {self.kind.title} has no route for tokens")
        body = {route.field: text, **route.fields} | ({"model": self.served.model} if route.names_model else {})
        address, seconds = self.settings.root + route.path, self.settings.timeout_s
        response = native(self.settings, "POST", address, body, seconds=seconds)
        try:
            return [int(token) for token in response.json()[route.answer]]
        except (ValueError, TypeError, KeyError):
            raise EndpointError(
                f"{address}: HTTP {response.status_code}, no token ids; set #tokenizer=... instead"
            ) from None

    def _tokens_there(self, text: str) -> int:
        return len(self.tokens_there(text))

    def reply(
        self,
        prompts: Sequence[Prompt],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        samples: int = 1,
    ) -> list[Reply]:
        """Answer every prompt; see `Receiver.reply`.

        Identical (prompt, sample) pairs are asked once. Above temperature 0 a request carries a seed named by prompt and sample, which
        makes it repeatable where the server honours seeds.

        Raises
        ------
        ValueError
            For numbers out of range, or a prompt whose last turn is the assistant's.
        EndpointError
            When the server is gone, refuses the key or does not know the model any more.
        """
        if max_tokens < 1 or samples < 1 or not 0 <= temperature < math.inf:
            raise ValueError(
                f"max_tokens={max_tokens}, samples={samples}, temperature={temperature}: need >= 1, >= 1, >= 0 and finite"
            )
        if isinstance(stop, str):
            raise ValueError(f"stop: {stop!r} is one text, not a list of texts")
        keys: list[tuple[str, int]] = []
        asked: dict[tuple[str, int], Prompt] = {}
        for place, prompt in enumerate(prompts):
            if not prompt.turns or prompt.turns[-1].role == "assistant":
                raise ValueError(
                    f"prompt {place}: its last turn must be the user's or the system's; servers differ in whether they continue or "
                    "close a last turn of the assistant, so none is sent (a schema fixes how a reply opens)"
                )
            for sample in range(samples):
                keys.append((text_key(prompt), sample if temperature > 0 else 0))
                asked.setdefault(keys[-1], prompt)

        # Looked at before the requests run side by side: a tokenizer's switch for special tokens is one for all threads.
        forged = {key: reason for key, prompt in asked.items() if (reason := self.forged(prompt)) is not None}

        def answer(key: tuple[str, int]) -> Reply:
            if key in forged:
                return failed(forged[key])
            return self._answer(asked[key], key, max_tokens, [mark for mark in stop if mark], temperature)

        started = time.perf_counter()
        replies = self.side_by_side(answer, list(asked))
        share = (time.perf_counter() - started) / max(1, len(asked))
        for reply, prompt in zip(replies, asked.values(), strict=True):
            self._count(reply, prompt)
        done = {key: msgspec.structs.replace(reply, seconds=share) for key, reply in zip(asked, replies, strict=True)}
        return [done[key] for key in keys]

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        """Return log-likelihoods in nats, shape (n_prompts, n_options), where the server gives those of a given text.

        Raises
        ------
        NoLogProbabilitiesError
            When it does not, or no tokenizer is set; the message says who needs them and what to use instead.
        """
        from lib.models.endpoint_scores import score

        return score(self, prompts, options)

    def close(self) -> None:
        """Close the connections."""
        if "client" in self.__dict__:
            self.client.close()

    def side_by_side(self, one: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Return `one` of each item, in their order, at most `max_concurrency` at a time; the first failure ends the rest."""
        if not items:
            return []
        pool = ThreadPoolExecutor(max_workers=min(self.settings.max_concurrency, len(items)))
        try:
            return list(pool.map(one, items))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self, prompt: Prompt, key: tuple[str, int], max_tokens: int, stop: list[str], temperature: float
    ) -> Reply:
        fields = {"max_tokens": max_tokens, "temperature": temperature, "top_p": 1.0, **self.kind.neutral}
        if temperature > 0:
            fields |= {"seed": seed_of("sample", *key) % 2**31, **self.kind.sampled}
        if stop:
            fields["stop"] = stop
        if prompt.schema is not None and self.strict:
            fields["response_format"] = _response_format(self.kind.schema, prompt.schema)
        messages = [{"role": turn.role, "content": turn.text} for turn in prompt.turns]
        answer = self.ask({"messages": messages}, fields | self.settings.extra)
        return answer if isinstance(answer, Reply) else read_reply(answer, max_tokens=max_tokens, stop=stop)

    def ask(self, said: dict[str, Any], fields: dict[str, Any]) -> str | Reply:
        """Return the body that a server answers with, or an error reply for what concerns this request alone.

        `said` holds the messages of a chat or the prompt of a completion, `fields` what else the body says.
        """
        import openai

        route = self.client.chat.completions if "messages" in said else self.client.completions
        try:
            raw = route.with_raw_response.create(model=self.served.model, **said, extra_body=fields)
        except openai.APITimeoutError:
            return failed(f"no answer within timeout_s={self.settings.timeout_s:g} seconds, {self._tries()}")
        except openai.APIConnectionError as error:
            examine(self.settings)  # a server that is gone is told as such
            return failed(f"the connection broke off, {self._tries()}: {error.__cause__ or error}")
        except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as error:
            raise EndpointError(f"{self.settings.url}: {_told(error)}") from None
        except openai.APIStatusError as error:
            schema = " (a server without response_format: schema=check)" if "response_format" in str(error) else ""
            tries = f", {self._tries()}" if error.status_code == 429 or error.status_code >= 500 else ""
            return failed(f"{_told(error)}{tries}{schema}")
        with self._lock:
            self.tally["retries"] += raw.retries_taken
        return str(raw.content.decode("utf-8", "replace"))

    def _tries(self) -> str:
        return f"{1 + self.settings.max_retries} tries"

    def forged(self, prompt: Prompt) -> str | None:
        """Return why a text cannot be sent as data: the server's tokenizer would read a special token in it."""
        if self.encoder is None:
            return None
        for turn in prompt.turns:
            read = self.encoder.tokenizer(turn.text, add_special_tokens=False)["input_ids"]
            if found := sorted(self.encoder.special_ids.intersection(read)):
                token = self.encoder.tokenizer.convert_ids_to_tokens(found[0])
                return f"a turn's text spells the special token {token}, which a server takes for one; use a local receiver for it"
        return None

    def _count(self, reply: Reply, prompt: Prompt) -> None:
        if reply.finish == "error":
            self.tally["refused" if (reply.error or "").startswith("refused") else "failed"] += 1
            return
        self.tally["cut"] += reply.finish == "length"
        self.tally["empty"] += not reply.text.strip()
        if prompt.schema is None:
            return
        if not self.strict and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.name}: {self.kind.title} does not hold replies to a JSON schema; they come free, are checked, and those that "
                "miss it are counted in `tally['off_schema']` and read as far as they can be",
                stacklevel=3,
            )
        self.tally["off_schema"] += reply.finish == "stop" and schema_fault(reply.text, prompt.schema) is not None


def _response_format(form: str, schema: dict[str, Any]) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object", "schema": schema}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}


def _told(error: Any) -> str:
    """Return what a server said to a refused request, in one line, without its key."""
    body = error.body if isinstance(error.body, dict) else {}
    said = body.get("message") or body.get("detail") or body.get("error") or error.message
    return hide_key(f"HTTP {error.status_code}: {' '.join(str(said).split())[:300]}")
