"""Hostile values for every option and argument of the command line, taken from its own tree, and the outcome of one call.

Used by `test_property_hostile_inputs.py`, and by `python -m tests.cli.hostile_table`, which also counts crashes and hangs.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import typer.main
import yaml
from typer.testing import CliRunner

from trainwright.api.errors import Unauthorized
from trainwright.cli import app
from trainwright.controlplane.environments.store import EnvironmentFailed
from trainwright.jobs.diagnosis.exit_codes import ExitCode
from trainwright.pipeline_runs.errors import BadPipeline

DOCUMENTED = {int(code) for code in ExitCode} | {5, 6}
"""docs/exit-codes.md, and those of `trainwright controller --help`."""
NUMBERS = (
    "1e99",
    "nan",
    "inf",
    "-inf",
    "-1",
    "9" * 5000,
    "1e-400",
    "0x10",
    "1_000",
    "\u0663",
    "\u00b2",
    "1e308",
    "1.5",
    " 7 ",
    "",
)
TEXTS = (
    "",
    " ",
    "-",
    "a\nb",
    "\x1b]0;x\x07",
    "\x9b31m",
    "\u202eabc",
    "[/red]",
    "[bold]x",
    "\udc80",
    "../x",
    "a/../../b",
    "x" * 70_000,
    "~nobody-has-this-name/x",
    "%00",
    "$(",
    "'",
    "=",
    "a=b",
    "a=1e999",
    "a:b:c",
    ":",
    "{",
    "[",
    "[" * 100_000,
    '{"a": NaN}',
    '{"a": 1, "a": 2}',
    '{"a": ' + "9" * 5000 + "}",
    r'{"a": "\ud800"}',
    "{a: .inf}",
    "{1: 2}",
    "[1, [2]]",
    "null",
    "s3://",
    "s3:///x",
    "hf://",
    "file://",
    "file://%00",
    "pvc://",
    "http://[",
    "https://user:pw@",
    "://",
    "2026-13-45T99:99:99Z",
    "0000-00-00T00:00:00Z",
    "999999999d",
    "all:all",
    "node:-1",
    "node:99999999999999999999",
)
_TRAINJOB = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: good}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {image: "example.com/train:1", numNodes: %s, resourcesPerNode: {limits: {cpu: %s, nvidia.com/gpu: %s}}}
"""
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES: dict[str, bytes] = {
    "good.yaml": (_TRAINJOB % (1, 1, 1)).encode(),
    "empty.yaml": b"",
    "comment.yaml": b"# nothing\n---\n",
    "deep.yaml": b"[" * 200_000,
    "dashes.yaml": b"- " * 100_000,
    "bomb.yaml": _BOMB.encode(),
    "twice.yaml": b"kind: TrainJob\nkind: TrainJob\n",
    "deep.json": b'{"a":' * 100_000,
    "twice.json": b'{"kind": "TrainJob", "kind": "TrainJob"}',
    "nan.yaml": (_TRAINJOB % (".nan", 1, 1)).encode(),
    "integer.yaml": (_TRAINJOB % ("9" * 5000, 1, 1)).encode(),
    "latin.yaml": b"kind: \xff\xfe",
    "nul.yaml": b"kind: \x00",
    "utf16.yaml": "kind: TrainJob\n".encode("utf-16"),
    "bom.yaml": b"\xef\xbb\xbf",
    "text.yaml": b"just a text",
    "list.yaml": b"[1, 2]",
    "odd-list.yaml": b"kind: List\nitems: {a: b}\n",
    "unknown.yaml": b"apiVersion: example.com/v1\nkind: Unknown\nmetadata: {name: a}\n",
    "no-kind.yaml": b"metadata: {name: a}\n",
    "odd-kind.yaml": b"apiVersion: [1]\nkind: {a: b}\nmetadata: 3\n",
    "odd-metadata.yaml": b"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: [a]\nspec: 5\n",
    "odd-spec.yaml": b"apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: [1]}\nspec: {runtimeRef: 5}\n",
    "legacy.yaml": b"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: [1]}\n",
    "legacy-name.yaml": b"apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: 7\nspec: 1\n",
    "markup.yaml": (_TRAINJOB % (1, 1, 1)).replace("good", '"[/red]\\e]0;x\\a"').encode(),
    "code.py": b"def f(:\n",
    "pipeline.yaml": b"pipelineInfo: {name: good}\nschemaVersion: 2.1.0\ndeploymentSpec: {executors: {}}\n"
    b"root: {dag: {tasks: {}}, inputDefinitions: {parameters: {a: {parameterType: LIST}}}}\n",
} | {
    f"quantity-{index}.yaml": (_TRAINJOB % (1, f'"{value}"', 1)).encode()
    for index, value in enumerate(
        ("1e99", "1e" + "9" * 400, "9" * 5000, "NaN", "inf", "-1", "1e-99", "0x10", "1Zi", "\u0663", "")
    )
}
_PATHS = (*FILES, ".", "missing", "/dev/null", "good.yaml/x", "code.py:f", "missing.py:f")
_HERE = "HERE"
"""In a value that is fine: the current folder."""
_FINE = {
    "name": "done",
    "filename": "good.yaml",
    "namespace": "default",
    "folder": "output",
    "target": "file://target",
    "uri": "file://export",
    "to": "mlflow://model",
    "run": f"file://{_HERE}/exports/run",
    "root": f"file://{_HERE}/exports",
    "one": f"file://{_HERE}/exports/run/checkpoint-1",
    "other": f"file://{_HERE}/exports/run/checkpoint-2",
    "pipeline": "pipeline.yaml",
    "model": "hf://org/model",
    "dataset": "hf://org/rows",
}
_USUAL = {
    ("submit",): ("--runtime=torch-distributed", "--command=true"),
    ("runtimes", "list"): ("--cluster",),
    ("rbac",): ("--for=kfp",),
    ("checkpoints", "prune"): ("--keep-last=1",),
    ("pipeline", "run"): ("--host=http://127.0.0.1:1", "--param=a=[]", "--wait"),
    ("schedule", "kfp"): ("pipeline.yaml", "--host=http://127.0.0.1:1", "--param=a=[]", "--cron=0 0 3 * * *"),
}
"""Options without which a command would end before it looks at others."""
_ESCAPES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "users": [{"name": "a", "user": {"token": "t"}}],
}


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a command."""

    command: tuple[str, ...]
    name: str
    option: str
    """Empty for an argument."""
    arguments: tuple[str, ...]
    """The others that are required, with valid values; an argument is marked by its own name in braces."""

    def call(self, value: str) -> list[str]:
        """Return the words of a call with this value."""
        here = str(Path.cwd())
        words = [value if word == f"{{{self.name}}}" else word.replace(_HERE, here) for word in self.arguments]
        return [*self.command, *words, *([f"{self.option}={value}"] if self.option else [])]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: `accepted`, `clear error`, `traceback`, `undocumented code`, or `escapes` in what it printed."""

    kind: str
    detail: str = ""

    @property
    def is_fine(self) -> bool:
        return self.kind in ("accepted", "clear error")


