"""Load a causal language model and its tokenizer, from a short name, a folder, a GGUF file or a hub id at a commit.

Context
    A run is only comparable with another if both used the same weights in the same precision. `load_weights` therefore returns,
    beside the model, the SHA-256 of the weight files and the dtype and device that were really used.

How a GGUF file is read
    Its 4-bit blocks are unpacked once into bfloat16 safetensors in the cache, and every later load reads those. float32 is the exact
    upcast of these bfloat16 values, so a float32 and a bfloat16 run compare arithmetic, not two roundings of the weights.

Rules
    Weights come from safetensors or GGUF only (no pickles), no code of a repository is run, and a model with sliding-window
    attention is refused by name: the packed tree attention of the replay does not cover windows.

Not covered: quantised inference (GGUF blocks are unpacked), more than one device, adapters, models without a causal head, choosing
padding or chat templates (see `lib.models.receiver`).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib.fetch import Log, SourceError, take_snapshot
from lib.sources import cache_dir, catalogue, exclusive, is_commit, known_sha256, locate, say

CONVERSION = "bf16-v1"  # part of the cache folder's name: raise it when the conversion changes
FLOAT32_UP_TO = 1_000_000_000  # parameters; larger models run in bfloat16 on a CPU that has it
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
TOKENIZER_FILES = ["*.json", "*.model", "*.txt", "*.jinja"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class WeightsError(SourceError):
    """A model cannot be loaded; the message is one line with the way to mend it."""


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for inference and what identifies it.

    Attributes
    ----------
    model, tokenizer : transformers objects
        In evaluation mode, without gradients.
    name : str
        Short name, folder name or "owner/name@commit".
    sha256 : str
        Of the GGUF file, or of the safetensors files: the identity of the weights in store keys.
    dtype, device : str
        Really used, such as "float32" and "cpu".
    n_parameters : int
        Numbers in memory (tied matrices count once).
    """

    model: Any
    tokenizer: Any
    name: str
    sha256: str
    dtype: str
    device: str
    n_parameters: int


@dataclass(frozen=True)
class FoundModel:
    """A model's files, before they are loaded.

    Attributes
    ----------
    folder : Path
        Safetensors, configuration and tokenizer.
    name, sha256 : str
        As in `LoadedModel`.
    config : transformers configuration
    dtype, device : torch.dtype, str
        As asked for and possible here.
    """

    folder: Path
    name: str
    sha256: str
    config: Any
    dtype: torch.dtype
    device: str


def load_weights(
    name: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str = "auto",
    revision: str | None = None,
    exact: bool = False,
    log: Log = say,
) -> LoadedModel:
    """Load a model and its tokenizer.

    Parameters
    ----------
    name : str or Path
        A model of `data/sources.toml`; a folder with safetensors or one GGUF file; a GGUF file; or a hub id "owner/name".
    dtype : str or torch.dtype
        "auto": on CUDA bfloat16; on a CPU float32 up to `FLOAT32_UP_TO` parameters, above that bfloat16 where the processor
        computes it natively, else float32. "fast": bfloat16 wherever the device computes it natively, else float32. Or "float32",
        "bfloat16", "float16".
    device : str
        "auto" (cuda if there is one, else cpu) or a torch device.
    revision : str, optional
        Full commit hash, required with a hub id and refused otherwise.
    exact : bool
        Force float32, for replays whose two arms must differ by content alone.
    log : callable
        Receives progress lines.

    Returns
    -------
    LoadedModel

    Raises
    ------
    WeightsError, SourceError
        One line: what is missing or refused, and the fix.
    """
    found = find_model(name, dtype=dtype, device=device, revision=revision, exact=exact, log=log)
    folder, shown = found.folder, found.name

    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet_bars():
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=found.dtype, use_safetensors=True, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as error:
            raise WeightsError(f"{shown}: {folder} does not load: {' '.join(str(error).split())[:300]}") from error
    try:
        model = model.to(found.device).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:  # torch says "not compiled with CUDA" with an AssertionError
        raise WeightsError(f"{shown}: device {found.device!r} cannot hold it: {error}; try device='cpu'") from error
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        name=shown,
        sha256=found.sha256,
        dtype=str(found.dtype).removeprefix("torch."),
        device=str(torch.device(found.device)),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
    )


