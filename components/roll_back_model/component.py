"""Let the champion be again what it was before."""

from trainwright.components.step import step


@step
def roll_back_model(
    export_uri: str, alias: str = "champion", expected_digest: str = "", reason: str = "", run_id: str = ""
) -> str:
    """Let an alias name again the export that it named before, if that is still there and whole.

    Args:
        export_uri: Folder of all exports, as for export_checkpoint.
        alias: champion, challenger, or another name.
        expected_digest: Digest of the manifest that the alias must name now. Empty: whatever it names.
        reason: Recorded with the change.
        run_id: Id of the run: it prevents cached results, and a retry of the step from rolling back once more.

    Returns:
        URI of the export that the alias names now.
    """
    from trainwright.steps.roll_back import roll_back_once
    from trainwright.steps.step_end import explained_end, write_line

    with explained_end():
        step = f"kfp/{run_id}/roll-back" if run_id else ""
        record = roll_back_once(export_uri, alias, step=step, expected_digest=expected_digest, reason=reason)
        write_line(f"{alias}: {record.current.uri}")
    return record.current.uri