def parameters() -> list[Parameter]:
    """Return every option and argument that takes a value, of every command."""
    return list(_parameters(typer.main.get_command(app), ()))


def _parameters(command: Any, path: tuple[str, ...]) -> Iterator[Parameter]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _parameters(inner, (*path, name))
        return
    for one in command.params:
        if getattr(one, "is_flag", False):
            continue
        option = "" if one.param_type_name == "argument" else max(one.opts, key=len)
        others = [word for word in _USUAL.get(path, ()) if (not word.startswith(option) if option else word.startswith("-"))]
        for other in command.params:
            if other.param_type_name == "argument" and (other is one or other.required):
                others.append(f"{{{other.name}}}" if other is one else _FINE[other.name])
            elif other.required and other is not one:
                others.append(f"{max(other.opts, key=len)}={_FINE[other.name]}")
        yield Parameter(path, one.name, option, tuple(others))


def values_of(parameter: Parameter) -> list[str]:
    """Return the hostile values for a parameter: files for those that read one, else all texts."""
    return [
        *(
            _PATHS
            if parameter.name in ("filename", "code", "func", "kubeconfig", "queues", "restore", "pipeline", "params")
            else ()
        ),
        *NUMBERS,
        *TEXTS,
    ]


@contextmanager
def isolated_environment(folder: Path) -> Iterator[None]:
    """Work in a folder with the hostile files, with a cluster that accepts nobody, and without starting processes."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "config").write_text(yaml.safe_dump(KUBECONFIG))
    before = Path.cwd()
    environment = {"KUBECONFIG": str(folder / "config"), "HOME": str(folder), "TRAINWRIGHT_HOME": ""}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch("typer.testing._get_command", return_value=typer.main.get_command(app)))  # 20 ms each
        for target, effect in (
            ("kubernetes.dynamic.DynamicClient.request", Unauthorized("scripted: nobody is accepted")),
            ("trainwright.embedded.lifecycle.start", OSError("scripted: no processes are started")),
            ("trainwright.pipeline_runs.source.run_program", BadPipeline("scripted: no processes are started")),
            (
                "trainwright.controlplane.environments.store.EnvironmentStore.prepare",
                EnvironmentFailed("scripted: nothing is installed"),
            ),
            ("trainwright.cli.controlplane._replace_process", typer.Exit(0)),
            ("trainwright.cli.page_server._until_stopped", lambda: None),
            ("trainwright.trainer.standalone.process.run", lambda *_: 0),
            ("trainwright.cli.controller.signal.signal", lambda *_: None),
            ("trainwright.cli.controller.logging.basicConfig", lambda **_: None),
        ):
            stack.enter_context(mock.patch(target, side_effect=effect))
        os.chdir(folder)
        stack.callback(os.chdir, before)
        yield


def outcome(words: list[str], runner: CliRunner) -> Outcome:
    """Call the command line in this process."""
    result = runner.invoke(app, words)
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return Outcome("traceback", f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {str(error)[:80]}")
    printed = result.stdout + result.stderr
    if found := _ESCAPES.search(printed):
        return Outcome("escapes", f"U+{ord(found[0]):04X} in {printed[max(0, found.start() - 30) : found.end() + 10]!r}")
    if result.exit_code == 0:
        return Outcome("accepted")
    if result.exit_code not in DOCUMENTED:
        return Outcome("undocumented code", str(result.exit_code))
    return Outcome("clear error" if printed.strip() else "silent", str(result.exit_code))
