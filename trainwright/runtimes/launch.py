"""Starts a training function or packed code in a container, and reports what it returned.

Stands alone, with the standard library of Python 3.8 or newer: its text travels in the TrainJob, so any image with Python will do.
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
CHUNK_BYTES = 2048  # a line of it is shorter than what a pipe takes in one piece
MOST_RESULT_BYTES = 256 * 1024
PASSED_ON = (signal.SIGTERM, signal.SIGINT)
CALL = """

if __name__ == "__main__":
    import io as _io
    import json as _json
    import os as _os
    import sys as _sys

    _value = {name}(**_json.loads(_os.environ["TRAINWRIGHT_FUNC_ARGS"]))
    _rank = _os.environ.get("RANK") or _os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    if _rank == "0" and _value is not None:
        try:
            _text = _json.dumps(_value)
        except (TypeError, ValueError, RecursionError) as _error:
            _sys.stderr.write(f"{name}: what it returned is not JSON and is not reported: {{_error}}\\n")
        else:
            with _io.open(_os.environ["TRAINWRIGHT_RESULTS"], "w", encoding="utf-8") as _file:
                _file.write(_text)
"""
# torch's gloo lets go of its last collective in a thread that needs the interpreter, and aborts a process that is going away.
ORDERLY = """
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
    options, command = parsed(sys.argv[1:])
    folder = tempfile.mkdtemp(prefix="trainwright-")
    work = os.path.join(folder, "code")
    os.mkdir(work)
    env = dict(os.environ, TRAINWRIGHT_RESULTS=os.environ.get("TRAINWRIGHT_RESULTS") or os.path.join(folder, "results.json"))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [work, env.get("PYTHONPATH", "")]))
    if options.function:
        command = [*command, with_function(options, work)]
        env["TRAINWRIGHT_FUNC_ARGS"] = options.arguments
    else:
        unpack(options.code, options.digest, work)
    if options.packages != "[]":
        install(json.loads(options.packages), json.loads(options.indexes), os.path.join(folder, "packages"), env)
    status = run(in_order(command, folder), work, env)
    if status == 0 and is_first():
        report([env["TRAINWRIGHT_RESULTS"], os.path.join(work, "results.json")])
    return status


def is_first() -> bool:
    """Whether this is the process that reports: the first node, and under mpirun, which starts one of these for each, the first."""
    return {os.environ.get(name) or "0" for name in ("JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK")} == {"0"}


def parsed(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(prog="launch")
    for name in ("function", "source", "code", "digest"):
        parser.add_argument("--" + name, default="")
    parser.add_argument("--arguments", default="{}")
    for name in ("packages", "indexes"):
        parser.add_argument("--" + name, default="[]")
    at = words.index("--")
    return parser.parse_args(words[:at]), words[at + 1 :]


def with_function(options: argparse.Namespace, folder: str) -> str:
    """The function in a file of its own, with its call; returns the file. Its name is that of no module that anybody imports."""
    path = os.path.join(folder, f"function_{options.function}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write("from __future__ import annotations\n\n" + options.source + CALL.format(name=options.function))
    return path


def unpack(parts: str, digest: str, folder: str) -> None:
    """The packed code, only if it is what was sent; regular files and folders alone."""
    import lzma

    names = sorted(name for name in os.listdir(parts) if name.startswith("part-"))
    packed = b"".join(content_of(os.path.join(parts, name)) for name in names)
    try:
        content = lzma.decompress(packed)
    except lzma.LZMAError as error:
        sys.exit(f"the code in {parts} is damaged: {error}")
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit(f"the code in {parts} is not what was sent: its digest is not {digest}")
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            target = os.path.normpath(os.path.join(folder, member.name))
            if not (member.isfile() or member.isdir()) or not (target + os.sep).startswith(folder + os.sep):
                sys.exit(f"the code holds {member.name!r}, which is no file inside it")
            archive.extract(member, folder, **safely)


def content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def install(packages: list[str], indexes: list[str], target: str, env: dict[str, str]) -> None:
    """Into a folder of this container alone, what is not there already: what is installed is neither changed nor fetched again."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    where = ["--index-url", indexes[0]] if indexes else []
    where += [word for url in indexes[1:] for word in ("--extra-index-url", url)]
    plan = target + ".json"
    checked([*pip, "--dry-run", "--report", plan, *where, "--", *packages])
    with open(plan, encoding="utf-8") as file:
        wanted = [requirement(entry) for entry in json.load(file)["install"]]
    if wanted:
        checked([*pip, "--no-deps", "--target", target, *where, "--", *wanted])
    env["PYTHONPATH"] = os.pathsep.join([target, env["PYTHONPATH"]])
    env["PATH"] = os.pathsep.join([os.path.join(target, "bin"), env.get("PATH", os.defpath)])
    print("installed packages: " + (", ".join(wanted) or "all were there"), flush=True)


def requirement(entry: dict[str, Any]) -> str:
    about = entry["metadata"]
    if not entry.get("is_direct"):
        return f"{about['name']}=={about['version']}"
    source = entry["download_info"]
    vcs, url = source.get("vcs_info"), source["url"]
    url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return f"{about['name']} @ {url}" + (f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else "")


def checked(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout.decode("utf-8", "replace"))
        sys.exit(f"packages_to_install: pip failed with exit code {done.returncode}")


def in_order(command: list[str], folder: str) -> list[str]:
    """A script under torchrun, through a file that ends its processes without taking the interpreter apart."""
    script = next((at for at, word in enumerate(command) if word.endswith(".py")), None)
    if os.path.basename(command[0]) != "torchrun" or script is None or {"-m", "--module", "--no-python"} & set(command[:script]):
        return command
    path = os.path.join(folder, "orderly.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ORDERLY)
    return [*command[:script], path, *command[script:]]


def run(command: list[str], folder: str, env: dict[str, str]) -> int:
    """The command's exit status; signals are passed on to it, one that comes while it starts as well."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    try:
        child = subprocess.Popen(
            command, cwd=folder, env=env, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        )
    except OSError as error:
        sys.exit(f"cannot start {command[0]!r}: {error.strerror}")
    for number in PASSED_ON:
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    status = child.wait()
    return status if status >= 0 else 128 - status


def report(paths: list[str]) -> None:
    """The first of these files that was written, on lines of the log that whoever waits can tell from others.

    One of the year 1970 came with the code, from an earlier run.
    """
    path = next((path for path in paths if os.path.isfile(path) and os.path.getmtime(path) > 0), None)
    if path is None:
        return
    with open(path, "rb") as file:
        content = file.read(MOST_RESULT_BYTES + 1)
    if len(content) > MOST_RESULT_BYTES:
        print(f"results.json has more than {MOST_RESULT_BYTES // 1024} KiB and is not reported", file=sys.stderr)
        return
    chunks = [content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES)]
    for number, chunk in enumerate(chunks, 1):
        print(f"{RESULT} {number}/{len(chunks)} {base64.b64encode(chunk).decode()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
