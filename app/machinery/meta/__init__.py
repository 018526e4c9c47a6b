"""Object metadata and conditions: what Kubernetes has in `apimachinery/pkg/apis/meta/v1`.

What belongs here: `meta_schema` (ObjectMeta, ListMeta, owner references, label selectors; generated), `metadata_validation`
(`ValidateObjectMeta`), `owner_references`, `conditions` (of Jobs, pods and nodes), `meta_condition` with `meta_condition_schema`
(of newer kinds: those that have an `observedGeneration`).

May import: `app.machinery` (`struct`, `base`, `errors`, `name_validation`). Imported by: every package.
Start reading: `meta_schema`, `metadata_validation`.
"""
