"""Compare a server with the local engine: `python -m lib check-endpoint URL --model M --against smollm2-135m --prompts 50`.

Context. A study that asks a server trusts its chat template, its precision and its defaults. Three things can go wrong unseen: other prompt
tokens (another template, a cut context), other decoding (a penalty from the model's settings), other weights.

Intuition. The same questions go to both, greedily. Equal numbers of prompt tokens say that both frame a chat alike. Where the replies part,
the local model tells by how many nats it preferred its own token: near nothing means a tie that another order of additions breaks
otherwise; much means that the server computes something else.

How to read it. `cause` is "same"; "near tie" (parted, below 0.1 nats); "other numbers" (0.1 nats or more, usual for quantised weights or
activations); "ended" (one of them stopped there, so there is no margin); "prompt" (other prompt tokens: mend this first); "failed".

Not covered: schemas, sampling and log-probabilities; the first line says what the server has of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lib.models.endpoint_receiver import EndpointReceiver
from lib.models.receiver import Prompt, Receiver, Reply, Turn
from lib.runs.params import ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from lib.models.transformers_receiver import TransformersReceiver

NEAR_TIE = 0.1  # nats
_INSTRUCTION = "Answer in a few short sentences and end with the number."


def question_prompts(count: int) -> list[Prompt]:
    """Return `count` different prompts: questions of made arithmetic, without gold."""
    from lib.tasks.arithmetic import SIZE
    from lib.tasks.questions import load_questions, question_text

    if not 1 <= count <= SIZE:
        raise ParameterError(f"--prompts {count}: there are 1 to {SIZE} questions")
    questions = load_questions("arithmetic", limit=count).questions
    return [Prompt((Turn("system", _INSTRUCTION), Turn("user", question_text(question)))) for question in questions]


def compare_replies(
    local: TransformersReceiver, there: Receiver, prompts: Sequence[Prompt], *, max_tokens: int = 32
) -> pd.DataFrame:
    """Ask both greedily and return one row a prompt.

    Parameters
    ----------
    local : the same weights on this machine
    there : the receiver compared with it

    Returns
    -------
    DataFrame with ``prompt`` (place), ``prompt_tokens_here``, ``prompt_tokens_there``, ``new_tokens_here``, ``new_tokens_there``,
    ``first_difference`` (place of the first new token that differs), ``margin_nats`` (by which the local model preferred its own there;
    missing where it cannot be said) and ``cause``, see the header.
    """
    import pandas as pd

    rows = []
    ours, theirs = (receiver.reply(prompts, max_tokens=max_tokens) for receiver in (local, there))
    for place, (prompt, here, other) in enumerate(zip(prompts, ours, theirs, strict=True)):
        first, margin, cause = _parting(local, prompt, here, other)
        rows.append(
            {
                "prompt": place,
                "prompt_tokens_here": here.prompt_tokens,
                "prompt_tokens_there": other.prompt_tokens,
                "new_tokens_here": here.new_tokens,
                "new_tokens_there": other.new_tokens,
                "first_difference": first,
                "margin_nats": margin,
                "cause": cause,
            }
        )
    counts = dict.fromkeys([name for name in rows[0] if name not in ("margin_nats", "cause")], "Int64")
    return pd.DataFrame(rows).astype({**counts, "margin_nats": "Float64"})


def _parting(
    local: TransformersReceiver, prompt: Prompt, here: Reply, there: Reply
) -> tuple[int | None, float | None, str]:
    """Return where two replies part, by how many nats the local one preferred its own token there, and why."""
    if "error" in (here.finish, there.finish):
        return None, None, "failed"
    if there.prompt_tokens is not None and here.prompt_tokens != there.prompt_tokens:
        return None, None, "prompt"
    if here.text == there.text:
        return None, None, "same"
    own = [token for token in here.token_ids if token not in local.eos]
    other = list(local.encoder.encode_text(there.text))
    first = next(
        (k for k, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), min(len(own), len(other))
    )
    if first >= min(len(own), len(other)):
        return first, None, "ended"
    texts = [local.tokenizer.decode(tokens[: first + 1]) for tokens in (own, other)]
    if [list(local.encoder.encode_text(text)) for text in texts] != [own[: first + 1], other[: first + 1]]:
        return first, None, "other numbers"  # cut there, the text has other tokens, so its score would be another one's
    preferred, taken = local.score([prompt], texts)[0]
    margin = round(float(preferred - taken), 4)
    return first, margin, "near tie" if margin < NEAR_TIE else "other numbers"


def check_endpoint(
    endpoint: str,
    against: str | None,
    target: Path,
    say: Callable[[str], None],
    *,
    prompts: int = 50,
    max_tokens: int = 32,
    dtype: str = "float32",
) -> int:
    """Say what a server is and can do; with `against`, compare its replies and write the table to `target`.

    Returns
    -------
    0 when the server answered every prompt and framed it as the local model does, else 1.
    """
    asked = question_prompts(prompts)
    receiver = EndpointReceiver(endpoint)
    kind, served = receiver.kind, receiver.served
    say(f"{receiver.settings.url}: {kind.title} {served.version}".rstrip() + f", model {served.model}")
    say(f"  strict JSON: {'by the server' if receiver.strict else 'no; replies come free and are checked'}")
    needs = "" if receiver.settings.tokenizer else ", with #tokenizer=..."
    say(f"  log-probabilities of given texts: {f'yes{needs}' if kind.scores else 'no'}")
    counts = "by the tokenizer named" if receiver.settings.tokenizer else "by the server" if kind.tokenize else "no"
    say(f"  counting tokens: {counts}")
    if against is None:
        (reply,) = receiver.reply(asked[:1], max_tokens=max_tokens)
        said = f"{reply.prompt_tokens} prompt tokens, {reply.new_tokens} new ones"
        say(f"  one question: {reply.error or said}")
        return int(reply.finish == "error")
    from lib.models.transformers_receiver import TransformersReceiver

    local = TransformersReceiver(against, dtype=dtype)
    table = compare_replies(local, receiver, asked, max_tokens=max_tokens)
    table.insert(0, "server", served.kind)
    table.insert(1, "model", against)
    target.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(target, index=False)
    causes = Counter(table["cause"])
    say(f"  {prompts} prompts, {max_tokens} new tokens, against {against} in {dtype}: {_listing(causes)}; {target}")
    return int(bool(causes["failed"] or causes["prompt"]))


def _listing(causes: Counter[str]) -> str:
    return ", ".join(
        f"{count} {cause}" for cause, count in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    )
