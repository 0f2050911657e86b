"""Programs that can never run: the launcher ends with an exit code of its own, and says why in the termination message."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from factories import train_request
from support.container_command import launch, words_of

from trainwright.runtimes.launch import CANNOT_RUN, CANNOT_RUN_MARK, SCRIPT_RUNNER

pytestmark = pytest.mark.medium


def run(text: str, tmp_path: Path, arguments: dict[str, Any] | None = None, runner: str = "python3") -> tuple[int, str, str]:
    """Run a function in the launcher; returns exit code, standard error and termination message.

    The client checks arguments before: here they reach the pod as they are.
    """
    words = words_of(train_request(func=textwrap.dedent(text).replace("(a)", "(a=1)")))
    words[words.index("--source") + 1] = text
    words[words.index("--arguments") + 1] = json.dumps(arguments or {})
    assert words[-1] == "python3"
    if runner == "torchrun":  # takes seconds to start; the script that it is given is run alone
        words[-1] = str(fake_torchrun(tmp_path))
    message = tmp_path / "termination-log"
    message.touch()
    done: subprocess.CompletedProcess[str] = launch(words, tmp_path, TRAINWRIGHT_TERMINATION_LOG=str(message))
    return done.returncode, done.stderr, message.read_text()


def fake_torchrun(tmp_path: Path) -> Path:
    """A `torchrun` that runs its script in one process, and ends with 1 if that fails, as torchrun does."""
    path = tmp_path / "torchrun"
    path.write_text(f'#!/bin/bash\n{sys.executable} "$@" || exit 1\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("runner", ["python3", "torchrun"])
@pytest.mark.parametrize(
    ("source", "arguments", "words"),
    [
        (
            "def f(a): ...",
            {"b": 1},
            "the arguments do not fit the function: TypeError: f() got an unexpected keyword argument 'b'",
        ),
        (
            "def f(a): ...",
            {},
            "the arguments do not fit the function: TypeError: f() missing 1 required positional argument: 'a'",
        ),
        (
            "def f():\n    import tw_missing",
            {},
            "an import of the function failed: ModuleNotFoundError: No module named 'tw_missing'",
        ),
        (
            "def f():\n    from os import tw_missing",
            {},
            "an import of the function failed: ImportError: cannot import name 'tw_missing'",
        ),
        (
            "import tw_missing\ndef f(): ...",
            {},
            "an import of function_f.py failed: ModuleNotFoundError: No module named 'tw_missing'",
        ),
    ],
)
def test_function_that_can_never_run_has_its_own_exit_code(
    tmp_path: Path, source: str, arguments: dict[str, Any], words: str, runner: str
) -> None:
    code, stderr, message = run(source, tmp_path, arguments, runner)
    assert code == CANNOT_RUN, stderr
    assert message.startswith(f"{CANNOT_RUN_MARK}{words}")
    assert "Traceback" in stderr, "the program's own"
    assert stderr.endswith(f"{message}\n")


@pytest.mark.parametrize("runner", ["python3", "torchrun"])
@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    len(1)",
        "def f():\n    def inner(a): ...\n    inner()",
        "def f():\n    def load():\n        import tw_missing\n    load()",
        "def f():\n    raise TypeError('told')",
        "def f():\n    raise ModuleNotFoundError('told')",
        "def f():\n    raise ImportError('libcuda.so.1: cannot open shared object file')",
        "def f():\n    raise FileNotFoundError('told')",
        "def f():\n    raise SyntaxError('told')",
        f"def f():\n    import sys\n    sys.exit({CANNOT_RUN + 1})",
    ],
)
def test_error_from_inside_a_function_is_not_for_good(tmp_path: Path, source: str, runner: str) -> None:
    code, stderr, message = run(source, tmp_path, runner=runner)
    assert code not in (0, CANNOT_RUN), stderr
    assert message == ""


def test_function_that_handles_its_errors_succeeds(tmp_path: Path) -> None:
    source = "def f():\n    try:\n        import tw_missing\n    except ImportError:\n        print('without')"
    assert run(source, tmp_path) == (0, "", "")


def test_code_of_the_launcher_without_its_message_is_the_programs(tmp_path: Path) -> None:
    code, _, message = run(f"def f(): raise SystemExit({CANNOT_RUN})", tmp_path)
    assert (code, message) == (CANNOT_RUN, "")


def test_container_without_a_termination_log_ends_alike(tmp_path: Path) -> None:
    words = words_of(train_request(func="def f():\n    import tw_missing"))
    done = launch(words, tmp_path, TRAINWRIGHT_TERMINATION_LOG=str(tmp_path / "none"))
    assert done.returncode == CANNOT_RUN
    assert "no termination message: [Errno 2] No such file or directory" in done.stderr
    assert not (tmp_path / "none").exists()


def script(tmp_path: Path, text: str, runner: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the launcher does, without it."""
    from trainwright.runtimes import entry_errors

    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(text)
    runners = {"python3": Path(entry_errors.__file__).read_text("utf-8"), "torchrun": SCRIPT_RUNNER}
    (tmp_path / "runner.py").write_text(runners[runner])
    variables = {"TRAINWRIGHT_ENTRY_ERRORS": entry_errors.__file__, "TRAINWRIGHT_CANNOT_RUN": str(tmp_path / "note")}
    return launch([sys.executable, str(tmp_path / "runner.py"), "train.py", *arguments], folder, **variables)


