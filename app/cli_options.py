"""What the commands share: options, the settings that they become, and a client of the API for those that call it."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from pydantic import ValidationError

from app.cli_process import log_from
from app.runtimes import RuntimeName
from app.settings import ScoringStrategy, Settings

if TYPE_CHECKING:
    from app.client.api import Api

T = TypeVar("T")

DataDir = Annotated[Path | None, typer.Option(help="Where everything is kept. [default: ~/.jobplane]")]
CaFile = Annotated[Path | None, typer.Option(help="The authority that signed the API's certificate.")]
Server = Annotated[
    str | None, typer.Option(help="Where the API is: https://host:6443. [default: as DATA_DIR/kubeconfig says]")
]
TokenFile = Annotated[Path | None, typer.Option(help="File with the token to call it with, if --server is given.")]

Runtime = Annotated[RuntimeName | None, typer.Option(help="What runs the containers. [default: process]")]
RuntimeEndpoint = Annotated[
    str | None,
    typer.Option(
        help="The container engine's socket. [default for cri: unix:///run/containerd/containerd.sock; "
        "for docker: DOCKER_HOST, else unix:///var/run/docker.sock]"
    ),
]
Nodes = Annotated[int | None, typer.Option(help="How many nodes to pretend (simulated runtime). [default: 1]")]
NodeName = Annotated[str | None, typer.Option(help="The node's name. [default: this host's name]")]
Scoring = Annotated[
    ScoringStrategy | None,
    typer.Option(help="Which nodes get pods first: the emptiest, or the fullest. [default: LeastAllocated]"),
]
Devices = Annotated[
    str | None,
    typer.Option(
        help="What the node has for containers that ask for it: a file, nvidia.com/gpu=/dev/nvidia0,…, or none. "
        "[default: auto, NVIDIA's GPUs]"
    ),
]


def settings(**given: Any) -> Settings:
    """The settings, with the flags that were given on top. Logging starts here, as nothing may happen before it."""
    try:
        made = Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        for each in error.errors():
            name = "_".join(map(str, each["loc"]))
            where = f"--{name.replace('_', '-')} or JOBPLANE_{name.upper()}: " if name else ""
            typer.echo(where + each["msg"].removeprefix("Value error, "), err=True)
        raise typer.Exit(2) from None
    log_from(made.log_level)
    return made


_WHICH_API: dict[str, Any] = {"server": Server, "token_file": TokenFile, "ca_file": CaFile, "data_dir": DataDir}


def of_an_api(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that say which API it calls: it is given, first, the settings that they become."""

    @functools.wraps(command)
    def whole(**given: Any) -> None:
        which = {name: given.pop(name) for name in _WHICH_API}
        command(settings(**which, log_level="warning"), **given)

    own = inspect.signature(command)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _WHICH_API.items()
    ]
    whole.__dict__["__signature__"] = own.replace(parameters=[*list(own.parameters.values())[1:], *options])
    whole.__annotations__ = {**command.__annotations__, **_WHICH_API}
    return whole


def calling(made: Settings, work: Callable[["Api"], Awaitable[T]]) -> T:
    """What `work` finds out from the API that the settings name; a refusal is told in a line and ends the command."""
    from app.kinds.errors import ApiError

    try:
        return asyncio.run(_calling(made, work))
    except ApiError as error:
        typer.echo(error.message, err=True)
    except OSError as error:
        typer.echo(f"no answer: {error}", err=True)
    raise typer.Exit(1)


async def _calling(made: Settings, work: Callable[["Api"], Awaitable[T]]) -> T:
    from app.client.api import Api

    api = Api(*place(made))
    try:
        return await work(api)
    finally:
        await api.close()


class Place(NamedTuple):
    """Where the API is, and how to be let in."""

    server: str
    token: str
    ca_file: Path | None


def place(made: Settings) -> Place:
    """What the settings say, or the kubeconfig of the Jobplane in the data folder."""
    if made.server:
        return Place(made.server, made.token_file.read_text().strip() if made.token_file else "", made.ca_file)
    import yaml

    path = made.data_dir / "kubeconfig"
    if not path.exists():
        typer.echo(f"{path} is not there: name a --data-dir that `jobplane up` uses, or --server", err=True)
        raise typer.Exit(1)
    config = yaml.safe_load(path.read_text())
    return Place(
        config["clusters"][0]["cluster"]["server"],
        config["users"][0]["user"]["token"],
        made.data_dir / "tls" / "ca.crt",
    )
