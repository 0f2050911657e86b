"""`trainwright submit` of one training step, on an embedded cluster with its pods."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import replicated_job, runtime
from support.recorded_tracking import RecordedTracking

from trainwright.api.errors import AlreadyExists
from trainwright.api.kinds import CONFIG_MAP, TRAINJOB
from trainwright.api.objects import name_of, owners_of
from trainwright.cli import submit_step
from trainwright.cluster import connect
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity
from trainwright.jobs.diagnosis.errors import TrainJobFailed
from trainwright.jobs.state.attempts import needs_new_attempt

Run = Callable[..., Any]
pytestmark = pytest.mark.medium


def plain(name: str, retries: int, restart_policy: str) -> Any:
    step = replicated_job(step="trainer", backoffLimit=retries, pod_spec={"restartPolicy": restart_policy})
    return runtime(name, step, namespace="default", labels={"trainer.kubeflow.org/framework": "plain"})


PLAIN, AGAIN = plain("plain", 0, "Never"), plain("again", 6, "OnFailure")
ON_PLAIN = ("--runtime", "plain", "--runtime-kind", "TrainingRuntime")
ON_AGAIN = ("--runtime", "again", "--runtime-kind", "TrainingRuntime")


def submitted(run: Run, *options: str) -> Any:
    return run("submit", *options)


@pytest.fixture
def plain_runtime(plane: ControlPlane) -> None:
    """Runs python3: torchrun would take seconds."""
    with contextlib.suppress(AlreadyExists):
        connect().create(PLAIN)


@pytest.fixture
def again_runtime(plane: ControlPlane) -> None:
    """As `plain`, but starts a program that has failed again."""
    with contextlib.suppress(AlreadyExists):
        connect().create(AGAIN)


def job_of(run: Run, run_id: str) -> Any:
    return json.loads(run("get", Identity("cli", run_id, "train").name(), "-o", "json").stdout)


def test_a_function_returns_its_results(plane: ControlPlane, plain_runtime: None, run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def train(n):\n    print('training', n)\n    return {'loss': n / 2}\n")
    options = (
        *ON_PLAIN,
        "--func",
        f"{tmp_path}/program.py:train",
        "--func-args",
        "n=3",
        "--run-id",
        "fx",
        "--wait",
        "--timeout",
        "60",
    )
    done = submitted(run, *options)
    name = Identity("cli", "fx", "train").name()
    assert done.exit_code == 0, done.output
    first, last, rest = done.stdout.split("\n", 2)
    assert first == f"TrainJob default/{name} created, run fx"
    assert last == f"TrainJob default/{name} Succeeded"
    assert json.loads(rest) == {"results": {"loss": 1.5}}
    taken = submitted(run, *options, "--adopt-finished", "true")
    assert taken.exit_code == 0
    assert taken.stdout.startswith(f"TrainJob default/{name} adopted, which has ended before, run fx\n")
    assert json.loads(taken.stdout.split("\n", 2)[2]) == {"results": {"loss": 1.5}}
    assert run("logs", name).stdout == run("logs", name, "--tail", "1").stdout == "training 3\n"
    again = submitted(run, *(option.replace("n=3", "n=4") for option in options))
    assert again.stdout.startswith(f"TrainJob default/{name}-2 created, run fx\n"), "its success was seen: it trains again"
    assert json.loads(again.stdout.split("\n", 2)[2]) == {"results": {"loss": 2.0}}


@pytest.mark.parametrize(("program", "ended"), [("print(1)", None), ("raise SystemExit(9)", TrainJobFailed)])
def test_metrics_go_to_trackers_while_the_command_waits(
    plane: ControlPlane,
    plain_runtime: None,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    ended: type[BaseException] | None,
) -> None:
    tracked = RecordedTracking()
    monkeypatch.setattr(submit_step, "tracking", tracked)
    (tmp_path / "program.py").write_text(f"def train():\n    {program}\n")
    options = (*ON_PLAIN, "--func", f"{tmp_path}/program.py:train", "--run-id", f"tracked-{len(program)}", "--timeout", "60")
    alone = submitted(run, *options, "--tracking", "wandb")
    assert alone.exit_code == 2
    assert "--tracking: metrics are sent while the command waits; add --wait" in alone.stderr
    submitted(run, *options, "--wait", "--tracking", "wandb:team/project")
    assert tracked.targets == ["wandb:team/project"]
    assert (bool(tracked.uid), bool(tracked.events)) == (True, True)
    (end,) = tracked.ended
    assert end is None if ended is None else end is not None and issubclass(end, ended)


def test_code_runs_in_its_folder(plane: ControlPlane, plain_runtime: None, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "helper.py").write_text("value = 'ü'")
    (folder / "train.py").write_text(
        "import helper, json, sys\nprint('$HOME', sys.argv[1:])\njson.dump([helper.value, *sys.argv[1:]], open('results.json', 'w'))\n"
    )
    options = ("--code", str(folder), "--command", "train.py --lr 0.1", "--run-id", "cx")
    done = submitted(run, *ON_PLAIN, *options, "--wait", "--timeout", "60")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.split("\n", 2)[2]) == {"results": ["ü", "--lr", "0.1"]}
    assert "$HOME ['--lr', '0.1']" in run("logs", name_of(job_of(run, "cx"))).stdout
    owned = [
        one
        for one in connect().list(CONFIG_MAP, "default").items
        if any(owner["name"] == name_of(job_of(run, "cx")) for owner in owners_of(one))
    ]
    assert len([one for one in owned if "-code-" in name_of(one)]) == 1


def test_a_manifest_is_adopted_and_after_a_failure_comes_the_next(
    plane: ControlPlane, plain_runtime: None, run: Run, write: Any, trainjob: Any
) -> None:
    on_plain = {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}}
    path = write(trainjob("ignored", script="exit 3", **on_plain))
    first = submitted(run, "-f", path, "--run-id", "mx", "--wait", "--timeout", "60")
    name = Identity("cli", "mx", "train").name()
    assert first.exit_code not in (0, 2)
    assert first.stdout.startswith(f"TrainJob default/{name} created, run mx\n")
    assert "exited 3" in first.stderr, first.stderr
    suspended = write(trainjob("ignored", suspend=True, **on_plain), name="next.yaml")
    second = submitted(run, "-f", suspended, "--run-id", "mx")
    assert second.stdout == f"TrainJob default/{name}-2 created, run mx\n"
    assert submitted(run, "-f", suspended, "--run-id", "mx").stdout == f"TrainJob default/{name}-2 adopted, run mx\n"
    assert json.loads(submitted(run, "-f", suspended, "--run-id", "mx", "-o", "json").stdout)["metadata"]["name"] == f"{name}-2"


def test_a_step_that_fails_says_so_as_a_document(plane: ControlPlane, plain_runtime: None, run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("def train():\n    raise SystemExit(9)\n")
    done = submitted(
        run, *ON_PLAIN, "--func", f"{tmp_path}/program.py:train", "--run-id", "bad", "--wait", "--timeout", "60", "-o", "json"
    )
    document = json.loads(done.stdout)
    assert done.exit_code == document["exitCode"] != 0
    assert document["error"] == "StepFailed"


def test_a_server_dry_run_makes_nothing(plane: ControlPlane, plain_runtime: None, run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    options = (*ON_PLAIN, "--code", str(tmp_path), "--command", "train.py", "--run-id", "dx", "--dry-run", "server")
    name = Identity("cli", "dx", "train").name()
    assert submitted(run, *options).stdout == f"TrainJob default/{name} created (server dry run)\n"
    made = yaml.safe_load(submitted(run, *options, "-o", "yaml").stdout)
    assert (made["kind"], made["metadata"]["name"]) == ("TrainJob", name)
    assert name not in [name_of(one) for one in connect().list(TRAINJOB, "default").items]
    assert not [one for one in connect().list(CONFIG_MAP, "default").items if name in name_of(one)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--runtime", "torch-distributd"), "torch-distributed"),
        (("--builtin", "sfft"), "builtin: 'sfft' is not installed; did you mean sft?"),
        (("--runtime", "torch-distributed"), "command: the runtime 'torch-distributed' has no command"),
        (("--runtime", "torch-distributed", "--settings", "epochs=1"), "settings: the runtime '"),
        (("--settings", "epoch=1"), "settings.epoch: unknown setting; did you mean epochs?"),
        (("--code", "/nowhere/at/all", "--command", "a"), "code: '/nowhere/at/all' is not a folder on the machine"),
    ],
)
@pytest.mark.parametrize("dry_run", ["server", "none"])
def test_dry_run_names_settings_the_cluster_refuses(
    plane: ControlPlane, run: Run, options: tuple[str, ...], words: str, dry_run: str
) -> None:
    done = submitted(run, *options, "--run-id", "wrong", "--dry-run", dry_run)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert words in done.stderr


@pytest.mark.parametrize(
    ("line", "options", "code", "words"),
    [
        ("raise ValueError('told')", (), 10, "FailedTooOften: .* set `limits.restarts` to restart failed pods"),
        ("raise ValueError('told')", ("--restarts", "1"), 10, "FailedTooOften: .* limits.restarts allows 1"),
        (
            "import tw_missing",
            ("--restarts", "5"),
            15,
            "CannotRun: .* exited 15: trainwright cannot run this program: an import of the function failed: ModuleNotFoundError: "
            "No module named 'tw_missing'.* to start it again cannot help",
        ),
    ],
)
def test_program_that_fails_is_not_started_again(
    plane: ControlPlane, again_runtime: None, run: Run, tmp_path: Path, line: str, options: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "program.py").write_text(f"def train():\n    {line}\n")
    run_id = f"again-{code}-{len(options)}"
    begun = time.monotonic()
    done = submitted(
        run, *ON_AGAIN, "--func", f"{tmp_path}/program.py:train", "--run-id", run_id, "--wait", "--timeout", "60", *options
    )
    assert done.exit_code == code, done.stderr
    assert time.monotonic() - begun < 50
    assert re.search(words, done.stderr), done.stderr
    left = job_of(run, run_id)
    assert left["spec"]["suspend"] is True
    assert needs_new_attempt(left)
    name = name_of(left)
    assert " Failed " in run("get", name).stdout
    described = run("describe", name).stdout
    assert re.search(r"^Phase: +Failed$", described, re.MULTILINE)
    assert re.search(rf"^Given up: .*\n  pod {name}-\S+, container node, exit code", described, re.MULTILINE)
    assert "given up by its client" in described, "an event, for kubectl"
    waited = run("wait", name, "--timeout", "60")
    assert (waited.exit_code, bool(re.search(words, waited.stderr))) == (code, True)
    printed = run("logs", name)
    assert "were deleted when it was given up" in printed.stderr
    assert line.split("(")[0].split()[-1] in printed.stdout, "the last lines"


@pytest.mark.parametrize(
    ("options", "suspended", "words"), [((), True, "it is suspended"), (("--on-cancel", "keep"), False, "it keeps running")]
)
def test_training_that_diverges_is_suspended(
    plane: ControlPlane, plain_runtime: None, run: Run, tmp_path: Path, options: tuple[str, ...], suspended: bool, words: str
) -> None:
    lines = (
        "import time",
        "for step in range(5):",
        "    print({'loss': float('nan'), 'step': step}, flush=True)",
        "time.sleep(600)",
    )
    (tmp_path / "program.py").write_text("\n    ".join(("def train():", *lines)))
    run_id = f"nan-{len(options)}"
    arguments = (*ON_PLAIN, "--func", f"{tmp_path}/program.py:train", "--run-id", run_id, "--wait", "--logs", "--timeout", "60")
    done = submitted(run, *arguments, *options)
    assert done.exit_code == 14, done.stderr
    assert words in done.stderr
    assert bool(job_of(run, run_id)["spec"].get("suspend")) is suspended
    run("delete", Identity("cli", run_id, "train").name())
