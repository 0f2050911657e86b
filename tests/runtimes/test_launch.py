"""The launcher as a container runs it: its text on the command line, a process of its own."""

from __future__ import annotations

import base64
import contextlib
import datetime as datetime_module
import io
import json
import os
import signal
import subprocess
import tempfile
import textwrap
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.container_command import environment, launch, words_of

from trainwright.jobs.logs.training_log import UnreportableResult, is_result_line, parse_results
from trainwright.runtimes import launch as launcher
from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK, CHUNK_BYTES, MAX_RESULT_BYTES

pytestmark = pytest.mark.medium


def run(text: str, tmp_path: Path, arguments: dict[str, Any] | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    request = train_request(func=textwrap.dedent(text), func_args=arguments or {})
    return launch(words_of(request), tmp_path, **variables)


def results(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return parse_results(done.stdout.splitlines())


@pytest.mark.parametrize(
    "value", [{"loss": 0.5, "text": "ü→🚀"}, [1, None, True], 3, "a", False, 0, {}, "x" * 2100, "x" * 255 * 1024]
)
def test_return_value_of_a_function_is_reported(tmp_path: Path, value: Any) -> None:
    (tmp_path / "value.json").write_text(json.dumps(value), "utf-8")
    source = f"def f():\n    import json\n    return json.load(open({str(tmp_path / 'value.json')!r}))\n"
    done = run(source, tmp_path)
    assert results(done) == value
    lines = done.stdout.splitlines()
    assert all(is_result_line(line) for line in lines)
    assert max(map(len, lines)) < 4096, "a pipe takes it in one piece"
    assert len(lines) == -(-len(json.dumps(value)) // CHUNK_BYTES)


def test_dates_and_durations_reach_the_function_as_what_they_are(tmp_path: Path) -> None:
    moment = datetime(2026, 10, 25, 2, 30, 0, 123, timezone(timedelta(hours=1)))
    source = """
        def f(since: datetime, days: list[date], windows: dict[str, timedelta], until: datetime | None, note: str):
            import datetime
            assert since.tzinfo is not None and until is None
            return [repr(since), repr(days), repr(windows), note]
    """
    days = [date(2026, 1, 31), date(2024, 2, 29)]
    arguments = {
        "since": moment,
        "days": days,
        "windows": {"a": timedelta(days=-1, microseconds=7)},
        "until": None,
        "note": "2026-01-31",
    }
    found = results(run(source, tmp_path, arguments))
    assert [eval(text, {"datetime": datetime_module}) for text in found[:3]] == [moment, days, arguments["windows"]]
    assert found[3] == "2026-01-31"


def test_nothing_is_reported_of_nothing(tmp_path: Path) -> None:
    done = run("def f(): print('hello')", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{'seen': {1, 2}}", "f: the value of seen is of type set, which cannot be reported"),
        (f"'x' * {MAX_RESULT_BYTES}", "f: the return value has more than 256 KiB of JSON"),
    ],
)
def test_unreportable_return_value_is_an_error_of_the_step(tmp_path: Path, value: str, words: str) -> None:
    done = run(f"def f(): return {value}", tmp_path)
    assert done.returncode == 0, "the training has succeeded, and must not be run again"
    assert done.stderr.startswith(words)
    with pytest.raises(UnreportableResult, match=words):
        parse_results(done.stdout.splitlines())


def test_tensors_dates_and_nan_of_a_function_are_reported(tmp_path: Path) -> None:
    source = """
        def f():
            import datetime
            import numpy
            return {"loss": numpy.float32(0.5), "nan": float("nan"), "day": datetime.date(2026, 1, 2)}
    """
    assert results(run(source, tmp_path)) == {"loss": 0.5, "nan": None, "day": "2026-01-02"}


def test_results_file_that_is_too_large_is_a_warning(tmp_path: Path) -> None:
    done = run(f"def f(): open('results.json', 'w').write('x' * {MAX_RESULT_BYTES + 1})", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "results.json has more than 256 KiB and is not reported\n"


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("import sys; sys.exit('told')", 1, "told"),
        ("raise ValueError('told')", 1, "ValueError: told"),
        ("import os; os._exit(77)", 77, ""),
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
        ("import os; os.abort()", 134, ""),
    ],
)
def test_the_exit_code_is_the_programs(tmp_path: Path, end: str, code: int, words: str) -> None:
    done = run(f"def f():\n    print('begun', flush=True)\n    {end}\n    return 1", tmp_path)
    assert (done.returncode, done.stdout) == (code, "begun\n")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        ({}, True),
        ({"JOB_COMPLETION_INDEX": "0", "RANK": "0"}, True),
        ({"JOB_COMPLETION_INDEX": "1"}, False),
        ({"JOB_COMPLETION_INDEX": "1", "RANK": "2"}, False),
        ({"RANK": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "0"}, True),
        ({"OMPI_COMM_WORLD_RANK": "1", "JOB_COMPLETION_INDEX": "0"}, False),
    ],
)
def test_only_the_first_process_reports(tmp_path: Path, variables: dict[str, str], reported: bool) -> None:
    assert (results(run("def f(): return 1", tmp_path, **variables)) == 1) is reported


