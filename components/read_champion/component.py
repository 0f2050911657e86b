"""Read which export is the champion, and whether there are new data to train on."""

from kfp import dsl

from trainwright.components.step import step


@step
def read_champion(
    uri: dsl.OutputPath(str),
    digest: dsl.OutputPath(str),
    start_from: dsl.OutputPath(str),
    # Written by `make edges` from ReadChampion.
    export_uri: str,
    dataset_digest: str = "",
    model_digest: str = "",
    always_train: bool = False,
    warm_start: bool = False,
    alias: str = "champion",
    training: dict = {},
    # End of what `make edges` writes.
    run: dict = {},
    run_id: str = "",
) -> str:
    """Say whether a training on other data or another base model could replace the export that an alias names.

    Args:
        export_uri: Folder of all exports, as for the export of a checkpoint.
        dataset_digest: Digest of the prepared dataset, compared with that of the champion's.
        model_digest: Digest of the prepared base model. Empty: not compared.
        always_train: Retrain even if the champion is up to date, or the same training was kept out: `state` is then outdated.
        warm_start: Whether a training is to start from its weights, if it has the same base model.
        alias: champion, challenger, or another name.
        training: Settings of the training that is asked about: `state` is current if the same was trained, and not promoted in place
            of this champion. Not of code or a function, of which it is not known what they have become.
        uri: Export that the alias names; empty if none.
        digest: Digest of its manifest.
        start_from: `resume` of a training: weights:URI with warm_start, else auto.
        run: The run, as start_run returns it: with the settings of its training, and the alias of its promotion.
        run_id: Id of the run, which prevents cached results.

    Returns:
        current if there is nothing to train, because the champion was trained on these data or the same training was not promoted;
        else none without a champion, or outdated.
    """
    from pathlib import Path

    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.promotion.champion import read_champion_for
    from trainwright.steps.requests import ReadChampion
    from trainwright.steps.training.kfp_parameters import asked, run_of

    parameters = {
        # Written by `make edges` from ReadChampion.
        "export_uri": export_uri,
        "dataset_digest": dataset_digest,
        "model_digest": model_digest,
        "always_train": always_train,
        "warm_start": warm_start,
        "alias": alias,
        "training": training,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run)
        request = asked(ReadChampion, parameters)
        if "alias" in of_run.promotion.given:
            request = request.having(alias=of_run.promotion.alias)
        if "training" in of_run.given and not request.training:
            request = request.having(training=of_run.training.given_values())
        found = read_champion_for(request)
        write_line(
            f"{request.alias}: {found.champion.uri or 'none'}{f'; nothing to train: {found.reason}' if found.reason else ''}"
        )
    Path(uri).write_text(found.champion.uri, "utf-8")
    Path(digest).write_text(found.champion.digest, "utf-8")
    Path(start_from).write_text(found.start_from, "utf-8")
    return found.state
