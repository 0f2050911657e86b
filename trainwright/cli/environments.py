"""`trainwright environments`: lists, prepares and removes the environments in which the embedded cluster runs known images."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trainwright.cli.connection import HomeChoice
from trainwright.cli.errors import BAD_INPUT, FAILURE, fail
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import ViewFormat, print_lines, print_object, print_table
from trainwright.controlplane.environments import (
    EnvironmentDefinition,
    EnvironmentFailed,
    EnvironmentsFileError,
    EnvironmentStore,
)
from trainwright.controlplane.environments.definition import environments_of
from trainwright.embedded.home import Home
from trainwright.text.suggest import suggest

group = typer.Typer(
    cls=CommandsByGroup, no_args_is_help=True, help="Python environments for the images of runtimes, on the embedded cluster."
)
Output = Annotated[ViewFormat, typer.Option("-o", "--output", help="Form of the output.")]
_MEBIBYTE = 1024 * 1024


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="environments")


@group.command("list")
def list_environments(home: HomeChoice = None, output: Output = ViewFormat.table) -> None:
    """List environments, the images that run in them, and which are ready."""
    with _errors_exit():
        found = list(_rows(environments_of(Home.chosen(home).path), EnvironmentStore.chosen()))
    if output is not ViewFormat.table:
        print_object({"environments": found}, output)
        return
    rows = ((row["name"], row["state"], _size(row), ", ".join(row["images"]), row["path"]) for row in found)
    print_table(("NAME", "STATE", "SIZE", "IMAGES", "PATH"), rows)


@group.command("prepare")
def prepare_environments(
    names: Annotated[list[str] | None, typer.Argument(help="Names of environments; default: all that the cluster needs.")] = None,
    home: HomeChoice = None,
) -> None:
    """Install environments now, for example before the machine goes offline, instead of when a pod first needs them."""
    store = EnvironmentStore.chosen()
    with _errors_exit():
        definitions = environments_of(Home.chosen(home).path)
        chosen = _named(definitions, names) if names else [each for each in definitions if each.is_needed]
        for definition in chosen:
            _prepare(store, definition)


@group.command("remove")
def remove_environments(
    names: Annotated[list[str] | None, typer.Argument(help="Names of environments.")] = None,
    outdated: Annotated[bool, typer.Option("--outdated", help="Remove those of former definitions and interpreters.")] = False,
    home: HomeChoice = None,
) -> None:
    """Remove environments from the disk. One that is needed again is installed again."""
    if not names and not outdated:
        fail("name an environment, or use --outdated", BAD_INPUT)
    store = EnvironmentStore.chosen()
    with _errors_exit():
        current = {store.place(each) for each in environments_of(Home.chosen(home).path)}
        wanted = [each for each in store.prepared() if each.name in (names or []) or (outdated and each.path not in current)]
        if unknown := sorted({*(names or [])} - {each.name for each in wanted}):
            fail(
                f"no environment {unknown[0]!r} is prepared; {suggest(unknown[0], [each.name for each in store.prepared()])}",
                BAD_INPUT,
            )
        for each in wanted:
            if users := processes_with(each.path):
                fail(f"{each.name} is in use by processes {', '.join(map(str, users[:5]))}: delete their pods first", FAILURE)
            store.remove(each.path)
            print_lines(f"removed {each.name} ({each.path})")
        if not wanted:
            print_lines("nothing is outdated")


def processes_with(path: Path) -> list[int]:
    """Return the processes whose programs come from an environment: its `bin` is in their PATH. Linux only; elsewhere empty."""
    wanted = f"{path}/bin".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if int(process.name) != os.getpid() and any(each.startswith(b"PATH=" + wanted + b":") for each in variables):
            found.append(int(process.name))
    return sorted(found)


def _prepare(store: EnvironmentStore, definition: EnvironmentDefinition) -> None:
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if (ready := store.find(definition)) is not None:  # building it takes minutes
        print_lines(f"{definition.name} is ready ({ready.path})")
        return
    with console.status(f"preparing {definition.name}") as status:

        def report(message: str) -> None:
            status.update(f"preparing {definition.name}: {message}")
            if not console.is_terminal:
                console.print(f"{definition.name}: {message}")

        ready = store.prepare(definition, report)
    print_lines(f"{definition.name} is ready after {ready.seconds:.0f} s ({ready.path})")


def _named(definitions: tuple[EnvironmentDefinition, ...], names: list[str]) -> list[EnvironmentDefinition]:
    known = {definition.name: definition for definition in definitions}
    for name in names:
        if name not in known:
            fail(f"no environment is named {name!r}; {suggest(name, list(known))}", BAD_INPUT)
    return [known[name] for name in names]


def _rows(definitions: tuple[EnvironmentDefinition, ...], store: EnvironmentStore) -> Iterator[dict[str, Any]]:
    current = set()
    for definition in definitions:
        place, ready = store.place(definition), store.find(definition)
        current.add(place)
        missing = "not prepared" if definition.is_needed else "not needed"
        row = {"name": definition.name, "images": list(definition.images), "requirements": list(definition.requirements)}
        state = {"state": missing, "path": ""} if ready is None else {"state": "ready", "path": str(place)}
        yield row | state | ({"mebibytes": _mebibytes(place), "packages": list(ready.packages)} if ready is not None else {})
    for former in store.prepared():
        if former.path not in current:
            about = {"name": former.name, "images": [], "state": "outdated", "path": str(former.path)}
            yield about | {"mebibytes": _mebibytes(former.path), "packages": list(former.packages)}


def _mebibytes(folder: Path) -> int:
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(file.lstat().st_blocks * 512 for file in files) // _MEBIBYTE


def _size(row: dict[str, Any]) -> str:
    return f"{row['mebibytes']} MiB" if "mebibytes" in row else ""


@contextmanager
def _errors_exit() -> Iterator[None]:
    try:
        yield
    except EnvironmentsFileError as error:
        fail(str(error), BAD_INPUT)
    except EnvironmentFailed as error:
        fail(str(error), FAILURE)
    except (OSError, shutil.Error) as error:
        fail(f"{error.filename or ''}: {error.strerror or error}", FAILURE)
