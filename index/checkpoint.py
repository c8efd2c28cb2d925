"""ColBERT checkpoints: a folder of weights, tokenizer and settings, checked before anything in it is loaded.

The layout is the one of ColBERT (Khattab & Zaharia 2020, https://arxiv.org/abs/2004.12832) and ColBERTv2 (Santhanam et
al. 2022, https://arxiv.org/abs/2112.01488) as colbert-ai saves it: a transformer, a linear layer to ``dim`` dimensions,
and ``artifact.metadata`` with lengths and marker tokens.

A checkpoint may hold ``query_weights.safetensors`` too, which colbert-ai does not know: a weight for each token of the
vocabulary. A trained ColBERT makes the vectors of words that say little alike; one that was not trained for late
interaction counts "the" as much as a name, unless the token's term in the sum of MaxSim is weighted.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core import CheckpointError, WeightsError, sha256_of, user_path

EMBEDDED = "embedded/minilm-colbert"
"""The checkpoint that is made from all-MiniLM-L6-v2 and the projection that hopgate ships."""

FILES = ("config.json", "artifact.metadata", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
"""What a checkpoint folder must hold."""

QUERY_WEIGHTS = "query_weights.safetensors"
"""What it may hold beside: ``weight``, float32 (vocabulary,), by which a query's token vectors are multiplied."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_HUB_PATTERNS = ["*.safetensors", "*.json", "*.txt", "artifact.metadata"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a checkpoint's ``artifact.metadata`` says about encoding.

    Attributes:
        dim: Dimensions of a token's vector.
        doc_maxlen: Longest passage in tokens, special tokens included; the rest is cut off.
        query_maxlen: Length to which queries are padded with mask tokens.
        mask_punctuation: Whether a passage's punctuation gets no vectors.
        attend_to_mask_tokens: Whether a query's other tokens see its mask tokens.
        query_token_id: Marker that follows ``[CLS]`` in a query.
        doc_token_id: Marker that follows ``[CLS]`` in a passage.
    """

    dim: int = 128
    doc_maxlen: int = 220
    query_maxlen: int = 32
    mask_punctuation: bool = True
    attend_to_mask_tokens: bool = False
    query_token_id: str = "[unused0]"
    doc_token_id: str = "[unused1]"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint folder that was checked and may be loaded.

    Attributes:
        name: How it is called in a manifest: ``embedded/...``, a hub name, or the last part of a local path.
        path: The folder.
        settings: Its encoding settings.
        fingerprint: SHA-256 over the weights, the tokenizer and the settings.
        is_local: Whether it was given as a folder, so that the name alone does not find it again.
    """

    name: str
    path: Path
    settings: Settings
    fingerprint: str
    is_local: bool


def open_checkpoint(name: str | Path) -> Checkpoint:
    """Find a checkpoint and check it; loads no weights and runs none of its code.

    Args:
        name: ``embedded/minilm-colbert``, a local folder, or a name on the Hugging Face hub such as
            ``colbert-ir/colbertv2.0`` (downloaded into the hub's own cache on first use).

    Raises:
        CheckpointError: The folder is missing, incomplete, wants to run its own code, or has settings that are not
            supported.
        WeightsError: The weights are not here and cannot be fetched.
        InputError: It is a path that starts with the home folder of an unknown user, or no path at all.
    """
    text = str(name)
    if text == EMBEDDED:
        from .embedded import embedded_checkpoint

        return _checked(EMBEDDED, embedded_checkpoint(), is_local=False)
    if text.startswith("embedded/"):
        raise CheckpointError(f"{text}: no such embedded checkpoint; there is {EMBEDDED}")
    folder = user_path(name)
    if folder.is_dir():
        return _checked(folder.resolve().name, folder.resolve(), is_local=True)
    if isinstance(name, str) and _HUB_NAME.fullmatch(name):
        return _checked(name, _from_hub(name), is_local=False)
    raise CheckpointError(
        f"{text}: no such checkpoint folder; give a folder, a hub name such as OWNER/NAME, or {EMBEDDED}"
    )


def is_hub_name(name: str) -> bool:
    """Whether a checkpoint's name is one of the hub, and no folder."""
    return _HUB_NAME.fullmatch(name) is not None


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        # What is in the hub's cache is used without asking the network.
        cached = Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS, local_files_only=True))
        if all((cached / file).is_file() for file in FILES):
            return cached
    except (OSError, ValueError):
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS))
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise WeightsError(
            f"{name}: neither a local folder nor to be had from the hub ({reason}); "
            f"check the name and the connection, or use {EMBEDDED}"
        ) from error


def _checked(name: str, folder: Path, *, is_local: bool) -> Checkpoint:
    # Code that rides along is refused first, before any other file is looked at.
    for file in ("config.json", "tokenizer_config.json"):
        if (folder / file).is_file() and "auto_map" in read_json(folder / file):
            raise CheckpointError(
                f"{folder / file}: `auto_map` asks to run Python code that comes with the checkpoint, which is "
                "refused; use a checkpoint without it"
            )
    for file in FILES:
        if (folder / file).is_file():
            continue
        if file == "model.safetensors" and any(folder.glob("pytorch_model*.bin")):
            raise CheckpointError(
                f"{folder}: weights only as pytorch_model.bin, a pickle, which is refused; convert them to "
                "model.safetensors"
            )
        raise CheckpointError(f"{folder}: has no {file}; a ColBERT checkpoint holds {', '.join(FILES)}")
    settings = _settings(folder / "artifact.metadata")
    return Checkpoint(name, folder, settings, _fingerprint(folder, settings), is_local)


def _settings(path: Path) -> Settings:
    record = read_json(path)
    record = record["config"] if isinstance(record.get("config"), dict) else record
    for field, supported in (("similarity", "cosine"), ("interaction", "colbert")):
        if record.get(field, supported) != supported:
            raise CheckpointError(f"{path}: `{field}` is {record[field]!r}; only {supported!r} is supported")
    values: dict[str, Any] = {}
    for field, default in asdict(Settings()).items():
        value = record.get(field)
        values[field] = default if value is None else value
        if type(values[field]) is not type(default):
            raise CheckpointError(f"{path}: `{field}` must be a {type(default).__name__}, got {value!r}; correct it")
    settings = Settings(**values)
    for field, least in (("dim", 1), ("doc_maxlen", 4), ("query_maxlen", 4)):
        if getattr(settings, field) < least:
            raise CheckpointError(f"{path}: `{field}` must be at least {least}, got {getattr(settings, field)}")
    return settings


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that must hold a JSON object.

    Raises:
        CheckpointError: It cannot be read, or is not one.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(record, dict):
        raise CheckpointError(f"{path}: not a JSON object; fetch the checkpoint again")
    return record


def _fingerprint(folder: Path, settings: Settings) -> str:
    digest = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode())
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", QUERY_WEIGHTS):
        if file == QUERY_WEIGHTS and not (folder / file).is_file():
            continue
        try:
            status = (folder / file).stat()
            digest.update(_cached_sha256(folder / file, status.st_size, status.st_mtime_ns).encode())
        except OSError as error:
            reason = error.strerror or str(error)
            raise CheckpointError(f"{folder / file}: cannot be read ({reason}); check its permissions") from error
    return digest.hexdigest()


@functools.lru_cache(maxsize=64)
def _cached_sha256(path: Path, size: int, modified: int) -> str:
    # Size and time of change are part of the key, so that a changed file is read again.
    return sha256_of(path)
