"""Pull a version of data with DVC into the workspace, before it is preprocessed or prepared."""

from typing import NamedTuple

from kfp import dsl

from trainwright.components.step import step


@step
def pull_dvc_data(
    data: dsl.Output[dsl.Dataset],
    source: str = "",
    md5: str = "",
    repo: str = "",
    path: str = "",
    rev: str = "",
    remote: str = "",
    workspace_path: str = "/workspace",
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
        workspace_path: Where the workspace is mounted in this step.
        run_id: Id of the run, whose record in the workspace lists the version as used.

    Returns:
        data_uri: Folder with the files, as preprocess_dataset and initialize_dataset take it.
        digest: Digest of the files; it changes when the data changes.
        revision: Git commit of repo; empty without repo.
        md5: DVC's MD5 of the file or folder.
        size: Size of all files in bytes.
    """
    from pathlib import Path

    from trainwright.steps.data_tools import data_uri, pull_run_data
    from trainwright.steps.step_end import explained_end, write_line

    with explained_end():
        pulled = pull_run_data(
            Path(workspace_path),
            owner="kfp",
            run_id=run_id,
            on_line=write_line,
            source=source,
            md5=md5,
            repo=repo,
            path=path,
            rev=rev,
            remote=remote,
        )
    Path(data.path).write_text(pulled.receipt.model_dump_json(indent=1), "utf-8")
    data.metadata.update(
        {"source": pulled.receipt.source, "revision": pulled.revision, "digest": pulled.digest, "md5": pulled.md5}
    )
    return data_uri(pulled.folder), pulled.digest, pulled.revision, pulled.md5, pulled.size