def test_a_program_may_write_its_results_itself(tmp_path: Path) -> None:
    assert results(run("def f(): open('results.json', 'w').write('[1, 2]')", tmp_path)) == [1, 2]
    source = """
        def f():
            import os
            open(os.environ['TRAINWRIGHT_RESULTS'], 'w').write('[3]')
            open('results.json', 'w').write('[1]')
    """
    assert results(run(source, tmp_path)) == [3]
    assert results(run(source, tmp_path, TRAINWRIGHT_RESULTS=str(tmp_path / "given.json"))) == [3]
    assert (tmp_path / "given.json").read_text() == "[3]"


@pytest.mark.parametrize("name", ["json", "tokenize", "torch", "open", "print", "io", "sys", "größe"])
def test_a_function_may_be_called_as_a_module_is(tmp_path: Path, name: str) -> None:
    source = f"def {name}():\n    import json, tokenize\n    return json.loads('[1]')"
    done = run(source, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert results(done) == [1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_signals_reach_the_program(tmp_path: Path, number: int, code: int) -> None:
    source = "def f():\n    import signal\n    print('begun', flush=True)\n    signal.pause()"
    request = train_request(func=source)
    with subprocess.Popen(
        words_of(request), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode in (code, 130)
    assert ("KeyboardInterrupt" in stderr) is (number == signal.SIGINT)


def test_a_program_may_end_in_order_after_sigterm(tmp_path: Path) -> None:
    source = textwrap.dedent("""
        def f():
            import signal, sys
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
            print('begun', flush=True)
            signal.pause()
    """)
    command = words_of(train_request(func=source))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.wait(60) == 5


def test_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = words_of(train_request(func="def f(): ..."))
    done = launch([*words[:-1], "no-such-program"], tmp_path)
    assert done.returncode == CANNOT_RUN
    assert done.stderr == f"{CANNOT_RUN_MARK}cannot start 'no-such-program': No such file or directory\n"


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=40) | st.sampled_from(
    [
        "$",
        "$$",
        "$$(HOME)",
        "$(HOME)",
        "${HOME}",
        "EOM",
        "\nEOM\n",
        "\\n",
        "\\",
        "'",
        '"',
        '"""',
        "`id`",
        "%s",
        "{name}",
        "--",
        "\f",
        "\u2028",
    ]
)


@settings(max_examples=12)
@given(said=st.lists(TEXTS, max_size=8), argument=TEXTS)
def test_the_function_prints_there_what_it_prints_here(
    tmp_path_factory: pytest.TempPathFactory, said: list[str], argument: str
) -> None:
    """Kubeflow's SDK sends a function in a here-document of bash, where a line EOM ends it and dollar signs are gone."""
    here = "".join(said)
    written = "\n".join([f"    said.append({text!r})" for text in said])
    raw = "".join(said).replace("\\", "").replace("'''", "").rstrip("'")
    source = f"def f(argument):\n    said = []\n{written}\n    said.append(r'''{raw}''')\n    return [said, argument]\n"
    module: dict[str, Any] = {}
    exec(source, module)
    request = train_request(func=source, func_args={"argument": argument})
    folder = tmp_path_factory.mktemp("launch")
    done = launch(words_of(request, variables={"HOME": "expanded"}), folder, HOME=os.fspath(folder))
    assert results(done) == module["f"](argument), here


def test_lines_of_others_between_the_chunks_change_nothing() -> None:
    value = {"text": "y" * 9000}
    (line, *more) = chunks_of(value)
    others = ["progress 50%|###", "trainwright-result", "trainwright-result x/y", "ranks: 1/4"]
    mixed = [line, *others, *[entry for chunk in more for entry in (chunk, *others)]]
    assert parse_results(mixed) == value
    assert parse_results([f"[default0]: 50%|###\r{text}" for text in mixed]) == value


def chunks_of(value: Any) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, contextlib.redirect_stdout(io.StringIO()) as printed:
        file.write(json.dumps(value))
        file.flush()
        launcher.report_result([file.name])
    return printed.getvalue().splitlines()


def test_results_that_are_not_whole_are_none() -> None:
    old, new = chunks_of("o" * 9000), chunks_of("n" * 9000)
    assert parse_results(new[1:]) is None
    assert parse_results(new[:-1]) is None
    assert parse_results([*new[:2], *new[3:]]) is None
    assert parse_results([*old, *new]) == "n" * 9000
    assert parse_results([*old[:2], *new]) == "n" * 9000
    assert parse_results([*old[2:], *new]) == "n" * 9000
    assert parse_results(["trainwright-result 1/1 abc", *new]) == "n" * 9000
    assert parse_results(["trainwright-result 1/1 abc"]) is None
    assert parse_results(chunks_of(1)[:0]) is None
    assert parse_results(["trainwright-result 1/1 Ww=="]) is None
    deep = "[" * 100000
    assert parse_results([f"trainwright-result 1/1 {base64.b64encode(deep.encode()).decode()}"]) is None
