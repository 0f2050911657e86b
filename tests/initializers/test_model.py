"""A prepared model is a folder that transformers loads from safetensors alone, whole or not at all."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.initializers import InitializerError, Receipt, initialize_model
from trainwright.initializers import source as sources
from trainwright.storage.errors import NoSpace, StorageError
from trainwright.storage.scratch import scratch_folder
from trainwright.storage.uri import StorageUri

INDEX = "model.safetensors.index.json"


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0f" * 32 + b"\nsize 13906928\n"


@pytest.fixture
def source(tmp_path: Path, model_files: dict[str, bytes]) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, content in model_files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "model"


def prepare(source: Path, target: Path, *ignore: str) -> Receipt:
    return initialize_model(str(StorageUri.from_path(source)), target, ignore=ignore)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} - {".trainwright-receipt.json"}


def test_weights_tokenizer_and_configuration_are_taken_and_pickles_are_not(source: Path, target: Path) -> None:
    receipt = prepare(source, target)
    assert names(target) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert receipt.matches(target)
    assert receipt.details == {"architecture": "LlamaForCausalLM", "bytes": sum(f.size for f in receipt.files)}
    assert target.stat().st_mode & 0o055 == 0o055


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config.json": None}, "has no config.json: transformers cannot load it"),
        (
            {"config.json": None, "adapter_config.json": b'{"base_model_name_or_path": "org/base"}'},
            "is an adapter of org/base, and a base model is expected",
        ),
        ({"config.json": None, "adapter_config.json": b"{"}, "is an adapter, and a base model is expected"),
        *(
            ({name: POINTER}, f"{name} is a pointer of git LFS")
            for name in ("model.safetensors", "tokenizer.json", "config.json")
        ),
        ({"config.json": b"{"}, "config.json is not JSON"),
        ({"config.json": b"[]"}, "config.json is not a JSON object"),
        ({"config.json": b"\xff"}, "config.json is not JSON"),
        (
            {"config.json": b'{"attn_implementation": "evil/kernel"}'},
            "config.json: attn_implementation is 'evil/kernel', code of",
        ),
        ({"adapter_config.json": b'{"shadow_model": "evil/model"}'}, "adapter_config.json: shadow_model is 'evil/model'"),
        ({"tokenizer.json": None}, "has no tokenizer"),
        ({"model.safetensors": None}, "has no safetensors weights; pickled weights (.bin, .pt) are not supported"),
        ({"model.safetensors": b"\2\0\0\0\0\0\0\0{"}, "is incomplete: model.safetensors: its header is truncated"),
        ({"model.safetensors": b""}, "is incomplete: model.safetensors: its header is truncated"),
        (
            {"model.safetensors": None, INDEX: b'{"weight_map": {"a": "a.safetensors"}}'},
            "is incomplete: a.safetensors: it is missing",
        ),
        (
            {"model.safetensors": None, INDEX: b'{"weight_map": {"a": "../../etc/passwd"}}'},
            f"is incomplete: {INDEX} is incomplete",
        ),
    ],
)
def test_unloadable_models_are_refused_with_the_reason(
    source: Path, target: Path, change: dict[str, bytes | None], message: str
) -> None:
    for name, content in change.items():
        (source / name).unlink(missing_ok=True)
        if content is not None:
            (source / name).write_bytes(content)
    with pytest.raises(InitializerError) as caught:
        prepare(source, target)
    assert str(caught.value).startswith(f"file://{source}")
    assert message in str(caught.value)
    assert not list(target.parent.iterdir())


@pytest.mark.parametrize(
    ("config", "architecture"), [({}, "unknown"), ({"architectures": []}, "unknown"), ({"architectures": None}, "unknown")]
)
def test_a_configuration_need_not_name_an_architecture(
    source: Path, target: Path, config: dict[str, object], architecture: str
) -> None:
    (source / "config.json").write_text(json.dumps(config))
    assert prepare(source, target).details["architecture"] == architecture


def test_a_second_run_leaves_the_files_alone_and_a_changed_one_is_fetched_again(source: Path, target: Path) -> None:
    receipt = prepare(source, target)
    before = {path: path.stat().st_mtime_ns for path in (target, *target.iterdir())}
    assert prepare(source, target) == receipt
    assert {path: path.stat().st_mtime_ns for path in (target, *target.iterdir())} == before
    (target / "tokenizer.json").write_bytes(b"[]")
    assert prepare(source, target).digest == receipt.digest
    assert (target / "tokenizer.json").read_bytes() == b"{}"


def test_ignored_files_stay_behind(source: Path, target: Path) -> None:
    (source / "onnx").mkdir()
    (source / "onnx" / "config.json").write_bytes(b"{}")
    prepare(source, target, "onnx/*", "tok*.json.bak")
    assert names(target) == {"config.json", "tokenizer.json", "model.safetensors"}


def test_a_copy_that_a_full_disk_cut_off_goes_on(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, copied, one_at_a_time = sources.copy_new_file, [], threading.Lock()

    def copy(limit: int) -> Callable[..., object]:
        def call(path: Path, *rest: object, **options: object) -> object:
            with one_at_a_time:
                if len(copied) == limit:
                    raise NoSpace("full")
                copied.append(path.name)
                return real(path, *rest, **options)  # type: ignore[arg-type]

        return call

    monkeypatch.setattr(sources, "copy_new_file", copy(2))
    with pytest.raises(NoSpace):
        prepare(source, target)
    assert not target.exists()
    monkeypatch.setattr(sources, "copy_new_file", copy(99))
    assert prepare(source, target).matches(target)
    assert sorted(copied) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_files_fetched_with_other_patterns_are_not_reused(source: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = sources.copy_new_file

    def all_but_the_last(path: Path, *rest: object, **options: object) -> object:
        if path.name == "tokenizer.json":
            raise StorageError("lost")
        return real(path, *rest, **options)  # type: ignore[arg-type]

    (source / "extra.txt").write_bytes(b"x")
    os.utime(source / "extra.txt", ns=(1, 1))
    monkeypatch.setattr(sources, "copy_new_file", all_but_the_last)
    with pytest.raises(StorageError):
        prepare(source, target)
    monkeypatch.undo()
    prepare(source, target, "extra.txt")
    assert names(target) == {"config.json", "tokenizer.json", "model.safetensors"}


def test_progress_reports_every_byte_of_the_weights(source: Path, target: Path) -> None:
    totals: list[int] = []
    counted: list[int] = []

    def start_progress(total: int) -> Callable[[int], None]:
        totals.append(total)
        return counted.append

    initialize_model(str(StorageUri.from_path(source)), target, start_progress=start_progress)
    assert totals == [sum(counted)] == [(source / "model.safetensors").stat().st_size]


def test_a_link_out_of_the_source_is_refused_by_name(source: Path, target: Path) -> None:
    (source / "generation_config.json").symlink_to("/proc/self/environ")
    (source / "sub").symlink_to("/etc")
    with pytest.raises(StorageError, match=r"generation_config\.json is a link to /proc/.*; sub is a link to .*; remove them"):
        prepare(source, target)
    assert not target.exists()


def test_links_of_the_source_that_nobody_asked_for_are_no_reason_to_refuse_it(source: Path, target: Path) -> None:
    (source / ".cache").symlink_to("/etc")
    (source / "notes.md").symlink_to("/etc/passwd")
    prepare(source, target)
    assert names(target) == {"config.json", "tokenizer.json", "model.safetensors"}


def test_a_prepared_link_of_an_earlier_attempt_is_removed_not_followed(source: Path, target: Path, tmp_path: Path) -> None:
    """The scratch folder was writable to others; its link to a folder elsewhere must not be cleaned through."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"precious")
    with pytest.raises(StorageError), scratch_folder(target, "another purpose") as scratch:  # noqa: PT012
        (scratch / "linked").symlink_to(tmp_path / "elsewhere")
        raise StorageError
    prepare(source, target)
    assert (tmp_path / "elsewhere" / "file").read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("config", "warning"),
    [
        (b'{"architectures": ["BertForMaskedLM"]}', "event=model_not_trained_by_trl"),
        (b'{"quantization_config": {"quant_method": "bitsandbytes"}}', "event=model_quantized"),
        (b'{"architectures": ["LlamaForCausalLM"]}', ""),
    ],
)
def test_model_for_another_program_is_prepared_with_a_warning(
    source: Path, target: Path, config: bytes, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    (source / "config.json").write_bytes(config)
    prepare(source, target)
    assert "config.json" in names(target)
    assert (warning in caplog.text) if warning else ("event=model_" not in caplog.text)
