"""`trainwright checkpoints`: list, compare, protect, delete and promote the exports of a run."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from trainwright.checkpoints.catalog import ListedExport, pin_export, read_catalog, unpin_export
from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import compare_exports, has_same_files, open_export
from trainwright.checkpoints.promotion import CHAMPION, Alias, AliasRecord, Promotion
from trainwright.checkpoints.prune import Retention, collect_garbage, prune_exports
from trainwright.cli.checkpoint_commands.presentation import Output, errors_exit, path_as_uri, summary
from trainwright.cli.errors import BAD_INPUT, fail
from trainwright.cli.help_pages import CommandsByGroup
from trainwright.cli.output import ViewFormat, print_lines, print_object, print_table
from trainwright.cli.waiting import finite_seconds
from trainwright.storage import open_store
from trainwright.storage.uri import StorageUri

Run = Annotated[str, typer.Argument(help="URI or path of a run's exports, EXPORT_URI/RUN.", callback=path_as_uri)]
ExportUri = Annotated[str, typer.Argument(help="URI or path of an export, EXPORT_URI/RUN/checkpoint-N.", callback=path_as_uri)]
Root = Annotated[str, typer.Argument(help="URI or path of the exports of all runs, EXPORT_URI.", callback=path_as_uri)]
AliasName = Annotated[str, typer.Option("--alias", help="champion, challenger, or another name.")]
Yes = Annotated[bool, typer.Option("--yes", help="Delete; without it, only print what would be deleted.")]
_group = typer.Typer(cls=CommandsByGroup, no_args_is_help=True, help="List, compare, protect, delete and promote exports.")


def register(app: typer.Typer) -> None:
    app.add_typer(_group, name="checkpoints")


@_group.command("list")
def list_exports(
    run: Run,
    metric: Annotated[str, typer.Option(help="Metric to print.")] = "eval_loss",
    output: Output = ViewFormat.table,
) -> None:
    """List the exports of a run, oldest first."""
    with errors_exit():
        exports = read_catalog(open_store(run)).exports
    if output is not ViewFormat.table:
        print_object([_facts(each) for each in exports], output)
        return
    rows = []
    for each in exports:
        manifest = each.export.manifest
        value = manifest.metrics.get(metric)
        shown = "" if value is None else f"{value:.6g}"
        rows.append((each.name, str(manifest.step), manifest.created, _megabytes(manifest.size), shown, _protection(each)))
    print_table(("NAME", "STEP", "PUBLISHED", "SIZE", metric.upper(), "PROTECTED"), rows, empty=f"no exports in {run}")


@_group.command("diff")
def diff_exports(one: ExportUri, other: ExportUri, output: Output = ViewFormat.table) -> None:
    """Compare the files and metrics of two exports. Exit code 1 if their files differ."""
    with errors_exit():
        first, second = open_export(one).manifest, open_export(other).manifest
    facts = compare_exports(first, second)
    if output is not ViewFormat.table:
        print_object({**facts}, output)
    else:
        for kind, paths in (("added", facts["added"]), ("removed", facts["removed"]), ("changed", facts["changed"])):
            for path in paths:
                print_lines(f"{kind:<9} {path}")
        print_lines(f"unchanged {facts['unchanged']} files")
        for name, (was, now) in facts["metrics"].items():
            print_lines(f"{name}: {was} -> {now}")
    if not has_same_files(facts):
        raise typer.Exit(1)


@_group.command("pin")
def pin(uri: ExportUri, reason: Annotated[str, typer.Option(help="Recorded with the pin.")] = "pinned") -> None:
    """Protect an export from deletion."""
    run, name = _split(uri)
    with errors_exit():
        pin_export(open_store(run), name, reason)
    print_lines(f"{name} is pinned ({reason})")


@_group.command("unpin")
def unpin(uri: ExportUri, reason: Annotated[str, typer.Option(help="Remove only the pin with this reason.")] = "") -> None:
    """Remove the pins of an export."""
    run, name = _split(uri)
    with errors_exit():
        unpin_export(open_store(run), name, reason)
    print_lines(f"{name} is not pinned{f' ({reason})' if reason else ''}")


@_group.command("prune")
def prune(
    run: Run,
    keep_last: Annotated[int, typer.Option(min=0, help="Keep the newest N.")] = 0,
    keep_best: Annotated[int, typer.Option(min=0, help="Keep the N with the best metric.")] = 0,
    keep_every: Annotated[int, typer.Option(min=0, help="Keep those whose step is a multiple of N.")] = 0,
    older_than: Annotated[
        float, typer.Option(min=0, max=36_500, help="Delete only those older than so many days.", callback=finite_seconds)
    ] = 0,
    metric: Annotated[str, typer.Option(help="For --keep-best.")] = "eval_loss",
    greater_is_better: Annotated[bool, typer.Option("--greater-is-better", help="Whether a greater metric is better.")] = False,
    yes: Yes = False,
    output: Output = ViewFormat.table,
) -> None:
    """Delete the exports that no rule keeps. Never deleted: the latest, the best, and pinned ones."""
    if not (keep_last or keep_best or keep_every or older_than):
        fail("no rule: set --keep-last, --keep-best, --keep-every or --older-than", BAD_INPUT)
    retention = Retention(
        keep_last=keep_last,
        keep_best=keep_best,
        keep_every=keep_every,
        older_than=timedelta(days=older_than) if older_than else None,
        metric=metric,
        greater_is_better=greater_is_better,
    )
    with errors_exit():
        pruning = prune_exports(run, retention, dry_run=not yes)
    deleted, kept = [each.name for each in pruning.deleted], [each.name for each in pruning.kept]
    if output is not ViewFormat.table:
        facts = {"dry_run": not yes, "deleted": deleted, "kept": kept, "files": len(pruning.files), "bytes": pruning.size}
        print_object(facts, output)
        return
    for name in deleted:
        print_lines(f"{'deleted' if yes else 'would delete'} {name}")
    print_lines(f"{len(deleted)} of {len(deleted) + len(kept)} exports, {_megabytes(pruning.size)}{'' if yes else '; add --yes'}")


@_group.command("gc")
def gc(run: Run, yes: Yes = False, output: Output = ViewFormat.table) -> None:
    """Delete files of exports that were cut off more than a day ago."""
    with errors_exit():
        garbage = collect_garbage(run, dry_run=not yes)
    size = sum(garbage.values())
    if output is not ViewFormat.table:
        print_object({"dry_run": not yes, "files": sorted(garbage), "bytes": size}, output)
        return
    for key in sorted(garbage):
        print_lines(f"{'deleted' if yes else 'would delete'} {key}")
    print_lines(f"{len(garbage)} files, {_megabytes(size)}{'' if yes or not garbage else '; add --yes'}")


@_group.command("promote")
def promote(
    uri: ExportUri,
    alias: AliasName = CHAMPION,
    digest: Annotated[str, typer.Option(help="Expected digest of the export's manifest.")] = "",
    expected: Annotated[str | None, typer.Option(help="Digest that the alias must name now; '' if none.")] = None,
    evaluation: Annotated[Path | None, typer.Option(help="JSON file with the figures that justify it.")] = None,
    reason: Annotated[str, typer.Option(help="Recorded with the promotion.")] = "",
    output: Output = ViewFormat.table,
) -> None:
    """Let an alias name an export. Fails if another one was promoted meanwhile."""
    with errors_exit():
        root = open_store(uri).parent().parent().uri
        record = Alias(str(root), alias).promote(
            uri, digest=digest, expected=expected, evaluation=_read_json(evaluation), reason=reason
        )
    _show_alias(record, output)


@_group.command("rollback")
def rollback(
    root: Root,
    alias: AliasName = CHAMPION,
    expected: Annotated[str | None, typer.Option(help="Digest that the alias must name now.")] = None,
    reason: Annotated[str, typer.Option(help="Recorded with the promotion.")] = "",
    output: Output = ViewFormat.table,
) -> None:
    """Restore the previous export of an alias."""
    with errors_exit():
        record = Alias(root, alias).roll_back(expected=expected, reason=reason)
    _show_alias(record, output)


@_group.command("alias")
def show_alias(root: Root, alias: AliasName = CHAMPION, output: Output = ViewFormat.table) -> None:
    """Show what an alias names, and its history."""
    with errors_exit():
        record = Alias(root, alias).read()
    if record is None:
        fail(f"{root} has no {alias}")
    _show_alias(record, output)


def _show_alias(record: AliasRecord, output: ViewFormat) -> None:
    if output is not ViewFormat.table:
        print_object(record.model_dump(mode="json"), output)
        return
    rows = [(record.alias, *_row(record.current)), *(("", *_row(each)) for each in record.history)]
    print_table(("ALIAS", "PROMOTED", "STEP", "EXPORT", "EVALUATION", "REASON"), rows)


def _row(promotion: Promotion) -> tuple[str, ...]:
    figures = ", ".join(f"{name}={value}" for name, value in promotion.evaluation.items())
    return promotion.promoted, str(promotion.step), promotion.uri, figures, promotion.reason


def _facts(each: ListedExport) -> dict[str, Any]:
    manifest = each.export.manifest
    return {
        "name": each.name,
        "uri": each.export.uri,
        "published": manifest.created,
        **summary(manifest),
        "resumable": manifest.resumable,
        "metrics": manifest.metrics,
        "supersedes": manifest.supersedes,
        "protected_by": list(each.protected_by),
    }


def _protection(each: ListedExport) -> str:
    return ", ".join((*each.protected_by, *(() if each.export.manifest.resumable else ("weights only",))))


def _split(uri: str) -> tuple[str, str]:
    """Return the URI of the run and the name of the export."""
    with errors_exit():
        store = open_store(uri)
        return str(store.parent().uri), StorageUri.parse(uri).location.rstrip("/").rpartition("/")[2]


def _read_json(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a JSON file that can be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must contain a JSON object")
    return content


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
