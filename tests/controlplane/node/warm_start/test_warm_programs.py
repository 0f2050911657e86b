"""Programs that are forked from a warm parent do what executed ones do: state of the process, results, messages, limits, signals.

Each scene runs warm and cold, and both must give the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.waiting import eventually
from support.warm_containers import CODE, Containers, ended, printed

from trainwright.controlplane.node.isolation.exec_command import command_inside
from trainwright.controlplane.node.isolation.mounts import ContainerMount
from trainwright.runtimes.launcher_text import launcher_text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")]
TWO_RANKS = {"PET_NPROC_PER_NODE": "2"}
WAY = f"""
import os, sys
with open("{CODE}/ways", "a") as _file:
    _file.write("warm " if "transformers" in vars(sys)["modules"] else "cold ")
"""
"""How a script that imports nothing else notes its start."""
STATE = (Path(__file__).parent / "process_state.py").read_text("utf-8")
RANDOM = """
import random, numpy, torch
os.write(1, f"{random.random()} {numpy.random.rand()} {torch.rand(1).item()}\\n".encode())
"""
WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor(index)

if __name__ == "__main__":
    torch.manual_seed(0)
    for start in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=2, shuffle=True, multiprocessing_context=start)
        print(start, [batch.tolist() for batch in loader])
"""
FAILURES = {
    "a rank of two fails": (
        "if os.environ['RANK'] == '1':\n    raise ValueError('bad')\nimport time\ntime.sleep(60)\n",
        TWO_RANKS,
        1,
    ),
    "chained": ("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('x') from error\n", {}, 1),
    "killed": ("os.kill(os.getpid(), 9)\n", {}, 1),
    "recorded": (
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    raise RuntimeError('why')\nmain()\n",
        {},
        1,
    ),
    "threads and atexit": (
        "import atexit, threading, time\natexit.register(print, 'atexit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()\nprint('end')\n",
        {},
        0,
    ),
}


def both(containers: Containers, argv: list[str], env: dict[str, str] | None = None, **more: Any) -> dict[str, tuple[int, str]]:
    """Exit code and output, warm and cold."""
    runs = {way: containers.start(argv, env, warm=way == "warm", **more) for way in ("warm", "cold")}
    return {way: (ended(run), printed(run)) for way, run in runs.items()}


def write(containers: Containers, text: str, name: str = "train.py") -> list[str]:
    """Write a script that notes how it was started, and return the command that runs it."""
    (containers.code / "ways").write_text("", "utf-8")
    (containers.code / name).write_text(WAY + text, "utf-8")
    return ["torchrun", name]


def ways(containers: Containers) -> list[str]:
    return sorted((containers.code / "ways").read_text("utf-8").split())


@pytest.mark.parametrize(
    "security",
    [{}, {"runAsUser": 1234, "runAsGroup": 77, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}],
    ids=["root", "restricted"],
)
def test_process_has_the_state_of_an_executed_one(containers: Containers, security: dict[str, Any]) -> None:
    argv = ["python3", "-c", launcher_text(), "--function", "fit", "--source", function_of(STATE), "--", "torchrun"]
    states = {}
    for way in ("warm", "cold"):
        run = containers.start(argv, warm=way == "warm", container={"securityContext": security})
        assert ended(run) == 0, printed(run)
        states[way] = json.loads(printed(run).partition("STATE ")[2].splitlines()[0])
    assert (states["warm"].pop("warm"), states["cold"].pop("warm")) == (True, False)
    assert states["warm"] == states["cold"]


def function_of(program: str) -> str:
    """A function that runs a program, whose text mentions what the node would not start warm."""
    return f"def fit():\n    exec(bytes.fromhex({program.encode().hex()!r}).decode(), {{}})\n"


@pytest.mark.parametrize("scene", FAILURES)
def test_end_is_that_of_an_executed_program(containers: Containers, scene: str) -> None:
    text, env, code = FAILURES[scene]
    ran = both(containers, write(containers, text), env)
    assert ran["warm"] == ran["cold"]
    assert ran["warm"][0] == code
    assert ways(containers) == sorted(["cold", "warm"] * (2 if env else 1))


def test_module_ends_like_an_executed_one(containers: Containers) -> None:
    write(containers, "print(sys.argv[1:], __name__, __spec__.name)\nraise KeyError('k')\n", "program.py")
    ran = both(containers, ["torchrun", "-m", "program", "-x"])
    assert ran["warm"] == ran["cold"]
    assert "['-x'] __main__ program" in ran["warm"][1]
    assert ways(containers) == ["cold", "warm"]


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("def fit():\n    print('trained')\n    return {'loss': 0.5}\n", 0, "trainwright-result 1/1"),
        ("def fit():\n    raise ValueError('bad')\n", 1, "ValueError: bad"),
        ("def fit():\n    import nothing_here\n", 15, "cannot run this program"),
    ],
    ids=["result", "exception", "import"],
)
def test_function_ends_like_an_executed_one(containers: Containers, function: str, code: int, text: str) -> None:
    argv = ["python3", "-c", launcher_text(), "--function", "fit", "--source", function, "--arguments", "{}", "--", "torchrun"]
    ran = both(containers, argv)
    assert ran["warm"] == ran["cold"]
    assert ran["warm"][0] == code
    assert text in ran["warm"][1]


def test_processes_of_a_program_start_as_usual(containers: Containers) -> None:
    ran = both(containers, write(containers, WORKERS))
    assert ran["warm"] == ran["cold"]
    assert ran["warm"][0] == 0


