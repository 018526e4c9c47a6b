"""The PodGroup kind under its alpha version, scheduling.k8s.io/v1alpha3. It is stored as v1beta1, which has the same fields."""

from dataclasses import replace

from app.kinds.scheduling import podgroup as stored


class PodGroup(stored.PodGroup):
    __doc__ = stored.PodGroup.__doc__


def inward(group: stored.PodGroup) -> stored.PodGroup:
    return stored.PodGroup(
        api_version=stored.KIND.api_version,
        kind=stored.KIND.name,
        metadata=group.metadata,
        spec=group.spec,
        status=group.status,
    )


def outward(group: stored.PodGroup) -> PodGroup:
    return PodGroup(
        api_version=KIND.api_version, kind=KIND.name, metadata=group.metadata, spec=group.spec, status=group.status
    )


KIND = replace(
    stored.KIND,
    type=PodGroup,
    version="v1alpha3",
    storage=stored.KIND,
    inward=inward,
    outward=outward,
    example=stored.KIND.example.replace("v1beta1", "v1alpha3"),
)
