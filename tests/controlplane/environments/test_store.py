"""Environments on disk, made by the real uv from small wheels in a folder."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from support.tiny_packages import only_from, write_wheel
from support.waiting import eventually

from trainwright.controlplane.environments import EnvironmentDefinition, EnvironmentFailed, EnvironmentStore, Failed, Preparations
from trainwright.controlplane.environments import preparations as preparing
from trainwright.controlplane.environments import store as module
from trainwright.controlplane.environments.installer import Stopped
from trainwright.controlplane.environments.preparations import Preparing
from trainwright.controlplane.environments.store import Prepared

pytestmark = pytest.mark.medium


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    write_wheel(folder, "tiny", "1.0", "tinier")
    write_wheel(folder, "tinier", "2.0")
    write_wheel(folder, "tinier", "2.5")
    for name, value in only_from(folder, tmp_path / "uv").items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def store(tmp_path: Path, wheels: Path) -> EnvironmentStore:
    return EnvironmentStore(tmp_path / "with spaces and ü")


def defined(*requirements: str, **more: Any) -> EnvironmentDefinition:
    return EnvironmentDefinition(name="small", requirements=requirements or ("tiny==1.0",), mebibytes=1, **more)


def printed_by(prepared: Prepared, *arguments: str) -> str:
    command = [str(prepared.path / "bin" / arguments[0]), *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_environment_has_the_locked_versions(store: EnvironmentStore) -> None:
    told: list[str] = []
    ready = store.prepare(defined(lock="tinier==2.0\n"), told.append)
    assert ready.packages == ("tinier==2.0", "tiny==1.0")
    assert printed_by(ready, "tiny") == "tiny 1.0"
    assert any("2 packages installed" in line for line in told)
    assert list(ready.path.rglob("tiny.*.pyc")), "compiled"
    assert ready.path.stat().st_mode & 0o777 == 0o755, "other users of pods read it"


def test_ready_environment_is_not_made_again(store: EnvironmentStore, wheels: Path) -> None:
    ready = store.prepare(defined())
    shutil.rmtree(wheels)
    assert store.prepare(defined()) == ready == store.find(defined())
    assert store.prepared() == [ready]


def test_processes_that_prepare_one_environment_make_it_once(store: EnvironmentStore) -> None:
    found: list[Prepared] = []
    threads = [threading.Thread(target=lambda: found.append(store.prepare(defined()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_environment_of_a_killed_process_is_made_anew(store: EnvironmentStore) -> None:
    place = store.place(defined())
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "tiny").write_text("half of it")
    assert store.find(defined()) is None
    assert printed_by(store.prepare(defined()), "tiny") == "tiny 1.0"


def test_removed_interpreter_makes_an_environment_unusable(store: EnvironmentStore) -> None:
    ready = store.prepare(defined())
    python = ready.path / "bin" / "python"
    python.unlink()
    python.symlink_to("/none/such/python3")
    assert store.find(defined()) is None
    assert store.prepare(defined()).path == ready.path
    assert store.find(defined()) is not None


def test_failure_leaves_nothing_and_names_what_is_missing(store: EnvironmentStore) -> None:
    with pytest.raises(EnvironmentFailed) as caught:
        store.prepare(defined("tiny==1.0", "absent==3.1"))
    message = str(caught.value)
    assert message.startswith("the environment small cannot be prepared: ")
    assert "not on this machine: absent==3.1. Once a package index is reachable, run" in message
    assert "trainwright environments prepare small" in message
    assert not store.place(defined("tiny==1.0", "absent==3.1")).exists()
    assert store.prepared() == []


def test_full_disk_is_told_before_anything_is_downloaded(store: EnvironmentStore) -> None:
    huge = defined().model_copy(update={"mebibytes": 10**9})
    with pytest.raises(EnvironmentFailed, match=r"needs about 1000000000 MiB in .* MiB are free"):
        store.prepare(huge)


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFailed, match=r"file/store: Not a directory"):
        EnvironmentStore(tmp_path / "file" / "store").prepare(defined())


def test_missing_uv_is_told(store: EnvironmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.controlplane.environments.installer.find_uv", lambda: None)
    with pytest.raises(EnvironmentFailed, match="uv is not installed"):
        store.prepare(defined())


def test_stop_ends_a_preparation(store: EnvironmentStore) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        store.prepare(defined(), stop=stop)
    assert store.prepare(defined()).name == "small"


def test_package_trainwright_is_importable_where_asked_for(store: EnvironmentStore) -> None:
    ready = store.prepare(defined(includesTrainwright=True))
    assert printed_by(ready, "python", "-c", "import trainwright; print(trainwright.__file__)").endswith(
        "trainwright/__init__.py"
    )


def test_lock_is_held_until_it_is_removed(store: EnvironmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = store.prepare(defined())
    seen: list[str] = []
    unlink = Path.unlink

    def checked(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".lock":
            with open(path) as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            seen.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", checked)
    store.remove(ready.path)
    assert seen == [f"{ready.path.name}.lock"]


@pytest.mark.parametrize(
    "record", ["[]", "{}", '{"name": 1', "null", '{"name": "small", "created": "", "seconds": 1, "packages": 5}']
)
def test_record_of_another_program_is_no_environment(store: EnvironmentStore, record: str) -> None:
    place = store.place(defined())
    place.mkdir(parents=True)
    (place / "trainwright.json").write_text(record)
    assert store.find(defined()) is None
    assert store.prepared() == []


def test_gpu_has_its_own_requirements(store: EnvironmentStore, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = defined(gpuRequirements=("tinier",))
    without = store.place(definition)
    monkeypatch.setattr(module, "has_gpu", lambda: True)
    assert module.requirements_here(definition) == ("tinier",)
    assert store.place(definition) != without


def test_pods_see_how_far_a_preparation_is_and_how_it_fails(
    store: EnvironmentStore, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "_BACKOFF", preparing.Backoff(0.2, 0.4, jitter=0))
    preparations, definition = Preparations(store), defined("tiny==9")
    assert preparations.look(definition) == Preparing("preparing the environment small")
    failed = eventually(lambda: found if isinstance(found := preparations.look(definition), Failed) else None)
    assert failed.failures == 1
    assert "not on this machine: tiny==9" in failed.message
    write_wheel(wheels, "tiny", "9")
    ready = eventually(lambda: found if isinstance(found := preparations.look(definition), Prepared) else None)
    assert printed_by(ready, "tiny") == "tiny 9"
