"""The command line. Reads settings, opens the store, and wires the parts together."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from app.main.cli_agent import agent, agent_config_of_up
from app.main.cli_certificates import certificates
from app.main.cli_database import dsn_of, open_database, open_with_keys
from app.main.cli_errors import CommandError, ConfigError, ended, text_of
from app.main.cli_examples import examples
from app.main.cli_kubeconfig import kubeconfig
from app.main.cli_migration import migrate_apart, start_migration
from app.main.cli_nodes import nodes, span
from app.main.cli_options import (
    CaFile,
    DatabaseUrl,
    DataDir,
    Devices,
    FeatureGates,
    Host,
    Logs,
    MetricsAddress,
    NodeName,
    Nodes,
    PodCidr,
    Port,
    Runtime,
    RuntimeEndpoint,
    Scoring,
    Tls,
    TlsSan,
    more_settings,
    option,
    read_settings,
    with_oidc_options,
)
from app.main.cli_page import page
from app.main.cli_process import (
    follow_parent,
    has_parent,
    now,
    run_fast,
    run_until_signal,
    serving_metrics,
    wait_for_file,
)
from app.main.cli_secrets import secrets
from app.main.cli_systemd import systemd
from app.main.cli_tokens import create, listed, revoke, rotate
from app.main.cli_traces import trace_client
from app.main.commands.access.login import login
from app.main.commands.jobs.cancel import cancel
from app.main.commands.jobs.rerun import rerun
from app.main.commands.jobs.run import RunCommand, run
from app.main.commands.jobs.submit import submit
from app.main.commands.logs.logs import logs
from app.main.commands.view.get import get
from app.main.commands.view.history import history
from app.main.commands.view.listing import list_objects
from app.main.commands.view.machines import nodes as list_nodes
from app.main.commands.view.machines import top
from app.main.commands.view.watch import watch
from app.settings import Settings

HELP = "Kubernetes Jobs without running Kubernetes: serve the API, run Jobs on your machines. Start with `jobplane up`."
# Without rich, which would read the brackets around defaults as markup.
app = typer.Typer(no_args_is_help=True, help=HELP, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command(epilog=more_settings("agent"))(agent)
app.command(cls=RunCommand)(run)
app.command("list")(list_objects)
app.command()(get)
app.command()(logs)
app.command()(cancel)
app.command()(submit)
app.command()(watch)
app.command()(rerun)
app.command()(history)
app.command()(top)
app.command("nodes")(list_nodes)
app.command()(kubeconfig)
app.command()(page)
app.command()(login)
app.command()(examples)
app.command()(systemd)
app.add_typer(nodes, name="node")
app.add_typer(certificates, name="certificates")
app.add_typer(secrets, name="secrets")
tokens = typer.Typer(invoke_without_command=True)
app.add_typer(tokens, name="token")
tokens.command("create")(create)
tokens.command("list")(listed)
tokens.command("revoke")(revoke)
tokens.command("rotate")(rotate)


def _print_version(wanted: bool) -> None:
    if wanted:
        from app.api.resources.version import MAJOR, MINOR, jobplane_version

        typer.echo(f"jobplane {jobplane_version()} (Kubernetes API v{MAJOR}.{MINOR})")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog=more_settings("api", "controllers", "agent"))
@with_oidc_options
def up(
    oidc: dict[str, Any],
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
    pod_cidr: PodCidr = None,
    feature_gates: FeatureGates = None,
    tls_san: TlsSan = None,
    metrics_address: MetricsAddress = None,
    log_format: Logs = None,
) -> None:
    """Run Postgres, the API, the controllers and an agent on this machine. Ctrl-C stops them; run it again to continue.

    Writes DATA_DIR/kubeconfig: `kubectl --kubeconfig DATA_DIR/kubeconfig get nodes`.
    """
    from app.main.supervisor import Supervisor
    from app.postgres.postgres_binaries import SetupError

    made = read_settings(
        "up",
        data_dir=data_dir,
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
        pod_cidr=pod_cidr,
        feature_gates=feature_gates,
        tls_san=tls_san,
        metrics_address=metrics_address,
        log_format=log_format,
        **oidc,
    )
    try:
        asyncio.run(Supervisor(made, agent_config_of_up(made)).run())
    except SetupError as error:
        raise CommandError(str(error)) from error


@app.command(epilog=more_settings("api"))
@with_oidc_options
def api(
    oidc: dict[str, Any],
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    tls: Tls = None,
    database_url: DatabaseUrl = None,
    feature_gates: FeatureGates = None,
    tls_san: TlsSan = None,
    advertise_url: Annotated[str | None, option("advertise_url")] = None,
    log_format: Logs = None,
    migrate: Annotated[bool, typer.Option(help="Migrate the database to this version first.")] = False,
) -> None:
    """Run an API replica. Any number of replicas can share a database."""
    made = read_settings(
        "api",
        data_dir=data_dir,
        host=host,
        port=port,
        tls=tls,
        database_url=database_url,
        feature_gates=feature_gates,
        tls_san=tls_san,
        advertise_url=advertise_url,
        log_format=log_format,
        **oidc,
    )
    follow_parent()
    run_fast(_api(made, migrate))


async def _api(made: Settings, migrate: bool) -> None:
    dsn = dsn_of(made)
    migration = await start_migration(made, dsn) if migrate else None  # before this process loads what it needs
    from app.api.audit.audit_log import AuditSettingError, open_audit
    from app.api.http.listening_sockets import ListenError, bind_sockets
    from app.api.serve import serve, trusted_providers
    from app.registry.verbs.objects import Registry

    async def work() -> None:
        async with open_with_keys(made, log_cap=made.log_cap) as store:
            registry = Registry(
                store, now, made.features, pod_security=made.pod_security_configuration, pod_cidr=made.pod_cidr
            )
            await serve(registry, made, sockets, trusted, audit_log)

    try:
        trusted = trusted_providers(made, now)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    try:
        audit_log = open_audit(made, now)
        sockets = await bind_sockets(made.host, made.port)
    except (AuditSettingError, ListenError) as error:
        raise ConfigError(str(error)) from error
    if migrate:
        await _run_despite_outages(dsn, lambda: migrate_apart(made, dsn, migration), migrated=False)
    await _run_despite_outages(dsn, work)


@app.command(epilog=more_settings("controllers"))
def controllers(
    database_url: DatabaseUrl = None,
    data_dir: DataDir = None,
    ca_file: CaFile = None,
    scoring_strategy: Scoring = None,
    pod_cidr: PodCidr = None,
    feature_gates: FeatureGates = None,
    metrics_address: MetricsAddress = None,
    log_format: Logs = None,
) -> None:
    """Run the controllers and the scheduler. Several can run: one is elected leader, the others stand by.

    With --ca-file, every namespace gets that certificate in the ConfigMap kube-root-ca.crt.
    """
    made = read_settings(
        "controllers",
        database_url=database_url,
        data_dir=data_dir,
        ca_file=ca_file,
        scoring_strategy=scoring_strategy,
        pod_cidr=pod_cidr,
        feature_gates=feature_gates,
        metrics_address=metrics_address,
        log_format=log_format,
    )
    follow_parent()
    run_fast(run_until_signal(_controllers(made)))


async def _controllers(made: Settings) -> None:
    from app.controllers.auth.certificate_signing import folder_signer
    from app.controllers.manager import ClusterAuthority, NodeSettings, Retention, run
    from app.controllers.webhooks.webhook_client import WebhookClient
    from app.machinery.cidr import parse_cidr
    from app.registry.readiness import readiness
    from app.registry.verbs.objects import Registry
    from app.scheduler import ScoringSettings

    async def work() -> None:
        async with open_with_keys(made, ring_bytes=0, pool_size=2) as store:
            registry = Registry(store, now, made.features, time.monotonic, made.pod_security_configuration)
            async with serving_metrics(made.metrics_address, registry.metrics, readiness(registry)):
                await act(registry)

    async def act(registry: Registry) -> None:
        await run(
            registry,
            nodes=NodeSettings(
                grace=timedelta(seconds=made.node_grace_seconds),
                pod_cidr=parse_cidr(made.pod_cidr) if made.pod_cidr else None,
            ),
            retention=Retention(
                history=timedelta(hours=made.history_hours),
                events=timedelta(seconds=made.event_ttl_seconds),
                secrets=timedelta(minutes=made.secret_history_minutes),
                logs=timedelta(hours=made.log_ttl_hours),
                log_cap=made.log_cap,
                records=timedelta(hours=made.record_ttl_hours),
            ),
            authority=ClusterAuthority(
                certificate=f"{text_of(made.ca_file)}\n" if made.ca_file else "",
                sign=folder_signer(made.data_dir / "tls"),
                longest=timedelta(hours=made.cluster_signing_hours),
            ),
            scheduling=ScoringSettings(strategy=made.scoring_strategy),
            webhooks=WebhookClient(allows_local=made.webhooks_to_this_host),
            traces=traces,
        )

    dsn, traces = dsn_of(made), trace_client(made)
    await wait_for_file(made.ca_file)
    await _run_despite_outages(dsn, work)


@app.command()
def migrate(database_url: DatabaseUrl = None, log_format: Logs = None) -> None:
    """Migrate the schema of the database to this version."""
    made = read_settings("migrate", database_url=database_url, log_format=log_format)
    follow_parent()
    asyncio.run(_migrate(dsn_of(made)))


async def _migrate(dsn: str) -> None:
    from app.store.schema.migrate import load_tools
    from app.store.schema.migrate import migrate as upgrade

    if has_parent():  # started by the API: there is probably something to migrate
        load_tools()
    await _run_despite_outages(dsn, lambda: upgrade(dsn), migrated=False)


async def _run_despite_outages(dsn: str, work: Callable[[], Awaitable[None]], *, migrated: bool = True) -> None:
    from app.store import UrlError, despite_outages

    try:
        await despite_outages(dsn, work, migrated=migrated)
    except UrlError as error:
        raise ConfigError(f"--database-url or JOBPLANE_DATABASE_URL: {error}") from error


@tokens.callback()
def token(
    context: typer.Context,
    user: Annotated[str | None, typer.Option(help="User name of the holder, such as alice. [default: admin]")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Group of the holder; can be repeated. [default: system:masters, if there is no --user]"),
    ] = None,
    service_account: Annotated[
        str | None,
        typer.Option(help="Service account of the token, NAMESPACE/NAME; the token ends with it. [default: none]"),
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(help="Node that the holder may act as; can be repeated; * ends a prefix. [default: none]"),
    ] = None,
    duration: Annotated[
        str | None, typer.Option(help="Lifetime of the token, such as 8h or 1d12h. [default: unlimited]")
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a token and print it, once: only its digest is stored. With a command: list, revoke and rotate tokens.

    \b
    For a person: jobplane token --user alice --group physicists (and bind a role to either)
    For an agent: jobplane token create; or, with a --database-url, jobplane token --node worker-1
    """
    if context.invoked_subcommand:
        return
    made = read_settings(database_url=database_url)
    expires = now() + span(duration) if duration else None
    if service_account:
        if user or group or node:
            raise typer.BadParameter(
                "cannot be combined with --user, --group or --node", param_hint="--service-account"
            )
        typer.echo(asyncio.run(_issue_account_token(made, service_account, expires)))
        return
    groups = tuple(group or (["system:nodes"] if node else [] if user else ["system:masters"]))
    name = user or (f"system:node:{node[0].rstrip('*-')}" if node else "admin")
    typer.echo(asyncio.run(_issue_token(made, name, groups, tuple(node or ()), expires)))


