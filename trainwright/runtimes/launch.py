"""Runs a training function or packed code in a container, and reports its return value.

Needs only the standard library of Python 3.8 or newer: its source is part of the TrainJob, so it works in any image with Python.
A program that can never run, such as for a package that does not exist, ends with CANNOT_RUN and the reason as termination message.
Usage: python3 -c TEXT (--function NAME --source TEXT --arguments JSON [--times JSON] | --code FOLDER --digest HEX)
[--packages JSON] [--indexes JSON] -- COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from typing import Any, NoReturn

RESULT = "trainwright-result"
CHUNK_BYTES = 2048  # so that a line is shorter than the limit for atomic writes to a pipe
MAX_RESULT_BYTES = 256 * 1024
MAX_REASON = 1000
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CANNOT_RUN = 15  # exit code of a program that no retry and no other node can run
CANNOT_RUN_MARK = "trainwright cannot run this program: "  # programs may end with that code, too
TERMINATION_LOG = "TRAINWRIGHT_TERMINATION_LOG"  # variable for a runtime with another terminationMessagePath
CALL = """

if __name__ == "__main__":
    import datetime as _datetime
    import io as _io
    import json as _json
    import os as _os
    import runpy as _runpy

    _arguments = _json.loads(_os.environ["TRAINWRIGHT_FUNC_ARGS"])

    def _trainwright_time(value, times):
        if value is None:
            return None
        if isinstance(times, str):
            kind = getattr(_datetime, times)
            return kind(seconds=value) if times == "timedelta" else kind.fromisoformat(value)
        if isinstance(value, dict):
            return {{key: _trainwright_time(one, times[0]) for key, one in value.items()}}
        return [_trainwright_time(one, times[0]) for one in value]

    for _name, _times in _json.loads(_os.environ["TRAINWRIGHT_FUNC_TIMES"]).items():
        _arguments[_name] = _trainwright_time(_arguments[_name], _times)
    try:
        _value = {name}(**_arguments)
    except Exception as _error:
        _runpy.run_path(_os.environ["TRAINWRIGHT_ENTRY_ERRORS"])["note_call"](_error)
        raise
    _rank = _os.environ.get("RANK") or _os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    if _rank == "0" and _value is not None:
        _text = _runpy.run_path(_os.environ["TRAINWRIGHT_PLAIN_VALUES"])["json_text"](_value, "{name}", {max_bytes})
        with _io.open(_os.environ["TRAINWRIGHT_RESULTS"], "w", encoding="utf-8") as _file:
            _file.write(_text)
"""
PLAIN_VALUES = ""  # the source of plain_values.py, which the client that submits the job writes here
ENTRY_ERRORS = ""  # that of entry_errors.py
WRONG_REQUEST = re.compile(  # in what pip prints, about the request or the image
    r"No matching distribution found|Invalid requirement|have conflicting dependencies|is not a supported wheel on this platform"
    r"|requires a different Python|HTTP error 404 while getting|No module named pip|no such option"
)
UNREACHABLE = re.compile(  # in the log of pip: then an index that did not answer is why nothing was found
    r"Retrying \(|connection broken|Could not fetch URL (?!.*: 404 )|Skipping page|[Tt]imed out"
)
# A thread of torch's gloo needs the interpreter to release its last collective, and aborts a process during teardown.
SCRIPT_RUNNER = """
import atexit, os, runpy, sys, traceback
ended = [1]
def leave():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(ended[0])
atexit.register(leave)
del sys.argv[0]
script, entry_errors = sys.argv[0], os.environ.get("TRAINWRIGHT_ENTRY_ERRORS")
sys.path[0] = os.path.dirname(os.path.abspath(script))
try:
    runpy.run_path(script, run_name="__main__")
    ended[0] = 0
except SystemExit as asked:
    ended[0] = asked.code & 0xFF if isinstance(asked.code, int) else 0 if asked.code is None else 1
    if not isinstance(asked.code, (int, type(None))):
        print(asked.code, file=sys.stderr)
except BaseException as error:
    traceback.print_exc()
    if entry_errors:
        runpy.run_path(entry_errors)["note_script"](error, script)
