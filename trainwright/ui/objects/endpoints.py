"""The endpoints that show the objects of a TrainJob."""

from __future__ import annotations

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.materialize.contributions import Contribution
from trainwright.text.yaml_writer import to_yaml
from trainwright.ui.call import Call, Endpoint, Json
from trainwright.ui.objects.annotated_yaml import annotated_yaml
from trainwright.ui.objects.built_objects import built_objects, used_runtime
from trainwright.ui.objects.live_objects import KINDS, belongs_to, list_live_objects
from trainwright.ui.objects.shown_object import shown_object


def show_objects(call: Call) -> Json:
    """Return the objects of a TrainJob as they are built, with the contributors of their lines, and a list of those in the cluster.

    If they cannot be built, `problem` says why, and `built` is empty. Raises NotFound, ApiError.
    """
    cluster, trainjob = call.session.cluster, _trainjob(call)
    answer: Json = {"uid": uid_of(trainjob), "runtime": None, "built": [], "problem": None}
    built: list[Contribution] = []
    try:
        used = used_runtime(cluster, trainjob)
        answer["runtime"] = {
            "kind": used.runtime["kind"],
            "name": name_of(used.runtime),
            "source": used.source,
            "note": used.note,
        }
        built = built_objects(cluster, trainjob, used.runtime)
        if not built:
            answer["problem"] = {"reason": "ManagedBy", "message": f"{trainjob['spec'].get('managedBy')} builds them"}
    except (ApiError, TypeError) as error:  # TypeError: an installed plugin is not a policy
        answer["problem"] = {"reason": type(error).__name__, "message": str(error)}
    answer["built"] = [_built(each) for each in built]
    live = list_live_objects(cluster, trainjob, [each.object for each in built])
    return {**answer, "live": live.found, "denied": live.denied}


def show_live_object(call: Call) -> Json:
    """Return one object of a TrainJob as the cluster has it. Raises ValueError, NotFound, ApiError."""
    kind = KINDS.get(call.query.get("type", ""))
    if kind is None:
        raise ValueError(f"type: expected one of {', '.join(KINDS)}")
    name = call.query.get("object", "")
    trainjob = _trainjob(call)
    obj = call.session.cluster.get(kind, name, call.namespace)
    if not belongs_to(obj, trainjob):
        raise NotFound(f"the {kind.kind} {name} does not belong to the TrainJob {name_of(trainjob)}")
    return {"uid": uid_of(obj), "text": to_yaml(shown_object(obj))}


def _trainjob(call: Call) -> Obj:
    return call.session.cluster.get(TRAINJOB, call.path["name"], call.namespace)


def _built(contribution: Contribution) -> Json:
    obj = shown_object(contribution.object)
    return {
        "type": f"{obj['apiVersion']}/{obj['kind']}",
        "kind": obj["kind"],
        "name": name_of(obj),
        "yaml": annotated_yaml(obj, contribution.contributors),
    }


ROUTES = (
    Endpoint("GET", "/trainjobs/{namespace}/{name}/objects", show_objects),
    Endpoint("GET", "/trainjobs/{namespace}/{name}/object", show_live_object),
)
