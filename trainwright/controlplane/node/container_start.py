"""Starts a run of a container: its configuration, its process; and says what of it cannot be had, like a kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.controlplane.node.container import ContainerRun, kill_run_processes, remove_old_runs, run_of
from trainwright.controlplane.node.container_context import ContainerContext, NodeServices, create_context
from trainwright.controlplane.node.container_image import CannotStart, ContainerImage
from trainwright.controlplane.node.expansion import ArgumentsTooLong, expand_words
from trainwright.controlplane.node.images import ImageEnvironment
from trainwright.controlplane.node.isolation.plan import PROCESS_LIMIT
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.decision import Launch
from trainwright.controlplane.node.lifecycle.events import Record
from trainwright.controlplane.node.mpi.stand_in import replace_program
from trainwright.controlplane.node.volumes.references import ConfigError, VolumeError

_MAX_TRIES = 2


class ContainerStart:
    """Starts the runs of one container, whose pod's files are in `folder`."""

    def __init__(self, spec: Obj, services: NodeServices, folder: Path):
        self._spec, self._services, self._folder = spec, services, folder
        self._image = ContainerImage(spec, services.images, services.environments)

    def start(self, pod: Obj, launch: Launch, record: Record) -> ContainerContext:
        """Start a run, and record the events of it. Raises CannotStart."""
        state = launch.container
        run = run_of(state.name, launch.attempt, self._folder)
        try:
            environment = self._image.find(state, record)
            _check_user(pod, self._spec, environment)
            with _counted(self._folder / f"{state.name}.tries"):
                context = self.context(pod, run)
                argv = self._command(context, environment)
        # A NUL in a path is a ValueError, an id beyond the mapped ones an OverflowError.
        except (ConfigError, VolumeError, OSError, ValueError, OverflowError, MemoryError) as error:
            record(events.about(state, "Failed", f"Error: {error}", warning=True))
            reason = "CreateContainerError" if isinstance(error, ArgumentsTooLong | _EndedTwice) else "CreateContainerConfigError"
            raise CannotStart(reason, str(error)) from error
        try:
            self._remove_old(pod, launch, context)
            self._limit(pod, launch, context)
            starter, warm = self._services.start_supervisor, self._services.warm_parent
            if warm is not None and (environment is None or environment.environment is None):  # it has the node's own modules
                starter = warm.starter(argv, context.env, context.more.get("isolation"))
            run.start(
                argv,
                context.env,
                context.cwd,
                context.more,
                backoff_seconds=launch.backoff_seconds,
                start_supervisor=starter,
            )
        except OSError as error:  # a full disk, or no supervisor
            record(events.about(state, "Failed", f"Error: {error}", warning=True))
            raise CannotStart("CreateContainerError", str(error)) from error
        record(events.about(state, "Created", "Container created"))
        return context

    def _remove_old(self, pod: Obj, launch: Launch, context: ContainerContext) -> None:
        """Remove what is left of earlier runs. Raises OSError."""
        name = launch.container.name
        if launch.attempt:
            if not context.is_isolated:
                kill_run_processes(run_of(name, launch.attempt - 1, self._folder), uid_of(pod))
            if self._services.cgroups is not None:
                self._services.cgroups.remove_run(uid_of(pod), name, launch.attempt - 1)
        remove_old_runs(name, launch.attempt, self._folder)

    def _limit(self, pod: Obj, launch: Launch, context: ContainerContext) -> None:
        """Create the control groups of a container. Without them, its supervisor watches over a memory limit. Raises OSError."""
        if (groups := self._services.cgroups) is None:
            return  # this user may create none
        limit = context.more.get("memory_limit") or None
        made = groups.create(uid_of(pod), launch.container.name, launch.attempt, limit, PROCESS_LIMIT)
        context.more["cgroup"] = [str(folder) for folder in made]
        if groups.limit_memory:
            context.more.pop("memory_limit", None)

    def context(self, pod: Obj, run: ContainerRun) -> ContainerContext:
        """Return the context of a run's processes. Raises ConfigError, OSError."""
        return create_context(pod, self._spec, run, self._folder, self._services)

    def _command(self, context: ContainerContext, environment: ImageEnvironment | None) -> list[str]:
        command = self._spec.get("command") or (environment.command if environment is not None else None)
        if not command:
            raise ConfigError(
                f"container {self._spec['name']!r} has no command, and the image {self._spec.get('image')!r} is not run here: "
                "set a command, or say in images.yaml what the image runs"
            )
        words = [*command, *(self._spec.get("args") or [])]
        if environment is not None:
            words = replace_program(words, environment.programs)
        return expand_words(words, context.references, context.rewrite)


class _EndedTwice(ConfigError):
    """The control plane has ended twice while it prepared the container."""


@contextmanager
def _counted(tries: Path) -> Iterator[None]:
    """Refuse what has ended this process twice, with all that runs in it. Raises _EndedTwice.

    The file `tries` has a byte for each time that it was begun and not ended. It exists only meanwhile: any end in this process,
    success or error, removes it, so that other deaths of the process count only for containers that were being prepared.
    """
    tries.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(tries, "ab") as file:
        if file.tell() >= _MAX_TRIES:
            raise _EndedTwice(
                "the control plane has ended twice while it prepared this container, which is not tried again; if something else "
                "ended it, delete the pod: the one in its place is tried"
            )
        file.write(b".")
    try:
        yield
    finally:
        tries.unlink()


def _check_user(pod: Obj, container: Obj, image: ImageEnvironment | None) -> None:
    """Refuse a container that must not run as root and would. Raises ConfigError, in the kubelet's words.

    An image that is not known here may have a user: its container runs, and an Event says what is not honoured.
    """
    settings = {**(pod["spec"].get("securityContext") or {}), **(container.get("securityContext") or {})}
    if not settings.get("runAsNonRoot") or settings.get("runAsUser"):
        return  # root is allowed, or it is another user
    where = f'(pod: "{name_of(pod)}_{namespace_of(pod)}({uid_of(pod)})", container: {container["name"]})'
    if settings.get("runAsUser") == 0:
        raise ConfigError(f"container's runAsUser breaks non-root policy {where}")
    if image is None or image.user or not image.knows_user:
        return
    raise ConfigError(f"container has runAsNonRoot and image will run as root {where}")