def test_random_numbers_differ_without_a_seed(containers: Containers) -> None:
    argv = write(containers, RANDOM)
    runs = [containers.start(argv, env) for env in (TWO_RANKS, {})]
    assert [ended(run) for run in runs] == [0, 0]
    numbers = "".join(map(printed, runs)).split()
    assert len(numbers) == len(set(numbers)) == 9
    assert ways(containers) == ["warm"] * 3


@pytest.mark.parametrize(
    ("words", "env", "text"),
    [
        (["--max-restarts", "1"], {}, ""),
        ([], {"TORCH_LOGS": "dynamo"}, ""),
        ([], {"PYTHONHASHSEED": "0"}, ""),
        ([], {}, "sys.path.append('/nowhere')\n"),
        ([], {"PATH": "/code/bin:/usr/bin:/bin"}, ""),
    ],
    ids=["option", "library", "interpreter", "search path", "PATH"],
)
def test_other_programs_are_executed(containers: Containers, words: list[str], env: dict[str, str], text: str) -> None:
    _, script = write(containers, text)
    bin_folder = containers.code / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name in ("python3", "torchrun"):
        shutil.copy(Path(sys.prefix) / "bin" / "torchrun", bin_folder / name)
    run = containers.start(["torchrun", *words, script], env)
    assert ended(run) == 0, printed(run)
    assert ways(containers) == ["cold"]


def test_other_modules_are_executed(containers: Containers) -> None:
    argv = write(containers, "import peft\nprint('which', peft.__file__)\n")
    (containers.code / "peft.py").touch()
    try:
        run = containers.start(argv)
        assert ended(run) == 0, printed(run)
    finally:
        (containers.code / "peft.py").unlink()
    assert f"which {CODE}/peft.py" in printed(run)


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_container_is_isolated(containers: Containers, warm: bool, tmp_path: Path) -> None:
    text = """
try:
    open("/read-only/file", "w")
except OSError as error:
    print(error)
print(sorted(os.listdir("/tmp"))[0][:12], os.getuid(), len([name for name in os.listdir("/proc") if name.isdecimal()]))
"""
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    mounts = [ContainerMount("/read-only", folder, read_only=True)]
    containers.code.chmod(0o777)
    argv = write(containers, text)
    (containers.code / "ways").chmod(0o666)
    run = containers.start(argv, warm=warm, mounts=mounts, container={"securityContext": {"runAsUser": 1234}})
    assert (ended(run), printed(run)) == (0, "[Errno 30] Read-only file system: '/read-only/file'\ntorchelastic 1234 2\n")


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_memory_limit_ends_the_container(containers: Containers, warm: bool) -> None:
    argv = write(containers, "import time\nhog = bytearray(1 << 30)\nhog[:] = b'x' * (1 << 30)\ntime.sleep(60)\n")
    run = containers.start(argv, warm=warm, memory_limit=900 << 20)
    assert ended(run) != 0
    record = json.loads((run.folder / "exit.json").read_text("utf-8"))
    assert record["reason"] == "OOMKilled"
    assert ways(containers) == ["warm" if warm else "cold"]


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_sigterm_reaches_the_ranks(containers: Containers, warm: bool) -> None:
    text = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(5)))
open(f"/code/up-{os.environ['RANK']}", "w")
time.sleep(60)
"""
    for path in containers.code.glob("up-*"):
        path.unlink()
    run = containers.start(write(containers, text), TWO_RANKS, warm=warm)
    eventually(lambda: len(list(containers.code.glob("up-*"))) == 2, what="two ranks")
    run.signal(signal.SIGTERM)
    assert ended(run) == 1
    assert printed(run).count("saved") == 2
    assert "Received 15 death signal, shutting down workers" in printed(run)


def test_exec_finds_the_processes_of_an_executed_program(containers: Containers) -> None:
    source = "def fit():\n    import time\n    open('/code/up', 'w')\n    time.sleep(60)\n"
    argv = ["python3", "-c", launcher_text(), "--function", "fit", "--source", source, "--arguments", "{}", "--", "torchrun"]
    shown = {}
    for way in ("warm", "cold"):
        (containers.code / "up").unlink(missing_ok=True)
        run = containers.start(argv, warm=way == "warm")
        eventually((containers.code / "up").exists, what="the function")
        command = command_inside(run.folder, ["ps", "-eo", "user,ppid,comm,args"], {"PATH": "/usr/bin:/bin"})
        done = subprocess.run(
            command.argv, capture_output=True, text=True, pass_fds=(command.env_fd,), start_new_session=True, env={}
        )
        os.close(command.env_fd)
        shown[way] = re.sub(r"trainwright-\w{8}", "trainwright-*", done.stdout)
        run.signal(signal.SIGKILL)
        assert ended(run) == 128 + signal.SIGKILL
    assert shown["warm"] == shown["cold"]
    assert "pt_elastic" in shown["warm"]


def test_changed_package_starts_another_parent(containers: Containers, tmp_path: Path) -> None:
    import peft

    argv = write(containers, "")
    path = Path(peft.__file__)
    before = path.stat()
    try:
        path.touch()
        assert ended(containers.start(argv)) == 0
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ways(containers) == ["cold"]
    containers.wait_for_parent()
    assert ended(containers.start(argv)) == 0
    assert ways(containers) == ["cold", "warm"]
