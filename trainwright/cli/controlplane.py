"""`trainwright up`, `down`, `status` and `backup`: the embedded control plane."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.api.terminal_text import printable
from trainwright.cli.connection import home_folder
from trainwright.cli.errors import fail
from trainwright.cli.output import ViewFormat, print_lines, print_object


class Durability(StrEnum):
    """What an acknowledged write survives."""

    normal = "normal"
    full = "full"


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home", help="Folder of the control plane; default: TRAINWRIGHT_HOME or ~/.trainwright.", callback=home_folder
    ),
]


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("backup")(backup)


def up(
    home: HomeOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1; 0 uses any free port. Default: the previous one.", min=0, max=65535)
    ] = None,
    node: Annotated[
        bool, typer.Option("--node/--no-node", help="Run a node and a scheduler; without them pods stay Pending.")
    ] = True,
    feature_gates: Annotated[
        str, typer.Option(help="A=true,B=false with the names of Kubeflow Trainer; TrainJobStatus is on by default.")
    ] = "",
    durability: Annotated[
        Durability, typer.Option(help="Writes survive: normal, the end of the process; full, also a power failure.")
    ] = Durability.normal,
    restore: Annotated[
        Path | None, typer.Option(help="Start with the state of a backup; the current state is kept.", metavar="FILE")
    ] = None,
    queues: Annotated[Path | None, typer.Option(help="YAML file of queues, in which suspended TrainJobs wait.")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Run in the foreground until Ctrl-C.")] = False,
) -> None:
    """Start the embedded control plane; the last line of output is the path of its kubeconfig."""
    from trainwright.controlplane.backup import BackupFailed
    from trainwright.controlplane.backup import restore as restore_backup
    from trainwright.controlplane.controllers.local_queue.settings import QueueError, parse_queues
    from trainwright.controlplane.gates import GateError, parse_gates
    from trainwright.controlplane.home import Home, HomeLocked
    from trainwright.controlplane.lifecycle import StartFailed, command_line, start

    chosen = Home.chosen(home)
    try:
        parse_gates(feature_gates)
        if restore is not None:
            restore_backup(chosen, restore)
        if foreground:
            if queues is not None:
                parse_queues(queues.read_text("utf-8"))
            command = command_line(
                chosen, port=port, node=node, feature_gates=feature_gates, durability=durability.value, queues=queues
            )
            raise typer.Exit(_run_in_foreground(command))
        running, fresh = start(
            chosen, port=port, node=node, feature_gates=feature_gates, durability=durability.value, queues=queues
        )
    except (StartFailed, GateError, QueueError, BackupFailed, HomeLocked) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or chosen.path}: {error.strerror or error}")
    print(f"{'started' if fresh else 'already running'}: {running.url}", file=sys.stderr)
    print_lines(chosen.kubeconfig)


def down(home: HomeOption = None) -> None:
    """Stop the embedded control plane and everything that it runs; its state is kept for the next start."""
    from trainwright.controlplane.home import Home
    from trainwright.controlplane.lifecycle import stop

    chosen = Home.chosen(home)
    try:
        was_running = stop(chosen)
    except TimeoutError as error:
        fail(str(error))
    print_lines(f"{'stopped' if was_running else 'not running'}: {chosen.path}", error=True)


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")], home: HomeOption = None
) -> None:
    """Write the cluster's state, running or not, to a file for `up --restore FILE`. The file contains the cluster's Secrets."""
    from trainwright.controlplane.backup import BackupFailed, back_up
    from trainwright.controlplane.home import Home

    try:
        contents = back_up(Home.chosen(home), target)
    except BackupFailed as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or target}: {error.strerror or error}")
    print(f"{contents.objects} objects at version {contents.revision}", file=sys.stderr)
    print_lines(target)


def status(home: HomeOption = None, output: Annotated[ViewFormat, typer.Option("-o", "--output")] = ViewFormat.table) -> None:
    """Show whether the control plane is running, its address, and its number of objects. Exit code 1 if it is not running."""
    from trainwright.controlplane.home import Home

    chosen = Home.chosen(home)
    running = chosen.running()
    state: dict[str, Any] = {"home": printable(chosen.path), "running": running is not None}
    if running is not None:
        state |= {"url": running.url, "pid": running.pid, "since": running.started, "kubeconfig": str(chosen.kubeconfig)}
        state["objects"] = _counts(chosen.kubeconfig)
    if output is ViewFormat.table:
        for name, value in state.items():
            shown = ", ".join(f"{count} {kind}" for kind, count in value.items()) if isinstance(value, dict) else value
            print_lines(f"{name:<11} {shown}")
    else:
        print_object(state, output)
    if running is None:
        raise typer.Exit(1)


def _counts(kubeconfig: Path) -> dict[str, int]:
    from trainwright.api.kinds import JOBSET, POD, TRAINJOB
    from trainwright.cluster import connect

    cluster = connect(kubeconfig)
    return {kind.plural: len(cluster.list(kind).items) for kind in (TRAINJOB, JOBSET, POD)}


def _run_in_foreground(command: list[str]) -> int:
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()  # the child received the signal, too, and shuts down