"""


def main() -> int:
    options, command = parse_arguments(sys.argv[1:])
    folder = tempfile.mkdtemp(prefix="trainwright-")
    work = os.path.join(folder, "code")
    os.mkdir(work)
    env = dict(os.environ, TRAINWRIGHT_RESULTS=os.environ.get("TRAINWRIGHT_RESULTS") or os.path.join(folder, "results.json"))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [work, env.get("PYTHONPATH", "")]))
    env["TRAINWRIGHT_ENTRY_ERRORS"] = write_file(os.path.join(folder, "entry_errors.py"), ENTRY_ERRORS)
    env["TRAINWRIGHT_CANNOT_RUN"] = os.path.join(folder, "cannot-run")
    if options.function:
        command = [*command, write_function(options, work)]
        env["TRAINWRIGHT_FUNC_ARGS"], env["TRAINWRIGHT_FUNC_TIMES"] = options.arguments, options.times
        env["TRAINWRIGHT_PLAIN_VALUES"] = write_file(os.path.join(folder, "plain_values.py"), PLAIN_VALUES)
    else:
        unpack_code(options.code, options.digest, work)
    if options.packages != "[]":
        install_packages(json.loads(options.packages), json.loads(options.indexes), os.path.join(folder, "packages"), env)
    status = run(wrap_script(command, folder), work, env)
    if status and os.path.exists(env["TRAINWRIGHT_CANNOT_RUN"]):
        give_up(read_file(env["TRAINWRIGHT_CANNOT_RUN"]).decode("utf-8", "replace"))
    if status == 0 and is_reporting_process():
        report_result([env["TRAINWRIGHT_RESULTS"], os.path.join(work, "results.json")])
    return status


def give_up(reason: str) -> NoReturn:
    """Exit with CANNOT_RUN, and leave the reason as the termination message of the container, if it has one."""
    text = CANNOT_RUN_MARK + " ".join(reason.split())[:MAX_REASON]
    print(text, file=sys.stderr, flush=True)
    try:
        descriptor = os.open(os.environ.get(TERMINATION_LOG, "/dev/termination-log"), os.O_WRONLY | os.O_TRUNC)
    except OSError as error:
        print(f"no termination message: {error}", file=sys.stderr)
    else:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    sys.exit(CANNOT_RUN)


def is_reporting_process() -> bool:
    """Whether this process reports the result: on the first node, and under mpirun, which starts several, the first rank."""
    return {os.environ.get(name) or "0" for name in ("JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK")} == {"0"}


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="launch")
    for name in ("function", "source", "code", "digest"):
        parser.add_argument("--" + name, default="")
    for name in ("arguments", "times"):
        parser.add_argument("--" + name, default="{}")
    for name in ("packages", "indexes"):
        parser.add_argument("--" + name, default="[]")
    at = argv.index("--")
    return parser.parse_args(argv[:at]), argv[at + 1 :]


def write_function(options: argparse.Namespace, folder: str) -> str:
    """Write the function and its call to a file. Returns its path, whose name does not conflict with importable modules."""
    path = os.path.join(folder, f"function_{options.function}.py")
    call = CALL.format(name=options.function, max_bytes=MAX_RESULT_BYTES)
    return write_file(path, "from __future__ import annotations\n\n" + options.source + call)


def write_file(path: str, text: str) -> str:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def unpack_code(parts: str, digest: str, folder: str) -> None:
    """Unpack the code after checking its digest. Only regular files and folders are allowed."""
    import lzma

    names = sorted(name for name in os.listdir(parts) if name.startswith("part-"))
    packed = b"".join(read_file(os.path.join(parts, name)) for name in names)
    try:
        content = lzma.decompress(packed)
    except lzma.LZMAError as error:
        sys.exit(f"the code in {parts} is corrupt: {error}")
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit(f"the code in {parts} is not the submitted code: its digest is not {digest}")
    extract_options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            target = os.path.normpath(os.path.join(folder, member.name))
            if not (member.isfile() or member.isdir()) or not (target + os.sep).startswith(folder + os.sep):
                sys.exit(f"the code contains {member.name!r}, which is not a regular file inside the archive's folder")
            archive.extract(member, folder, **extract_options)


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def install_packages(packages: list[str], indexes: list[str], target: str, env: dict[str, str]) -> None:
    """Install missing packages into a folder of this container. Packages in the image are neither changed nor downloaded again."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    where = ["--index-url", indexes[0]] if indexes else []
    where += [argument for url in indexes[1:] for argument in ("--extra-index-url", url)]
    plan = target + ".json"
    log = target + ".log"
    run_pip([*pip, "--log", log, "--dry-run", "--report", plan, *where, "--", *packages], log)
    with open(plan, encoding="utf-8") as file:
        missing = [pinned_requirement(entry) for entry in json.load(file)["install"]]
    if missing:
        run_pip([*pip, "--log", log, "--no-deps", "--target", target, *where, "--", *missing], log)
    env["PYTHONPATH"] = os.pathsep.join([target, env["PYTHONPATH"]])
    env["PATH"] = os.pathsep.join([os.path.join(target, "bin"), env.get("PATH", os.defpath)])
    print("installed packages: " + (", ".join(missing) or "none, all requirements are satisfied"), flush=True)


