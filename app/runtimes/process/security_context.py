"""Security context of a container that is a process, as setpriv's arguments. Called by `launch`.

Everything is taken from what the agent has: a container that asks for nothing keeps it all, and nothing can be given that
the agent lacks. Never does a container run as another user or group than it asks for: then it does not start.
"""

import os
import pwd
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from app.runtimes.base import Security, StartError

PROFILES = ("", "RuntimeDefault", "Unconfined")  # the default profile of this runtime is none
ALL = "ALL"
_BY_BIT = """
CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE
AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ
PERFMON BPF CHECKPOINT_RESTORE
"""
CAPABILITIES = tuple(_BY_BIT.split())


@dataclass(frozen=True, kw_only=True)
class AgentRights:
    """What the agent itself is and has; tests say something else."""

    user: int
    group: int
    capabilities: frozenset[str]
    setpriv: str

    @classmethod
    def here(cls) -> "AgentRights":
        return cls(
            user=os.geteuid(),
            group=os.getegid(),
            capabilities=_bounds(),
            setpriv=shutil.which("setpriv") or "",
        )

    @property
    def may_change(self) -> bool:
        """Return whether it can give its containers other users and fewer capabilities."""
        return bool(self.setpriv) and self.user == 0 and self.capabilities >= {"SETUID", "SETGID", "SETPCAP"}


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What to put in front of the command, and whose its files are, if not the agent's."""

    arguments: tuple[str, ...] = ()
    owner: tuple[int, int] | None = None


def isolated(security: Security, user: int | None) -> Security:
    """The rights of a container of an isolated pod, whatever it asks for. `user`: of its namespace. Raises StartError."""
    if user is not None and {security.user, security.group, *security.groups} - {None, user}:
        raise StartError(f"the container asks for another user or group than that of its namespace, {user}")
    if security.privileged or security.add:
        raise StartError("the container asks for privileges, and its namespace is not privileged")
    own = replace(security, drop=(ALL,), no_new_privileges=True)
    return own if user is None else replace(own, user=user, group=user, groups=())


def resolve(security: Security, agent: AgentRights) -> Rights:
    """Raises StartError."""
    if security.seccomp not in PROFILES:
        raise StartError(f'the process runtime applies no seccomp profiles, so not "{security.seccomp}" either')
    user = agent.user if security.user is None else security.user
    group = security.group if security.group is not None else _group_of(user, agent)
    if not agent.may_change:
        return _as_it_is(security, agent, user, group)
    arguments = [*_identity(security, agent, user, group), *_capabilities(security, agent)]
    if security.no_new_privileges:
        arguments.append("--no-new-privs")
    return Rights(
        arguments=(agent.setpriv, *arguments, "--") if arguments else (),
        owner=(user, group) if user != agent.user else None,
    )


def _as_it_is(security: Security, agent: AgentRights, user: int, group: int) -> Rights:
    """The agent's own user and groups only. What takes rights away is done as far as it goes."""
    if user != agent.user:
        raise StartError(f"the container asks for user {user}, but the agent runs as user {agent.user}{_why(agent)}")
    if group != agent.group:
        raise StartError(
            f"the container asks for group {group}, but the agent runs as group {agent.group}{_why(agent)}"
        )
    restricted = security.no_new_privileges or (security.drop and not security.privileged)
    if restricted and agent.setpriv:  # a process that cannot get new privileges has none of the capabilities either
        return Rights(arguments=(agent.setpriv, "--no-new-privs", "--"))
    return Rights()


def _why(agent: AgentRights) -> str:
    if agent.user != 0:
        return ", and only root can run it as another"
    return " and lacks " + ("the capabilities to change that" if agent.setpriv else "the program setpriv (util-linux)")


def _group_of(user: int, agent: AgentRights) -> int:
    """As engines do: the group of the account, if there is one, else 0."""
    if user == agent.user:
        return agent.group
    with suppress(KeyError):
        return pwd.getpwuid(user).pw_gid
    return 0


def _identity(security: Security, agent: AgentRights, user: int, group: int) -> list[str]:
    """A container with a user or group of its own has none of the agent's supplementary groups."""
    if (user, group) == (agent.user, agent.group) and not security.groups and security.user is None:
        return []
    groups = ["--groups", ",".join(map(str, security.groups))] if security.groups else ["--clear-groups"]
    return ["--reuid", str(user), "--regid", str(group), *groups]


def _capabilities(security: Security, agent: AgentRights) -> list[str]:
    if security.privileged or not (security.drop or security.add):
        return []
    kept = set() if ALL in security.drop else set(agent.capabilities) - {_plain(each) for each in security.drop}
    for name in map(_plain, security.add):
        if name != ALL and name not in agent.capabilities:
            raise StartError(f'the container asks for capability "{name}", which the agent does not have')
        kept |= agent.capabilities if name == ALL else {name}
    if kept == agent.capabilities:
        return []
    bounds = ",".join(["-all", *(f"+cap_{CAPABILITIES.index(each)}" for each in sorted(kept))])
    return ["--inh-caps", "-all", "--bounding-set", bounds]


def _plain(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def _bounds() -> frozenset[str]:
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    bits = next((int(line.split()[1], 16) for line in lines if line.startswith("CapBnd:")), 0)
    return frozenset(name for bit, name in enumerate(CAPABILITIES) if bits >> bit & 1)
