"""The embedded checkpoint: all-MiniLM-L6-v2 as a ColBERT encoder, put together in the cache folder.

Its linear layer is the identity, so a token's vector is MiniLM's own, of 384 dimensions. A projection to fewer, fitted
without labels, costs recall (see benchmarks/README.md). The folder that comes out is an ordinary ColBERT checkpoint,
which colbert-ai and PyLate open too, with weights for the tokens of queries beside it, which they ignore.

The weights stand for how rare a word is. BERT's vocabulary is sorted by frequency, so by Zipf's law the token at rank r
has a frequency near 1/r, and an inverse document frequency that grows like log r.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ..core import CheckpointError, cache_dir, sha256_file, sha256_of
from .checkpoint import FILES, QUERY_WEIGHTS

_CHECKSUMS = ".checked.json"
_RECIPE = 3  # Raised whenever the files below change, so that an older folder in the cache is not taken.

_RARE, _USUAL_RANK, _PUNCTUATION = 100.0, 5000.0, 0.1

_METADATA: dict[str, Any] = {
    "dim": 384,
    "doc_maxlen": 220,
    # Longer than usual: a query of a later hop carries the chain so far. Mask tokens add nothing here, see below.
    "query_maxlen": 128,
    "mask_punctuation": True,
    "attend_to_mask_tokens": False,
    "query_token_id": "[unused0]",
    "doc_token_id": "[unused1]",
    "query_token": "[Q]",
    "doc_token": "[D]",
    "similarity": "cosine",
    "interaction": "colbert",
}


def embedded_checkpoint() -> Path:
    """The folder of the embedded checkpoint; put together on first use, and again if a file of it has changed.

    Raises:
        WeightsError: MiniLM's weights were not fetched.
        CheckpointError: The weights do not have the expected shape, or the cache folder cannot be written.
    """
    recipe = json.dumps([_RECIPE, _METADATA], sort_keys=True).encode()
    fingerprint = hashlib.sha256(recipe).hexdigest()[:16]
    folder = cache_dir() / "checkpoints" / f"minilm-colbert-{fingerprint}"
    if _is_whole(folder):
        return folder

    from ..core.weights import resolve

    weights = resolve("minilm")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            part = scratch / "new"
            part.mkdir()
            part.chmod(0o755)
            _assemble(weights, part)
            _write(part / _CHECKSUMS, {file.name: sha256_file(file) for file in sorted(part.iterdir())})
            _put_in_place(part, folder, scratch / "old")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(
            f"{folder}: cannot be written ({reason}); make room, set the permissions or name another folder in "
            "HOPGATE_CACHE"
        ) from error
    return folder


def _put_in_place(part: Path, folder: Path, old: Path) -> None:
    if folder.exists():
        if _is_whole(folder):  # Another process was faster.
            return
        folder.rename(old)  # Damaged. Whoever has its files open keeps them.
    try:
        part.rename(folder)
    except OSError:
        if not _is_whole(folder):
            raise


def _is_whole(folder: Path) -> bool:
    """Whether all files are there and are those that were put together; a changed one is read anew."""
    try:
        checksums = _read(folder / _CHECKSUMS)
        return set(FILES) <= set(checksums) and all(
            sha256_of(folder / file) == digest for file, digest in checksums.items()
        )
    except (OSError, ValueError, RecursionError, TypeError, AttributeError):
        return False


def _assemble(weights: Path, folder: Path) -> None:
    import torch
    from safetensors.numpy import save_file as save_arrays
    from safetensors.torch import load_file, save_file

    base = load_file(weights / "model.safetensors")
    hidden = base["embeddings.word_embeddings.weight"].shape[1]
    if hidden != _METADATA["dim"]:
        raise CheckpointError(
            f"{weights}: the model has {hidden} hidden units and should have {_METADATA['dim']}; fetch minilm again"
        )
    tensors = {f"bert.{name}": tensor for name, tensor in base.items() if not name.endswith("position_ids")}
    save_file({**tensors, "linear.weight": torch.eye(hidden)}, folder / "model.safetensors", {"format": "pt"})

    config = _read(weights / "config.json")
    config.pop("_name_or_path", None)
    _write(folder / "config.json", {**config, "architectures": ["HF_ColBERT"]})
    _write(folder / "artifact.metadata", _METADATA)
    # The tokenizer comes with cutting and padding to 128 tokens, which colbert-ai would inherit.
    _write(folder / "tokenizer.json", {**_read(weights / "tokenizer.json"), "truncation": None, "padding": None})
    # The layer was never trained with mask tokens, whose vectors are noise to it. As padding they become zero vectors.
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        record = {**_read(weights / name), "mask_token": "[PAD]"}
        record.pop("name_or_path", None)
        _write(folder / name, record)
    shutil.copyfile(weights / "vocab.txt", folder / "vocab.txt")
    save_arrays(
        {"weight": _query_weights((weights / "vocab.txt").read_text(encoding="utf-8").splitlines())},
        folder / QUERY_WEIGHTS,
    )
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors makes files that only their owner can read.
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _query_weights(vocabulary: list[str]) -> np.ndarray:
    """Weights that grow with a token's rank, 1 at rank 5,000; little for punctuation."""
    first = vocabulary.index("the")  # what comes before are special tokens and single characters
    ranks = np.arange(len(vocabulary)) - first + 1
    weights = np.ones(len(vocabulary), np.float32)
    weights[first:] = np.log1p(ranks[first:] / _RARE) / np.log1p(_USUAL_RANK / _RARE)
    weights[[number for number, token in enumerate(vocabulary) if token in string.punctuation]] = _PUNCTUATION
    return weights


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
