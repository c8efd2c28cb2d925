"""A checkpoint in memory: tokenizer, transformer, linear layer, and weights of a query's tokens."""

from __future__ import annotations

import string
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import CheckpointError, InputError
from .checkpoint import QUERY_WEIGHTS, Checkpoint, read_json

if TYPE_CHECKING:
    import torch

_STEP = 8
"""Lengths of batches in bf16 are multiples of it."""

LONGEST_QUERY = 128
"""Tokens of a query that are read even if the checkpoint pads to less: a chained query is longer than a question."""


class Model:
    """Tokenizer, transformer and linear layer of a checkpoint, in memory."""

    def __init__(self, checkpoint: Checkpoint, device: str | None) -> None:
        import torch
        from tokenizers import Tokenizer

        self._settings = checkpoint.settings
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        # The tokenizer itself rather than the wrapper of transformers, whose calls change shared state.
        try:
            self._tokenizer = Tokenizer.from_file(str(checkpoint.path / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower one
            reason = str(error).strip().split("\n")[0]
            raise CheckpointError(
                f"{checkpoint.path / 'tokenizer.json'}: not a tokenizer ({reason}); fetch the checkpoint again"
            ) from error
        self._path = checkpoint.path
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._cls, self._sep, self._pad, self._mask = (
            self._token_id(checkpoint, token) for token in _special_tokens(checkpoint)
        )
        self._query_marker = self._token_id(checkpoint, self._settings.query_token_id)
        self._doc_marker = self._token_id(checkpoint, self._settings.doc_token_id)
        skipped = {self._pad}
        if self._settings.mask_punctuation:
            skipped.update(number for symbol in string.punctuation for number in self._ids(symbol)[:1])
        self._skipped = np.array(sorted(skipped))
        self._bert, self._linear, positions = _weights(checkpoint, self._device)
        self._query_weights = _query_weights(checkpoint, self._tokenizer.get_vocab_size())
        self._quantised: torch.nn.Module | None = None
        self._quantising = threading.Lock()
        self._doc_limit = min(self._settings.doc_maxlen, positions)
        self._query_limit = min(max(self._settings.query_maxlen, LONGEST_QUERY), positions)

    def passage_ids(self, text: str) -> list[int]:
        return [self._cls, self._doc_marker, *self._ids(text)[: self._doc_limit - 3], self._sep]

    def passage_vectors(self, tokens: list[list[int]], precision: str) -> list[np.ndarray]:
        # See View.vectors_of: in bf16 batches have few different shapes.
        step = _STEP if precision == "bf16" else 1
        ids = np.full((len(tokens), -(-max(map(len, tokens)) // step) * step), self._pad, np.int64)
        attended = np.zeros_like(ids)
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = one
            attended[row, : len(one)] = 1
        vectors = self._vectors(ids, attended, precision)
        kept = ~np.isin(ids, self._skipped)
        return [one[mask] for one, mask in zip(vectors, kept, strict=True)]

    def query_vectors(self, text: str) -> np.ndarray:
        content = self._ids(text)[: self._query_limit - 3]
        ids = np.array([self._cls, self._query_marker, *content, self._sep], np.int64)
        ids[ids == self._pad] = self._mask
        attended = np.ones_like(ids)
        missing = self._settings.query_maxlen - len(ids)
        if missing > 0 and self._mask != self._pad:
            ids = np.concatenate([ids, np.full(missing, self._mask)])
            attended = np.concatenate([attended, np.full(missing, int(self._settings.attend_to_mask_tokens))])
        kept = ids != self._pad
        vectors = self._vectors(ids[None], attended[None], "fp32")[0][kept]
        return vectors if self._query_weights is None else vectors * self._query_weights[ids[kept]][:, None]

    def _vectors(self, ids: np.ndarray, attended: np.ndarray, precision: str) -> np.ndarray:
        import torch

        bert = self._int8() if precision == "int8" else self._bert
        lower = torch.autocast(torch.device(self._device).type, torch.bfloat16, enabled=precision == "bf16")
        with torch.inference_mode(), lower:
            hidden = bert(
                torch.from_numpy(ids).to(self._device), attention_mask=torch.from_numpy(attended).to(self._device)
            )[0]
            vectors = torch.nn.functional.normalize(self._linear(hidden).float(), dim=-1).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise CheckpointError(
                f"{self._path}: gives vectors that are not finite numbers; fetch the checkpoint again"
            )
        return vectors

    def _int8(self) -> torch.nn.Module:
        import torch

        with self._quantising:
            quantised = self._quantised
            if quantised is None:
                if self._device != "cpu":
                    raise InputError(f"precision int8 runs on the processor only, not on {self._device}; use bf16")
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of torch's, that it will move this to another package
                    quantised = torch.ao.quantization.quantize_dynamic(self._bert, {torch.nn.Linear}, dtype=torch.qint8)
                self._quantised = quantised
            return quantised

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _token_id(self, checkpoint: Checkpoint, token: str) -> int:
        number = self._tokenizer.token_to_id(token)
        if number is None:
            raise CheckpointError(
                f"{checkpoint.path}: the tokenizer does not know {token!r}; fetch the checkpoint again"
            )
        return number


def _special_tokens(checkpoint: Checkpoint) -> list[str]:
    """The tokens for beginning, end, padding and mask, in this order."""
    config = read_json(checkpoint.path / "tokenizer_config.json")
    defaults = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
    found = [config.get(name) or default for name, default in defaults.items()]
    # A token is written as a string or as an object that describes it.
    tokens: list[Any] = [token.get("content") if isinstance(token, dict) else token for token in found]
    for name, token in zip(defaults, tokens, strict=True):
        if not isinstance(token, str):
            raise CheckpointError(
                f"{checkpoint.path / 'tokenizer_config.json'}: `{name}` is not a token; fetch the checkpoint again"
            )
    return tokens


def _weights(checkpoint: Checkpoint, device: str) -> tuple[torch.nn.Module, torch.nn.Module, int]:
    """The transformer, the linear layer, and the number of positions the transformer has."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModel

    path, dim = checkpoint.path, checkpoint.settings.dim
    try:
        tensors = load_file(path / "model.safetensors")
        config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        # A fresh model draws random numbers, which must not show in the caller's own.
        with torch.random.fork_rng(devices=[]):
            bert = AutoModel.from_config(config, trust_remote_code=False)
            linear = torch.nn.Linear(config.hidden_size, dim, bias=False)
        prefix = f"{bert.base_model_prefix}."
        loaded = bert.load_state_dict(
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)},
            strict=False,
        )
        linear.load_state_dict({"weight": tensors["linear.weight"]})
    except (
        SafetensorError,
        OSError,
        ValueError,
        KeyError,
        RuntimeError,
        TypeError,
        AttributeError,
        ArithmeticError,
    ) as error:
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise CheckpointError(f"{path}: not a ColBERT checkpoint ({reason}); fetch the checkpoint again") from error
    # The pooler is not used, so checkpoints need not have it.
    missing = [name for name in loaded.missing_keys if not name.startswith("pooler.")]
    if missing:
        raise CheckpointError(f"{path}: model.safetensors lacks {missing[0]!r}; fetch the checkpoint again")
    positions = getattr(config, "max_position_embeddings", 512)
    return bert.float().eval().to(device), linear.float().eval().to(device), positions


def _query_weights(checkpoint: Checkpoint, vocabulary: int) -> np.ndarray | None:
    """A weight for each token of the vocabulary, float32 (tokens,); ``None`` where the checkpoint has none."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = checkpoint.path / QUERY_WEIGHTS
    if not path.is_file():
        return None
    try:
        weights = load_file(path)["weight"]
    except (SafetensorError, OSError, KeyError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); fetch the checkpoint again") from error
    if weights.shape != (vocabulary,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise CheckpointError(f"{path}: must hold {vocabulary:,} weights of at least 0; fetch the checkpoint again")
    return weights.astype(np.float32)