def pinned_requirement(entry: dict[str, Any]) -> str:
    about = entry["metadata"]
    if not entry.get("is_direct"):
        return f"{about['name']}=={about['version']}"
    source = entry["download_info"]
    vcs, url = source.get("vcs_info"), source["url"]
    url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return f"{about['name']} @ {url}" + (f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else "")


def run_pip(command: list[str], log: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if not done.returncode:
        return
    printed = done.stdout.decode("utf-8", "replace")
    sys.stderr.write(printed)
    told = read_file(log).decode("utf-8", "replace") if os.path.exists(log) else ""
    reason = next((line for line in printed.splitlines() if WRONG_REQUEST.search(line)), None)
    if reason is not None and not UNREACHABLE.search(printed + told):
        give_up("packages_to_install: " + re.sub("^ERROR: ", "", reason))
    sys.exit(f"packages_to_install: pip failed with exit code {done.returncode}")


def wrap_script(command: list[str], folder: str) -> list[str]:
    """Wrap a script that torchrun starts, so that its processes exit without interpreter teardown, or that Python starts.

    Both tell the launcher when the script cannot be imported.
    """
    script = next((at for at, argument in enumerate(command) if argument.endswith(".py")), None)
    if script == 1 and is_this_python(command[0]):
        return [command[0], os.path.join(folder, "entry_errors.py"), *command[1:]]
    if os.path.basename(command[0]) != "torchrun" or script is None or {"-m", "--module", "--no-python"} & set(command[:script]):
        return command
    path = os.path.join(folder, "orderly.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(SCRIPT_RUNNER)
    return [*command[:script], path, *command[script:]]


def is_this_python(program: str) -> bool:
    """Whether a program is the interpreter that runs the launcher: another one may be too old for what wraps a script."""
    path = shutil.which(program)
    return path is not None and os.path.realpath(path) == os.path.realpath(sys.executable)


def run(command: list[str], folder: str, env: dict[str, str]) -> int:
    """Run the command and return its exit status. Signals are forwarded to it, including those that arrive while it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=env, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
        )
    except OSError as error:
        text = f"cannot start {command[0]!r}: {error.strerror}"
        if isinstance(error, (FileNotFoundError, PermissionError)):
            give_up(text)
        sys.exit(text)
    for number in FORWARDED_SIGNALS:
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
    status = child.wait()
    return status if status >= 0 else 128 - status


def report_result(paths: list[str]) -> None:
    """Print the first of these files that was written, in marked log lines that the waiting client parses.

    A file with a modification time of 0 was packed with the code, so it is from an earlier run.
    """
    path = next((path for path in paths if os.path.isfile(path) and os.path.getmtime(path) > 0), None)
    if path is None:
        return
    with open(path, "rb") as file:
        content = file.read(MAX_RESULT_BYTES + 1)
    if len(content) > MAX_RESULT_BYTES:
        print(f"results.json has more than {MAX_RESULT_BYTES // 1024} KiB and is not reported", file=sys.stderr)
        return
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    for number, chunk in enumerate(chunks, 1):
        print(f"{RESULT} {number}/{len(chunks)} {base64.b64encode(chunk).decode()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
