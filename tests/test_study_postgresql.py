"""Studies in PostgreSQL, with a real server that the tests start."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import psycopg.sql
import pytest
import study_workers as workers

from hopgate.core import HopgateError, InputError
from hopgate.optimizers import SharedStudy

SECRET = "p@ss/w%rd+"
QUOTED = "p%40ss%2Fw%25rd%2B"


def _binary(name: str) -> str | None:
    newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(newest[-1]) if newest else None)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of a server's fresh database, with a user and a password."""
    initdb, postgres = _binary("initdb"), _binary("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL's server is not installed (Debian: apt-get install postgresql)")
    other: list[str] = []  # the server refuses to run as root
    folder = Path(tempfile.mkdtemp(prefix="hopgate-pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        if shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("PostgreSQL's server does not run as root, and there is no user `postgres` to run it as")
        other = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    data = folder / "data"
    secret = folder / "password"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    subprocess.run(
        [*other, initdb, "-D", str(data), "-U", "tester", "-A", "scram-sha-256", "--pwfile", str(secret), "--no-sync"],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["-h", "127.0.0.1", "-p", str(port), "-k", str(folder), "-F"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*other, postgres, "-D", str(data), *options], stdout=log, stderr=log, cwd=folder)
        try:
            _wait(port, process, folder / "log")
            yield f"postgresql://tester:{QUOTED}@127.0.0.1:{port}/postgres"
        finally:
            leader = int((data / "postmaster.pid").read_text().splitlines()[0]) if process.poll() is None else None
            if leader is not None:
                os.kill(leader, 2)  # fast shutdown; `runuser` would not pass it on
            process.wait(30)
            shutil.rmtree(folder, ignore_errors=True)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        try:
            psycopg.connect(
                host="127.0.0.1", port=port, user="tester", password=SECRET, dbname="postgres", connect_timeout=5
            ).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    pytest.fail(f"the server did not start: {log.read_text()[-2000:]}")


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """A database of the test's own."""
    name = request.node.name[:60]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name)))
    return server.rpartition("/")[0] + f"/{name}"


def _noticed(url: str) -> None:
    """Wait until the server knows that all workers but one are gone, which takes it a moment."""
    count = """SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
        WHERE locktype = 'advisory' AND datname = current_database()"""
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(600):
            if connection.execute(count).fetchone() == (1,):
                return
            time.sleep(0.05)
    pytest.fail("the server keeps a dead worker's lock")


def test_two_workers_share_a_study(url: str, tmp_path: Path) -> None:
    log = tmp_path / "evaluations.txt"
    evaluated = workers.two_share(url, log, trials=8, seconds=0.05)
    with SharedStudy.open(url, workers.spec()) as study:
        assert len(study.finished()) == evaluated
        assert all(trial.notes["number"] == trial.number for trial in study.finished())


def test_a_study_resumes_as_in_memory_and_a_dead_worker_s_trial_comes_first(url: str, tmp_path: Path) -> None:
    asked, never = tmp_path / "asked.json", tmp_path / "never"
    workers.work(url, trials=4)
    with workers.started(workers.hold, url, asked, never) as dying:
        of_the_dead = json.loads(workers.appears(asked))
        with SharedStudy.open(url, workers.spec(), sampler=workers.sampler) as study:
            other = study.ask()
            assert other is not None and other.parameters != of_the_dead, "a live worker's trial was taken"
            dying.kill()
            dying.join()
            _noticed(url)
            trial = study.ask()
            assert trial is not None and (trial.number, trial.parameters) == (4, of_the_dead)
    workers.work(url, trials=8)
    with (
        SharedStudy.open(url, workers.spec()) as study,
        SharedStudy.open(None, workers.spec(), sampler=workers.sampler) as undisturbed,
    ):
        for _ in range(5):  # the next was drawn while this one was under way, which the sampler takes into account
            trial = undisturbed.ask()
            assert trial is not None
            undisturbed.tell(trial, workers.values(trial), {"worker": "scripted", "number": trial.number})
        assert study.finished()[:5] == undisturbed.finished()
        assert [trial.number for trial in study.finished()] == list(range(8))


def test_a_lost_connection_is_made_again_and_the_result_is_kept(url: str) -> None:
    with SharedStudy.open(url, workers.spec(), sampler=workers.sampler) as study:
        trial = study.ask()
        assert trial is not None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        with SharedStudy.open(url, workers.spec(), sampler=workers.sampler) as other:
            again = other.ask()
            assert again is not None and again.parameters == trial.parameters  # its worker seemed dead
            study.tell(trial, [1.0, 2.0], {"who": "the first"})
            other.tell(again, [3.0, 4.0], {"who": "the second"})
            assert [(done.number, done.values, done.notes) for done in other.finished()] == [
                (0, (1.0, 2.0), {"who": "the first"})
            ]
            further = other.ask()
            assert further is not None and further.number == 1


def test_another_study_is_refused(url: str) -> None:
    SharedStudy.open(url, workers.spec()).close()
    with pytest.raises(InputError, match="seed 11, now 12"):
        SharedStudy.open(url, workers.spec(seed=12))
    SharedStudy.open(url, workers.spec(name="another", seed=12)).close()


def test_passwords_are_not_told(
    url: str, server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    with SharedStudy.open(url, workers.spec()) as study:
        told += [repr(study), study.storage]
        trial = study.ask()
        assert trial is not None
        with psycopg.connect(url) as connection:
            for (table,) in connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall():
                told.append(str(connection.execute(f'SELECT * FROM "{table}"').fetchall()))  # type: ignore[arg-type]
    wrong = server.replace(QUOTED, "wr0ngsecret").rpartition("/")[0]
    for broken in (
        f"{wrong}/postgres",
        url + "_missing",
        f"postgresql://tester:{QUOTED}@127.0.0.1:1/postgres",
        f"postgresql://tester:{QUOTED}@127.0.0.1:port{QUOTED}/postgres",
        f"postgresql://tester:{QUOTED}@127.0.0.1/postgres?unknown={QUOTED}",
        f"postgresql://tester@127.0.0.1:1/postgres?password={QUOTED}",
        f"mysql://tester:{QUOTED}@127.0.0.1/postgres",
    ):
        with pytest.raises(InputError) as error:
            SharedStudy.open(broken, workers.spec())
        assert error.value.__cause__ is None or error.value.__suppress_context__
        told.append(str(error.value))
        assert "postgresql://" in told[-1]
    printed = capfd.readouterr()
    told += [printed.out, printed.err, *(record.getMessage() for record in caplog.records)]
    for text in told:
        assert not any(secret in text for secret in (SECRET, QUOTED, "wr0ngsecret"))


def test_a_server_that_went_away_is_one_clear_error(url: str) -> None:
    study = SharedStudy.open(url, workers.spec())
    with psycopg.connect(url.rpartition("/")[0] + "/postgres", autocommit=True) as connection:
        name = psycopg.sql.Identifier(url.rpartition("/")[2])
        connection.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
    with pytest.raises(HopgateError, match=r"postgresql://127\.0\.0\.1:.*does not exist"):
        study.ask()
    study.close()
