"""The endpoints of the form, and of the fine-tunings that it has started."""

from __future__ import annotations

from trainwright.api.errors import Forbidden
from trainwright.ui.call import Call, Endpoint, Json
from trainwright.ui.form.check import check_form, checked, parameters_of, show_form
from trainwright.ui.form.written import write_form
from trainwright.ui.launches.launches import Launches

_MAX_RUN = 128


def launch(call: Call) -> Json:
    """Start a run of `{parameters, run, namespace}`. Raises ValueError with the problems, AlreadyExists, Forbidden."""
    launches = _launches(call)
    found = checked(parameters_of(call), looks_at_files=call.page.may_read_files)
    if found.request is None:
        raise ValueError("; ".join(map(str, found.problems)))
    run = call.text("run", limit=_MAX_RUN)
    return {"launch": launches.launch(run, call.text("namespace"), found.request.given_values())}


def show_launches(call: Call) -> Json:
    return {"launches": call.page.launches.list() if call.page.launches is not None else []}


def show_launch(call: Call) -> Json:
    return {"launch": _launches(call).get(call.path["run"])}


def resume_launch(call: Call) -> Json:
    return {"launch": _launches(call).resume(call.path["run"])}


def stop_launch(call: Call) -> Json:
    return {"launch": _launches(call).stop(call.path["run"])}


def _launches(call: Call) -> Launches:
    if call.page.launches is None:
        raise Forbidden("this page starts nothing; take the YAML or the code that it writes")
    return call.page.launches


ROUTES = (
    Endpoint("GET", "/form", show_form),
    Endpoint("POST", "/form/check", check_form),
    Endpoint("POST", "/form/write", write_form),
    Endpoint("GET", "/launches", show_launches),
    Endpoint("POST", "/launches", launch),
    Endpoint("GET", "/launches/{run}", show_launch),
    Endpoint("POST", "/launches/{run}/resume", resume_launch),
    Endpoint("POST", "/launches/{run}/stop", stop_launch),
)
