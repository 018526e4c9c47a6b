"""Workloads and PodGroups as in Kubernetes 1.37: scheduling.k8s.io/v1alpha2, which it no longer has, becomes v1beta1.

Stored objects keep their names and meaning. So do the pods that name a PodGroup as an owner. Records of who set which field are
dropped: the next server-side apply begins them anew.

Revision ID: 0016
Revises: 0015
"""

import json
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

OLD, NEW = "scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1beta1"
SCHEDULED, INITIALLY = "PodGroupScheduled", "PodGroupInitiallyScheduled"
MODES: dict[str, dict[str, Any]] = {"Pod": {"single": {}}, "PodGroup": {"all": {}}}

Terms = dict[str, Any]


def upgrade() -> None:
    _convert(OLD, NEW, upgrade_terms, (SCHEDULED, INITIALLY))


def downgrade() -> None:
    _convert(NEW, OLD, downgrade_terms, (INITIALLY, SCHEDULED))


def _convert(before: str, after: str, change: Callable[[Terms], None], condition: tuple[str, str]) -> None:
    bind = op.get_bind()
    kinds = "kind in ('workloads.scheduling.k8s.io', 'podgroups.scheduling.k8s.io')"
    for number, body in bind.execute(sa.text(f"select revision, body from history where {kinds}")).all():
        changed = convert_object(json.loads(bytes(body)), before, after, change, condition)
        wire = json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()
        bind.execute(
            sa.text("update history set body = :body where revision = :number"), {"body": wire, "number": number}
        )
    bind.execute(
        sa.text(
            """update history v
                set body = convert_to(replace(convert_from(v.body, 'UTF8'), :before, :after), 'UTF8')
                from heads h
                where h.kind = 'pods' and v.revision = h.revision and position(cast(:found as bytea) in v.body) > 0"""
        ),
        {"before": f'"{before}"', "after": f'"{after}"', "found": f'"{before}"'.encode()},
    )


def convert_object(
    obj: dict[str, Any], before: str, after: str, change: Callable[[Terms], None], condition: tuple[str, str]
) -> dict[str, Any]:
    """One Workload or PodGroup in the other version. `change` works on what a group and a template have in common."""
    obj["apiVersion"] = after
    meta, spec = obj.get("metadata", {}), obj.get("spec", {})
    meta.pop("managedFields", None)
    for owner in meta.get("ownerReferences", ()):
        if owner["apiVersion"] == before:
            owner["apiVersion"] = after
    for terms in spec.get("podGroupTemplates", (spec,)):
        change(terms)
    for each in obj.get("status", {}).get("conditions", ()):
        if each["type"] == condition[0]:
            each["type"] = condition[1]
    return obj


def upgrade_terms(terms: Terms) -> None:
    if isinstance(terms.get("disruptionMode"), str):
        terms["disruptionMode"] = MODES[terms["disruptionMode"]]
    source = terms.pop("podGroupTemplateRef", {}).get("workload")
    if source:
        terms["workloadRef"] = {
            "workloadName": source["workloadName"],
            "templateName": source["podGroupTemplateName"],
        }


def downgrade_terms(terms: Terms) -> None:
    if "disruptionMode" in terms:
        terms["disruptionMode"] = "PodGroup" if "all" in terms["disruptionMode"] else "Pod"
    source = terms.pop("workloadRef", None)
    if source:
        workload = {"workloadName": source["workloadName"], "podGroupTemplateName": source["templateName"]}
        terms["podGroupTemplateRef"] = {"workload": workload}
