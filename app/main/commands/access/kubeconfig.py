"""Kubeconfig files, as kubectl reads them: merged, and one context of them chosen. Called by `cluster_access`.

Pure, but for `read_files`. Raises CommandError with one line that names the file or the context and says what to do.
"""

import base64
import binascii
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from app.main.cli_errors import CommandError
from app.main.commands.access.exec_credential import ExecPlugin, with_folder
from app.settings.agent import NOT_A_SERVER_URL, is_server_url


class Cluster(msgspec.Struct, rename="kebab", frozen=True):
    """Address of an API, and the authority of its certificate."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""


class User(msgspec.Struct, rename="kebab", frozen=True):
    """Credentials: a token, a client certificate with its key, or a program that gives either."""

    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: ExecPlugin | None = None


class Context(msgspec.Struct, frozen=True):
    """A cluster, a user of it, and the namespace where commands name none."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster = Cluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User = User()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context = Context()


class Kubeconfig(msgspec.Struct, rename="kebab", frozen=True):
    """One file, or several that were merged. Paths in it are absolute."""

    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """URL of the API, how to trust it, credentials, and the namespace of the context. `source`: the file, for messages.

    plugin:      program to run for the credentials.
    certificate: client certificate with its key, PEM.
    """

    server: str
    token: str = ""
    plugin: ExecPlugin | None = None
    certificate: str = ""
    ca_file: Path | None = None
    ca_data: str | None = None
    tls_name: str = ""
    insecure: bool = False
    namespace: str = "default"
    source: str = ""


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)


def read_files(paths: Iterable[Path]) -> Kubeconfig:
    """Read and merge the files that exist; CommandError for one that is no kubeconfig."""
    return merge([parse(path.read_text(encoding="utf-8"), path) for path in paths if path.exists()])


def parse(text: str, path: Path) -> Kubeconfig:
    """Parse a file. Its relative paths are taken from its folder, as kubectl does."""
    import yaml

    try:
        found = msgspec.convert(_without_nulls(yaml.safe_load(text) or {}), Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise CommandError(f"{path} is not a kubeconfig ({' '.join(str(error).split())}): pass another") from None
    folder = path.absolute().parent
    return msgspec.structs.replace(
        found,
        clusters=tuple(_with_folder(each, folder) for each in found.clusters),
        users=tuple(_user_with_folder(each, folder) for each in found.users),
    )


def _without_nulls(document: object) -> object:
    """Drop `users: null` and the like, which kubectl writes for what is empty."""
    if isinstance(document, dict):
        return {name: _without_nulls(value) for name, value in document.items() if value is not None}
    return [_without_nulls(each) for each in document] if isinstance(document, list) else document


def _with_folder(named: _NamedCluster, folder: Path) -> _NamedCluster:
    path = named.cluster.certificate_authority
    absolute = str(folder / path) if path else ""
    return _NamedCluster(named.name, msgspec.structs.replace(named.cluster, certificate_authority=absolute))


def _user_with_folder(named: _NamedUser, folder: Path) -> _NamedUser:
    user = named.user
    paths = {name: getattr(user, name) for name in ("token_file", "client_certificate", "client_key")}
    absolute = {name: str(folder / path) for name, path in paths.items() if path}
    plugin = with_folder(user.exec, folder) if user.exec else None
    return _NamedUser(named.name, msgspec.structs.replace(user, exec=plugin, **absolute))


def merge(configs: Sequence[Kubeconfig]) -> Kubeconfig:
    """Merge files: of each name, and of the current context, the first one counts."""
    return Kubeconfig(
        next((each.current_context for each in configs if each.current_context), ""),
        tuple(named for each in configs for named in each.clusters),
        tuple(named for each in configs for named in each.users),
        tuple(named for each in configs for named in each.contexts),
    )


def choose(config: Kubeconfig, context: str, source: str) -> Access:
    """Choose a context, or the current one; CommandError if it, its cluster or its token is missing."""
    name = context or config.current_context
    if not name:
        raise CommandError(f"{source} has no current context: pass --context")
    place = _find(config.contexts, name, f"{source} has no context {name}: pass another --context").context
    cluster = _find(config.clusters, place.cluster, f"{source}: context {name} names no cluster of it").cluster
    if not cluster.server:
        raise CommandError(f"{source}: cluster {place.cluster} has no server")
    if not is_server_url(cluster.server):
        raise CommandError(f"{source}: server of cluster {place.cluster}: {NOT_A_SERVER_URL.format(cluster.server)}")
    no_user = f"{source}: context {name} names no user of it"
    user = _find(config.users, place.user, no_user).user if place.user else User()
    return Access(
        server=cluster.server.rstrip("/"),
        token=_read_token(user, place.user, source),
        plugin=None if _has_own_credential(user) else user.exec,
        certificate=_read_certificate(user, source),
        ca_file=Path(cluster.certificate_authority) if _needs_ca_file(cluster) else None,
        ca_data=_decode(cluster.certificate_authority_data, source),
        tls_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
        namespace=place.namespace or "default",
        source=source,
    )


def _find(named: Iterable[_Named], name: str, complaint: str) -> _Named:
    found = next((each for each in named if each.name == name), None)
    if found is None:
        raise CommandError(complaint)
    return found


def _needs_ca_file(cluster: Cluster) -> bool:
    return bool(cluster.certificate_authority) and not cluster.certificate_authority_data


def _read_token(user: User, name: str, source: str) -> str:
    if user.token:
        return user.token
    if user.token_file:
        from app.main.cli_errors import text_of

        return text_of(Path(user.token_file))
    if name and not user.exec and not user.client_certificate and not user.client_certificate_data:
        why = "set `token`, `tokenFile`, `client-certificate` or `exec` there"
        raise CommandError(f"{source}: user {name} has no credentials: {why}")
    return ""


def _has_own_credential(user: User) -> bool:
    return bool(user.token or user.token_file or user.client_certificate or user.client_certificate_data)


def _read_certificate(user: User, source: str) -> str:
    """Return the client certificate and its key, PEM; empty if there is none."""
    parts = []
    for path, data in (
        (user.client_certificate, user.client_certificate_data),
        (user.client_key, user.client_key_data),
    ):
        if data:
            parts.append(_decode(data, source) or "")
        elif path:
            from app.main.cli_errors import text_of

            parts.append(text_of(Path(path)))
    return "\n".join(parts)


def _decode(data: str, source: str) -> str | None:
    try:
        return base64.b64decode(data).decode() if data else None
    except (binascii.Error, UnicodeDecodeError):
        raise CommandError(f"{source}: a certificate or key in it is not base64") from None


def default_paths(variable: str, home: Path, folder: Path) -> list[Path]:
    """List the files to read where no option names one: $KUBECONFIG, else ~/.kube/config, else that of `jobplane up`."""
    if variable:
        return [Path(each) for each in variable.split(os.pathsep) if each]
    of_home = home / ".kube" / "config"
    return [of_home if of_home.exists() else folder / "kubeconfig"]
