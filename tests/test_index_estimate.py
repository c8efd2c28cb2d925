"""The estimate before a build, and disks that are too small or fill up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_index_support import make_checkpoint, passages

from hopgate.core import IndexStoreError
from hopgate.index import BuildEstimate, ColBERTIndex, chunks


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize("engine", ["exact", "auto"])
def test_estimate_is_near(tmp_path: Path, engine: str) -> None:
    told: list[BuildEstimate] = []
    done: list[int] = []
    index = ColBERTIndex.build(
        passages(600),
        tmp_path / "ix",
        checkpoint=make_checkpoint(tmp_path / "tiny"),
        engine=engine,
        on_estimate=lambda estimate: told.append(estimate) or done.append(-1),
        on_progress=lambda count, _: done.append(count),
    )
    (estimate,) = told
    info = index.info()
    assert done[0] == -1 and done[-1] == 600
    assert estimate.passages == 600
    assert info["vectors"] <= estimate.vectors < 1.3 * info["vectors"]
    vectors = sum(path.stat().st_size for path in (tmp_path / "ix" / "vectors").iterdir())
    assert vectors < 1.1 * estimate.bytes
    assert estimate.seconds is not None and estimate.seconds > 0 and estimate.free > estimate.bytes
    # All is there already: nothing is estimated.
    ColBERTIndex.build(passages(600), tmp_path / "ix", checkpoint=tmp_path / "tiny", on_estimate=told.append)
    assert len(told) == 1


def test_disk_that_is_too_small_is_refused_before_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 1 << 30, 10_000))
    counts: list[int] = []
    with pytest.raises(IndexStoreError, match=r"needs about 0 MB and 0 MB are free|make room"):
        ColBERTIndex.build(
            passages(60), tmp_path / "ix", checkpoint=checkpoint, on_progress=lambda done, _: counts.append(done)
        )
    assert counts == [] and not (tmp_path / "ix").exists()
    monkeypatch.undo()
    assert len(ColBERTIndex.build(passages(60), tmp_path / "ix", checkpoint=checkpoint)) == 60


def test_disk_that_fills_up_keeps_finished_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny")
    monkeypatch.setattr(chunks, "CHUNK", 8)
    write, calls = chunks.write_atomic, [0]

    def full(path: Path, data: Any) -> None:
        calls[0] += 1
        if calls[0] > 6:  # the plan, then two files a chunk
            raise OSError(28, "No space left on device")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(chunks, "write_atomic", full)
        with pytest.raises(IndexStoreError, match="No space left on device"):
            ColBERTIndex.build(passages(40), tmp_path / "ix", checkpoint=checkpoint)
    kept = sorted(path.name for path in (tmp_path / ".ix.hopgate-part" / "vectors").glob("?????.npy"))
    assert kept == ["00000.npy", "00001.npy"]
    told: list[BuildEstimate] = []
    built = ColBERTIndex.build(passages(40), tmp_path / "ix", checkpoint=checkpoint, on_estimate=told.append)
    assert len(built) == 40
    whole: list[BuildEstimate] = []
    ColBERTIndex.build(passages(40), tmp_path / "new", checkpoint=checkpoint, on_estimate=whole.append)
    assert told[0].bytes < 0.8 * whole[0].bytes  # two of five chunks are there
