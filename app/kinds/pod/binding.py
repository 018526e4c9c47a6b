"""The Binding that puts a pod on a node. It is posted to a pod and stored nowhere, so it is no resource kind."""

from typing import Annotated

from app.machinery.base import Object, ObjectReference, at


class Binding(Object):
    """Puts a pod on a node, once and for all."""

    target: Annotated[ObjectReference | None, at(2, "The node, by its name.", required=True)] = None
