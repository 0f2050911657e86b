"""Datasets and models come out of a real S3 store whole: every page, checked, and fetched once."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from servers.s3_server import BUCKET, S3Server

from trainwright.initializers import DatasetOptions, InitializerError, initialize_dataset, initialize_model
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.source import fetch, resolve_revision
from trainwright.storage import open_store
from trainwright.storage.errors import ChecksumMismatch, StorageError
from trainwright.storage.objects.s3_store import S3Store
from trainwright.storage.plain_files import no_progress
from trainwright.storage.store import StoredFile
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium


def upload(s3: S3Server, uri: str, files: dict[str, bytes], **metadata: str) -> None:
    client = s3.client()
    for name, content in files.items():
        client.put_object(Bucket=BUCKET, Key=f"{StorageUri.parse(uri).key}/{name}", Body=content, Metadata=metadata)


def test_a_dataset_is_prepared_once(
    s3: S3Server, s3_folder: str, tmp_path: Path, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, s3_folder, {"data/ü %20.jsonl": lines, "README.md": b"words", "data/": b"", ".hidden.jsonl": b"{"})
    target = tmp_path / "dataset"
    first = initialize_dataset(s3_folder, target, DatasetOptions(test_fraction=0))
    assert first.details["train_rows"] == 100
    assert first.revision.startswith("etags:")
    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "get", None)
        assert initialize_dataset(s3_folder, target, DatasetOptions(test_fraction=0)) == first
    upload(s3, s3_folder, {"data/more.jsonl": lines})
    assert initialize_dataset(s3_folder, target, DatasetOptions(test_fraction=0)).details["train_rows"] == 200


def test_only_the_chosen_subset_is_fetched(
    s3: S3Server, s3_folder: str, tmp_path: Path, lines: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = b"---\nconfigs:\n- {config_name: en, data_files: data/e*}\n- {config_name: de, data_files: data/d*}\n---\n"
    upload(s3, s3_folder, {"data/d.jsonl": lines, "data/e.jsonl": b"{", "README.md": card})
    with pytest.raises(InitializerError, match="has several subsets; choose subset= one of de, en"):
        initialize_dataset(s3_folder, tmp_path / "out")
    fetched, real = [], S3Store.get

    def get(self: S3Store, name: str, *args: Any) -> Any:
        fetched.append(name)
        return real(self, name, *args)

    options = DatasetOptions(subset="de", test_fraction=0)
    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "get", get)
        first = initialize_dataset(s3_folder, tmp_path / "out", options)
    assert fetched == ["README.md", "data/d.jsonl"]
    assert first.details["train_rows"] == 100
    with monkeypatch.context() as patch:
        patch.setattr(S3Store, "get", None)
        assert initialize_dataset(s3_folder, tmp_path / "out", options) == first


def test_a_single_object_is_a_dataset_and_its_namesakes_are_not(
    s3: S3Server, s3_folder: str, tmp_path: Path, lines: bytes
) -> None:
    upload(s3, s3_folder, {"set.jsonl": lines, "set.jsonl.bak": b"{", "set.jsonl-2/x.jsonl": b"{"})
    assert initialize_dataset(f"{s3_folder}/set.jsonl", tmp_path / "x").details["train_rows"] > 80


def test_a_model_comes_with_its_files_and_nothing_else(
    s3: S3Server, s3_folder: str, tmp_path: Path, model_files: dict[str, bytes]
) -> None:
    upload(s3, s3_folder, model_files)
    receipt = initialize_model(s3_folder, tmp_path / "model")
    assert [file.path for file in receipt.files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == model_files["model.safetensors"]


def test_the_names_of_kubeflows_initializers_do(
    s3: S3Server, s3_folder: str, tmp_path: Path, model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, s3_folder, model_files)
    for name in s3.environment:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ENDPOINT", s3.endpoint)
    monkeypatch.setenv("ACCESS_KEY_ID", s3.access_key_id)
    monkeypatch.setenv("SECRET_ACCESS_KEY", s3.secret_access_key)
    assert initialize_model(s3_folder, tmp_path / "model").files


def test_every_page_is_listed(s3: S3Server, s3_folder: str, tmp_path: Path) -> None:
    upload(s3, s3_folder, {f"{number:04}.txt": b"%d" % number for number in range(1100)})
    uri, file_filter = StorageUri.parse(s3_folder), FileFilter("dataset", ("*99.txt",))
    assert len(S3Store(uri).list_objects()) == 1100
    assert (
        len(fetch(uri, file_filter, resolve_revision(uri, file_filter), tmp_path / "x", lambda _total: no_progress).paths) == 11
    )


def test_a_fetch_that_was_cut_off_goes_on(s3: S3Server, s3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upload(s3, s3_folder, {name: os.urandom(100) for name in ("a", "b/c", "d")})
    uri, file_filter = StorageUri.parse(s3_folder), FileFilter("dataset")
    revision = resolve_revision(uri, file_filter)
    fetch(uri, file_filter, revision, tmp_path / "x", lambda _total: no_progress)
    (tmp_path / "x" / "b" / "c").unlink()
    fetched: list[str] = []
    real = S3Store.get
    monkeypatch.setattr(S3Store, "get", lambda self, key, *rest: (fetched.append(key), real(self, key, *rest))[1])
    counted: list[int] = []
    fetch(uri, file_filter, revision, tmp_path / "x", lambda _total: counted.append)
    assert (fetched, sum(counted)) == (["b/c"], 300)
    (tmp_path / "x" / "a").write_bytes(bytes(100))
    fetch(uri, file_filter, None, tmp_path / "x", lambda _total: counted.append)  # nobody says that it is of the same revision
    assert (tmp_path / "x" / "a").read_bytes() != bytes(100)


def test_corrupt_and_changing_objects_are_refused(
    s3: S3Server, s3_folder: str, tmp_path: Path, model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(s3, s3_folder, model_files)
    real = S3Store.get

    def flips(self: S3Store, key: str, target: Path, *rest: object) -> object:
        found = real(self, key, target, *rest)  # type: ignore[arg-type]
        if key == "config.json" and (always or not damaged):
            damaged.append(key)
            target.write_bytes(target.read_bytes()[:-1] + b"!")
        return found

    for always in (False, True):
        damaged: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(S3Store, "get", flips)
            patch.setattr(S3Store, "inspect", lambda *_: StoredFile(0, crc64nvme="AAAAAAAAAAA="))
            if not always:  # it is fetched again
                assert initialize_model(s3_folder, tmp_path / "whole").files
                continue
            with pytest.raises(ChecksumMismatch, match=r"config\.json is corrupt"):
                initialize_model(s3_folder, tmp_path / "model")

    def get(self: S3Store, key: str, *rest: object) -> object:
        upload(s3, s3_folder, {"config.json": json.dumps({"random": os.urandom(4).hex()}).encode()})
        return real(self, key, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(S3Store, "get", get)
    with pytest.raises(StorageError, match=r"changed during the download|expected 39; try again"):
        initialize_model(s3_folder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("uri", "environment", "message"),
    [
        ("FOLDER/nothing", {}, "does not exist: there is no object with this key or prefix"),
        ("FOLDER", {}, "has no file that matches"),
        ("s3://no-such-bucket", {}, "the bucket 'no-such-bucket' does not exist"),
        ("FOLDER", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key is wrong"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(
    s3: S3Server,
    s3_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    environment: dict[str, str],
    message: str,
) -> None:
    upload(s3, s3_folder, {"README.md": b""})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InitializerError, match=message):
        initialize_dataset(uri.replace("FOLDER", s3_folder), tmp_path / "x")


@pytest.mark.slow
def test_an_address_where_nobody_answers_may_be_tried_again(
    s3: S3Server, s3_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(StorageError, match="cannot be reached"):
        initialize_model(s3_folder, tmp_path / "x")


def test_an_exported_model_is_a_model(s3: S3Server, s3_folder: str, tmp_path: Path, model_files: dict[str, bytes]) -> None:
    for name, content in model_files.items():
        (tmp_path / name).write_bytes(content)
        open_store(s3_folder).put(tmp_path / name, name)
    assert initialize_model(s3_folder, tmp_path / "model").details["architecture"] == "LlamaForCausalLM"
