"""Runs a command beside a container's processes and waits for it: exec probes and lifecycle hooks."""

from __future__ import annotations

import contextlib
import signal
import subprocess

from trainwright.controlplane.node.container import ContainerRun
from trainwright.controlplane.node.container_context import ContainerContext
from trainwright.controlplane.node.handlers import CommandResult
from trainwright.controlplane.node.supervisor.child_command import child_command, signal_child
from trainwright.controlplane.node.supervisor.exec_child import CANNOT_START, NOT_EXECUTABLE, NOT_FOUND

_OUTPUT_BYTES = 64 * 1024
_DRAIN_SECONDS = 1.0


def run_command(argv: list[str], context: ContainerContext, run: ContainerRun, timeout: float) -> CommandResult:
    """Run a command in a container for at most `timeout` seconds; then it is killed with all that it started.

    Raises OSError if it cannot be started.
    """
    isolated_run = run.folder if context.is_isolated else None
    with child_command(argv, context.env, context.cwd, tty=False, isolated_run=isolated_run) as command:
        process = subprocess.Popen(
            command.argv,
            env=command.env,
            pass_fds=command.pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        signal_child(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that left the group holds its output open
            process.communicate(timeout=_DRAIN_SECONDS)
        return CommandResult(None, b"")
    code = process.returncode
    if code in (NOT_FOUND, NOT_EXECUTABLE) and output.startswith(CANNOT_START.encode()):
        raise OSError(output.decode("utf-8", "replace").strip())
    return CommandResult(code if code >= 0 else 128 - code, output[:_OUTPUT_BYTES])
