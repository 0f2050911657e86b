"""Runs a training function or packed code in a container, and reports its return value.

Needs only the standard library of Python 3.8 or newer: its source is part of the TrainJob, so it works in any image with Python.
Usage: python3 -c TEXT (--function NAME --source TEXT --arguments JSON | --code FOLDER --digest HEX)
[--packages JSON] [--indexes JSON] -- COMMAND [ARGUMENT ...]
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from typing import Any

RESULT = "trainwright-result"
CHUNK_BYTES = 2048  # so that a line is shorter than the limit for atomic writes to a pipe
MAX_RESULT_BYTES = 256 * 1024
FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
CALL = """

if __name__ == "__main__":
    import io as _io
    import json as _json
    import os as _os
    import runpy as _runpy

    _value = {name}(**_json.loads(_os.environ["TRAINWRIGHT_FUNC_ARGS"]))
    _rank = _os.environ.get("RANK") or _os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    if _rank == "0" and _value is not None:
        _text = _runpy.run_path(_os.environ["TRAINWRIGHT_PLAIN_VALUES"])["json_text"](_value, "{name}", {max_bytes})
        with _io.open(_os.environ["TRAINWRIGHT_RESULTS"], "w", encoding="utf-8") as _file:
            _file.write(_text)
"""
PLAIN_VALUES = ""  # the source of plain_values.py, which the client that submits the job writes here
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
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
    ended[0] = 0
except SystemExit as asked:
    ended[0] = asked.code & 0xFF if isinstance(asked.code, int) else 0 if asked.code is None else 1
    if not isinstance(asked.code, (int, type(None))):
        print(asked.code, file=sys.stderr)
except BaseException:
    traceback.print_exc()
"""


def main() -> int:
    options, command = parse_arguments(sys.argv[1:])
    folder = tempfile.mkdtemp(prefix="trainwright-")
    work = os.path.join(folder, "code")
    os.mkdir(work)
    env = dict(os.environ, TRAINWRIGHT_RESULTS=os.environ.get("TRAINWRIGHT_RESULTS") or os.path.join(folder, "results.json"))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [work, env.get("PYTHONPATH", "")]))
    if options.function:
        command = [*command, write_function(options, work)]
        env["TRAINWRIGHT_FUNC_ARGS"] = options.arguments
        env["TRAINWRIGHT_PLAIN_VALUES"] = write_file(os.path.join(folder, "plain_values.py"), PLAIN_VALUES)
    else:
        unpack_code(options.code, options.digest, work)
    if options.packages != "[]":
        install_packages(json.loads(options.packages), json.loads(options.indexes), os.path.join(folder, "packages"), env)
    status = run(wrap_script(command, folder), work, env)
    if status == 0 and is_reporting_process():
        report_result([env["TRAINWRIGHT_RESULTS"], os.path.join(work, "results.json")])
    return status


def is_reporting_process() -> bool:
    """Whether this process reports the result: on the first node, and under mpirun, which starts several, the first rank."""
    return {os.environ.get(name) or "0" for name in ("JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK")} == {"0"}


def parse_arguments(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="launch")
    for name in ("function", "source", "code", "digest"):
        parser.add_argument("--" + name, default="")
    parser.add_argument("--arguments", default="{}")
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
    run_pip([*pip, "--dry-run", "--report", plan, *where, "--", *packages])
    with open(plan, encoding="utf-8") as file:
        missing = [pinned_requirement(entry) for entry in json.load(file)["install"]]
    if missing:
        run_pip([*pip, "--no-deps", "--target", target, *where, "--", *missing])
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


def run_pip(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout.decode("utf-8", "replace"))
        sys.exit(f"packages_to_install: pip failed with exit code {done.returncode}")


def wrap_script(command: list[str], folder: str) -> list[str]:
    """Wrap a script that torchrun starts, so that its processes exit without interpreter teardown."""
    script = next((at for at, argument in enumerate(command) if argument.endswith(".py")), None)
    if os.path.basename(command[0]) != "torchrun" or script is None or {"-m", "--module", "--no-python"} & set(command[:script]):
        return command
    path = os.path.join(folder, "orderly.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(SCRIPT_RUNNER)
    return [*command[:script], path, *command[script:]]


def run(command: list[str], folder: str, env: dict[str, str]) -> int:
    """Run the command and return its exit status. Signals are forwarded to it, including those that arrive while it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED_SIGNALS)
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=env, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED_SIGNALS)
        )
    except OSError as error:
        sys.exit(f"cannot start {command[0]!r}: {error.strerror}")
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
