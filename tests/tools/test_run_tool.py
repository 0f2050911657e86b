"""A program of a tool gets its request and gives its result as JSON, and nothing of it is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually

from trainwright.storage.locks import file_lock
from trainwright.tools import BadToolInput, ToolFailed, ToolTimeout, ToolUnavailable, run_tool

pytestmark = pytest.mark.medium
PYTHON = Path(sys.executable)
SLOW = """
    import os, subprocess, sys, time
    def main(request):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        with open(request["pids"] + ".part", "w") as file:
            file.write(f"{os.getpid()} {child.pid}")
        os.rename(request["pids"] + ".part", request["pids"])
        time.sleep(600)
"""
STUBBORN = SLOW.replace(
    "def main(request):", "def main(request):\n        signal.signal(signal.SIGTERM, signal.SIG_IGN)"
).replace("import os,", "import os, signal,")
CALLER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from trainwright.storage.locks import file_lock
from trainwright.tools import run_tool
with ExitStack() as stack:
    locks = [stack.enter_context(file_lock(Path(path))) for path in sys.argv[3:]]
    run_tool(Path(sys.argv[1]), {"pids": sys.argv[2]}, python=Path(sys.executable), grace_seconds=1, locks=locks)
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "a_tool.py"
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def pids_in(path: Path) -> list[int]:
    eventually(path.exists, 30, "the program has started")
    return [int(pid) for pid in path.read_text().split()]


def test_the_result_comes_back_and_lines_are_forwarded(tmp_path: Path) -> None:
    path = program(tmp_path, "def main(request):\n    print('line ä', flush=True)\n    return {'twice': request['text'] * 2}\n")
    lines: list[str] = []
    assert run_tool(path, {"text": "ü"}, python=PYTHON, on_line=lines.append) == {"twice": "üü"}
    assert lines == ["line ä"]


def test_a_program_that_refuses_its_input_says_why(tmp_path: Path) -> None:
    path = program(
        tmp_path, "class No(Exception):\n    is_bad_input = True\ndef main(request):\n    raise No('field x: wrong')\n"
    )
    with pytest.raises(BadToolInput, match=r"^field x: wrong$"):
        run_tool(path, {}, python=PYTHON)


def test_a_failure_has_the_last_lines_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-value")
    path = program(
        tmp_path,
        """
        import os
        def main(request):
            print("key", os.environ["AWS_SECRET_ACCESS_KEY"], flush=True)
            raise RuntimeError("with very-secret-value")
        """,
    )
    lines: list[str] = []
    with pytest.raises(ToolFailed, match="a_tool failed: RuntimeError: with") as caught:
        run_tool(path, {}, python=PYTHON, variables=["AWS_*"], on_line=lines.append)
    assert "very-secret-value" not in str(caught.value) + "".join(lines)
    assert "key ***" in caught.value.lines


@pytest.mark.parametrize(
    ("code", "expected"),
    [("os._exit(3)", "exit code 3"), ("os.kill(os.getpid(), 9)", "signal 9"), ("sys.exit(0)", "exit code 0")],
)
def test_a_program_that_dies_is_a_failure(tmp_path: Path, code: str, expected: str) -> None:
    path = program(tmp_path, f"import os, sys\ndef main(request):\n    print('last words', flush=True)\n    {code}\n")
    with pytest.raises(ToolFailed, match=f"{expected} and without a result\n  last words"):
        run_tool(path, {}, python=PYTHON)


def test_tool_gets_only_its_variables_and_empty_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "token")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    path = program(
        tmp_path,
        """
        import os, sys
        def main(request):
            seen = [name for name in ("HF_TOKEN", "PYTHONPATH") if name in os.environ]
            return {"read": sys.stdin.read(), "set": os.environ["SET"], "seen": seen}
        """,
    )
    assert run_tool(path, {}, python=PYTHON, environment={"SET": "x"}, timeout_seconds=30) == {"read": "", "set": "x", "seen": []}


@pytest.mark.slow
def test_a_timeout_ends_everything_that_was_started(tmp_path: Path) -> None:
    with pytest.raises(ToolTimeout, match="a_tool did not end within 2 s"):
        run_tool(program(tmp_path, SLOW), {"pids": str(tmp_path / "pids")}, python=PYTHON, timeout_seconds=2, grace_seconds=1)
    assert all(has_ended(pid) for pid in pids_in(tmp_path / "pids"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_caller_ends_everything(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", CALLER, str(program(tmp_path, SLOW)), str(tmp_path / "pids")]
    caller = subprocess.Popen(command, stderr=subprocess.PIPE)
    pids = pids_in(tmp_path / "pids")
    caller.send_signal(number)
    caller.communicate(timeout=30)
    assert caller.returncode != 0
    assert all(has_ended(pid) for pid in pids)


def test_a_program_whose_caller_is_killed_ends_by_itself_and_holds_its_locks_until_then(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CALLER, str(program(tmp_path, STUBBORN)), str(tmp_path / "pids"), str(tmp_path / "lock")]
    caller = subprocess.Popen(command)
    own, child = pids_in(tmp_path / "pids")
    caller.kill()
    caller.wait()
    with file_lock(tmp_path / "lock"):
        assert has_ended(own)
    os.kill(child, signal.SIGKILL)  # in a session of its own, which nobody looks after any more


def test_an_interpreter_that_is_gone_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(ToolUnavailable, match="remove its environment"):
        run_tool(program(tmp_path, "def main(request): pass"), {}, python=tmp_path / "bin/python")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_fails_does_not_stop_the_program(tmp_path: Path) -> None:
    path = program(tmp_path, "def main(request):\n    print('x' * 10_000_000)\n    return {}\n")

    def fail(_: Any) -> None:
        raise BrokenPipeError

    assert run_tool(path, {}, python=PYTHON, on_line=fail, timeout_seconds=30) == {}
