"""Rows are preprocessed by a real Ray: the same input gives the same bytes, and Ray leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_port
from support.waiting import eventually

from trainwright.tools import BadToolInput, ToolFailed, ToolTimeout
from trainwright.tools.ray_preprocess import preprocess_dataset, ray_requirements
from trainwright.tools.run_tool import PROGRAMS

pytestmark = pytest.mark.timeout(300)
Build = Callable[[list[str], str], Path]


def write(path: Path, *rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        path.relative_to(folder).as_posix(): [json.loads(line) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.rglob("*.jsonl"))
    }


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.jsonl"))}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"min_chars": -1}, "min_chars -1"),
        ({"min_chars": 9, "max_chars": 5}, "max_chars 0 or the larger one"),
        ({"columns": {"a": ""}}, "columns: 'a'"),
        ({"deduplicate_by": "text"}, "not a list of columns"),
        ({"transform": "x = 1"}, "transform: the source defines no function"),
        ({"transform": "def f(row):\n    return np.x(row)\n"}, "transform: f uses np from outside"),
    ],
)
def test_operations_that_make_no_sense_are_refused_before_ray_is_installed(
    tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    write(tmp_path / "in/a.jsonl", {"text": "x"})
    with pytest.raises(BadToolInput, match=expected):
        preprocess_dataset(tmp_path, "in", **options)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("nothing", "'nothing': no such file or folder"),
        ("in", r"'in' has no file that can be read \(.jsonl.gz, .*; it has notes.txt"),
        ("in/notes.txt", "has no file that can be read"),
        ("s3://bucket/x", "pull it first"),
    ],
)
def test_a_source_without_readable_files_is_refused(tmp_path: Path, source: str, expected: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.txt").touch()
    with pytest.raises(BadToolInput, match=expected):
        preprocess_dataset(tmp_path, source)


@pytest.fixture
def ray(real_tools: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Python of Ray's environment; the home is an empty one, where nothing must be written."""
    python = real_tools(ray_requirements(), "ray")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return python


