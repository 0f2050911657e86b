"""hf:// through the real client against a hub on loopback: pinned, verified, once, and with an error that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import HubServer

from trainwright.initializers import DatasetOptions, InitializerError, initialize_dataset, initialize_model
from trainwright.initializers.rows import read_rows
from trainwright.storage.errors import ChecksumMismatch, StorageError

pytestmark = pytest.mark.medium
DATASET, MODEL = "hf://org/rows", "hf://org/model"


def test_a_dataset_is_prepared_at_the_commit_of_its_branch(
    hub: HubServer, tmp_path: Path, lines: bytes, rows: list[dict[str, str]]
) -> None:
    commit = hub.repository("datasets/org/rows").push({"data/train.jsonl": lines, "README.md": b"", ".gitattributes": b""})
    receipt = initialize_dataset(DATASET, tmp_path / "dataset")
    prepared = [row for name in ("train.jsonl", "test.jsonl") for row in read_rows(tmp_path / "dataset" / name)]
    assert sorted(prepared, key=str) == sorted(rows, key=str)
    assert receipt.revision == commit
    assert hub.downloads() == ["train.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "hf") == ["dataset"]


def test_a_model_is_exactly_its_useful_files_and_a_receipt(hub: HubServer, tmp_path: Path, model_files: dict[str, bytes]) -> None:
    commit = hub.repository("models/org/model").push(model_files)
    receipt = initialize_model(MODEL, tmp_path / "model")
    found = {path.relative_to(tmp_path / "model").as_posix() for path in (tmp_path / "model").rglob("*")}
    assert found == {"config.json", "tokenizer.json", "model.safetensors", ".trainwright-receipt.json"}
    assert receipt.revision == commit
    assert receipt.details["architecture"] == "LlamaForCausalLM"
    assert sorted(hub.downloads()) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_second_call_downloads_nothing_and_a_new_commit_is_fetched(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    repository = hub.repository("datasets/org/rows")
    repository.push({"train.jsonl": lines})
    first = initialize_dataset(DATASET, tmp_path / "dataset")
    hub.asked.clear()
    assert initialize_dataset(DATASET, tmp_path / "dataset") == first
    assert len(hub.asked) == 1
    assert not hub.downloads()
    commit = repository.push({"train.jsonl": lines * 2})
    assert initialize_dataset(DATASET, tmp_path / "dataset").revision == commit


def test_a_pinned_commit_is_prepared_whatever_the_branch_says_and_not_asked_for_again(
    hub: HubServer, tmp_path: Path, lines: bytes
) -> None:
    repository = hub.repository("datasets/org/rows")
    commit = repository.push({"train.jsonl": lines})
    repository.push({"train.jsonl": b'{"text": "newer"}\n'})
    receipt = initialize_dataset(f"{DATASET}@{commit}", tmp_path / "dataset")
    assert (receipt.revision, receipt.details["layout"]) == (commit, "prompt-completion")
    hub.asked.clear()
    assert initialize_dataset(f"{DATASET}@{commit}", tmp_path / "dataset") == receipt
    assert hub.asked == []


def test_a_branch_is_followed_by_its_name(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    repository = hub.repository("datasets/org/rows")
    commit = repository.push({"train.jsonl": lines}, branch="v2")
    repository.push({"train.jsonl": lines * 2})
    assert initialize_dataset(f"{DATASET}@v2", tmp_path / "dataset").revision == commit


def test_a_branch_that_moves_between_question_and_download_changes_nothing(
    hub: HubServer, tmp_path: Path, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.repository("datasets/org/rows")
    commit = repository.push({"train.jsonl": lines})
    real = hub.answer

    def moved(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        answer = real(method, target, headers)
        if len(hub.asked) == 1:
            repository.push({"train.jsonl": b'{"text": "newer"}\n'})
        return answer

    monkeypatch.setattr(hub, "answer", moved)
    receipt = initialize_dataset(DATASET, tmp_path / "dataset")
    assert (receipt.revision, receipt.details["layout"]) == (commit, "prompt-completion")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"], ids=["sha256-of-large", "git-sha1-of-small"])
def test_a_flipped_byte_is_noticed_and_only_that_file_is_fetched_again(
    hub: HubServer, tmp_path: Path, model_files: dict[str, bytes], name: str
) -> None:
    hub.repository("models/org/model").push(model_files)
    content = model_files[name]
    hub.served[name] = content[:-1] + bytes([content[-1] ^ 1])
    with pytest.raises(ChecksumMismatch, match=rf"hf://org/model: {name} is corrupt .* and was removed; try again"):
        initialize_model(MODEL, tmp_path / "model")
    assert not (tmp_path / "model").exists()
    assert not list(tmp_path.rglob(name))
    hub.served.clear()
    hub.asked.clear()
    initialize_model(MODEL, tmp_path / "model")
    assert (tmp_path / "model" / name).read_bytes() == content
    assert hub.downloads() == [name]


def test_a_repository_that_is_not_there_is_said(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(InitializerError, match="hf://org/rows: the hub has no such dataset, or it is private and no token"):
        initialize_dataset(DATASET, tmp_path / "dataset")
    with pytest.raises(InitializerError, match="hf://org/model: the hub has no such model"):
        initialize_model(MODEL, tmp_path / "model")
    assert not list(tmp_path.glob(".*"))


def test_a_revision_that_is_not_there_is_said(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    hub.repository("datasets/org/rows").push({"train.jsonl": lines})
    for revision in ("v9", "f" * 40):
        with pytest.raises(InitializerError, match=f"there is no revision '{revision}'"):
            initialize_dataset(f"{DATASET}@{revision}", tmp_path / "dataset")


def test_a_name_that_the_hub_cannot_have_is_said(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(InitializerError, match=r"hf://org/a--b: .*a--b"):
        initialize_dataset("hf://org/a--b", tmp_path / "dataset")
    assert hub.asked == []


def test_a_gated_repository_says_what_to_do(hub: HubServer, tmp_path: Path, model_files: dict[str, bytes]) -> None:
    repository = hub.repository("models/org/model")
    repository.push(model_files)
    repository.gated = True
    with pytest.raises(
        InitializerError, match="is gated: accept its terms on the hub, and set a token in ACCESS_TOKEN or HF_TOKEN"
    ):
        initialize_model(MODEL, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("variable", ["ACCESS_TOKEN", "HF_TOKEN"])
def test_a_private_repository_is_read_with_a_token_that_is_written_nowhere(
    hub: HubServer, tmp_path: Path, model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    repository = hub.repository("models/org/model")
    repository.push(model_files)
    repository.token = "hf_secret"
    with pytest.raises(InitializerError, match="no such model, or it is private"):
        initialize_model(MODEL, tmp_path / "model")
    monkeypatch.setenv(variable, "hf_secret")
    receipt = initialize_model(MODEL, tmp_path / "model")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"hf_secret" in path.read_bytes()]
    monkeypatch.delenv(variable)  # a later step without the token finds what is there
    assert initialize_model(MODEL, tmp_path / "model") == receipt


def test_without_a_hub_only_what_is_there_already_will_do(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    hub.repository("datasets/org/rows").push({"train.jsonl": lines})
    receipt = initialize_dataset(DATASET, tmp_path / "dataset")
    hub.stop()
    assert initialize_dataset(DATASET, tmp_path / "dataset") == receipt
    with pytest.raises(StorageError, match="hf://org/rows: the hub cannot be reached: "):
        initialize_dataset(DATASET, tmp_path / "other")
    with pytest.raises(StorageError, match="the hub cannot be reached: "):
        initialize_dataset(DATASET, tmp_path / "dataset", DatasetOptions(max_rows=5))
    (tmp_path / "dataset" / "train.jsonl").write_bytes(b"")
    with pytest.raises(StorageError, match="the hub cannot be reached: "):
        initialize_dataset(DATASET, tmp_path / "dataset")


def test_a_hub_that_is_broken_is_trouble_on_the_way(hub: HubServer, tmp_path: Path) -> None:
    hub.broken = True
    with pytest.raises(StorageError, match=r"hf://org/rows: the hub answers: .*501"):
        initialize_dataset(DATASET, tmp_path / "dataset")


def test_patterns_leave_files_out_and_odd_names_are_taken_literally(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    hub.repository("datasets/org/rows").push({"a[1].jsonl": lines, "a1.jsonl": lines, "b.csv": b"x\n", "state.json": b"{}"})
    initialize_dataset(DATASET, tmp_path / "dataset", DatasetOptions(ignore=("a1.*", "*.csv")))
    assert hub.downloads() == ["a[1].jsonl"]


def test_a_repository_without_rows_or_that_leads_out_has_nothing_to_fetch(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("datasets/org/rows").push({"../x.jsonl": b"{}", "/x.jsonl": b"{}", "README.md": b""})
    with pytest.raises(InitializerError, match=r"hf://org/rows has no file that matches \*\.jsonl, "):
        initialize_dataset(DATASET, tmp_path / "dataset")
    assert not hub.downloads()


def test_the_program_finds_the_hub_by_the_clients_own_variable(
    hub: HubServer, tmp_path: Path, model_files: dict[str, bytes]
) -> None:
    hub.repository("models/org/model").push(model_files)
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "STORAGE_URI": MODEL}
    env |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "trainwright.initializers", "model", "--target", str(tmp_path / "model")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("model ready: 3 files architecture=LlamaForCausalLM")
