"""The Eviction that is posted to a pod. It is stored nowhere, so it is no resource kind."""

from typing import Annotated

from app.api.http.query import DeleteOptions
from app.machinery.base import Object, at


class Eviction(Object):
    """Deletes a pod, unless that would take more than a PodDisruptionBudget allows."""

    delete_options: Annotated[DeleteOptions | None, at(2, "How to delete it.")] = None
