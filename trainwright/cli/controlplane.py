"""`trainwright up`, `down` and `status`: the embedded control plane of a home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.cli.output import ViewFormat, print_object
from trainwright.cli.problems import fail

HomeOption = Annotated[Path | None, typer.Option("--home", help="Its folder; default TRAINWRIGHT_HOME or ~/.trainwright.")]


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up(
    home: HomeOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port on 127.0.0.1; 0 takes any. Default: the last one.", min=0, max=65535)
    ] = None,
    node: Annotated[bool, typer.Option("--node/--no-node", help="Without node and scheduler, pods stay Pending.")] = True,
    feature_gates: Annotated[str, typer.Option(help="A=true,B=false with upstream's names; TrainJobStatus is on.")] = "",
    queues: Annotated[Path | None, typer.Option(help="A YAML file of queues; suspended TrainJobs wait in them.")] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and stop with Ctrl-C.")] = False,
) -> None:
    """Start the embedded control plane; the last line is the path of its kubeconfig."""
    from trainwright.controlplane.controllers.local_queue.settings import QueueError, parse_queues
    from trainwright.controlplane.gates import GateError, parse_gates
    from trainwright.controlplane.home import Home
    from trainwright.controlplane.lifecycle import StartFailed, command_line, start

    chosen = Home.chosen(home)
    try:
        parse_gates(feature_gates)
        if foreground:
            if queues is not None:
                parse_queues(queues.read_text("utf-8"))
            raise typer.Exit(_stay(command_line(chosen, port=port, node=node, feature_gates=feature_gates, queues=queues)))
        running, fresh = start(chosen, port=port, node=node, feature_gates=feature_gates, queues=queues)
    except (StartFailed, GateError, QueueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or chosen.path}: {error.strerror or error}")
    print(f"{'started' if fresh else 'already running'}: {running.url}", file=sys.stderr)
    print(chosen.kubeconfig)


def down(home: HomeOption = None) -> None:
    """Stop the embedded control plane and everything that it runs; its state stays for the next start."""
    from trainwright.controlplane.home import Home
    from trainwright.controlplane.lifecycle import stop

    chosen = Home.chosen(home)
    try:
        was_running = stop(chosen)
    except TimeoutError as error:
        fail(str(error))
    print(f"{'stopped' if was_running else 'not running'}: {chosen.path}", file=sys.stderr)


def status(home: HomeOption = None, output: Annotated[ViewFormat, typer.Option("-o", "--output")] = ViewFormat.table) -> None:
    """Show whether the control plane runs, where, and what it works on. Exit code 1 when it does not run."""
    from trainwright.controlplane.home import Home

    chosen = Home.chosen(home)
    running = chosen.running()
    answer: dict[str, Any] = {"home": str(chosen.path), "running": running is not None}
    if running is not None:
        answer |= {"url": running.url, "pid": running.pid, "since": running.started, "kubeconfig": str(chosen.kubeconfig)}
        answer["objects"] = _counts(chosen.kubeconfig)
    if output is ViewFormat.table:
        for name, value in answer.items():
            shown = ", ".join(f"{count} {kind}" for kind, count in value.items()) if isinstance(value, dict) else value
            print(f"{name:<11} {shown}")
    else:
        print_object(answer, output)
    if running is None:
        raise typer.Exit(1)


def _counts(kubeconfig: Path) -> dict[str, int]:
    from trainwright.api.kinds import JOBSET, POD, TRAINJOB
    from trainwright.cluster import connect

    cluster = connect(kubeconfig)
    return {kind.plural: len(cluster.list(kind).items) for kind in (TRAINJOB, JOBSET, POD)}


def _stay(command: list[str]) -> int:
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()  # it got the signal too, and stops in order
