"""Options of the commands: declared once, read into settings; and a client for commands that call the API."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from pydantic import ValidationError

from app.main import log_output
from app.main.cli_errors import CommandError, keep_tracebacks_in, print_error, text_of
from app.main.commands.access.kubeconfig import choose, read_files
from app.runtimes import RuntimeChoice
from app.settings import Program, ScoringStrategy, Settings, read_by, shown_default, variable
from app.structured_logging import LogFormat

if TYPE_CHECKING:
    from app.client.api import Api
    from app.machinery.errors import ApiError

T = TypeVar("T")
UNAUTHORIZED = 401


def option(name: str, *flags: str, default: str = "") -> Any:
    """Declare the flag of a setting, whose help shows its default and its variable. `default`: if the command has another."""
    text = Settings.model_fields[name].description
    shown = f"{default}" if default else f"{shown_default(name)}; {variable(name)}"
    return typer.Option(*flags, help=f"{text} [default: {shown}]")


def more_settings(*programs: Program) -> str:
    """Describe the settings that programs read by variable only: the end of a command's help."""
    names = [name for name in Settings.model_fields if set(programs) & set(read_by(name))]
    listed = ", ".join(f"{variable(name)} ({shown_default(name)})" for name in names)
    return f"Settings by variable only, with their defaults: {listed}. See docs/settings.md."


DataDir = Annotated[Path | None, option("data_dir")]
CaFile = Annotated[Path | None, option("ca_file")]
Server = Annotated[str | None, option("server")]
TokenFile = Annotated[Path | None, option("token_file")]
Runtime = Annotated[RuntimeChoice | None, option("runtime")]
RuntimeEndpoint = Annotated[str | None, option("runtime_endpoint")]
Nodes = Annotated[int | None, option("nodes")]
NodeName = Annotated[str | None, option("node_name")]
PodCidr = Annotated[str | None, option("pod_cidr")]
Scoring = Annotated[ScoringStrategy | None, option("scoring_strategy")]
Devices = Annotated[str | None, option("devices")]
DatabaseUrl = Annotated[str | None, option("database_url")]
Host = Annotated[str | None, option("host")]
Port = Annotated[int | None, option("port")]
Tls = Annotated[bool | None, option("tls", "--tls/--no-tls")]
TlsSan = Annotated[str | None, option("tls_san")]
FeatureGates = Annotated[str | None, option("feature_gates")]
MetricsAddress = Annotated[str | None, option("metrics_address")]
Logs = Annotated[LogFormat | None, option("log_format")]


def read_settings(component: str = "jobplane", /, **given: Any) -> Settings:
    """Read the settings, with the flags that were given on top, and start logging; `component` is on every line."""
    try:
        made = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        for each in error.errors():
            name = "_".join(map(str, each["loc"]))
            flag = "" if name and read_by(name) else f"--{name.replace('_', '-')} or "
            where = f"{flag}{variable(name)}: " if name else ""
            print_error(where + each["msg"].removeprefix("Value error, "))
        raise typer.Exit(2) from None
    log_output.start(made.log_level, made.log_format, component)
    keep_tracebacks_in(made.data_dir)
    return made


OIDC = tuple(name for name in Settings.model_fields if name.startswith(("oidc_", "authentication_")))


def with_oidc_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which identity providers the API trusts; the command gets them as its first argument."""

    @functools.wraps(command)
    def whole(**given: Any) -> None:
        command({name: given.pop(name) for name in OIDC}, **given)

    own = inspect.signature(command)
    annotations: dict[str, Any] = {
        name: Annotated[Path | None if name.endswith(("_file", "_config")) else str | None, option(name)]
        for name in OIDC
    }
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]
    whole.__dict__["__signature__"] = own.replace(parameters=[*list(own.parameters.values())[1:], *options])
    whole.__annotations__ = {**command.__annotations__, **annotations}
    return whole


_WHICH_API: dict[str, Any] = {"server": Server, "token_file": TokenFile, "ca_file": CaFile, "data_dir": DataDir}


def with_api_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which API a command calls; the command gets the settings as its first argument."""

    @functools.wraps(command)
    def whole(**given: Any) -> None:
        which = {name: given.pop(name) for name in _WHICH_API}
        command(read_settings(**which, log_level="warning"), **given)

    own = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _WHICH_API.items()
    ]
    whole.__dict__["__signature__"] = own.replace(parameters=[*list(own.parameters.values())[1:], *options])
    whole.__annotations__ = {**command.__annotations__, **_WHICH_API}
    return whole


def call_api(made: Settings, work: Callable[["Api"], Awaitable[T]]) -> T:
    """Run `work` with a client of the API that the settings name. Raises CommandError if the API refuses or is away."""
    from app.client.api import UnreachableError
    from app.client.connection_errors import remedy
    from app.machinery.errors import ApiError

    try:
        return asyncio.run(_calling(made, work))
    except ApiError as error:
        raise CommandError(_explain_refusal(error, made)) from error
    except UnreachableError as error:
        raise CommandError(remedy(api_access(made).server, error) or f"cannot reach the API: {error}") from error


async def _calling(made: Settings, work: Callable[["Api"], Awaitable[T]]) -> T:
    api = api_access(made).open()
    try:
        return await work(api)
    finally:
        await api.close()


def _explain_refusal(error: "ApiError", made: Settings) -> str:
    if error.code != UNAUTHORIZED:
        return error.message
    if not made.server:
        return f"{error.message}: the token in {made.data_dir / 'kubeconfig'} is not valid, or has ended: ask for a new one"
    if made.token_file:
        return f"{error.message}: the token in {made.token_file} is not valid, or has ended: ask for a new one"
    return (
        f"{error.message}: pass --token-file, or save an administrator's kubeconfig as {made.data_dir / 'kubeconfig'}"
    )


class ApiAccess(NamedTuple):
    """URL of the API, and credentials for it. `ca_data`: the authority's certificate itself, if there is no file of it."""

    server: str
    token: str
    ca_file: Path | None
    ca_data: str | None = None

    def open(self) -> "Api":
        """Make a client. The caller closes it."""
        from app.client.api import Api, context

        return Api(self.server, self.token, tls=context(self.ca_file, ca_data=self.ca_data))


def api_access(made: Settings) -> ApiAccess:
    """Read URL and credentials from the settings, or from the kubeconfig in the data folder."""
    if made.server:
        return ApiAccess(made.server, text_of(made.token_file) if made.token_file else "", made.ca_file)
    path = made.data_dir / "kubeconfig"
    if not path.exists():
        raise CommandError(f"{path} does not exist: pass the --data-dir of `jobplane up`, or --server")
    found = choose(read_files([path]), "", str(path))
    # That of `jobplane up` is renewed beside the kubeconfig, and others bring theirs.
    own = made.data_dir / "tls" / "ca.crt"
    return ApiAccess(found.server, found.token, *((own, None) if own.exists() else (found.ca_file, found.ca_data)))
