"""Pull a version of data with DVC into the workspace, before it is preprocessed or prepared."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def pull_dvc_data(
    data: dsl.Output[dsl.Dataset],
    # Written by `make edges` from PullDvcData.
    source: str = "",
    md5: str = "",
    repo: str = "",
    path: str = "",
    rev: str = "",
    remote: str = "",
    # End of what `make edges` writes.
    run: dict = {},
    workspace_path: str = "",
    run_id: str = "",
) -> NamedTuple("Outputs", [("data_uri", str), ("digest", str), ("revision", str), ("md5", str), ("size", int)]):
    """Pull a version of data with DVC into the workspace, from a DVC repository or from any source.

    Without repo, a DVC repository in the workspace (dvc/repository) makes a version of the source's present state, with its contents
    beside it; so every run can be repeated with the data that it used. What is there already is not fetched again. DVC is installed
    on first use, see docs/tools.md.

    Args:
        data: The receipt: source, revision, files with sizes and digests.
        source: Without repo: a path, file://, s3://, https:// or another address that `dvc import-url` takes.
        md5: Without repo: DVC's MD5 of an earlier version of a source, instead of its present state.
        repo: Git repository with DVC: its address, or a path.
        path: File or folder in repo.
        rev: Branch, tag or commit of repo. Empty: the default branch.
        remote: DVC remote to pull from. Empty: the default one of repo.
        run: The run, as start_run returns it: its id and its workspace.
        workspace_path: Where the workspace is mounted in this step.
        run_id: Id of the run, whose record in the workspace lists the version as used.

    Returns:
        data_uri: Folder with the files, as preprocess_dataset and initialize_dataset take it.
        digest: Digest of the files; it changes when the data changes.
        revision: Git commit of repo; empty without repo.
        size: Size of all files in bytes.
    """
    from pathlib import Path

    from trainwright.steps.data.prepare import receipt_text
    from trainwright.steps.ends.step_end import explained_end, write_line
    from trainwright.steps.requests import PullDvcData, StepRun
    from trainwright.steps.training.kfp_parameters import asked, run_of
    from trainwright.steps.workspace_steps import do_step
    from trainwright.storage.uri import StorageUri

    parameters = {
        # Written by `make edges` from PullDvcData.
        "source": source,
        "md5": md5,
        "repo": repo,
        "path": path,
        "rev": rev,
        "remote": remote,
        # End of what `make edges` writes.
    }
    with explained_end():
        of_run = run_of(run, run_id=run_id, workspace_path=workspace_path)
        workspace = Path(of_run.workspace_path or "/workspace")
        pulled = do_step(workspace, asked(PullDvcData, parameters), StepRun("kfp", of_run.run_id), write_line)
    Path(data.path).write_text(receipt_text(StorageUri.parse(pulled["data_uri"]).path), "utf-8")
    data.metadata.update(
        {"location": pulled["data_uri"], **{name: pulled[name] for name in ("source", "revision", "digest", "md5")}}
    )
    return pulled["data_uri"], pulled["digest"], pulled["revision"], pulled["md5"], pulled["size"]