async def _issue_token(
    made: Settings, user: str, groups: tuple[str, ...], nodes: tuple[str, ...], expires_at: datetime | None
) -> str:
    from app.api.auth.authenticator import User
    from app.api.auth.tokens import issue
    from app.registry.verbs.objects import Registry

    async with open_database(made) as store:
        return await issue(Registry(store, now), User(name=user, groups=groups, nodes=nodes), expires_at)


async def _issue_account_token(made: Settings, account: str, expires_at: datetime | None) -> str:
    from app.api.auth.tokens import issue_for_account
    from app.machinery.errors import ApiError
    from app.registry.verbs.objects import Registry

    namespace, _, name = account.rpartition("/")
    async with open_database(made) as store:
        try:
            return await issue_for_account(Registry(store, now), namespace or "default", name, expires_at)
        except ApiError as error:
            typer.echo(error.message, err=True)
            raise typer.Exit(1) from None


@app.command()
def demo(
    manifest: Annotated[
        Path | None,
        typer.Argument(help="Manifest of the Job to run.", show_default="a Job that computes pi"),
    ] = None,
    data_dir: Annotated[Path | None, option("data_dir", default="build/demo")] = None,
) -> None:
    """Start everything, run a Job, print its log, and stop. Needs no other program."""
    from app.main.demo import PI, run

    made = read_settings(data_dir=data_dir or Path("build/demo"), log_level="warning")
    _exit(asyncio.run(run(manifest or PI, made.data_dir)))


def _exit(code: int) -> None:
    if code:
        raise typer.Exit(code)


def main() -> None:
    """The entry point of the `jobplane` script."""
    _keep_command(sys.argv[1:2])
    sys.exit(ended(app))


def _keep_command(called: list[str]) -> None:
    """Forget all commands but the one that is called: typer works out the options of each at every start."""
    found = [
        each for each in app.registered_commands if each.callback and [each.name or each.callback.__name__] == called
    ]
    if found:
        app.registered_commands, app.registered_groups = found, []


if __name__ == "__main__":
    main()
