"""Promote an export to champion if it is better than the present one, or keep that."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def promote_model(
    summary: dsl.Output[dsl.Markdown],
    # Written by `make edges` from PromoteModel.
    export_uri: str,
    checkpoint_uri: str,
    checkpoint_digest: str,
    evaluation: dict = {},
    champion_evaluation: dict = {},
    champion_digest: str = "",
    rule: str = "better",
    metric: str = "loss",
    greater_is_better: bool = False,
    margin: float = 0.0,
    allow_trained_rows: bool = False,
    alias: str = "champion",
    training: dict = {},
    # End of what `make edges` writes.
    run: dict = {},
) -> NamedTuple("Outputs", [("promoted", bool), ("reason", str), ("champion_uri", str), ("previous_uri", str)]):
    """Let an alias name an export if its evaluation is better than that of the export which it names now.

    The alias is a small file below export_uri with the evaluation that justified each promotion, and the history. It changes only if
    it still names what was compared with; after another promotion at the same time, it is compared again. A promoted export is pinned.
    Keeping the champion is no failure.

    Args:
        export_uri: Folder of all exports, as for the export of a checkpoint.
        checkpoint_uri: Export to promote.
        checkpoint_digest: Digest of its manifest; any other content is rejected.
        evaluation: Figures of the export, as its evaluation returns them.
        champion_evaluation: Figures of the champion on the same data. Empty: those recorded at its promotion, if of the same data.
        champion_digest: Digest of the export that champion_evaluation is of.
        rule: better, or always to promote without comparison.
        metric: Figure to compare.
        greater_is_better: Whether a greater metric is better.
        margin: By how much it must be better.
        allow_trained_rows: Whether a figure of held-out rows counts if 5 % of these rows, or more, are trained on, too.
        alias: champion, challenger, or another name.
        training: Settings that the export was trained with: if it is not promoted, they are remembered, so that ReadChampion finds
            no need to train the same again.
        run: The run, as start_run returns it: its id, its workspace, and further settings of this step.
        summary: What was decided and why, as Markdown.

    Returns:
        promoted: Whether the alias names the export now.
        reason: Why, or why not.
        champion_uri: Export that the alias names now.
        previous_uri: Export that it named before; empty if none.
    """
    from pathlib import Path

    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.promotion.promote import promote
    from trainwright.steps.requests import PromoteModel
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.text.foreign_texts import code, escaped, table

    parameters = {
        # Written by `make edges` from PromoteModel.
        "export_uri": export_uri,
        "checkpoint_uri": checkpoint_uri,
        "checkpoint_digest": checkpoint_digest,
        "evaluation": evaluation,
        "champion_evaluation": champion_evaluation,
        "champion_digest": champion_digest,
        "rule": rule,
        "metric": metric,
        "greater_is_better": greater_is_better,
        "margin": margin,
        "allow_trained_rows": allow_trained_rows,
        "alias": alias,
        "training": training,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run)
        request = asked(PromoteModel, parameters, of_run.promotion)
        if "training" in of_run.given and not request.training:
            request = request.having(training=of_run.training.given_values())
        verdict = promote(request)
    decision = f"{'promoted' if verdict.promoted else 'kept'}: {verdict.reason}"
    write_line(f"{decision}; {request.alias}: {verdict.champion}")
    rows = [
        ("candidate", code(checkpoint_uri)),
        (escaped(request.alias), code(verdict.champion)),
        ("before", code(verdict.previous)),
    ]
    Path(summary.path).write_text(f"## {escaped(decision)}\n\n{table(('', 'export'), rows)}\n", "utf-8")
    return verdict.promoted, verdict.reason, verdict.champion, verdict.previous
