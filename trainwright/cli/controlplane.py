"""`trainwright up`, `down`, `status` and `backup`: the embedded control plane."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trainwright.cli.connection import home_folder
from trainwright.cli.errors import fail
from trainwright.cli.output import ViewFormat, print_lines, print_object
from trainwright.cluster.protocol import Cluster
from trainwright.embedded.options import (
    ALL_CONTROLLERS,
    ControllerName,
    InvalidControllers,
    format_controllers,
    parse_controllers,
)
from trainwright.text.foreign_texts import printable

if TYPE_CHECKING:
    from trainwright.embedded.home import Home, Running

LOOPBACK = "127.0.0.1"
_ANSWER_SECONDS = 10.0
"""For each request after the first, which has a shorter time of its own."""


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
    controllers: Annotated[
        str | None,
        typer.Option(
            help=f"Run only these controllers: names separated by commas, of {', '.join(ALL_CONTROLLERS)}.", metavar="NAMES"
        ),
    ] = None,
    no_controllers: Annotated[
        bool, typer.Option("--no-controllers", help="Run an API server and a node, for controllers that others run.")
    ] = False,
    feature_gates: Annotated[
        str, typer.Option(help="A=true,B=false with the names of Kubeflow Trainer; TrainJobStatus is on by default.")
    ] = "",
    durability: Annotated[
        Durability, typer.Option(help="Writes survive: normal, the end of the process; full, also a power failure.")
    ] = Durability.normal,
    restore: Annotated[
        Path | None, typer.Option(help="Start with the state of a backup; the current state is kept.", metavar="FILE")
    ] = None,
    max_token_seconds: Annotated[
        int | None,
        typer.Option(
            help="Longest life of service account tokens; longer requests are shortened. Default: a day.", min=3600, max=2**32
        ),
    ] = None,
    host_folder: Annotated[
        list[Path] | None,
        typer.Option(help="A folder below which everyone may choose the host path of a claim. Repeatable.", metavar="FOLDER"),
    ] = None,
    queues: Annotated[Path | None, typer.Option(help="YAML file of queues, in which suspended TrainJobs wait.")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Run in the foreground until Ctrl-C or SIGTERM.")] = False,
) -> None:
    """Start the embedded control plane; the last line of output is the path of its kubeconfig."""
    from trainwright.cli.page_link import page_line
    from trainwright.controlplane.controllers.local_queue.settings import QueueError
    from trainwright.controlplane.host_paths import HostPathPolicy, shared_folder_problems
    from trainwright.embedded.backup import BackupFailed
    from trainwright.embedded.backup import restore as restore_backup
    from trainwright.embedded.home import Home, HomeLocked
    from trainwright.embedded.lifecycle import StartFailed, check_options, command_line, start
    from trainwright.embedded.options import GateError

    chosen = Home.chosen(home)
    try:
        page_port = chosen.last_page_port()
        names = _chosen_controllers(controllers, no_controllers)
        check_options(feature_gates, queues, names)
        if restore is not None:
            restore_backup(chosen, restore)
        options: dict[str, Any] = {
            "port": port,
            "node": node,
            "feature_gates": feature_gates,
            "durability": durability.value,
            "queues": queues,
            "controllers": names,
            "max_token_seconds": max_token_seconds,
            "host_folders": tuple(folder.absolute() for folder in host_folder or ()),
        }
        if foreground:
            _replace_process(command_line(chosen, **options))
        for problem in shared_folder_problems(HostPathPolicy.of_cluster(chosen.path, chosen.claims)):
            print_lines(f"warning: {printable(problem)}", error=True)
        running, fresh = start(chosen, **options)
    except (StartFailed, GateError, QueueError, InvalidControllers, BackupFailed, HomeLocked) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or chosen.path}: {error.strerror or error}")
    print(f"{'started' if fresh else 'already running'}: {running.url}", file=sys.stderr)
    if fresh and page_port and running.page and page_port != chosen.last_page_port():
        print_lines(
            f"page: another program listens on its port {page_port}; remove what the browser has stored for that address (see "
            "docs/page.md), and open pages that were open there again",
            error=True,
        )
    if line := page_line(chosen, is_terminal=sys.stderr.isatty()):
        print_lines(line, error=True)
    print_lines(chosen.kubeconfig)


def _chosen_controllers(names: str | None, no_controllers: bool) -> tuple[ControllerName, ...] | None:
    """Return the controllers that the options name, or None if there are no such options. Raises InvalidControllers."""
    if no_controllers:
        if names is not None:
            raise InvalidControllers("--controllers and --no-controllers exclude each other")
        return ()
    return None if names is None else parse_controllers(names)


def _replace_process(command: list[str]) -> NoReturn:
    """Become the control plane: a service manager, or a terminal, that started this process signals and waits for that one."""
    os.execv(command[0], command)  # noqa: S606  (an argument list, no shell)


def down(home: HomeOption = None) -> None:
    """Stop the embedded control plane and everything that it runs; its state is kept for the next start."""
    from trainwright.embedded.home import Home
    from trainwright.embedded.lifecycle import stop

    chosen = Home.chosen(home)
    try:
        was_running = stop(chosen)
    except TimeoutError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or chosen.path}: {error.strerror or error}")
    print_lines(f"{'stopped' if was_running else 'not running'}: {chosen.path}", error=True)


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")], home: HomeOption = None
) -> None:
    """Write the cluster's state, running or not, to a file for `up --restore FILE`. The file contains the cluster's Secrets."""
    from trainwright.embedded.backup import BackupFailed, back_up
    from trainwright.embedded.home import Home

    try:
        contents = back_up(Home.chosen(home), target)
    except BackupFailed as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or target}: {error.strerror or error}")
    print(f"{contents.objects} objects at version {contents.revision}", file=sys.stderr)
    print_lines(target)


def status(
    home: HomeOption = None,
    output: Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")] = ViewFormat.table,
) -> None:
    """Show whether the control plane is running, its address, controllers, isolation of pods, and number of objects.

    Exit code 1 if it is not running, or does not respond, which is said within 3 seconds.
    """
    from trainwright.api.errors import ApiError
    from trainwright.embedded.health import health_problem
    from trainwright.embedded.home import Home

    chosen = Home.chosen(home)
    try:
        running = chosen.running()
    except OSError as error:
        fail(f"{error.filename or chosen.path}: {error.strerror or error}")
    state: dict[str, Any] = {"home": printable(chosen.path), "running": running is not None}
    if running is not None:
        state |= {
            "url": running.url,
            "pid": running.pid,
            "since": running.started,
            "kubeconfig": str(chosen.kubeconfig),
            "page": running.page,
        }
        state["controllers"] = list(running.controllers)
        problem = health_problem(LOOPBACK, running.port, chosen.authority)
        try:
            state |= {} if problem else _contents(chosen, running)
        except ApiError as error:
            problem = error.message
        if problem:
            state["problem"] = f"{printable(problem)}; see {printable(chosen.log)}"
    if output is ViewFormat.table:
        for name, value in _rows(state):
            print_lines(f"{name:<11} {value}")
    else:
        print_object(state, output)
    if running is None or "problem" in state:
        raise typer.Exit(1)


def _contents(home: Home, running: Running) -> dict[str, Any]:
    """Return what the cluster says of itself. Raises ApiError."""
    from trainwright.cluster import connect

    cluster = connect(home.kubeconfig).with_timeout(_ANSWER_SECONDS)
    isolation = _isolation(cluster) if running.node else None
    return {**({"isolation": isolation} if isolation is not None else {}), "objects": _counts(cluster)}


def _isolation(cluster: Cluster) -> dict[str, str] | None:
    """Return how the node isolates pods, and why if not by namespaces of the kernel; None if the node does not say."""
    from trainwright.api.conditions import condition
    from trainwright.api.errors import NotFound
    from trainwright.api.kinds import NODE
    from trainwright.controlplane.node.registration import ISOLATION_CONDITION, NODE_NAME

    try:
        found = condition(cluster.get(NODE, NODE_NAME), ISOLATION_CONDITION)
    except NotFound:
        return None
    if found is None:  # the node has not reported yet
        return None
    message = {"message": found["message"]} if found.get("message") else {}
    return {"status": found["status"], "reason": found["reason"], **message}


def _counts(cluster: Cluster) -> dict[str, int]:
    from trainwright.api.kinds import JOBSET, POD, TRAINJOB

    return {kind.plural: len(cluster.list(kind).items) for kind in (TRAINJOB, JOBSET, POD)}


def _rows(state: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The state as lines for people. Controllers are left out if all run."""
    for name, value in state.items():
        if name == "objects":
            yield name, ", ".join(f"{count} {kind}" for kind, count in value.items())
        elif name == "isolation":
            is_isolated = value["status"] == "True"
            yield name, "kernel namespaces" if is_isolated else f"paths are rewritten: {value.get('message', value['reason'])}"
        elif name != "controllers":
            yield name, value
        elif tuple(value) != ALL_CONTROLLERS:
            yield name, format_controllers(value)
