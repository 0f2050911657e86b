"""A registration in the Hub is one commit with exactly the model, whatever fails in between; nothing of others is overwritten."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from failures import failure_of
from hub_upload_server import FAILED, TOKEN, HubUploadServer, When
from support.on_first_use import OnFirstUse
from support.optional_packages import require_packages

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.registries.hub_repository import HubModel
from trainwright.checkpoints.registries.register import register_export
from trainwright.checkpoints.registries.registration import (
    Registration,
    RegistrationConflict,
    RegistrationError,
    RegistrationOptions,
)
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.file_store import FileStore

constants = OnFirstUse("huggingface_hub.constants")
require_packages("huggingface_hub", extra="hub")
pytestmark = pytest.mark.medium

REPOSITORY = "acme/llama-sft"
STATES = {"optimizer.pt", "scheduler.pt", "rng_state.pth"}
MODEL = {"adapter_model.safetensors", "adapter_config.json", "trainer_state.json", "nested/ü.txt"}
OWN = {"README.md", "trainwright.json", ".gitattributes"}
MakeExport = Callable[..., str]


@pytest.fixture(autouse=True)
def client_settings(hub: HubUploadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with HF_ENDPOINT and HF_HUB_DISABLE_XET, which the client reads when it is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)


@pytest.fixture
def register(hub: HubUploadServer, export_uri: str, tmp_path: Path) -> Callable[..., Registration]:
    """`register(uri, **options)` in the repository; by default the export of step 5."""

    def run(uri: str = export_uri, *, to: str = f"hf://{REPOSITORY}", token: str = TOKEN, **options: Any) -> Registration:
        environ = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
        return register_export(uri, to, options=RegistrationOptions(scratch=tmp_path / "scratch", **options), environ=environ)

    return run


def test_one_commit_has_the_model_without_the_training_state(hub: HubUploadServer, register: Any, export_uri: str) -> None:
    registration = register()
    repository = hub.repositories[REPOSITORY]
    manifest = open_export(export_uri).manifest
    assert set(repository.head()) == MODEL | OWN
    assert repository.private
    assert hub.commits_of(REPOSITORY) == [
        f"Step 5 of llama-sft\n\nTrainwright-Manifest: {manifest.digest}",
        "initial commit",
    ]
    assert (registration.registry, registration.name, registration.existed) == ("hub", REPOSITORY, False)
    assert registration.version == repository.branches["main"]
    assert (registration.uri, registration.digest) == (f"hf://{REPOSITORY}@{registration.version}", manifest.digest)
    for path in MODEL:
        assert repository.head()[path] == open_export(export_uri).read(path)
    record = json.loads(repository.head()["trainwright.json"])
    assert (record["manifest"], record["training_state"], set(record["files"])) == (manifest.digest, False, MODEL)
    assert b"by PEFT" not in repository.head()["README.md"]


def test_an_export_in_an_object_store_is_published_as_one_in_a_folder(
    hub: HubUploadServer, register: Any, make_export: MakeExport, s3_folder: str
) -> None:
    register()
    from_folder = hub.repositories.pop(REPOSITORY).head()
    assert not register(make_export(target=f"{s3_folder}/llama-sft")).existed
    from_store = hub.repositories[REPOSITORY].head()
    assert {path: from_store[path] for path in MODEL} == {path: from_folder[path] for path in MODEL}


def test_the_training_state_is_uploaded_on_request(hub: HubUploadServer, register: Any) -> None:
    first = register()
    second = register(training_state=True)
    assert set(hub.repositories[REPOSITORY].head()) == MODEL | OWN | STATES
    assert first.version != second.version
    register()
    assert set(hub.repositories[REPOSITORY].head()) == MODEL | OWN


def test_a_second_registration_commits_nothing(hub: HubUploadServer, register: Any) -> None:
    first = register()
    before = len(hub.asked)
    second = register()
    assert second == Registration(**{**vars(first), "existed": True})
    assert len(hub.commits_of(REPOSITORY)) == 2
    assert not [request for request in hub.asked[before:] if not request.startswith("GET")]


def test_files_of_an_earlier_export_are_removed_and_those_of_others_kept(
    hub: HubUploadServer, register: Any, make_export: MakeExport
) -> None:
    register(make_export(6, **{"old-00001.safetensors": b"shard"}))
    hub.repositories[REPOSITORY].push({"LICENSE": b"MIT"})
    register(make_export(7))
    assert set(hub.repositories[REPOSITORY].head()) == MODEL | OWN | {"LICENSE"}


def test_unchanged_weights_are_not_uploaded_again(hub: HubUploadServer, register: Any, make_export: MakeExport) -> None:
    register()
    uploaded = list(hub.uploaded)
    register(make_export(6))
    assert hub.uploaded == uploaded
    assert len(hub.commits_of(REPOSITORY)) == 3


def test_an_edited_model_card_is_kept_and_an_unedited_one_renewed(
    hub: HubUploadServer, register: Any, make_export: MakeExport
) -> None:
    register()
    register(make_export(6))
    repository = hub.repositories[REPOSITORY]
    assert b"trained for 6 steps" in repository.head()["README.md"]
    repository.push({"README.md": b"edited"})
    register(make_export(7))
    register(make_export(8))
    assert repository.head()["README.md"] == b"edited"
    assert json.loads(repository.head()["trainwright.json"])["step"] == 8


def test_a_commit_of_another_meanwhile_is_a_conflict_and_publishes_nothing(hub: HubUploadServer, register: Any) -> None:
    register()
    repository = hub.repositories[REPOSITORY]
    repository.push({"trainwright.json": None})
    hub.before_commit = lambda: repository.push({"other.txt": b""}) and None
    with pytest.raises(RegistrationConflict, match=r"hf://acme/llama-sft was changed meanwhile, and nothing was published"):
        register()
    assert hub.commits_of(REPOSITORY)[0] == "by hand"
    hub.before_commit = lambda: None
    assert not register().existed


def test_of_two_registrations_at_once_one_commits_and_the_other_finds_it(hub: HubUploadServer, register: Any) -> None:
    arrived, real = threading.Barrier(2), HubModel.commit

    def together(repository: HubModel, *args: Any, **kwargs: Any) -> str:
        arrived.wait(20)
        return real(repository, *args, **kwargs)

    with ThreadPoolExecutor(2) as pool, pytest.MonkeyPatch.context() as patched:
        patched.setattr(HubModel, "commit", together)
        first, second = (done.result(60) for done in [pool.submit(register), pool.submit(register)])
    assert first.version == second.version
    assert sorted([first.existed, second.existed]) == [False, True]
    assert len(hub.commits_of(REPOSITORY)) == 2


def test_a_repository_that_exists_is_left_as_it_is_otherwise(hub: HubUploadServer, register: Any) -> None:
    from hub_upload_server import HubModelRepository

    hub.repositories[REPOSITORY] = HubModelRepository(private=False)
    hub.repositories[REPOSITORY].push({"README.md": b"mine", ".gitignore": b"adapter_config.json"}, message="initial commit")
    register()
    repository = hub.repositories[REPOSITORY]
    assert not repository.private
    assert repository.head()["README.md"] == b"mine"
    assert repository.head().keys() >= MODEL  # whatever .gitignore says


def test_a_branch_is_created_and_main_left_alone(hub: HubUploadServer, register: Any) -> None:
    registration = register(to=f"hf://{REPOSITORY}@candidate")
    repository = hub.repositories[REPOSITORY]
    assert repository.branches["candidate"] == registration.version
    assert set(repository.head()) == {".gitattributes"}


def test_a_version_is_created_once_and_an_alias_moves(hub: HubUploadServer, register: Any, make_export: MakeExport) -> None:
    first = register(version="v1", alias="champion")
    repository = hub.repositories[REPOSITORY]
    assert repository.tags == {"v1": first.version, "champion": first.version}
    second = register(make_export(6), version="v2", alias="champion")
    assert repository.tags == {"v1": first.version, "v2": second.version, "champion": second.version}
    with pytest.raises(RegistrationConflict, match="the tag 'v1' names another commit"):
        register(make_export(7), version="v1")
    assert len(hub.commits_of(REPOSITORY)) == 3
    back = register(version="v1", alias="champion")  # step 5 again, although the head is step 6
    assert (back.version, back.existed) == (first.version, True)
    assert repository.tags["champion"] == first.version
    assert len(hub.commits_of(REPOSITORY)) == 3
    with pytest.raises(RegistrationConflict, match="'main' is a branch"):
        register(alias="main")


@pytest.mark.parametrize("when", ["before", "after"])
def test_whichever_request_fails_the_next_registration_completes_it(
    hub: HubUploadServer, register: Any, when: When, export_uri: str
) -> None:
    """The server forgets nothing between the two, as if the process had been killed at that request."""
    number, failure = 0, "none yet"
    while failure:
        hub.repositories.clear()
        hub.blobs.clear()
        hub.asked.clear()
        hub.faults = lambda count, _request, number=number: when if count == number else ""  # type: ignore[misc]
        failure = failure_of(lambda: register(version="v1", alias="champion"))
        assert not failure or str(FAILED) in failure
        assert TOKEN not in failure
        hub.faults = lambda _count, _request: ""
        registration = register(version="v1", alias="champion")
        repository = hub.repositories[REPOSITORY]
        assert len(hub.commits_of(REPOSITORY)) == 2, hub.asked
        assert set(repository.head()) == MODEL | OWN
        assert repository.tags == {"v1": registration.version, "champion": registration.version}
        assert registration.version == repository.branches["main"]
        number += 1
    assert number > 15


def test_a_damaged_commit_is_no_registration(hub: HubUploadServer, register: Any) -> None:
    hub.damages = {"adapter_config.json": b"{" + b" " * 89 + b"}"}
    with pytest.raises(CheckpointError, match=r"adapter_config\.json has .*; no tag was moved"):
        register(version="v1")
    assert hub.repositories[REPOSITORY].tags == {}
    hub.damages = {}
    register(version="v1")
    assert hub.repositories[REPOSITORY].tags


def test_files_that_were_replaced_by_hand_are_published_again(hub: HubUploadServer, register: Any) -> None:
    register()
    repository = hub.repositories[REPOSITORY]
    intact = repository.head()["adapter_model.safetensors"]
    repository.push({"adapter_model.safetensors": intact[:-1] + b"?"})
    assert not register().existed
    assert repository.head()["adapter_model.safetensors"] == intact


def test_a_corrupt_export_is_not_published(hub: HubUploadServer, register: Any, export_uri: str) -> None:
    export = open_export(export_uri)
    (weights,) = (file for file in export.manifest.files if file.path == "adapter_model.safetensors")
    stored = Path(export.store.uri.location) / weights.key
    stored.write_bytes(stored.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is corrupt"):
        register()
    assert hub.commits_of(REPOSITORY) == ["initial commit"]


def test_files_fetched_by_an_interrupted_registration_are_reused(
    hub: HubUploadServer, register: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    real = FileStore.get

    def get(store: FileStore, key: str, *args: Any) -> Any:
        fetched.append(key)
        return real(store, key, *args)

    monkeypatch.setattr(FileStore, "get", get)
    hub.faults = lambda _number, request: "before" if "/commit/" in request else ""
    with pytest.raises(RegistrationError):
        register()
    hub.faults = lambda _number, _request: ""
    register()
    assert len(fetched) == len(set(fetched)) == len(MODEL)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_disk_without_room_fails_before_anything_is_fetched(
    hub: HubUploadServer, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainwright.storage import transfer

    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda _path: SimpleNamespace(free=1))
    with pytest.raises(NoSpace, match="free up space"):
        register()
    assert hub.commits_of(REPOSITORY) == ["initial commit"]


@pytest.mark.parametrize(
    ("token", "words"),
    [("", "set HF_TOKEN"), ("hf_wrong-and-secret", "the hub refuses the token, or it may not write there")],
)
def test_without_a_valid_token_it_says_so_and_never_shows_it(
    hub: HubUploadServer, register: Any, token: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(RegistrationError, match=words) as refused:
        register(token=token)
    assert not token or token not in f"{refused.value}{caplog.text}"
    assert hub.repositories == {}


def test_a_refusal_that_repeats_the_token_is_shown_without_it(hub: HubUploadServer, register: Any) -> None:
    hub.refusal = f"{TOKEN} may not write, ask http://user:secret@example.com/?signature=secret"
    with pytest.raises(RegistrationError, match=r"check HF_TOKEN: .*\*\*\* may not write") as refused:
        register()
    assert TOKEN not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_token_is_not_logged_or_committed(hub: HubUploadServer, register: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    register(version="v1", alias="champion")
    assert TOKEN not in caplog.text
    assert not [path for path, content in hub.repositories[REPOSITORY].head().items() if TOKEN.encode() in content]


def test_a_local_path_and_the_exports_uri_are_not_published(
    hub: HubUploadServer, register: Any, make_export: MakeExport, tmp_path: Path
) -> None:
    register(make_export(6, source=str(tmp_path / "output")))
    for path, content in hub.repositories[REPOSITORY].head().items():
        assert str(tmp_path).encode() not in content, path


def test_plain_http_to_another_machine_is_refused(export_uri: str) -> None:
    environ = {"HF_ENDPOINT": "http://hub.example.com", "HF_TOKEN": TOKEN}
    with pytest.raises(StorageError, match="plain http is refused"):
        register_export(export_uri, f"hf://{REPOSITORY}", environ=environ)


def test_a_hub_without_xet_says_what_to_set(
    hub: HubUploadServer, export_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hf_xet")
    if importlib.metadata.version("huggingface_hub").startswith("1."):
        pytest.skip("version 1 of the client uploads without hf_xet by itself")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    environ = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN}
    with pytest.raises((RegistrationError, StorageError), match="set HF_HUB_DISABLE_XET=1"):
        register_export(
            export_uri, f"hf://{REPOSITORY}", options=RegistrationOptions(scratch=tmp_path / "scratch"), environ=environ
        )
    assert hub.commits_of(REPOSITORY) == ["initial commit"]