def processes_of(workspace: Path) -> list[str]:
    """What runs with a variable of a test's own home, which all processes inherit."""
    entry = f"HOME={workspace.parent / 'home'}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
        except OSError:
            continue
    return found


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_all_operations_in_their_order_on_all_formats(ray: Path, workspace: Path, tmp_path: Path) -> None:
    write(
        workspace / "in/train.jsonl",
        {"frage": "  Grüße\u00a0\u00a0an   alle \r\n", "antwort": "ja 🎉", "n": 1, "date": "2020-01-01"},
        {"frage": "Grüße an alle", "antwort": "ja 🎉", "n": 2, "date": "x"},
        {"frage": " ", "antwort": "\t", "n": 3},
        {"frage": "drop me", "antwort": "please", "n": 4},
        {"frage": "x", "antwort": "", "n": 5},
        {"frage": "long " * 100, "antwort": "", "n": 6},
        {"frage": "def f():\n    return  1", "antwort": "code", "n": 7},
    )
    (workspace / "in/more").mkdir()
    (workspace / "in/more/table.csv").write_text('frage,antwort\n"a, quoted\nfield",b\n', "utf-8")
    (workspace / "in/more/list.json").write_text(json.dumps([{"frage": "from a list", "antwort": "c"}]), "utf-8")
    with gzip.open(workspace / "in/zipped.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write('{"frage": "zipped row", "antwort": "d"}\n')
    code = "import json, sys, pyarrow as p, pyarrow.parquet as q; q.write_table(p.table(json.loads(sys.argv[2])), sys.argv[1])"
    columns = json.dumps({"frage": ["parquet row"], "antwort": ["e"]})
    subprocess.run([ray, "-c", code, workspace / "in/p.parquet", columns], check=True)

    def transform(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["prompt"].startswith("drop"):
            return None
        return {**row, "length": len(row["prompt"])}

    done = preprocess_dataset(
        workspace,
        "in",
        columns={"prompt": "frage", "completion": "antwort"},
        transform=transform,
        min_chars=3,
        max_chars=100,
        deduplicate_by=["prompt", "completion"],
    )
    assert rows_of(done.folder) == {
        "more/list.jsonl": [{"prompt": "from a list", "completion": "c", "length": 11}],
        "more/table.jsonl": [{"prompt": "a, quoted\nfield", "completion": "b", "length": 15}],
        "p.jsonl": [{"prompt": "parquet row", "completion": "e", "length": 11}],
        "train.jsonl": [
            {"prompt": "Grüße an alle", "completion": "ja 🎉", "length": 13},
            {"prompt": "def f():\n    return 1", "completion": "code", "length": 21},
        ],
        "zipped.jsonl": [{"prompt": "zipped row", "completion": "d", "length": 10}],
    }
    assert (done.rows_in, done.rows_out) == (11, 6)
    assert done.dropped == {"duplicate": 1, "empty": 1, "too long": 1, "too short": 1, "transform": 1}
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_the_same_again_starts_nothing_and_other_data_or_operations_are_another_result(
    ray: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(workspace / "in/a.jsonl", {"text": "x", "n": 12345678901234567890, "at": "2020-01-01"}, {"text": "x", "n": "mixed"})
    first = preprocess_dataset(workspace, "in")
    assert rows_of(first.folder)["a.jsonl"] == [
        {"text": "x", "n": 12345678901234567890, "at": "2020-01-01"},
        {"text": "x", "n": "mixed"},
    ]
    with monkeypatch.context() as patched:
        patched.setattr("trainwright.tools.ray_preprocess.run_tool", lambda *_, **__: pytest.fail("Ray is started again"))
        assert preprocess_dataset(workspace, (workspace / "in").as_uri()) == first
    assert preprocess_dataset(workspace, "in", min_chars=1).folder != first.folder
    write(workspace / "in/a.jsonl", {"text": "y"})
    assert preprocess_dataset(workspace, "in").digest != first.digest


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_many_rows_keep_their_order_and_give_the_same_bytes_twice(ray: Path, workspace: Path, tmp_path: Path) -> None:
    """Over several tasks and processes: 30 MB in parts of 8 MiB."""
    for folder in (workspace, tmp_path / "other"):
        write(folder / "in/a.jsonl", *({"n": number % 250_000, "text": "ä" * 40} for number in range(300_000)))
    first = preprocess_dataset(workspace, "in")
    second = preprocess_dataset(tmp_path / "other", "in")
    assert [row["n"] for row in rows_of(first.folder)["a.jsonl"]] == list(range(250_000))
    assert first.dropped == {"duplicate": 50_000}
    assert second.digest == first.digest
    assert bytes_of(second.folder) == bytes_of(first.folder)
    assert not processes_of(workspace)


UNUSABLE: list[tuple[str | bytes, dict[str, Any], str]] = [
    ('{"text": "a"}\n{"text": \n', {}, "a.jsonl, line 2: not JSON: "),
    ('{"text": "a"}\n["list"]\n', {}, "a.jsonl, line 2: the row is a list, not an object"),
    (b'{"text": "\xff"}\n', {}, "a.jsonl, line 1: not UTF-8"),
    (
        '{"text": "a"}\n',
        {"columns": {"p": "texts"}},
        "there is no column 'texts', which columns names for 'p'; did you mean text",
    ),
    (
        '{"text": "a"}\n',
        {"transform": "def f(row):\n    raise ValueError('größer')\n"},
        "line 1: f raised ValueError: größer",
    ),
    ('{"text": "a"}\n', {"transform": "def f(row):\n    return 5\n"}, "f returned a int; expected a row, or None"),
    ("", {}, "no row is left of 0"),
    ('{"text": ""}\n', {}, "no row is left of 1: 1 empty"),
]
"""Each starts Ray, for six seconds."""


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
@pytest.mark.parametrize(("content", "options", "expected"), UNUSABLE)
def test_rows_that_cannot_be_used_are_named(
    ray: Path, workspace: Path, content: str | bytes, options: dict[str, Any], expected: str
) -> None:
    (workspace / "in").mkdir(parents=True)
    (workspace / "in/a.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadToolInput) as caught:
        preprocess_dataset(workspace, "in", **options)
    assert expected in str(caught.value)
    assert not processes_of(workspace)
    assert not list((workspace / "preprocessed").iterdir())


HOSTILE = """
import os, pickle, sys
import pyarrow as pa, pyarrow.parquet as pq

class Evil:
    def __reduce__(self):
        return os.mkdir, (sys.argv[2],)

evil = pickle.dumps(Evil())
integers, objects = pa.list_(pa.int64()), {b"ARROW:extension:name": b"ray.data.arrow_pickled_object", b"ARROW:extension:metadata": b""}
tensors = {b"ARROW:extension:name": b"ray.data.arrow_tensor", b"ARROW:extension:metadata": evil}
inner = pa.field("text", pa.binary(), metadata=objects)
schemas = {
    "plain": (inner, evil),
    "list": (pa.field("text", pa.list_(inner)), [evil]),
    "struct": (pa.field("text", pa.struct([inner])), {"text": evil}),
    "map": (pa.field("text", pa.map_(pa.string(), inner)), [("a", evil)]),
    "parameters": (pa.field("text", integers, metadata=tensors), [1]),
}
for name, (field, value) in schemas.items():
    pq.write_table(pa.table({"text": pa.array([value], field.type)}, schema=pa.schema([field])), f"{sys.argv[1]}/{name}.parquet")
"""
"""Writes Parquet files whose columns have types of Ray with pickled objects that make a folder."""


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_pickled_objects_in_parquet_files_are_refused_and_not_run(ray: Path, workspace: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "files").mkdir()
    subprocess.run([ray, "-c", HOSTILE, tmp_path / "files", made], check=True)
    read = f"""
import runpy, sys
program = runpy.run_path({str(PROGRAMS / "ray_preprocess.py")!r})
for path in sys.argv[1:]:
    try:
        list(program["_rows"]({{"path": path, "format": ".parquet"}}))
    except program["_Unreadable"] as error:
        print(error)
"""
    paths = sorted((tmp_path / "files").iterdir())
    done = subprocess.run([ray, "-c", read, *paths], check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == len(paths) == 5, done.stdout
    assert done.stdout.count("the column 'text' has Python objects") == 4
    (workspace / "in").mkdir(parents=True)
    (tmp_path / "files" / "plain.parquet").rename(workspace / "in" / "plain.parquet")
    with pytest.raises(BadToolInput, match=r"plain\.parquet: the column 'text' has Python objects"):
        preprocess_dataset(workspace, "in")
    assert not made.exists()


SLOW = "def f(row):\n    import time\n    open(row['text'], 'w').close()\n    time.sleep(600)\n"


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_timeout_ends_ray_with_all_its_workers(ray: Path, workspace: Path) -> None:
    write(workspace / "in/a.jsonl", {"text": str(workspace / "began")})
    with pytest.raises(ToolTimeout, match="did not end within 25 s"):
        preprocess_dataset(workspace, "in", transform=SLOW, timeout_seconds=25)
    assert (workspace / "began").exists()
    assert not processes_of(workspace)


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_killed_run_leaves_no_ray_and_is_made_by_the_next(ray: Path, workspace: Path) -> None:
    write(workspace / "in/a.jsonl", {"text": str(workspace / "began")})
    code = (
        "import sys; from pathlib import Path; from trainwright.tools.ray_preprocess import preprocess_dataset; "
        "preprocess_dataset(Path(sys.argv[1]), 'in', transform=sys.argv[2])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(workspace), SLOW])
    eventually((workspace / "began").exists, 60, "the function runs")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not processes_of(workspace), 30, "Ray has ended")
    assert preprocess_dataset(workspace, "in").rows_out == 1
    [made] = [path for path in (workspace / "preprocessed").iterdir() if not path.name.startswith(".")]
    assert made.is_dir()


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached_is_said(ray: Path, workspace: Path) -> None:
    write(workspace / "in/a.jsonl", {"text": "x"})
    with pytest.raises(ToolFailed, match=r"no Ray cluster can be used at 127\.0\.0\.1:1"):
        preprocess_dataset(workspace, "in", ray_address="127.0.0.1:1", timeout_seconds=120)


@pytest.mark.wide(part="data-tools")
@pytest.mark.slow
def test_the_rows_are_processed_by_the_cluster_that_is_named(
    ray: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function runs in a worker of the cluster, whose variables are not those of the step."""
    write(workspace / "in/a.jsonl", {"text": "x"})
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    port = free_port()
    # Not in tmp_path: the paths of Ray's sockets must be short.
    scratch = tempfile.mkdtemp(prefix="rc", dir="/tmp")
    command = [
        ray.with_name("ray"),
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        "--num-cpus=2",
    ]
    command += ["--include-dashboard=false", "--object-store-memory=100000000", f"--temp-dir={scratch}"]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OF_THE_CLUSTER": "yes"}
    with open(tmp_path / "head.log", "wb") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        eventually(lambda: b"Ray runtime started" in (tmp_path / "head.log").read_bytes(), 60, "the cluster has started")
        code = "def f(row):\n    import os\n    return {**row, 'where': os.environ.get('OF_THE_CLUSTER')}\n"
        done = preprocess_dataset(workspace, "in", transform=code, ray_address=f"127.0.0.1:{port}", timeout_seconds=120)
        assert rows_of(done.folder) == {"a.jsonl": [{"text": "x", "where": "yes"}]}
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)
        eventually(lambda: not processes_of(workspace), 30, "the cluster has ended")
        shutil.rmtree(scratch)
