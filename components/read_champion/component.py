"""Read which export is the champion, and whether there are new data to train on."""

from kfp import dsl

from trainwright.components.step import step


@step
def read_champion(
    export_uri: str,
    uri: dsl.OutputPath(str),
    digest: dsl.OutputPath(str),
    dataset_digest: str = "",
    model_digest: str = "",
    always: bool = False,
    alias: str = "champion",
    run_id: str = "",
) -> str:
    """Say whether a training on other data or another base model could replace the export that an alias names.

    Args:
        export_uri: Folder of all exports, as for export_checkpoint.
        uri: Export that the alias names; empty if none.
        digest: Digest of its manifest.
        dataset_digest: Digest of the prepared dataset, compared with that of the champion's.
        model_digest: Digest of the prepared base model. Empty: not compared.
        always: Whether it counts as outdated in any case.
        alias: champion, challenger, or another name.
        run_id: Id of the run, which prevents cached results.

    Returns:
        none without a champion, outdated if it was trained on other data, else current. The only output that a condition of a
        pipeline may use: kfp's local runner evaluates no others.
    """
    from pathlib import Path

    from trainwright.steps.champion import read_champion
    from trainwright.steps.step_end import explained_end, write_line

    with explained_end():
        champion = read_champion(export_uri, alias)
        state = champion.state(dataset_digest, model_digest, always=always)
        write_line(f"{alias}: {champion.uri or 'none'}{', trained on these data already' if state == 'current' else ''}")
    Path(uri).write_text(champion.uri, "utf-8")
    Path(digest).write_text(champion.digest, "utf-8")
    return state
