"""Let the champion be again what it was before."""

from trainwright.components.step import step


@step
def roll_back_model(
    # Written by `make edges` from RollBackModel.
    export_uri: str,
    alias: str = "champion",
    expected_digest: str = "",
    reason: str = "",
    # End of what `make edges` writes.
    evaluation: dict = {},
    run_id: str = "",
) -> str:
    """Restore the previous export of an alias, if it still exists and is complete.

    Args:
        export_uri: Folder of all exports, as for the export of a checkpoint.
        alias: champion, challenger, or another name.
        expected_digest: Digest of the manifest that the alias must name now. Empty: whatever it names.
        reason: Recorded with the change.
        evaluation: Settings of the evaluation by name, as for start_run: its promote_alias holds instead of alias.
        run_id: Id of the run: it prevents cached results, and a retry of the step from rolling back once more.

    Returns:
        URI of the export that the alias names now.
    """
    from trainwright.jobs.request.typed_parameters import unmarked
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.promotion.champion import roll_back_once
    from trainwright.steps.requests import RollBackModel
    from trainwright.steps.training.kfp_parameters import asked

    parameters = {
        # Written by `make edges` from RollBackModel.
        "export_uri": export_uri,
        "alias": alias,
        "expected_digest": expected_digest,
        "reason": reason,
        # End of what `make edges` writes.
    }
    with explained_end():
        request = asked(RollBackModel, parameters)
        if alias_of_run := unmarked(evaluation, "evaluation").get("promote_alias"):
            request = request.having(alias=str(alias_of_run))
        record = roll_back_once(**request.by_name(), step=f"kfp/{run_id}/roll-back" if run_id else "")
        write_line(f"{request.alias}: {record.current.uri}")
    return record.current.uri
