"""The encoder: shapes, what gets a vector, and the same numbers as colbert-ai."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_index_support import make_checkpoint, needs_compiler, needs_embedded, passages

from hopgate.core import CheckpointError, InputError
from hopgate.index import EMBEDDED, Encoder, open_checkpoint

TEXTS = [
    "The city of Paris, in France!",
    "a",
    "",
    "?!",
    "Berlin " * 400,
    "日本 émigré\0 x",
    *(p.long_text for p in passages(40)),
]
QUERIES = ["Who wrote the book?", "a", "who, the king; " * 100, "[SEP] [MASK] [PAD] x"]


@pytest.fixture(scope="module", params=["[PAD]", "[MASK]"])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = make_checkpoint(tmp_path_factory.mktemp("c") / "tiny", mask=request.param)
    return Encoder(open_checkpoint(folder), precision="fp32")


def test_rows_have_length_one(encoder: Encoder) -> None:
    for array in [*encoder.encode_passages(TEXTS), *map(encoder.encode_query, QUERIES)]:
        assert array.dtype == np.float32
        assert array.shape[1] == 16
        assert len(array) >= 2
        np.testing.assert_allclose(np.linalg.norm(array, axis=1), 1, atol=1e-5)


def test_order_and_batches_do_not_matter(encoder: Encoder) -> None:
    counts: list[int] = []
    together = encoder.encode_passages(TEXTS, batch_size=7, on_batch=counts.append)
    assert counts[-1] == len(TEXTS)
    assert counts == sorted(counts)
    for text, array in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(array, encoder.encode_passages([text])[0], atol=1e-5)
    assert encoder.encode_passages([]) == []


def test_punctuation_and_long_passages(encoder: Encoder) -> None:
    plain, marked, long = encoder.encode_passages(["paris france", "paris, france!?", "berlin " * 400])
    assert len(plain) == len(marked) == 2 + 3
    assert len(long) == 220


def test_query_length_and_augmentation(encoder: Encoder) -> None:
    import json

    config = json.loads((encoder.checkpoint.path / "tokenizer_config.json").read_text())
    augmented = config["mask_token"] == "[MASK]"
    assert len(encoder.encode_query("paris")) == (32 if augmented else 4)
    assert len(encoder.encode_query("paris " * 50)) == 53
    assert len(encoder.encode_query("paris " * 500)) == 128


def test_global_state_is_left_alone(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    Encoder(open_checkpoint(make_checkpoint(tmp_path / "tiny"))).encode_query("who")
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_threads_get_what_one_gets(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(make_checkpoint(tmp_path / "tiny"))
    queries = [f"who built bridge {number}" for number in range(64)]
    expected = [Encoder(checkpoint).encode_query(query) for query in queries]
    shared = Encoder(checkpoint)  # Loaded by all threads at once.
    with ThreadPoolExecutor(8) as pool:
        for array, reference in zip(pool.map(shared.encode_query, queries), expected, strict=True):
            np.testing.assert_array_equal(array, reference)


def _equal_to_colbert_ai(encoder: Encoder) -> None:
    from hopgate.index.captured import captured_output
    from hopgate.index.colbert_ai import load_extensions

    load_extensions()
    from colbert.infra import ColBERTConfig
    from colbert.modeling.checkpoint import Checkpoint

    path = str(encoder.checkpoint.path)
    with captured_output():
        theirs = Checkpoint(path, colbert_config=ColBERTConfig(checkpoint=path), verbose=0)
    for text, array in zip(TEXTS[:12], encoder.encode_passages(TEXTS[:12]), strict=True):
        np.testing.assert_allclose(array, theirs.docFromText([text], keep_dims=False)[0].numpy(), atol=1e-4)
    for query in QUERIES:
        theirs.query_tokenizer.query_maxlen = max(32, min(128, len(encoder.encode_query(query))))
        reference = theirs.queryFromText([query])[0].numpy()
        # Their padding gives zero vectors, which add nothing to a score; ours has none.
        reference = reference[np.linalg.norm(reference, axis=1) > 0.5]
        ours = encoder.encode_query(query)
        # They know no weights of tokens.
        np.testing.assert_allclose(ours / np.linalg.norm(ours, axis=1, keepdims=True), reference, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_same_numbers_as_colbert_ai(encoder: Encoder) -> None:
    needs_compiler()
    _equal_to_colbert_ai(encoder)


@pytest.mark.filterwarnings("ignore")
def test_embedded_gives_the_numbers_of_colbert_ai() -> None:
    needs_compiler()
    needs_embedded()
    _equal_to_colbert_ai(Encoder(open_checkpoint(EMBEDDED), precision="fp32"))


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_lower_precision_is_near(tmp_path: Path, precision: str) -> None:
    checkpoint = open_checkpoint(make_checkpoint(tmp_path / "tiny"))
    exact = np.concatenate(Encoder(checkpoint, precision="fp32").encode_passages(TEXTS))
    lower = np.concatenate(Encoder(checkpoint, precision=precision).encode_passages(TEXTS))
    assert lower.dtype == np.float32
    cosines = (exact * lower).sum(axis=1)
    assert 0.9 < cosines.mean() < 1 - 1e-7  # near, and not the same calculation
    for query in QUERIES:
        one, two = (Encoder(checkpoint, precision=name).encode_query(query) for name in ("fp32", precision))
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("options", [{"precision": "fp16"}, {"threads": 0}, {"threads": True}, {"threads": 1.5}])
def test_bad_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} must be"):
        Encoder(open_checkpoint(make_checkpoint(tmp_path / "tiny")), **options)


def test_threads_are_set_while_encoding_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    encoder = Encoder(open_checkpoint(make_checkpoint(tmp_path / "tiny")), threads=3)
    before = torch.get_num_threads()
    during: list[int] = []
    encoder.encode_passages(["who"] * 3, batch_size=1, on_batch=lambda _: during.append(torch.get_num_threads()))
    seen: list[int] = []
    normalize = torch.nn.functional.normalize
    monkeypatch.setattr(
        torch.nn.functional, "normalize", lambda *a, **b: seen.append(torch.get_num_threads()) or normalize(*a, **b)
    )
    encoder.encode_query("who")
    assert seen == [3] and during == [before] * 3 and torch.get_num_threads() == before


def weighted(folder: Path, weights: np.ndarray) -> Path:
    from safetensors.numpy import save_file

    checkpoint = make_checkpoint(folder)
    save_file({"weight": weights}, checkpoint / "query_weights.safetensors")
    return checkpoint


def test_query_weights(tmp_path: Path) -> None:
    plain = Encoder(open_checkpoint(make_checkpoint(tmp_path / "plain")))
    count = len((plain.checkpoint.path / "vocab.txt").read_text().split())
    weights = np.linspace(0, 2, count).astype(np.float32)
    encoder = Encoder(open_checkpoint(weighted(tmp_path / "weighted", weights)))
    assert encoder.checkpoint.fingerprint != plain.checkpoint.fingerprint
    for query in QUERIES:
        before, after = plain.encode_query(query), encoder.encode_query(query)
        factors = np.linalg.norm(after, axis=1)
        np.testing.assert_allclose(after, before * factors[:, None], atol=1e-5)
        assert set(np.round(factors, 4)) <= set(np.round(weights, 4)) and len(set(factors)) > 1
    for one, two in zip(plain.encode_passages(TEXTS), encoder.encode_passages(TEXTS), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("fault", ["short", "negative", "nan", "not a file"])
def test_bad_query_weights(tmp_path: Path, fault: str) -> None:
    count = len((make_checkpoint(tmp_path / "plain") / "vocab.txt").read_text().split())
    weights = np.ones(count - (fault == "short"), np.float32)
    if fault in ("negative", "nan"):
        weights[1] = -1 if fault == "negative" else np.nan
    folder = weighted(tmp_path / "weighted", weights)
    if fault == "not a file":
        (folder / "query_weights.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"query_weights\.safetensors"):
        Encoder(open_checkpoint(folder)).encode_query("who")
