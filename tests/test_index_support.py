"""A tiny ColBERT checkpoint with random weights, and corpora, for the tests of the index room; no weights needed."""

from __future__ import annotations

import json
import shutil
import string
from pathlib import Path
from typing import Any

import pytest

from hopgate.core import Passage, WeightsError
from hopgate.index import EMBEDDED, open_checkpoint

WORDS = [
    *("the", "of", "and", "in", "a", "is", "was", "city", "river", "capital", "france", "paris", "london", "england"),
    *("germany", "berlin", "actor", "film", "who", "wrote", "book", "born", "year", "mountain", "sea", "ship", "king"),
    *("queen", "war", "song", "band", "team", "won", "lost", "built", "bridge", "tower", "north", "south", "east"),
]


def make_checkpoint(
    folder: Path, *, mask: str = "[PAD]", dim: int = 16, seed: int = 0, settings: dict[str, Any] | None = None
) -> Path:
    """Write a ColBERT checkpoint: two layers, 32 hidden units, a vocabulary of letters and a few words."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import BertConfig, BertModel

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    letters = list(string.ascii_lowercase + string.digits)
    vocabulary = special + list(string.punctuation) + letters + [f"##{letter}" for letter in letters] + WORDS
    vocabulary = list(dict.fromkeys(vocabulary))
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special[:5])
    from tokenizers.processors import TemplateProcessing

    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    named = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": mask}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**named, "tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512})
    )
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tensors = {
            f"bert.{name}": value for name, value in BertModel(config, add_pooling_layer=False).state_dict().items()
        }
        tensors["linear.weight"] = torch.randn(dim, 32)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": ["HF_ColBERT"]}))
    metadata = {
        "dim": dim,
        "doc_maxlen": 220,
        "query_maxlen": 32,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "query_token": "[Q]",
        "doc_token": "[D]",
        "similarity": "cosine",
        "interaction": "colbert",
    }
    (folder / "artifact.metadata").write_text(json.dumps({**metadata, **(settings or {})}))
    return folder


def passages(count: int) -> list[Passage]:
    """So many different passages, the same ones at each call."""
    made: list[Passage] = []
    for number in range(count):
        words = [WORDS[(number * 7 + step * (3 + number % 11)) % len(WORDS)] for step in range(8 + number % 23)]
        made.append(Passage(f"p{number}", f"Title {number}", " ".join(words) + f" {number}."))
    return made


def write_corpus(path: Path, records: list[Any]) -> Path:
    """Write records, or lines that are strings already, as JSON Lines."""
    lines = [record if isinstance(record, str) else json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def needs_embedded() -> None:
    """Skip the calling test where MiniLM was not fetched."""
    try:
        open_checkpoint(EMBEDDED)
    except WeightsError as error:
        pytest.skip(f"embedded checkpoint: {error}")


def needs_compiler() -> None:
    """Skip the calling test where colbert-ai's C++ extensions cannot be compiled."""
    if shutil.which("c++") is None:
        pytest.skip("no C++ compiler for colbert-ai's extensions")


def test_tiny_checkpoint_is_accepted(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(make_checkpoint(tmp_path / "tiny"))
    assert (checkpoint.name, checkpoint.is_local, checkpoint.settings.dim) == ("tiny", True, 16)
