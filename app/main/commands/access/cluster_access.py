"""The cluster that a command calls: its options, its kubeconfig, a client, and errors in one line. Used by every command.

A command is decorated with `with_cluster` and gets a `Cluster` as its first argument; `Cluster.call` runs its work.
"""

import asyncio
import base64
import functools
import inspect
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer

from app.main.cli_errors import INTERRUPTED, CommandError, text_of
from app.main.cli_options import CaFile, DataDir, Server, TokenFile, read_settings
from app.main.commands.access.exec_credential import run_plugin
from app.main.commands.access.kubeconfig import Access, choose, default_paths, read_files
from app.main.commands.terminal import completion

if TYPE_CHECKING:
    from app.client.api import Api
    from app.machinery.errors import ApiError

T = TypeVar("T")
UNAUTHORIZED, NOT_FOUND, CONFLICT = 401, 404, 409

KubeconfigFile = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        help="Kubeconfig that names the API. [default: $KUBECONFIG, else ~/.kube/config, else DATA_DIR/kubeconfig]",
    ),
]
ContextName = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig. [default: its current one]")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Namespace. [default: that of the context, else default]",
        autocompletion=completion.namespaces,
    ),
]  # fmt: skip
_OPTIONS: dict[str, Any] = {
    "namespace": Namespace,
    "kubeconfig": KubeconfigFile,
    "context_name": ContextName,
    "server": Server,
    "token_file": TokenFile,
    "ca_file": CaFile,
    "data_dir": DataDir,
}


class OnInterrupt(StrEnum):
    """Effect of Ctrl-C on the Job that a command waits for."""

    DETACH = "detach"
    CANCEL = "cancel"


class Cluster(NamedTuple):
    """The API that a command calls, and the namespace in which it works."""

    access: Access
    namespace: str

    def call(self, work: Callable[["Api"], Awaitable[T]]) -> T:
        """Run `work` with a client. Errors end the command with one line; Ctrl-C ends it with 130."""
        from app.client.api import UnreachableError
        from app.machinery.errors import ApiError

        try:
            return asyncio.run(self._calling(work))
        except ApiError as error:
            raise CommandError(explain_refusal(error, self.access)) from error
        except UnreachableError as error:
            raise CommandError(_explain_silence(error, self.access)) from error
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    async def _calling(self, work: Callable[["Api"], Awaitable[T]]) -> T:
        api = open_api(self.access)
        try:
            return await work(api)
        finally:
            await api.close()


def open_api(access: Access) -> "Api":
    """Make a client; the credential plugin of the kubeconfig runs, if there is one. The caller closes the client."""
    from app.client.api import Api, context

    access = _with_credential(access)
    tls = context(access.ca_file, access.tls_name, access.ca_data)
    if access.insecure:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if access.certificate:
        _load_certificate(tls, access)
    return Api(access.server, access.token, tls=tls)


def _with_credential(access: Access) -> Access:
    if access.plugin is None:
        return access
    authority = access.ca_data or (access.ca_file.read_text() if access.ca_file else "")
    cluster: dict[str, Any] = {"server": access.server, "insecure-skip-tls-verify": access.insecure}
    cluster |= {"tls-server-name": access.tls_name} if access.tls_name else {}
    cluster |= {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    found = run_plugin(access.plugin, cluster)
    certificate = f"{found.client_certificate_data}\n{found.client_key_data}" if found.client_key_data else ""
    return msgspec.structs.replace(access, token=found.token, certificate=certificate)


def _load_certificate(tls: ssl.SSLContext, access: Access) -> None:
    """Show the client certificate to the API. OpenSSL takes files only: the key is in one of ours for that moment."""
    with tempfile.NamedTemporaryFile("w", prefix="jobplane-") as file:
        file.write(access.certificate)
        file.flush()
        try:
            tls.load_cert_chain(file.name)
        except ssl.SSLError:
            raise CommandError(f"{access.source}: the client certificate and its key do not fit together") from None


def explain_refusal(error: "ApiError", access: Access) -> str:
    """Return the API's message, and what to do about it where that is the same for all commands."""
    message = error.message
    if error.code == UNAUTHORIZED:
        where = f"the token in {access.source}" if access.source else "the token of --token-file"
        return f"{message}: {where} is not valid, or has ended: ask for a new one (`jobplane token`)"
    if error.code == CONFLICT and message.endswith(" already exists"):
        return f"{message}: pass another --name, or `jobplane cancel` it first"
    if error.code == NOT_FOUND and message.endswith(" not found"):
        return f"{message}: `jobplane list` lists the Jobs of a namespace, -n names another namespace"
    return message


def _explain_silence(error: Exception, access: Access) -> str:
    from app.client.connection_errors import remedy

    advice = "start `jobplane up`, or pass another --kubeconfig or --context"
    named = f" (named by {access.source})" if access.source else ""
    return remedy(access.server, error) or f"cannot reach the API: {error}{named}: {advice}"


def with_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name the API and the namespace; the command gets a `Cluster` as its first argument."""

    @functools.wraps(command)
    def whole(**given: Any) -> None:
        which = {name: given.pop(name) for name in _OPTIONS}
        command(find_cluster(**which), **given)

    own = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
    ]
    whole.__dict__["__signature__"] = own.replace(parameters=[*list(own.parameters.values())[1:], *options])
    whole.__annotations__ = {**command.__annotations__, **_OPTIONS}
    return whole


def find_cluster(
    namespace: str | None = None,
    kubeconfig: Path | None = None,
    context_name: str | None = None,
    data_dir: Path | None = None,
    **api: Any,
) -> Cluster:
    """Decide which API to call: that of --server, of a kubeconfig that is named, of --data-dir, or of the default files."""
    settings = read_settings(data_dir=data_dir, log_level="warning", **api)
    if settings.server and kubeconfig is None:
        token = text_of(settings.token_file) if settings.token_file else ""
        access = Access(server=settings.server, token=token, ca_file=settings.ca_file)
        return Cluster(access, namespace or "default")
    if kubeconfig is not None:
        paths = [kubeconfig]
    elif data_dir is not None:
        paths = [data_dir / "kubeconfig"]
    else:
        paths = default_paths(os.environ.get("KUBECONFIG", ""), Path.home(), settings.data_dir)
    source = ", ".join(map(str, paths))
    if not any(path.exists() for path in paths):
        raise CommandError(f"{source} does not exist: start `jobplane up` in this folder, or pass --kubeconfig")
    access = choose(read_files(paths), context_name or "", source)
    return Cluster(access, namespace or access.namespace)
