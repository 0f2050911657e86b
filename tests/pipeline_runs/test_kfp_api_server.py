"""The server of these tests against kfp's own client: what it returns is what the client's models take."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from servers.kfp_api_server import KfpApiServer
from servers.kfp_messages import unknown_keys, wire_key

pytestmark = pytest.mark.medium


@pytest.fixture
def client(kfp: KfpApiServer) -> Any:
    from kfp import Client

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Client(host=kfp.url)


def test_kfps_own_client_works_with_it(kfp: KfpApiServer, client: Any, tiny_yaml: str) -> None:
    experiment = client.create_experiment("training")
    assert client.create_experiment("training").experiment_id == experiment.experiment_id
    pipeline = client.upload_pipeline(tiny_yaml, pipeline_name="tiny")
    version = client.upload_pipeline_version(tiny_yaml, "second", pipeline_id=pipeline.pipeline_id)
    assert client.get_pipeline_id("tiny") == pipeline.pipeline_id
    assert len(client.list_pipeline_versions(pipeline.pipeline_id).pipeline_versions) == 2
    recurring = client.create_recurring_run(
        experiment.experiment_id,
        "nightly",
        cron_expression="0 0 3 * * *",
        params={"a": 1},
        pipeline_id=pipeline.pipeline_id,
        version_id=version.pipeline_version_id,
    )
    client.disable_recurring_run(recurring.recurring_run_id)
    found = client.get_recurring_run(recurring.recurring_run_id)
    assert (found.mode, found.max_concurrency, found.trigger.cron_schedule.cron) == ("DISABLE", "1", "0 0 3 * * *")
    client.delete_recurring_run(recurring.recurring_run_id)
    assert client.list_recurring_runs().recurring_runs is None
    kfp.run_states = [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]
    started = client.run_pipeline(experiment.experiment_id, "one", tiny_yaml, {"a": 1})
    assert client.wait_for_run_completion(started.run_id, 30, sleep_duration=0).state == "SUCCEEDED"
    assert client.list_runs(experiment_id=experiment.experiment_id).total_size == 1


def test_pages_and_filters_are_as_the_client_sends_them(kfp: KfpApiServer, client: Any) -> None:
    for number in range(5):
        client.create_experiment(f"experiment-{number}")
    first = client.list_experiments(page_size=2)
    second = client.list_experiments(page_size=2, page_token=first.next_page_token)
    third = client.list_experiments(page_size=2, page_token=second.next_page_token)
    names = [each.display_name for page in (first, second, third) for each in page.experiments]
    assert names == [f"experiment-{number}" for number in range(5)]
    assert (third.next_page_token, third.total_size) == (None, 5)
    found = client.list_experiments(
        filter=json.dumps({"predicates": [{"operation": "IS_SUBSTRING", "key": "display_name", "stringValue": "-3"}]})
    )
    assert [each.display_name for each in found.experiments] == ["experiment-3"]


def test_errors_are_those_of_the_client(kfp: KfpApiServer, client: Any) -> None:
    from kfp_server_api.exceptions import ApiException

    with pytest.raises(ApiException) as caught:
        client.get_run("none")
    assert (caught.value.status, json.loads(caught.value.body)["code"]) == (404, 5)
    kfp.token = "secret"
    with pytest.raises(ApiException) as caught:
        client.list_runs()
    assert caught.value.status == 401


def test_unknown_keys_are_found_at_any_depth() -> None:
    assert wire_key("V2beta1ListRecurringRunsResponse", "recurring_runs") == "recurringRuns"
    answer = {"recurring_runs": [], "recurringRuns": [{"mode": "ENABLE", "trigger": {"cron": "* * * * * *"}}]}
    assert list(unknown_keys(answer, "V2beta1ListRecurringRunsResponse")) == [
        "recurring_runs of V2beta1ListRecurringRunsResponse",
        "recurringRuns[0].trigger.cron of V2beta1Trigger",
    ]
