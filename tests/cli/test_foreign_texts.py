"""Whatever a cluster says, no command passes its control characters or markup on to the terminal, nor loses text by it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright.api.errors import ApiError, Forbidden
from trainwright.api.kinds import EVENT, JOBSET, NEW_EVENT, POD, TRAINJOB, Kind
from trainwright.cli import app
from trainwright.cluster.protocol import Listing, WatchEvent
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.foreign_texts import json_printable, plain, printable, with_colours_only

POISON = "\x1b]0;x\x07\x9b31m\u202e[/red][bold] :tada:"
SAME = {"apiVersion", "kind", "type", "status", "phase", "uid", "resourceVersion", "controller", "trainjob-ancestor-step"}
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
COLOURS = re.compile("\x1b\\[[0-9;]*m|\x1b\\[\\?25[hl]|\x1b\\[[0-9]*[AK]|\r")
"""What rich itself writes to a terminal: colours, and the lines of a progress bar."""


def poisoned(value: Any, key: str = "") -> Any:
    """Add hostile text to every string that is no type, phase, time or label."""
    if isinstance(value, dict):
        return {name: entry if name == "labels" else poisoned(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [poisoned(entry, key) for entry in value]
    if isinstance(value, str) and key not in SAME and not re.search("[tT]ime(stamp)?$", key):
        return value + POISON
    return value


def conditions(*types: str) -> list[dict[str, Any]]:
    return [
        {"type": one, "status": "True", "reason": "R", "message": "why", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for one in types
    ]


class Hostile:
    """A `Cluster` with one failed TrainJob and everything around it."""

    default_namespace, host, origin = "team", "https://host", ""

    def __init__(self, *, denied: bool = False) -> None:
        self.denied = denied
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "job",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": "0",
        }
        ended = {"exitCode": 1, "reason": "Error", "message": "bad", "finishedAt": "2026-01-01T00:00:00Z"}
        metadata = {
            "name": "job",
            "namespace": "team",
            "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "5",
        }
        objects = {
            TRAINJOB.kind: {
                "spec": {"runtimeRef": {"kind": "ClusterTrainingRuntime", "name": "rt"}, "trainer": {"numNodes": 1}},
                "status": {
                    "conditions": conditions("Failed"),
                    "jobsStatus": [{"name": "node", "failed": 1}],
                    "trainerStatus": {"progressPercentage": 40, "metrics": [{"name": "loss", "value": "1.5"}]},
                },
            },
            JOBSET.kind: {"spec": {"replicatedJobs": [{"name": "node"}]}, "status": {"conditions": conditions("Failed")}},
            POD.kind: {
                "spec": {"nodeName": "n", "containers": [{"name": "node", "image": "i"}]},
                "status": {
                    "phase": "Failed",
                    "message": "pod",
                    "reason": "Evicted",
                    "containerStatuses": [{"name": "node", "restartCount": 1, "state": {"terminated": ended}, "image": "i"}],
                },
            },
            "ClusterTrainingRuntime": {"spec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}]}}}},
            EVENT.kind: {
                "involvedObject": {"kind": "TrainJob", "name": "job", "uid": "u"},
                "reason": "Failed",
                "message": "event",
                "lastTimestamp": "2026-01-01T00:00:00Z",
            },
        }
        self.objects = {
            kind: poisoned({"apiVersion": "v1", "kind": kind, "metadata": {**metadata, "labels": labels}, **content})
            for kind, content in objects.items()
        }

    def _of(self, kind: Kind) -> dict[str, Any]:
        if self.denied:
            raise Forbidden(f"no {POISON}")
        if kind.kind not in self.objects or kind is NEW_EVENT:
            raise ApiError(f"not served {POISON}", code=404)
        return json.loads(json.dumps(self.objects[kind.kind]))

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Any:
        return self._of(kind)

    def list(self, kind: Kind, namespace: str | None = None, **_: Any) -> Listing:
        return Listing([self._of(kind)], "5")

    def watch(self, kind: Kind, namespace: str | None = None, **_: Any) -> Iterator[WatchEvent]:
        yield from ()

    def logs(self, name: str, namespace: str, **_: Any) -> Iterator[bytes]:
        yield f"2026-01-01T00:00:00Z \x1b[31mred\x1b[0m {POISON}\n".encode()

    def with_timeout(self, seconds: float) -> Hostile:
        return self

    def request(self, *_: Any, **__: Any) -> Any:
        raise ApiError(f"no {POISON}")

    create = update = patch = delete = pages = request


COMMANDS = [
    ["get"],
    ["get", "-A"],
    ["get", "job"],
    ["get", "-o", "json"],
    ["get", "-o", "yaml"],
    ["describe", "job"],
    ["wait", "job"],
    ["wait", "job", "-o", "json", "--logs"],
    ["cancel", "job"],
    ["delete", "job"],
    ["runtimes", "list", "--cluster"],
    ["runtimes", "list", "--cluster", "-o", "json"],
    ["doctor"],
    ["doctor", "-o", "json"],
]


@pytest.fixture(params=[False, True], ids=["readable", "denied"])
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    cluster = Hostile(denied=request.param)
    for module in ("jobs", "logs", "waiting", "diff"):
        monkeypatch.setattr(f"trainwright.cli.{module}.jobs_cluster_for", lambda *_: JobsClient.of(cluster))
    monkeypatch.setattr("trainwright.cli.runtimes.cluster_for", lambda *_: cluster)
    monkeypatch.setattr("trainwright.cli.doctor.selected_cluster", lambda *_: cluster)
    return cluster


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_passes_control_characters_or_markup_on(
    hostile: Hostile, command: list[str], terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "1000")
    result = CliRunner().invoke(app, command)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    printed = COLOURS.sub("", result.output) if terminal else result.output
    if "--logs" in command:
        printed = "\n".join(line for line in printed.splitlines() if "\x1b[31mred" not in line and "red " not in line)
    assert not CONTROL.search(printed), repr(printed)
    assert "[/red][bold] :tada:" in printed or command[0] == "cancel"
    assert "\U0001f389" not in printed


def test_json_and_yaml_keep_the_value(hostile: Hostile) -> None:
    import yaml

    if hostile.denied:
        return
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        result = CliRunner().invoke(app, ["get", "job", "-o", form])
        assert read(result.stdout) == hostile.objects["TrainJob"]


LOG = f"\x1b[1;31mred\x1b[0m\r50%\t{POISON}\x1bP1$q\x1b\\a\x1b[2Jb\x1b]8;;http://x\x07link\x1b]8;;\x07\x08\x1bcz"


def test_logs_on_a_terminal_keep_colours_only() -> None:
    kept = with_colours_only(LOG)
    assert kept == "\x1b[1;31mred\x1b[0m\r50%\t[/red][bold] :tada:ablinkz"
    assert plain(LOG) == "red 50%\t[/red][bold] :tada:ablinkz"
    assert with_colours_only("plain \u00e9 \u4e2d \U0001f600") == "plain \u00e9 \u4e2d \U0001f600"


@pytest.mark.medium
@pytest.mark.parametrize("shape", ["\x1b", "\x1b[", "\x1b[1", "\x1b]", "\x1b]a", "\x9b", "\x1b[1;", "\x1b[[", "a"])
def test_a_long_line_is_cleaned_in_linear_time(shape: str) -> None:
    text = shape * 100_000
    for clean in (with_colours_only, plain, printable, json_printable):
        assert len(clean(text)) <= 6 * len(text)


def test_logs_are_raw_in_a_pipe_and_clean_on_a_terminal(hostile: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    if hostile.denied:
        return
    assert POISON in CliRunner().invoke(app, ["logs", "job"]).stdout
    monkeypatch.setattr("trainwright.cli.logs.is_terminal", lambda: True)
    shown = CliRunner().invoke(app, ["logs", "job"]).stdout
    assert "\x1b[31mred\x1b[0m" in shown
    assert not CONTROL.search(re.sub("\x1b\\[[0-9;]*m", "", shown))
