"""A TrainJob and the JobSet that stands for it go together through any change: what is written to one is read from the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobset_mode_cluster import two_node_trainjob

from trainwright.api.admission.admit import admit
from trainwright.api.objects import annotations_of, labels_of
from trainwright.api.patching.json_patch import merge
from trainwright.runtimes import bundled_runtime
from trainwright.submission.jobset_mode.conversion import build_jobset, jobset_patch, trainjob_of

KEYS = st.sampled_from(["a", "b", "example.com/c", "trainwright.dev/suspended-by"])
OF_JOB = st.dictionaries(KEYS, st.sampled_from(["1", "2"]), max_size=3)
OF_RUNTIME = st.dictionaries(KEYS, st.just("runtime"), max_size=3)
CHANGES = st.dictionaries(KEYS, st.none() | st.sampled_from(["3", "4"]), max_size=3)
PATCHES = st.lists(
    st.fixed_dictionaries(
        {"metadata": st.fixed_dictionaries({"labels": CHANGES, "annotations": CHANGES})},
        optional={"spec": st.fixed_dictionaries({"suspend": st.booleans()})},
    ),
    max_size=4,
)


def read(job: dict[str, Any]) -> tuple[Any, ...]:
    """What a client may have written."""
    return labels_of(job), annotations_of(job), job["spec"]


@pytest.mark.medium
@given(labels=OF_JOB, annotations=OF_JOB, of_runtime=OF_RUNTIME, suspend=st.booleans(), patches=PATCHES)
def test_a_change_of_the_trainjob_is_the_same_change_of_its_jobset(
    labels: Any, annotations: Any, of_runtime: Any, suspend: bool, patches: Any
) -> None:
    runtime = bundled_runtime("torch-distributed") or {}
    runtime["spec"]["template"]["metadata"] = {"labels": of_runtime, "annotations": of_runtime}
    job = admit(two_node_trainjob(metadata={"labels": labels, "annotations": annotations}, suspend=suspend)).object
    jobset = build_jobset(job, runtime).jobset
    jobset["metadata"] |= {"uid": "u", "generation": 1}
    assert read(trainjob_of(jobset)) == read(job)
    for patch in patches:
        job, jobset = merge(job, patch), merge(jobset, jobset_patch("demo", patch))
        assert read(trainjob_of(jobset)) == read(job)
