"""Keeps the connection to a container engine for a while after this process was killed. The cri runtime's engine has one.

containerd gives up what it is doing for a client that hangs up: of a container that is being started then, nobody could say
whether it ever ran. So another process, a shell that does nothing, holds the same connection, and ends a while after us.
"""

import os
import signal
import socket
from contextlib import suppress

from app.runtimes.linux import peer_credentials

SECONDS = 30  # for what had been asked when we were killed
_SCRIPT = f"cd /; read -r _; exec sleep {SECONDS}"  # nothing is ever written for it to read: it ends with us
_HELD = 3


class Line:
    def __init__(self) -> None:
        self.peer = 0  # the engine's process
        self._pid = 0
        self._end = -1

    def hold(self, connection: socket.socket) -> None:
        """This one, and none that was held before. Raises OSError."""
        self.close()
        self.peer = peer_credentials.process(connection)
        reading, self._end = os.pipe()
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _SCRIPT],
                {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, connection.fileno(), _HELD),
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError:
            os.close(self._end)
            raise
        finally:
            os.close(reading)

    def close(self) -> None:
        """Nothing that we have asked for is wanted any more, or it is over."""
        if self._pid:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            os.close(self._end)
            self._pid = 0