def find_model(
    name: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str = "auto",
    revision: str | None = None,
    exact: bool = False,
    log: Log = say,
) -> FoundModel:
    """Find a model's files and settle its precision and device, without loading it; arguments and errors as in `load_weights`."""
    if exact and dtype not in ("auto", "float32", torch.float32):
        raise WeightsError(f"exact=True computes in float32, but dtype={dtype!r} was given; drop one of the two")
    place, shown = _resolve(name, revision, log)
    folder, sha256 = _as_safetensors(place, shown, log)
    config = _config(folder, shown)
    refuse_sliding_window(config, shown)
    chosen_device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    try:
        torch.device(chosen_device)
    except RuntimeError as error:
        raise WeightsError(f"device={device!r} is unknown; use 'auto', 'cpu' or 'cuda'") from error
    chosen_dtype = torch.float32 if exact else _choose_dtype(dtype, chosen_device, count_parameters(folder))
    return FoundModel(folder, shown, sha256, config, chosen_dtype, chosen_device)


def load_tokenizer(name: str | Path, revision: str | None = None, *, log: Log = say) -> Any:
    """Load a model's tokenizer alone: nothing of a hub id's weights is fetched, and a folder needs none.

    Parameters
    ----------
    name, revision, log
        As in `load_weights`; a folder may hold the tokenizer's files only.

    Raises
    ------
    WeightsError, SourceError
        One line: what is missing or refused, and the fix.
    """
    from transformers import AutoTokenizer

    place, shown = _resolve(name, revision, log, TOKENIZER_FILES)
    folder = place if (place / "tokenizer_config.json").is_file() else _as_safetensors(place, shown, log)[0]
    with quiet_bars():
        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:300]
            raise WeightsError(f"{shown}: {folder} holds no tokenizer that loads: {reason}") from error


# ----------------------------------------------------------------------------------------------------------------- from name to files


