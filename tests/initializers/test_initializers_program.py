"""`python -m trainwright.initializers`: what a TrainJob's initializer steps run, by its exit codes and its words."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.tiny_tokenizer import write_tokenizer

from trainwright.api import names
from trainwright.initializers import __main__ as program
from trainwright.initializers import dataset_files, prepare_dataset
from trainwright.initializers import program as ways
from trainwright.storage.errors import NoSpace
from trainwright.storage.uri import StorageUri
from trainwright.workspace.receipt import read_receipt


@pytest.fixture
def source(tmp_path: Path, lines: bytes) -> str:
    (tmp_path / "rows.jsonl").write_bytes(lines)
    return str(StorageUri.from_path(tmp_path / "rows.jsonl"))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """`run(kind, target, **environment)`: exit code, output, the lines of standard error that are no log."""
    options = (
        "LAYOUT",
        "MAX_ROWS",
        "TEST_FRACTION",
        "COLUMNS",
        "SUBSET",
        "SPLIT",
        "MODEL_URI",
        "MAX_LENGTH",
        "END_TOKEN",
        "REPORT_MODE",
    )
    own = ("STORAGE_URI", "IGNORE_PATTERNS", "ACCESS_TOKEN", *(f"DATASET_{name}" for name in options))
    shared = (names.DATASET_DIGEST_VARIABLE, names.MODEL_DIGEST_VARIABLE, names.SHARED_VARIABLE, names.RUN_FOLDER_VARIABLE)
    for name in (*own, *shared, names.UMASK_VARIABLE, names.DATASET_TRAINER_VARIABLE):
        monkeypatch.delenv(name, raising=False)

    def call(kind: str, target: Path, *more: str, **environment: str) -> tuple[int, str, str]:
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["trainwright.initializers", kind, "--target", str(target), *more])
            code = program.main()
        said = capsys.readouterr()
        errors = [line for line in said.err.splitlines() if not line.startswith(("INFO ", "WARNING "))]
        return code, said.out, "\n".join(errors)

    return call


def test_program_prints_a_summary(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("dataset", tmp_path / "dataset", STORAGE_URI=source)
    assert (code, err) == (0, "")
    assert out.startswith("dataset ready: 3 files layout=prompt-completion train_rows=")
    assert "digest=sha256:" in out


def test_dataset_is_copied_as_it_is_for_programs_of_stock_runtimes(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, target = tmp_path / "source", tmp_path / "dataset"
    for name in ("data/train.parquet", "data/notes.bin", "README.md", ".git/config", "skipped.csv"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode())
    environment = {"STORAGE_URI": str(StorageUri.from_path(source)), "IGNORE_PATTERNS": "*.csv"}
    for _ in range(2):
        code, out, err = run("dataset", target, "--as-is", **environment)
        assert (code, err) == (0, "")
        assert out.startswith("dataset ready: 3 files ")
        copied = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
        assert copied == {"data/train.parquet", "data/notes.bin", "README.md", ".trainwright-receipt.json"}
    (source / "data/train.parquet").write_bytes(b"newer")
    assert run("dataset", target, "--as-is", **environment)[0] == 0
    assert (target / "data/train.parquet").read_bytes() == b"newer"


@pytest.mark.parametrize("variable", ["DATASET_LAYOUT", names.DATASET_TRAINER_VARIABLE])
def test_options_for_rows_are_honoured_where_datasets_are_copied(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, source: str, variable: str
) -> None:
    value = "prompt-completion" if variable == "DATASET_LAYOUT" else "sft"
    code, out, _ = run("dataset", tmp_path / "dataset", "--as-is", STORAGE_URI=source, **{variable: value})
    assert (code, "train_rows=" in out) == (0, True)


def test_a_missing_permission_is_not_retried(run, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """The runtimes fail a job at once for exit code 2, and retry after any other."""

    def rename(_source: object, target: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", rename)
    code, _, err = run("dataset", tmp_path / "dataset", STORAGE_URI=source)
    assert code == 2
    assert "Permission denied (user " in err
    assert "one group that may write" in err


def test_a_second_run_leaves_the_files_alone(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    first = run("dataset", tmp_path / "dataset", STORAGE_URI=source)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")}
    assert run("dataset", tmp_path / "dataset", STORAGE_URI=source) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "dataset").rglob("*")} == before


def test_options_come_from_the_environment_and_none_takes_what_there_is(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "dataset"
    options = {"DATASET_MAX_ROWS": "7", "DATASET_TEST_FRACTION": "0", "DATASET_LAYOUT": "prompt-completion"}
    _, said, _ = run("dataset", target, STORAGE_URI=source, **options)
    assert "train_rows=7 test_rows=0" in said
    assert "train_rows=7 test_rows=0" in run("dataset", target, STORAGE_URI=source)[1]
    assert "train_rows=9 test_rows=0" in run("dataset", target, STORAGE_URI=source, **{**options, "DATASET_MAX_ROWS": "9"})[1]


def test_columns_subset_and_split_come_from_the_environment(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name, text in (("de/train.jsonl", "a"), ("de/test.jsonl", "b"), ("en/train.jsonl", "c")):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(f'{{"words": "{text}"}}\n')
    uri, columns = str(StorageUri.from_path(tmp_path / "source")), '{"text": "words"}'
    options = {"DATASET_COLUMNS": columns, "DATASET_SUBSET": "de", "DATASET_SPLIT": "test", "DATASET_TEST_FRACTION": "0"}
    _, said, _ = run("dataset", tmp_path / "out", STORAGE_URI=uri, **options)
    assert "train_rows=1 test_rows=0 empty_rows=0 subset=de split=test" in said
    assert (tmp_path / "out" / "train.jsonl").read_text() == '{"text": "b"}\n'


@pytest.mark.medium
def test_report_lies_beside_the_dataset_and_its_figures_in_the_receipt(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    model = write_tokenizer(tmp_path / "model")
    options = {"DATASET_MODEL_URI": f"file://{model}", "DATASET_MAX_LENGTH": "40", "DATASET_TEST_FRACTION": "0"}
    for _ in range(2):  # the second time for an existing dataset
        code, said, _ = run("dataset", tmp_path / "work" / "dataset", STORAGE_URI=source, **options)
        assert (code, "tokens" in said) == (0, False)
        receipt = read_receipt(tmp_path / "work" / "dataset")
        assert receipt is not None
        assert receipt.details["report"]["splits"]["train"]["tokens"]["counted"] == 100
        assert "100" in (tmp_path / "work" / "dataset-report.md").read_text("utf-8")
        assert (tmp_path / "work" / "dataset-report.html").is_file()


@pytest.mark.medium
def test_rows_on_which_the_training_would_fail_are_exit_code_2(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    model = write_tokenizer(tmp_path / "model")
    options = {"DATASET_MODEL_URI": f"file://{model}", "DATASET_MAX_LENGTH": "4"}
    code, out, err = run("dataset", tmp_path / "dataset", STORAGE_URI=source, **options)
    assert (code, out) == (2, "")
    assert "rows has anything left to learn from (num_samples=0)" in err
    assert run("dataset", tmp_path / "dataset", STORAGE_URI=source, **options, DATASET_REPORT_MODE="off")[0] == 0


def test_rows_for_another_trainer_are_exit_code_2(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    """Whether they are prepared now, found as they were prepared before, or named by their digest."""
    for folder in ("new", "found"):
        code, out, err = run("dataset", tmp_path / folder, STORAGE_URI=source, DATASET_TRAINER="dpo")
        assert (code, out) == (2, "")
        assert "(layout prompt-completion), but the trainer dpo learns from chosen and rejected answers: use builtin=sft" in err
        run("dataset", tmp_path / "found", STORAGE_URI=source, DATASET_TRAINER="sft")
    prepared = prepare_dataset(source, tmp_path / "shared")
    by_digest = {"STORAGE_URI": source, "TRAINWRIGHT_DATASET_DIGEST": prepared.digest}
    assert run("dataset", prepared.folder, **by_digest, DATASET_TRAINER="kto")[0] == 2
    assert run("dataset", prepared.folder, **by_digest, DATASET_TRAINER="sft")[0] == 0
    shared = {"TRAINWRIGHT_SHARED": str(tmp_path / "shared"), "TRAINWRIGHT_RUN_FOLDER": "runs/a", "STORAGE_URI": source}
    assert run("dataset", tmp_path / "ignored", **shared, DATASET_TRAINER="dpo")[0] == 2
    assert not (tmp_path / "shared/runs/a/dataset").exists()


def test_ignore_patterns_are_a_list_with_commas(run, tmp_path: Path, lines: bytes) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "source").mkdir()
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / "source" / name).write_bytes(lines)
    uri = str(StorageUri.from_path(tmp_path / "source"))
    _, said, _ = run("dataset", tmp_path / "x", STORAGE_URI=uri, IGNORE_PATTERNS=" a.*, b.jsonl ,", DATASET_TEST_FRACTION="0")
    assert "train_rows=100 " in said


@pytest.mark.parametrize(
    ("kind", "environment", "code", "message"),
    [
        ("dataset", {}, 2, "STORAGE_URI is not set; set the source in the TrainJob's spec.initializer"),
        ("model", {"STORAGE_URI": ""}, 2, "STORAGE_URI is not set"),
        ("dataset", {"STORAGE_URI": "file:///nothing/here"}, 2, "file:///nothing/here does not exist"),
        ("model", {"STORAGE_URI": "ftp://bucket/x"}, 2, "'ftp://bucket/x': the scheme 'ftp' is not supported yet"),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_MAX_ROWS": "-1"},
            2,
            "DATASET_MAX_ROWS: '-1': expected a number that is not negative",
        ),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_MAX_ROWS": "many"},
            2,
            "DATASET_MAX_ROWS: 'many': expected a whole number",
        ),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_TEST_FRACTION": "1"},
            2,
            "DATASET_TEST_FRACTION: '1': expected less than 1",
        ),
        (
            "dataset",
            {"STORAGE_URI": "SOURCE", "DATASET_COLUMNS": "{'a': 1}"},
            2,
            "DATASET_COLUMNS: line 1, column 2",
        ),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_COLUMNS": "[]"}, 2, "DATASET_COLUMNS: '[]': expected an object"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_COLUMNS": '{"x": "y"}'}, 2, "columns maps to 'x', which no layout reads"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_COLUMNS": '{"text": "y"}'}, 2, "there is no column 'y', which columns"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_SUBSET": "de"}, 2, "has no subset 'de'"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_SPLIT": "dev"}, 2, "has no split 'dev'; choose split= one of train"),
        ("dataset", {"STORAGE_URI": "SOURCE", "DATASET_LAYOUT": "alpaca"}, 2, "has the columns completion, prompt; expected"),
    ],
)
def test_a_source_that_cannot_be_used_is_exit_code_2_and_one_line(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, source: str, kind: str, environment: dict[str, str], code: int, message: str
) -> None:
    environment = {name: source if value == "SOURCE" else value for name, value in environment.items()}
    got, out, err = run(kind, tmp_path / "target", **environment)
    assert (got, out) == (code, "")
    assert message in err
    assert "\n" not in err
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("DATASET_REPORT_MODE", "strict", "DATASET_REPORT_MODE: 'strict': expected auto, required, warn or off"),
        ("DATASET_REPORT_MODE", "required", "DATASET_REPORT_MODE: required needs a model"),
        ("DATASET_MAX_LENGTH", "long", "DATASET_MAX_LENGTH: 'long': expected a whole number"),
        ("DATASET_MODEL_URI", "ftp://h/m", "DATASET_MODEL_URI: 'ftp://h/m': the scheme 'ftp' is not supported yet"),
    ],
)
@pytest.mark.parametrize("mode", ["alone", "shared", "digest"])
def test_report_options_are_checked_before_the_dataset_is_prepared(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, mode: str, variable: str, value: str, message: str
) -> None:
    shared = {"TRAINWRIGHT_SHARED": str(tmp_path / "shared"), "TRAINWRIGHT_RUN_FOLDER": "runs/a"}
    more = {"alone": {}, "shared": shared, "digest": {"TRAINWRIGHT_DATASET_DIGEST": "0" * 64}}[mode]
    found = run("dataset", tmp_path / "target", STORAGE_URI="file:///nothing/here", **{variable: value}, **more)
    assert found[:2] == (2, "")
    assert message in found[2]


def test_trouble_on_the_way_is_exit_code_1(run, tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    def full(*_: object) -> None:
        raise NoSpace("/workspace: the disk is full")

    monkeypatch.setattr(dataset_files, "fetch", full)
    assert run("dataset", tmp_path / "target", STORAGE_URI=source) == (1, "", "/workspace: the disk is full")


class TestWithADigest:
    """What was prepared before the job was made is only verified."""

    def test_the_right_folder_is_ready_without_asking_the_source(self, run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
        prepared = prepare_dataset(source, tmp_path / "shared")
        (tmp_path / "rows.jsonl").unlink()
        for environment in ({}, {"STORAGE_URI": "file:///nothing/here"}):
            code, out, err = run("dataset", prepared.folder, TRAINWRIGHT_DATASET_DIGEST=prepared.digest, **environment)
            assert (code, err) == (0, "")
            assert f"digest={prepared.digest}" in out

    def test_another_folder_is_exit_code_2_and_named_with_both_digests(self, run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
        prepared, other = prepare_dataset(source, tmp_path / "shared"), "sha256:" + "0" * 64
        code, out, err = run("dataset", prepared.folder, STORAGE_URI=source, TRAINWRIGHT_DATASET_DIGEST=other)
        assert (code, out) == (2, "")
        assert all(text in err for text in (other, prepared.digest, str(prepared.folder)))
        assert "\n" not in err

    def test_a_damaged_or_missing_folder_is_exit_code_2_and_not_prepared(self, run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
        prepared = prepare_dataset(source, tmp_path / "shared")
        (prepared.folder / "train.jsonl").unlink()
        code, _, err = run("dataset", prepared.folder, STORAGE_URI=source, TRAINWRIGHT_DATASET_DIGEST=prepared.digest)
        assert code == 2
        assert "corrupt: train.jsonl is missing; prepare the dataset again" in err
        code, _, err = run("dataset", tmp_path / "x", STORAGE_URI=source, TRAINWRIGHT_DATASET_DIGEST=prepared.digest)
        assert code == 2
        assert not (tmp_path / "x").exists()

    def test_the_digest_of_a_model_does_not_concern_the_dataset(self, run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
        code, _, _ = run("dataset", tmp_path / "x", STORAGE_URI=source, TRAINWRIGHT_MODEL_DIGEST="sha256:" + "0" * 64)
        assert code == 0


class TestForARunOfASharedWorkspace:
    """Prepared once for all runs, and linked into the folder of each."""

    @pytest.fixture
    def prepare(self, run, tmp_path: Path, source: str):  # type: ignore[no-untyped-def]
        def call(folder: str = "runs/a", **environment: str) -> tuple[int, str, str]:
            shared = {"TRAINWRIGHT_SHARED": str(tmp_path / "w"), "TRAINWRIGHT_RUN_FOLDER": folder, "STORAGE_URI": source}
            return run("dataset", tmp_path / "ignored", **{**shared, **environment})  # type: ignore[no-any-return]

        return call

    @pytest.mark.parametrize("links", [True, False])
    def test_stored_files_are_linked_or_copied_into_the_run(
        self, prepare, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        def none(*_: object) -> None:
            raise OSError("no links here")

        if not links:
            monkeypatch.setattr(os, "link", none)
        code, out, err = prepare()
        assert (code, err) == (0, "")
        assert out.startswith("dataset ready: 3 files")
        (stored,) = (path for path in (tmp_path / "w/datasets").iterdir() if path.name != ".index")
        place = tmp_path / "w/runs/a/dataset"
        assert (place / "train.jsonl").samefile(stored / "train.jsonl") is links
        assert (place / "train.jsonl").read_bytes() == (stored / "train.jsonl").read_bytes()
        assert sorted(path.name for path in place.parent.iterdir()) == [
            "dataset",
            "dataset-report.html",
            "dataset-report.json",
            "dataset-report.md",
        ]
        assert not (tmp_path / "ignored").exists()

    def test_the_second_time_nothing_changes(self, prepare, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        first = prepare()
        place = tmp_path / "w/runs/a"
        before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (place, *place.rglob("*"))}
        assert prepare() == first
        assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (place, *place.rglob("*"))} == before

    def test_runs_have_each_their_own_and_other_options_replace_only_that(self, prepare, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        prepare("runs/a")
        prepare("runs/b", DATASET_MAX_ROWS="5", DATASET_TEST_FRACTION="0")
        rows = {name: (tmp_path / f"w/runs/{name}/dataset/train.jsonl").read_bytes().count(b"\n") for name in "ab"}
        assert rows["a"] > rows["b"] == 5
        prepare("runs/a", DATASET_MAX_ROWS="5", DATASET_TEST_FRACTION="0")
        assert (tmp_path / "w/runs/a/dataset/train.jsonl").read_bytes().count(b"\n") == 5

    @pytest.mark.parametrize("folder", ["..", "runs/../..", "/etc"])
    def test_a_folder_elsewhere_is_refused_before_anything_is_fetched(  # type: ignore[no-untyped-def]
        self, prepare, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ways, "prepare_dataset", lambda *_: pytest.fail("fetched"))
        code, _, err = prepare(folder)
        assert code == 2
        assert "is not a run folder" in err

    def test_foreign_files_in_the_run_folder_are_kept(self, prepare, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        (tmp_path / "w/runs/a/dataset").mkdir(parents=True)
        (tmp_path / "w/runs/a/dataset/precious").write_bytes(b"")
        code, _, err = prepare()
        assert code == 2
        assert "was not prepared by Trainwright" in err
        assert (tmp_path / "w/runs/a/dataset/precious").exists()

    def test_a_model_is_linked_as_well(self, run, tmp_path: Path, model_files: dict[str, bytes]) -> None:  # type: ignore[no-untyped-def]
        (tmp_path / "source").mkdir()
        for name, content in model_files.items():
            (tmp_path / "source" / name).write_bytes(content)
        shared = {"TRAINWRIGHT_SHARED": str(tmp_path / "w"), "TRAINWRIGHT_RUN_FOLDER": "runs/a"}
        code, _, _ = run("model", tmp_path / "x", STORAGE_URI=str(StorageUri.from_path(tmp_path / "source")), **shared)
        assert code == 0
        assert (tmp_path / "w/runs/a/model/model.safetensors").stat().st_nlink == 2


@pytest.mark.parametrize(("umask", "mode"), [("0002", 0o775), ("0022", 0o755)])
def test_the_umask_is_that_of_the_environment(run, tmp_path: Path, source: str, umask: str, mode: int) -> None:  # type: ignore[no-untyped-def]
    before = os.umask(0o077)
    try:
        shared = {"TRAINWRIGHT_SHARED": str(tmp_path / "w"), "TRAINWRIGHT_RUN_FOLDER": "runs/a"}
        assert run("dataset", tmp_path / "x", STORAGE_URI=source, TRAINWRIGHT_UMASK=umask, **shared)[0] == 0
    finally:
        os.umask(before)
    for folder in ("w", "w/runs", "w/runs/a", "w/runs/a/dataset", "w/datasets"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == mode, folder


def test_a_umask_that_is_none_is_exit_code_2(run, tmp_path: Path, source: str) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("dataset", tmp_path / "x", STORAGE_URI=source, TRAINWRIGHT_UMASK="rw")
    assert (code, err) == (2, "TRAINWRIGHT_UMASK: 'rw' is not a umask; expected octal digits, as in 0002")


@pytest.mark.parametrize("shared", [True, False])
def test_progress_is_logged(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, source: str, lines: bytes, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    counts: list[int] = []
    monkeypatch.setattr(ways, "log_progress", lambda what: lambda total: counts.append(-total) or counts.append)
    place = {"TRAINWRIGHT_SHARED": str(tmp_path / "w"), "TRAINWRIGHT_RUN_FOLDER": "runs/a"} if shared else {}
    assert run("dataset", tmp_path / "x", STORAGE_URI=source, **place)[0] == 0
    assert counts[0] == -len(lines)
    assert sum(counts) == 0


@pytest.mark.medium
def test_program_runs_as_a_module(tmp_path: Path, source: str) -> None:
    command = [sys.executable, "-m", "trainwright.initializers", "dataset", "--target", str(tmp_path / "dataset")]
    done = subprocess.run(command, env={**os.environ, "STORAGE_URI": source}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("dataset ready: 3 files")
    env = {name: value for name, value in os.environ.items() if name != "STORAGE_URI"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
