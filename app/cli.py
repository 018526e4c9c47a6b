"""The command line: the only place that reads settings and wires the parts together. `jobplane --help` is its manual."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_agent import agent
from app.cli_logs import logs
from app.cli_nodes import create, listed, nodes, revoke, span
from app.cli_options import CaFile, DataDir, Devices, NodeName, Nodes, Runtime, RuntimeEndpoint, Scoring, settings
from app.cli_process import appears, follow_parent, now, run_fast, until_told
from app.settings import Settings

if TYPE_CHECKING:
    from app.store import Store

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, pretty_exceptions_enable=False)
app.command()(agent)
app.command()(logs)
app.add_typer(nodes, name="node")
tokens = typer.Typer(invoke_without_command=True)
app.add_typer(tokens, name="token")
tokens.command("create")(create)
tokens.command("list")(listed)
tokens.command("revoke")(revoke)

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        help="A Postgres >= 14: postgresql://user:password@host/database. `up` starts its own if none is given."
    ),
]
Host = Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(help="Port to listen on. [default: 6443]")]
Tls = Annotated[
    bool | None,
    typer.Option("--tls/--no-tls", help="Without TLS only a proxy on this machine should be let in. [default: tls]"),
]
FeatureGates = Annotated[
    str | None, typer.Option(help="What is off in Kubernetes by default, such as WorkloadWithJob=true. [default: none]")
]


@app.command()
def up(
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    tls: Tls = None,
    database_url: DatabaseUrl = None,
    runtime: Runtime = None,
    runtime_endpoint: RuntimeEndpoint = None,
    nodes: Nodes = None,
    node_name: NodeName = None,
    devices: Devices = None,
    scoring_strategy: Scoring = None,
    feature_gates: FeatureGates = None,
) -> None:
    """Everything on one machine: Postgres, API, controllers and one agent. Ctrl-C ends it; running it again goes on.

    Writes DATA_DIR/kubeconfig: `kubectl --kubeconfig DATA_DIR/kubeconfig get nodes`.
    """
    from app.store.binaries import SetupError
    from app.supervisor import Supervisor

    made = settings(
        data_dir=data_dir and data_dir.expanduser().absolute(),
        host=host,
        port=port,
        tls=tls,
        database_url=database_url,
        runtime=runtime,
        runtime_endpoint=runtime_endpoint,
        nodes=nodes,
        node_name=node_name,
        devices=devices,
        scoring_strategy=scoring_strategy,
        feature_gates=feature_gates,
    )
    try:
        _exit(asyncio.run(Supervisor(made).run()))
    except SetupError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command()
def api(
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    tls: Tls = None,
    database_url: DatabaseUrl = None,
    feature_gates: FeatureGates = None,
    advertise_url: Annotated[
        str | None, typer.Option(help="Where other replicas reach this very one. [default: by its own address]")
    ] = None,
    migrate: Annotated[bool, typer.Option(help="Bring the database up to date first.")] = False,
) -> None:
    """One replica of the API. Any number may run on one database."""
    made = settings(
        data_dir=data_dir,
        host=host,
        port=port,
        tls=tls,
        database_url=database_url,
        feature_gates=feature_gates,
        advertise_url=advertise_url,
    )
    follow_parent()
    run_fast(_api(made, migrate))


async def _api(made: Settings, migrate: bool) -> None:
    from app.api.serve import serve
    from app.registry.objects import Registry
    from app.store import despite_outages, open_store

    async def work() -> None:
        async with open_store(dsn, log_cap=made.log_cap) as store:
            await serve(Registry(store, now, made.features), made)

    dsn = _dsn(made)
    if migrate:
        await _migrate(dsn)
    await despite_outages(dsn, work)


@app.command()
def controllers(
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    ca_file: CaFile = None,
    scoring_strategy: Scoring = None,
    feature_gates: FeatureGates = None,
) -> None:
    """The controllers and the scheduler. Several may run: one acts, the others stand by.

    With --ca-file, every namespace gets that certificate in a ConfigMap, kube-root-ca.crt.
    """
    made = settings(
        database_url=database_url,
        data_dir=data_dir,
        ca_file=ca_file,
        scoring_strategy=scoring_strategy,
        feature_gates=feature_gates,
    )
    follow_parent()
    run_fast(until_told(_controllers(made)))


async def _controllers(made: Settings) -> None:
    from app.controllers.main import Keeping, run
    from app.plans.scheduling import Settings as Scheduling
    from app.registry.objects import Registry
    from app.store import despite_outages, open_store

    async def work() -> None:
        async with open_store(dsn, ring_bytes=0, pool_size=2) as store:
            await run(
                Registry(store, now, made.features),
                node_grace=timedelta(seconds=made.node_grace_seconds),
                keep_history=timedelta(hours=made.history_hours),
                keeping=Keeping(
                    events=timedelta(seconds=made.event_ttl_seconds),
                    logs=timedelta(hours=made.log_ttl_hours),
                    log_cap=made.log_cap,
                ),
                certificate=made.ca_file.read_text() if made.ca_file else "",
                scheduling=Scheduling(strategy=made.scoring_strategy),
            )

    dsn = _dsn(made)
    await appears(made.ca_file)
    await despite_outages(dsn, work)


@app.command()
def migrate(database_url: DatabaseUrl = None) -> None:
    """Bring the database's schema to this version."""
    made = settings(database_url=database_url)
    asyncio.run(_migrate(_dsn(made)))


