"""hf:// against a hub on loopback: pinned, verified, once, and with an error that says what to do."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from huggingface_hub import constants
from servers.hub_server import FileServer, HubServer, Repository

from trainwright.initializers import DatasetOptions, InitializerError, hub_repository, initialize_dataset, initialize_model
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.hub import fetch_repository
from trainwright.initializers.rows import read_rows
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.http.client import HttpClient
from trainwright.storage.uri import StorageUri
from trainwright.workspace.receipt import digest_files

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
    # Weights are asked for after the rest.
    assert hub.downloads() == ([name] if name == "model.safetensors" else [name, "model.safetensors"])


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
    with pytest.raises(StorageError, match=r"hf://org/rows: the server answers with status 501"):
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


def fetch(uri: str, target: Path, *, kind: Literal["dataset", "model"] = "dataset", commit: str | None = None) -> list[str]:
    """Fetch all files of a repository. Returns their paths in the target."""
    fetched = fetch_repository(StorageUri.parse(uri), FileFilter(kind), commit, target, lambda _total: lambda _count: None)
    return [path.as_posix() for path in fetched.paths]


ODD_NAMES = ["a b.txt", "#1.txt", "50%.txt", "50%25.txt", "what?.txt", "ü/Größe €.txt", "a&b=c+d;e.txt", "x" * 200 + ".txt"]


def test_names_with_any_character_and_empty_files_arrive_under_their_names(hub: HubServer, tmp_path: Path) -> None:
    files = {name: name.encode() for name in ODD_NAMES} | {"empty.txt": b"", "empty.parquet": b""}
    hub.repository("datasets/org/rows").push(files)
    assert sorted(fetch(DATASET, tmp_path / "x")) == sorted(files)
    assert {name: (tmp_path / "x" / name).read_bytes() for name in files} == files


def test_a_long_list_of_files_is_read_page_by_page_from_the_same_hub(hub: HubServer, tmp_path: Path) -> None:
    hub.page = 3
    files = {f"{number}.txt": str(number).encode() for number in range(10)}
    hub.repository("datasets/org/rows").push(files)
    assert sorted(fetch(DATASET, tmp_path / "x")) == sorted(files)
    assert len([line for line in hub.asked if "/tree/" in line]) == 4


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("hf://datasets/org/rows@v1/data/en", ["a.txt", "sub/b.txt"]),
        ("hf://datasets/org/rows@v1/data/en/sub/b.txt", ["b.txt"]),
        ("hf://org/rows@v1/data/de.txt", ["de.txt"]),
        ("hf://org/rows@v1/top.txt", ["top.txt"]),
        ("hf://org/rows@a%2Fbranch/data/en", ["a.txt", "sub/b.txt"]),
    ],
)
def test_a_folder_or_a_file_of_a_repository_is_fetched_alone(hub: HubServer, tmp_path: Path, uri: str, names: list[str]) -> None:
    repository = hub.repository("datasets/org/rows")
    files = {name: name.encode() for name in ("data/en/a.txt", "data/en/sub/b.txt", "data/en2/c.txt", "data/de.txt", "top.txt")}
    for branch in ("v1", "a/branch"):
        repository.push(files, branch)
    assert fetch(uri, tmp_path / "x") == names
    assert sorted(hub.downloads()) == sorted(Path(name).name for name in names)


def test_a_path_that_the_repository_does_not_have_is_said(hub: HubServer, tmp_path: Path) -> None:
    hub.repository("datasets/org/rows").push({"a/b.txt": b""})
    for path in ("c", "a/c", "a/b.txt/c"):
        with pytest.raises(InitializerError, match=f"the repository has no file or folder '{path}'"):
            fetch(f"{DATASET}/{path}", tmp_path / "x")


def test_the_kind_in_a_uri_must_be_the_one_that_is_prepared(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(InitializerError, match="hf://datasets/org/x names a dataset, but a model is needed here"):
        initialize_model("hf://datasets/org/x", tmp_path / "model")
    with pytest.raises(InitializerError, match="hf://models/org/x names a model, but a dataset is needed here"):
        initialize_dataset("hf://models/org/x", tmp_path / "dataset")
    assert hub.asked == []


def test_a_slash_in_a_revision_that_is_read_as_a_path_is_explained(hub: HubServer, tmp_path: Path, lines: bytes) -> None:
    hub.repository("datasets/org/rows").push({"train.jsonl": lines}, "feature/x")
    with pytest.raises(InitializerError, match="there is no revision 'feature'; write a slash in a revision as %2F"):
        initialize_dataset(f"{DATASET}@feature/x", tmp_path / "dataset")
    initialize_dataset(f"{DATASET}@feature%2Fx", tmp_path / "dataset")


@pytest.fixture
def cdn(hub: HubServer) -> Iterator[FileServer]:
    """Another server, to which the hub redirects requests for large files."""
    server = FileServer()
    yield server
    server.stop()


def test_the_token_of_a_hub_does_not_reach_the_server_with_the_files(
    hub: HubServer, cdn: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = hub.repository("datasets/org/rows")
    repository.push({"a.parquet": b"large", "b.txt": b"small"})
    repository.token, repository.redirects_to = "hf_secret", cdn.url
    cdn.files = {"/a.parquet": b"large"}
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert fetch(DATASET, tmp_path / "x") == ["a.parquet", "b.txt"]
    assert len(cdn.headers) == 1
    assert "authorization" not in cdn.headers[0]
    assert all(headers["authorization"] == "Bearer hf_secret" for headers in hub.headers)


def test_the_token_of_a_log_in_is_used(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("hf_secret\n")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    repository = hub.repository("datasets/org/rows")
    repository.push({"b.txt": b"small"})
    repository.token = "hf_secret"
    assert fetch(DATASET, tmp_path / "x") == ["b.txt"]
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    with pytest.raises(InitializerError, match="no such dataset, or it is private"):
        fetch(DATASET, tmp_path / "y")


class TestXet:
    """Files that the hub serves by xet, from a store in a folder that the library itself has filled."""

    @pytest.fixture
    def repository(self, hub: HubServer, tmp_path: Path) -> Repository:
        hf_xet = pytest.importorskip("hf_xet")
        contents = {"sub/a.parquet": b"large" * 100_000, "sub/b.txt": b"small"}
        (tmp_path / "blob").write_bytes(contents["sub/a.parquet"])
        store = f"local://{tmp_path}/cas"
        with hf_xet.XetSession().new_upload_commit(endpoint=store) as upload:
            uploaded = upload.start_upload_file(str(tmp_path / "blob"))
        repository = hub.repository("datasets/org/rows")
        repository.push(contents)
        repository.xet, repository.xet_store = {"sub/a.parquet": uploaded.result().xet_info.hash}, store
        return repository

    def test_a_file_is_fetched_by_xet_and_verified(self, hub: HubServer, repository: Repository, tmp_path: Path) -> None:
        counts: list[int] = []
        uri, filter_ = StorageUri.parse(f"{DATASET}/sub"), FileFilter("dataset")
        fetched = fetch_repository(uri, filter_, None, tmp_path / "x", lambda _total: counts.append)
        assert [path.as_posix() for path in fetched.paths] == ["a.parquet", "b.txt"]
        assert (tmp_path / "x" / "a.parquet").read_bytes() == b"large" * 100_000
        assert sorted(path.name for path in (tmp_path / "x").iterdir()) == ["a.parquet", "b.txt"]
        assert hub.downloads() == ["b.txt"]
        assert sum(counts) == 500_005

    @pytest.mark.parametrize("fault", ["no store", "other contents"])
    def test_http_is_used_if_xet_fails(self, hub: HubServer, repository: Repository, tmp_path: Path, fault: str) -> None:
        if fault == "no store":
            repository.xet_store = f"local://{tmp_path}/none"
        else:
            (commit,) = repository.commits
            repository.commits[commit]["sub/a.parquet"] = b"other" * 100_000
        counts: list[int] = []
        uri, filter_ = StorageUri.parse(f"{DATASET}/sub"), FileFilter("dataset")
        fetch_repository(uri, filter_, None, tmp_path / "x", lambda _total: counts.append)
        content = b"large" if fault == "no store" else b"other"
        assert (tmp_path / "x" / "a.parquet").read_bytes() == content * 100_000
        assert sorted(hub.downloads()) == ["a.parquet", "b.txt"]
        assert sum(counts) == 500_005

    @pytest.mark.parametrize("link", [True, False])
    def test_the_token_of_the_hub_reaches_no_other_server(
        self, hub: HubServer, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
    ) -> None:
        monkeypatch.setenv("ACCESS_TOKEN", "hf_secret")
        other, real = FileServer(), hub.answer
        repository.xet_store = other.url

        def astray(method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
            status, answer, body = real(method, target, headers)
            if route := answer.pop("X-Xet-Refresh-Route", ""):
                route = route.replace(hub.url, other.url)
                answer |= {"Link": f'<{route}>; rel="xet-auth"'} if link else {"X-Xet-Refresh-Route": route}
            return status, {**answer, "X-Xet-Token-Expiration": "1"}, body

        monkeypatch.setattr(hub, "answer", astray)
        fetch(DATASET, tmp_path / "x")
        other.stop()
        assert other.headers == []
        assert (tmp_path / "x/sub/a.parquet").read_bytes() == b"large" * 100_000

    def test_a_store_at_plain_http_on_another_machine_is_not_asked(
        self, hub: HubServer, repository: Repository, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        repository.xet_store = "http://192.0.2.1"
        fetch(DATASET, tmp_path / "x")
        assert "http://192.0.2.1: plain http is refused" in caplog.text
        assert (tmp_path / "x/sub/a.parquet").read_bytes() == b"large" * 100_000


class TestOffline:
    """HF_HUB_OFFLINE: a snapshot in the cache of the official library is the source, verified by the names of its blobs."""

    @pytest.fixture
    def cache(self, hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: bytes) -> Path:
        huggingface_hub = pytest.importorskip("huggingface_hub")
        commit = hub.repository("datasets/org/rows").push({"data/train.jsonl": lines, "x.parquet": b"large"})
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        options = {"repo_type": "dataset", "cache_dir": tmp_path / "cache", "endpoint": hub.url}
        huggingface_hub.snapshot_download("org/rows", **options)
        hub.asked.clear()
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        return tmp_path / "cache/datasets--org--rows/snapshots" / commit

    def test_the_cached_files_are_copied_and_the_hub_is_not_asked(
        self, hub: HubServer, cache: Path, tmp_path: Path, lines: bytes
    ) -> None:
        receipt = initialize_dataset(DATASET, tmp_path / "dataset", DatasetOptions(ignore=("*.parquet",)))
        assert receipt.revision == cache.name
        assert fetch(f"{DATASET}/data", tmp_path / "x") == ["train.jsonl"]
        assert fetch(f"{DATASET}/x.parquet", tmp_path / "y") == ["x.parquet"]
        assert not (tmp_path / "x/train.jsonl").is_symlink()
        assert (tmp_path / "x/train.jsonl").read_bytes() == lines
        assert hub.asked == []

    def test_reuse_of_what_the_cache_lacks_is_reported(
        self, cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        options = DatasetOptions(ignore=("*.parquet",))
        first = initialize_dataset(DATASET, tmp_path / "dataset", options)
        assert "reused_unchecked" not in caplog.text
        shutil.rmtree(cache.parents[1])
        assert initialize_dataset(DATASET, tmp_path / "dataset", options) == first
        assert f"event=reused_unchecked source={DATASET} revision={first.revision}" in caplog.text

    @pytest.mark.parametrize("name", ["data/train.jsonl", "x.parquet"])
    def test_a_corrupt_blob_is_noticed(self, cache: Path, tmp_path: Path, name: str) -> None:
        blob = (cache / name).resolve()
        blob.write_bytes(b"!" + blob.read_bytes()[1:])
        with pytest.raises(ChecksumMismatch, match=f"{name} is corrupt in the cache"):
            fetch(DATASET, tmp_path / "x")
        assert not (tmp_path / "x" / name).exists()

    def test_a_part_of_a_repository_is_not_taken_for_all_of_it(self, cache: Path, tmp_path: Path) -> None:
        (cache / "data/train.jsonl").unlink()
        assert fetch(f"{DATASET}/x.parquet", tmp_path / "x") == ["x.parquet"]
        with pytest.raises(InitializerError, match=r"only a part of it is in the cache .*: data/train\.jsonl is missing"):
            fetch(DATASET, tmp_path / "x")

    def test_missing_cache_entries_are_reported(self, cache: Path, tmp_path: Path) -> None:
        for uri in ("hf://org/other", f"{DATASET}@v2", f"{DATASET}@{'f' * 40}", f"{DATASET}@..%2F..%2Fx"):
            with pytest.raises(InitializerError, match=r"is not in the cache .*, and HF_HUB_OFFLINE forbids to ask the hub"):
                fetch(uri, tmp_path / "x")


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "a", "size": -1, "oid": "0" * 40},
        {"path": "a", "size": "1", "oid": "0" * 40},
        {"path": "a", "size": 1, "oid": "../x"},
        {"path": "a", "size": 1},
        {"path": 1, "size": 1, "oid": "0" * 40},
        {"path": "a\0b", "size": 1, "oid": "0" * 40},
        {"path": "a\ud800b", "size": 1, "oid": "0" * 40},
        "text",
    ],
)
def test_a_list_of_files_that_is_none_is_an_error(
    hub: HubServer, tmp_path: Path, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [{"type": "file", **entry} if isinstance(entry, dict) else entry]
    monkeypatch.setattr(hub, "answer", lambda *_: (200, {}, json.dumps(listed).encode()))
    with pytest.raises(StorageError, match="the hub's answer is not valid"):
        fetch(DATASET, tmp_path / "x", commit="0" * 40)


def test_a_list_with_a_path_twice_is_an_error(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {"type": "file", "path": "a", "size": 1, "oid": "0" * 40}
    monkeypatch.setattr(hub, "answer", lambda *_: (200, {}, json.dumps([entry, entry]).encode()))
    with pytest.raises(StorageError, match="the hub's answer is not valid"):
        fetch(DATASET, tmp_path / "x", commit="0" * 40)


def test_a_list_without_an_end_is_an_error(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"Link": f'<{hub.url}/api/datasets/org/rows/tree/main>; rel="next"'}
    monkeypatch.setattr(hub_repository, "_MAX_PAGES", 3)
    monkeypatch.setattr(hub, "answer", lambda *_: (200, link, b"[]"))
    with pytest.raises(StorageError, match="the hub's list has more than 3 pages"):
        fetch(DATASET, tmp_path / "x", commit="0" * 40)


@pytest.mark.parametrize(
    ("headers", "body", "error"),
    [
        ({}, b" " * 100_000, "larger than 50000 bytes"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b" " * 100_000), "compresses"),
    ],
    ids=["large", "compressed"],
)
def test_an_answer_has_a_limit(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], body: bytes, error: str
) -> None:
    monkeypatch.setattr(hub_repository, "_MAX_ANSWER", 50_000)
    monkeypatch.setattr(hub, "answer", lambda *_: (200, headers, body))
    with pytest.raises(StorageError, match=error):
        fetch(DATASET, tmp_path / "x", commit="0" * 40)


@pytest.mark.parametrize("body", [b"<html>", b"", b"[" * 100_000, b"{}", b'{"sha": "x"}'])
def test_an_answer_that_is_none_of_a_hub_is_an_error(
    hub: HubServer, tmp_path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "answer", lambda *_: (200, {}, body))
    with pytest.raises(StorageError, match=r"the hub's answer is not valid; check HF_ENDPOINT|the hub names no commit"):
        fetch(DATASET, tmp_path / "x")


def test_progress_counts_every_byte_once_also_of_what_was_there(hub: HubServer, tmp_path: Path) -> None:
    files = {"a.parquet": b"large", "b.txt": b"small"}
    hub.repository("datasets/org/rows").push(files)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "b.txt").write_bytes(b"small")
    totals, counts = list[int](), list[int]()
    uri = StorageUri.parse(DATASET)
    fetch_repository(uri, FileFilter("dataset"), None, tmp_path / "x", lambda total: totals.append(total) or counts.append)
    assert totals == [sum(counts)] == [10]
    assert hub.downloads() == ["a.parquet"]


def test_a_receipt_has_the_digests_of_the_files_however_they_were_verified(
    hub: HubServer, tmp_path: Path, model_files: dict[str, bytes]
) -> None:
    hub.repository("models/org/model").push(model_files)
    receipt = initialize_model(MODEL, tmp_path / "model")
    assert receipt.files == digest_files(tmp_path / "model", [Path(file.path) for file in receipt.files])
    assert len(receipt.files) == 3


def test_a_token_that_the_hub_rejects_is_said_and_not_repeated(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"X-Error-Message": "Invalid credentials in Authorization header"}
    monkeypatch.setattr(hub, "answer", lambda *_: (401, headers, b""))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(InitializerError, match="the hub rejects the token; check ACCESS_TOKEN or HF_TOKEN") as caught:
        fetch(DATASET, tmp_path / "x")
    assert "hf_secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["hf_secret\ncanary", "hf_secret\u201ccanary"])
def test_a_token_that_fits_in_no_header_is_not_repeated(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("ACCESS_TOKEN", token)
    with pytest.raises(StorageError, match="the token contains a line break or other characters") as caught:
        fetch(DATASET, tmp_path / "x")
    assert "canary" not in str(caught.value)
    with pytest.raises(StorageError, match="the token contains a line break or other characters"):
        HttpClient(token=token, token_for=hub.url)
    assert hub.asked == []


def test_a_hub_at_plain_http_on_another_machine_needs_a_permission(
    tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://192.0.2.1")
    monkeypatch.delenv("TRAINWRIGHT_ALLOW_HTTP", raising=False)
    with pytest.raises(InitializerError, match=r"http://192\.0\.2\.1/api/.*: plain http is refused"):
        fetch(DATASET, tmp_path / "x")
