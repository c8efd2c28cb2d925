"""Checkpoints: what is checked before anything is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from test_index_support import make_checkpoint, needs_embedded, passages

from hopgate.core import CheckpointError, WeightsError
from hopgate.index import EMBEDDED, ColBERTIndex, Encoder, embedded, open_checkpoint
from hopgate.index.checkpoint import FILES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "tiny")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("file", FILES)
def test_missing_file_is_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=f"has no {file}"):
        open_checkpoint(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_auto_map_is_refused_before_anything_else(folder: Path, file: str) -> None:
    edit(folder / file, auto_map={"AutoModel": "evil.Model"})
    for other in set(FILES) - {file}:
        (folder / other).unlink()
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(CheckpointError, match=f"{file}: `auto_map`"):
        open_checkpoint(folder)
    with pytest.raises(CheckpointError, match="`auto_map`"):
        ColBERTIndex.build(passages(3), folder.parent / "index", checkpoint=folder)
    assert not (folder.parent / "index").exists()


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin, a pickle"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("similarity", "l2"),
        ("interaction", "flipr"),
        ("dim", 0),
        ("dim", "128"),
        ("doc_maxlen", 1),
        ("query_maxlen", -1),
    ],
)
def test_unsupported_setting_is_named(folder: Path, field: str, value: Any) -> None:
    edit(folder / "artifact.metadata", **{field: value})
    with pytest.raises(CheckpointError, match=rf"artifact\.metadata: `{field}`"):
        open_checkpoint(folder)


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_broken_settings(folder: Path, content: str) -> None:
    (folder / "artifact.metadata").write_text(content, errors="surrogateescape")
    with pytest.raises(CheckpointError, match=r"artifact\.metadata: "):
        open_checkpoint(folder)


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", "{", "[" * 100_000, '{"a":' * 100_000])
@pytest.mark.parametrize("file", FILES[:4])
def test_any_broken_file_is_a_typed_error(folder: Path, file: str, content: str) -> None:
    if (file, content) == ("tokenizer_config.json", "{}"):
        pytest.skip("has defaults for all that is read")
    (folder / file).write_text(content)
    with pytest.raises(CheckpointError) as caught:
        Encoder(open_checkpoint(folder)).encode_query("who")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_special_token_that_is_none(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", mask_token={"text": "x"})
    with pytest.raises(CheckpointError, match="`mask_token` is not a token"):
        Encoder(open_checkpoint(folder)).encode_query("who")


def test_weights_that_are_not_numbers(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["linear.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors")
    encoder = Encoder(open_checkpoint(folder))
    for call in (lambda: encoder.encode_query("who"), lambda: encoder.encode_passages(["who"])):
        with pytest.raises(CheckpointError, match="not finite numbers"):
            call()


@pytest.fixture
def assembled(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The embedded checkpoint is made from a tiny one, in a cache of its own; returns where it was put together."""
    made: list[Path] = []

    def assemble(weights: Path, target: Path) -> None:
        made.append(target)
        shutil.copytree(folder, target, dirs_exist_ok=True)

    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("hopgate.core.weights.resolve", lambda name: folder)
    monkeypatch.setattr(embedded, "_assemble", assemble)
    return made


@pytest.mark.parametrize("damage", ["changed", "missing", "truncated"])
@pytest.mark.parametrize("file", [*FILES, embedded._CHECKSUMS])
def test_damaged_embedded_checkpoint_is_put_together_again(assembled: list[Path], file: str, damage: str) -> None:
    checkpoint = open_checkpoint(EMBEDDED)
    assert open_checkpoint(EMBEDDED) == checkpoint and len(assembled) == 1
    path = checkpoint.path / file
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.write_bytes(content[:-4] + bytes(byte ^ 1 for byte in content[-4:]))
    assert open_checkpoint(EMBEDDED) == checkpoint and len(assembled) == 2
    assert path.read_bytes() == content
    assert [entry.name for entry in checkpoint.path.parent.iterdir()] == [checkpoint.path.name]


def test_embedded_checkpoint_in_a_cache_that_cannot_be_written(
    assembled: list[Path], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("HOPGATE_CACHE", str(folder / "config.json"))
    with pytest.raises(CheckpointError, match=r"cannot be written .*HOPGATE_CACHE"):
        open_checkpoint(EMBEDDED)


def test_settings_may_be_nested(folder: Path) -> None:
    (folder / "artifact.metadata").write_text(json.dumps({"config": {"dim": 16, "query_maxlen": 48}}))
    settings = open_checkpoint(folder).settings
    assert (settings.dim, settings.query_maxlen, settings.doc_maxlen) == (16, 48, 220)


def test_fingerprint_follows_content_not_place(folder: Path, tmp_path: Path) -> None:
    base = open_checkpoint(folder).fingerprint
    assert open_checkpoint(folder.rename(tmp_path / "moved")).fingerprint == base
    folder = tmp_path / "moved"
    edit(folder / "artifact.metadata", comment="does not matter")
    assert open_checkpoint(folder).fingerprint == base
    edit(folder / "artifact.metadata", doc_maxlen=100)
    assert open_checkpoint(folder).fingerprint != base
    assert open_checkpoint(make_checkpoint(tmp_path / "other", seed=1)).fingerprint != base


@pytest.mark.parametrize("damage", ["truncated", "other dim", "lacks a tensor", "no linear"])
def test_damaged_weights(folder: Path, damage: str) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        tensors = load_file(path)
        if damage == "other dim":
            edit(folder / "artifact.metadata", dim=8)
        elif damage == "lacks a tensor":
            del tensors["bert.encoder.layer.1.output.dense.weight"]
        else:
            del tensors["linear.weight"]
        save_file(tensors, path)
    with pytest.raises(CheckpointError) as caught:
        Encoder(open_checkpoint(folder)).encode_query("who")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names() -> None:
    with pytest.raises(CheckpointError, match="there is embedded/minilm-colbert"):
        open_checkpoint("embedded/other")
    with pytest.raises(CheckpointError, match="no such checkpoint folder"):
        open_checkpoint("/no/such/folder")


def test_hub_name_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def snapshot_download(name: str, **options: Any) -> str:
        calls.append(options)
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(WeightsError, match=r"colbert-ir/colbertv2\.0: .*no route to host\); check") as caught:
        open_checkpoint("colbert-ir/colbertv2.0")
    assert "\n" not in str(caught.value)
    for options in calls:
        assert not any("bin" in pattern or "py" in pattern for pattern in options["allow_patterns"])


def test_hub_name_downloaded(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    def snapshot_download(name: str, local_files_only: bool = False, **options: Any) -> str:
        if local_files_only:
            raise FileNotFoundError("not in the cache")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    checkpoint = open_checkpoint("colbert-ir/colbertv2.0")
    assert (checkpoint.name, checkpoint.is_local) == ("colbert-ir/colbertv2.0", False)


def test_embedded_is_an_ordinary_checkpoint_folder() -> None:
    needs_embedded()
    checkpoint = open_checkpoint(EMBEDDED)
    assert (checkpoint.name, checkpoint.is_local, checkpoint.settings.dim) == (EMBEDDED, False, 384)
    assert open_checkpoint(checkpoint.path).fingerprint == checkpoint.fingerprint
    assert json.loads((checkpoint.path / "tokenizer.json").read_text())["truncation"] is None
    assert json.loads((checkpoint.path / "config.json").read_text())["architectures"] == ["HF_ColBERT"]