async def _migrate(dsn: str) -> None:
    from app.store import despite_outages
    from app.store.migrate import migrate as upgrade

    await despite_outages(dsn, lambda: upgrade(dsn), migrated=False)


@tokens.callback()
def token(
    context: typer.Context,
    user: Annotated[str | None, typer.Option(help="Who holds it, such as alice. [default: admin]")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="May be repeated. [default: system:masters, if no --user is given]")
    ] = None,
    service_account: Annotated[
        str | None, typer.Option(help="NAMESPACE/NAME of the service account that holds it; it ends with the account.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option(help="A node that the holder speaks for; * ends a prefix.")] = None,
    duration: Annotated[
        str | None, typer.Option(help="How long it is good for, such as 8h or 1d12h; for ever if not given.")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a token and print it, once: only its digest is kept. With a command: of tokens by which machines join.

    For a person: jobplane token --user alice --group physicists (and bind a role to either)
    For an agent: jobplane token create; or, with a --database-url, jobplane token --node worker-1
    """
    if context.invoked_subcommand:
        return
    made = settings(database_url=database_url)
    expires = now() + span(duration) if duration else None
    if service_account:
        if user or group or node:
            raise typer.BadParameter(
                "a service account has its own user name and groups", param_hint="--service-account"
            )
        typer.echo(asyncio.run(_account_token(made, service_account, expires)))
        return
    groups = tuple(group or (["system:nodes"] if node else [] if user else ["system:masters"]))
    name = user or (f"system:node:{node[0].rstrip('*-')}" if node else "admin")
    typer.echo(asyncio.run(_token(made, name, groups, tuple(node or ()), expires)))


async def _token(
    made: Settings, user: str, groups: tuple[str, ...], nodes: tuple[str, ...], expires_at: datetime | None
) -> str:
    from app.api.auth import User
    from app.api.tokens import issue
    from app.registry.objects import Registry

    async with _store(made) as store:
        return await issue(Registry(store, now), User(name=user, groups=groups, nodes=nodes), expires_at)


async def _account_token(made: Settings, account: str, expires_at: datetime | None) -> str:
    from app.api.tokens import issue_for_account
    from app.kinds.errors import ApiError
    from app.registry.objects import Registry

    namespace, _, name = account.rpartition("/")
    async with _store(made) as store:
        try:
            return await issue_for_account(Registry(store, now), namespace or "default", name, expires_at)
        except ApiError as error:
            typer.echo(error.message, err=True)
            raise typer.Exit(1) from None


@app.command()
def kubeconfig(data_dir: DataDir = None) -> None:
    """Print the kubeconfig that `up` wrote."""
    path = settings(data_dir=data_dir).data_dir / "kubeconfig"
    if not path.exists():
        typer.echo(f"{path} is not there: start `jobplane up` first, or name its --data-dir", err=True)
        raise typer.Exit(1)
    typer.echo(path.read_text(), nl=False)


@app.command()
def demo(
    manifest: Annotated[Path, typer.Argument(help="The Job to run.")] = Path("examples/pi.yaml"),
    data_dir: DataDir = None,
) -> None:
    """Start everything, run a Job, print its log, stop. Needs nothing but this program."""
    from app.demo import run

    made = settings(data_dir=data_dir or Path("build/demo").absolute(), log_level="warning")
    _exit(asyncio.run(run(manifest, made.data_dir)))


@asynccontextmanager
async def _store(made: Settings) -> AsyncIterator["Store"]:
    """For a command that is soon done: it fails where others wait for the database."""
    from app.store import open_store, problem_of

    if problem := await problem_of(_dsn(made)):
        typer.echo(f"the database cannot be used: {problem}", err=True)
        raise typer.Exit(1)
    async with open_store(_dsn(made), ring_bytes=0, pool_size=1) as store:
        yield store


def _dsn(made: Settings) -> str:
    given = made.database_url.get_secret_value()
    if not given:
        typer.echo("no database: give --database-url or JOBPLANE_DATABASE_URL (`jobplane up` starts its own)", err=True)
        raise typer.Exit(2)
    return given


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> None:
    """The entry point of the `jobplane` script."""
    app()


if __name__ == "__main__":
    main()