def _resolve(name: str | Path, revision: str | None, log: Log, files: list[str] | None = None) -> tuple[Path, str]:
    """Return the file or folder that `name` means, and the name to show."""
    text = str(name)
    if entry := catalogue().get(text):
        if entry.kind != "model":
            raise WeightsError(f"{text}: is a {entry.kind} source, not a model; see data/sources.toml")
        _no_revision(text, revision)
        return locate(text, log=log), text
    path = Path(text).expanduser()
    if path.exists():
        _no_revision(text, revision)
        return path.resolve(), path.resolve().stem if path.is_file() else path.resolve().name
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text):
        if revision is None or not is_commit(revision):
            raise WeightsError(
                f"{text}: not a file or folder here; to load it from the hub give revision=<full commit hash>, got {revision!r}"
            )
        return take_snapshot(text, revision, files or HUB_FILES, log), f"{text}@{revision[:12]}"
    models = [key for key, entry in catalogue().items() if entry.kind == "model"]
    near = difflib.get_close_matches(text, models, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known models: {', '.join(models)}"
    raise WeightsError(f"{text}: no such model name, file, folder or hub id; {hint}")


def _no_revision(name: str, revision: str | None) -> None:
    if revision is not None:
        raise WeightsError(f"{name}: revision applies to hub ids only; drop revision={revision!r}")


def _as_safetensors(place: Path, shown: str, log: Log) -> tuple[Path, str]:
    """Return a folder that transformers loads from safetensors, and the SHA-256 that identifies the weights."""
    if place.is_file():
        if place.suffix.lower() != ".gguf":
            raise WeightsError(f"{shown}: {place} is neither a folder nor a .gguf file")
        return _from_gguf(place, shown, log)
    if tensors := sorted(place.glob("*.safetensors")):
        return place, weights_sha256(tensors)
    ggufs = sorted(place.glob("*.gguf"))
    if len(ggufs) == 1:
        return _from_gguf(ggufs[0], shown, log)
    if ggufs:
        raise WeightsError(
            f"{shown}: {place} holds {len(ggufs)} .gguf files; give the path of one, such as {ggufs[0].name}"
        )
    raise WeightsError(f"{shown}: {place} holds no .safetensors and no .gguf file (pickled weights are not read)")


def weights_sha256(files: list[Path]) -> str:
    """Return the SHA-256 of weight files: of the one file, or of the sorted list of (name, SHA-256) of several."""
    if len(files) == 1:
        return known_sha256(files[0])
    rows = [f"{file.name} {known_sha256(file)}\n" for file in sorted(files)]
    return hashlib.sha256("".join(rows).encode()).hexdigest()


def count_parameters(folder: Path) -> int:
    """Return how many numbers the safetensors files of `folder` hold, from their headers alone."""
    total = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        for key, tensor in header.items():
            if key != "__metadata__":
                count = 1
                for extent in tensor["shape"]:
                    count *= extent
                total += count
    return total


# ---------------------------------------------------------------------------------------------------------------------- GGUF, once


def _from_gguf(gguf: Path, shown: str, log: Log) -> tuple[Path, str]:
    """Return the cached safetensors form of a GGUF file, made on first use, and the GGUF's SHA-256."""
    sha256 = known_sha256(gguf)
    key = f"{gguf.stem}-{sha256[:16]}-{CONVERSION}"
    target = cache_dir() / "converted" / key
    if not target.is_dir():
        with exclusive(key, log):
            if not target.is_dir():
                log(f"{shown}: unpacking {gguf.name} to safetensors, once (about a minute)")
                try:
                    _convert(gguf, sha256, target)
                except Exception as error:  # the readers raise many kinds for a torn file, and OSError for a full disk
                    why = " ".join(str(error).split())[:300] or type(error).__name__
                    raise WeightsError(
                        f"{shown}: {gguf} does not unpack to {target.parent}: {why}; check the file, the free space and LAB_CACHE"
                    ) from error
    return target, sha256


def _convert(gguf: Path, sha256: str, target: Path) -> None:
    """Write the safetensors form of `gguf` to `target`: built in a scratch folder, moved into place when complete."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{target.name}.*"):  # of a run that was killed; we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with quiet_bars():
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                # Without this a machine with GGUF kernels would keep the 4-bit blocks, and there would be nothing to save.
                quantization_config=GgufConfig(dequantize=True),
                trust_remote_code=False,
            )
            # The weights are plain now; the marks of the quantised file would make saving and loading refuse.
            model.hf_quantizer = None
            if hasattr(model.config, "quantization_config"):
                del model.config.quantization_config
            model.save_pretrained(scratch, max_shard_size="100GB")
            tokenizer.save_pretrained(scratch)
        facts = {"source": gguf.name, "sha256": sha256, "conversion": CONVERSION}
        (scratch / "conversion.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        scratch.chmod(0o755)  # mkdtemp and the tensor writer make private files; a cache may be shared
        for file in scratch.iterdir():
            file.chmod(0o644)
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# ---------------------------------------------------------------------------------------------------------------- precision, refusals


def _choose_dtype(dtype: str | torch.dtype, device: str, n_parameters: int) -> torch.dtype:
    """Return the torch dtype for a request, a device and a size (see `load_weights`)."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype not in ("auto", "fast"):
        raise WeightsError(f"dtype={dtype!r} is unknown; use 'auto', 'fast', {', '.join(map(repr, DTYPES))}")
    if torch.device(device).type == "cuda":
        return torch.bfloat16
    if dtype == "fast":
        return torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    return torch.bfloat16 if n_parameters > FLOAT32_UP_TO and cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """Say whether this processor multiplies bfloat16 natively (x86: avx512_bf16 or amx_bf16; Arm: bf16)."""
    able = torch.cpu.get_capabilities()
    return any(bool(able.get(key)) for key in ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16"))


def refuse_sliding_window(config: Any, name: str) -> None:
    """Raise `WeightsError` if the model attends through a sliding or chunked window in any layer."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    windowed = sorted(kind for kind in kinds if "sliding" in kind or "chunked" in kind)
    # Some families switch the window by a flag beside its width; a width without a flag is in force.
    active = getattr(text, "sliding_window", None) is not None and getattr(text, "use_sliding_window", True)
    if windowed or (active and not kinds):
        what = f"layer_types with {windowed[0]}" if windowed else f"sliding_window={text.sliding_window}"
        raise WeightsError(
            f"{name}: {text.model_type} uses windowed attention ({what}), which the replay does not cover; "
            "choose a model with full attention, such as qwen-coder-0.5b"
        )


def _config(folder: Path, shown: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise WeightsError(f"{shown}: {folder / 'config.json'}: {' '.join(str(error).split())[:300]}") from error


@contextmanager
def quiet_bars() -> Iterator[None]:
    """Keep the libraries' per-tensor bars off anything but a terminal: a log or a notebook would hold hundreds of lines."""
    if sys.stderr.isatty():
        yield
        return
    with contextlib.redirect_stderr(io.StringIO()):  # errors are raised, so nothing but bars and notices is lost
        yield
