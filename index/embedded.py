"""The embedded checkpoint: all-MiniLM-L6-v2 with a linear layer on top, put together in the cache folder.

The layer projects the 384 dimensions of MiniLM to 128. It is the uncentred principal component analysis of token
vectors, made by ``benchmarks/make_projection.py``, and lies beside this module. The folder that comes out is an
ordinary ColBERT checkpoint, which colbert-ai and PyLate open too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..core import CheckpointError, cache_dir
from .checkpoint import FILES

_PROJECTION = "minilm_projection.safetensors"
_RECIPE = 1  # Raised whenever the files below change, so that an older folder in the cache is not taken.

_METADATA: dict[str, Any] = {
    "dim": 128,
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
    """The folder of the embedded checkpoint; put together on first use.

    Raises:
        WeightsError: MiniLM's weights were not fetched.
        CheckpointError: The weights do not have the expected shape.
    """
    projection = (Path(__file__).parent / _PROJECTION).read_bytes()
    recipe = json.dumps([_RECIPE, _METADATA], sort_keys=True).encode()
    fingerprint = hashlib.sha256(recipe + projection).hexdigest()[:16]
    folder = cache_dir() / "checkpoints" / f"minilm-colbert-{fingerprint}"
    if all((folder / file).is_file() for file in FILES):
        return folder

    from ..core.weights import resolve

    weights = resolve("minilm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _assemble(weights, projection, part)
        part.chmod(0o755)
        if folder.exists():  # Another process was faster, or the folder is incomplete.
            if all((folder / file).is_file() for file in FILES):
                return folder
            shutil.rmtree(folder)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _assemble(weights: Path, projection: bytes, folder: Path) -> None:
    from safetensors.torch import load, load_file, save_file

    base = load_file(weights / "model.safetensors")
    linear = load(projection)["linear.weight"].float()
    hidden = base["embeddings.word_embeddings.weight"].shape[1]
    if tuple(linear.shape) != (_METADATA["dim"], hidden):
        raise CheckpointError(
            f"{weights}: the model has {hidden} hidden units, which does not fit the projection of shape "
            f"{tuple(linear.shape)}; fetch minilm again"
        )
    tensors = {f"bert.{name}": tensor for name, tensor in base.items() if not name.endswith("position_ids")}
    save_file({**tensors, "linear.weight": linear.contiguous()}, folder / "model.safetensors", {"format": "pt"})

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
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors makes files that only their owner can read.
        with file.open("rb") as opened:
            os.fsync(opened.fileno())


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