def note(tmp_path: Path) -> str:
    path = tmp_path / "note"
    return path.read_text("utf-8") if path.exists() else ""


@pytest.mark.parametrize("runner", ["python3", "torchrun"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nimport tw_missing", "an import of train.py failed: ModuleNotFoundError: No module named 'tw_missing'"),
        ("from tw_missing import a", "an import of train.py failed: ModuleNotFoundError: No module named 'tw_missing'"),
        ("def f(:", "train.py cannot be read: SyntaxError: "),
        ("def main():\n    import tw_missing\nmain()", ""),
        ("raise ModuleNotFoundError('told')", ""),
        ("import sys\nsys.exit(3)", ""),
        ("1 / 0", ""),
    ],
)
def test_script_whose_imports_fail_can_never_run(tmp_path: Path, text: str, words: str, runner: str) -> None:
    done = script(tmp_path, text, runner)
    assert done.returncode
    assert note(tmp_path).startswith(words)
    assert bool(note(tmp_path)) is bool(words)


def test_import_of_a_broken_module_can_never_succeed(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "helper.py").write_text("import tw_missing")
    (tmp_path / "code").rename(tmp_path / "lib")
    done = script(tmp_path, f"import sys\nsys.path.append({str(tmp_path / 'lib')!r})\nimport helper", "python3")
    assert done.returncode == 1
    assert note(tmp_path) == "an import of train.py failed: ModuleNotFoundError: No module named 'tw_missing'"


def test_wrapped_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    """Arguments, `__main__`, pickled classes, child processes, and the traceback."""
    text = textwrap.dedent("""
        import multiprocessing, os, pickle, sys

        class Batch:
            pass

        def work(queue):
            queue.put(__name__)

        if __name__ == "__main__" and __package__ is None:
            assert type(pickle.loads(pickle.dumps(Batch()))) is Batch
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=work, args=(queue,))
            process.start()
            print(sys.argv, queue.get(), sys.path[0] == os.getcwd(), __file__)
            process.join()
            raise ValueError("told")
    """)
    done = script(tmp_path, text, "python3", "--lr", "1")
    assert (done.returncode, done.stdout) == (1, "['train.py', '--lr', '1'] __mp_main__ True train.py\n")
    lines = done.stderr.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", '  File "train.py", line 18, in <module>']
    assert lines[-1] == "ValueError: told"
    assert "runner.py" not in done.stderr
