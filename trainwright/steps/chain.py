"""The steps of a fine-tuning and of its variants, with the sources of their inputs, for pipelines, DAGs and `trainwright finetune`.

A source is a field of the form, as `dataset_uri`, or an output of an earlier step, as `initialize-dataset.digest`. Each step after
the first one also gets the run, which that returns. Parsing a DAG imports this module, which is why it imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Source = str | Mapping[str, str]
"""Of an input; of a group of settings, that of each setting."""
START = "start-run"


class Step(NamedTuple):
    """The inputs of a step, by name, with their sources."""

    inputs: Mapping[str, Source]
    by_value: Mapping[str, Source] = {}
    """Inputs in place of which a pipeline has artifacts."""
    artifacts: Mapping[str, str] = {}
    """Inputs of pipelines only, which draw the lineage of a model from them."""
    after: str = ""
    """A step that ends before this one, although it has no output for it."""

    def having(self, **sources: Source) -> Step:
        """Return this step with other sources, or further inputs."""
        by_value = {name: sources.pop(name, source) for name, source in self.by_value.items()}
        return self._replace(inputs={**self.inputs, **sources}, by_value=by_value)

    @property
    def of_values(self) -> Mapping[str, Source]:
        """The inputs where a digest names a dataset or a model."""
        return {**self.inputs, **self.by_value}

    @property
    def of_pipeline(self) -> Mapping[str, Source]:
        """The inputs where an artifact stands for a dataset or a model."""
        return {**self.inputs, **self.artifacts}


Table = Mapping[str, Step]
_EXPORT = {"checkpoint_uri": "export-checkpoint.uri", "checkpoint_digest": "export-checkpoint.digest"}
_PREPARED = {"dataset_digest": "initialize-dataset.digest", "model_digest": "initialize-model.digest"}
_TRAINED_ON = {"dataset": "initialize-dataset.dataset", "base_model": "initialize-model.model"}

FINETUNING: Table = {
    "initialize-dataset": Step({"dataset_uri": "dataset_uri", "model_uri": "model_uri"}),
    "initialize-model": Step({"model_uri": "model_uri"}),
    "train": Step(
        {"export_uri": "export_uri"},  # a run that begins again resumes from its last export
        by_value={
            "dataset_uri": "dataset_uri",
            "model_uri": "model_uri",
            **_PREPARED,
            "data": {"model_shape": "initialize-model.shape"},
        },
        artifacts={"dataset": "initialize-dataset.dataset", "model": "initialize-model.model"},
    ),
    "export-checkpoint": Step(
        {"export_uri": "export_uri", "trainjob": "train.trainjob", "folder": "train.folder", "usage": "train.usage"},
        artifacts=_TRAINED_ON,
    ),
    "evaluate": Step(_EXPORT, artifacts={"model": "export-checkpoint.model"}),
    "promote-model": Step({**_EXPORT, "export_uri": "export_uri", "evaluation": "evaluate.evaluation", "rule": "promote"}),
    "register-model": Step({**_EXPORT, "registry": "registry"}, after="evaluate"),
}
FULL: Table = {
    **FINETUNING,
    "pull-dvc-data": Step({"source": "source", "repo": "dvc_repo", "path": "dvc_path", "rev": "dvc_rev"}),
    "preprocess-dataset": Step({"data_uri": "pull-dvc-data.data_uri"}),
    "initialize-dataset": FINETUNING["initialize-dataset"].having(dataset_uri="preprocess-dataset.data_uri"),
    "train": FINETUNING["train"].having(
        dataset_uri="preprocess-dataset.data_uri", tracking="tracking", workspace_path="start-run.workspace_path"
    ),
    "register-model": FINETUNING["register-model"].having(workspace_path="start-run.workspace_path"),
}
RETRAINING: Table = {
    **FINETUNING,
    "read-champion": Step({"export_uri": "export_uri", "always_train": "always_train", "warm_start": "warm_start", **_PREPARED}),
    "train": FINETUNING["train"].having(resume="read-champion.start_from"),
    "evaluate-champion": Step(
        {
            "checkpoint_uri": "read-champion.uri",
            "checkpoint_digest": "read-champion.digest",
            "dataset_digest": "initialize-dataset.digest",  # so that both are measured on the same rows
        }
    ),
    "promote-over-champion": FINETUNING["promote-model"].having(
        champion_evaluation="evaluate-champion.evaluation", champion_digest="read-champion.digest"
    ),
}
SWEEP: Table = {
    **FINETUNING,
    "plan-trials": Step(
        {**{name: name for name in ("trials", "space", "max_trials", "seed", "metric")}, **_PREPARED},
    ),
    # The exports of a run are those of the trial that was picked, from which no other trial may resume.
    "train": FINETUNING["train"]._replace(inputs={"trial": "plan-trials.trials"}),
    "pick-trial": Step({"outcomes": "train.outcome", "metric": "metric", "greater_is_better": "greater_is_better"}),
    "export-checkpoint": Step(
        {"export_uri": "export_uri", "trainjob": "pick-trial.trainjob", "trial_index": "pick-trial.index"}, artifacts=_TRAINED_ON
    ),
    "evaluate": FINETUNING["evaluate"].having(trial_index="pick-trial.index"),
}


def inputs_of(sources: Mapping[str, Source], form: Mapping[str, Any], output_of: Callable[[str, str], Any]) -> dict[str, Any]:
    """Return the inputs with these sources: fields of the form, and what `output_of` returns for a step and its output."""

    def value_of(source: Source) -> Any:
        if not isinstance(source, str):
            return {name: value_of(one) for name, one in source.items()}
        step, _, name = source.rpartition(".")
        return output_of(step, name) if step else form[name]

    return {name: value_of(source) for name, source in sources.items()}


def predecessors(table: Table, step: str) -> set[str]:
    """Return the steps that a step directly follows: not those that another one of them follows."""
    found = _producers(table, step)
    return found - {earlier for one in found for earlier in _ancestors(table, one)}


def _producers(table: Table, step: str) -> set[str]:
    """Return the steps whose outputs a step takes, and the one that it must come after."""
    if step == START:
        return set()
    texts = [text for one in table[step].of_values.values() for text in ([one] if isinstance(one, str) else one.values())]
    return {START, table[step].after or START, *(text.rpartition(".")[0] or START for text in texts)}


def _ancestors(table: Table, step: str) -> set[str]:
    found = _producers(table, step)
    return found.union(*(_ancestors(table, one) for one in found))
