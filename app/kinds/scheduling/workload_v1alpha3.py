"""The Workload kind under its alpha version, scheduling.k8s.io/v1alpha3. It is stored as v1beta1, which has the same fields."""

from dataclasses import replace

from app.kinds.scheduling import workload as stored


class Workload(stored.Workload):
    __doc__ = stored.Workload.__doc__


def inward(workload: stored.Workload) -> stored.Workload:
    return stored.Workload(
        api_version=stored.KIND.api_version, kind=stored.KIND.name, metadata=workload.metadata, spec=workload.spec
    )


def outward(workload: stored.Workload) -> Workload:
    return Workload(api_version=KIND.api_version, kind=KIND.name, metadata=workload.metadata, spec=workload.spec)


KIND = replace(
    stored.KIND,
    type=Workload,
    version="v1alpha3",
    storage=stored.KIND,
    inward=inward,
    outward=outward,
    example=stored.KIND.example.replace("v1beta1", "v1alpha3"),
)
