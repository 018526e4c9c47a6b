"""Messages of a call (exec, attach, one connection to a port) between an API process and an agent.

The agent opens a WebSocket for each call. Messages start with the number of a channel, as in Kubernetes' remote command
protocol; END and a number end a channel. On WORDS, lines of JSON: first the API's `Wanted`, then the agent's `Word`s.
"""

import msgspec

STDIN, STDOUT, STDERR, WORDS, RESIZE, END = 0, 1, 2, 3, 4, 255
PREFIX = "/apis/agents.jobplane.dev/v1/nodes"


class Wanted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent is to do. kind: exec, attach, forward; a forward without a port only asks whether there is such a pod."""

    kind: str
    uid: str
    namespace: str
    name: str
    container: str = ""
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    port: int = 0


class Word(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """First either `ready` or why it is `refused`; of what was ready, in the end, its `exit_code` or how it `failed`."""

    ready: bool = False
    refused: str = ""
    exit_code: int | None = None
    failed: str = ""


class Ring(msgspec.Struct, frozen=True):
    """Tells an agent that a call for one of its nodes waits."""

    id: str
    node: str
