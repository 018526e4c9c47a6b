"""Keeper of the standard input, or the terminal, of one container: open whatever becomes of the agent. A program of its own.

The shim starts it for containers with `stdin` or `tty`: `python keeper.py FOLDER open|once|tty|console`. Descriptor 6 is the
writing end of the container's input, or its terminal's master, whose output it appends to standard output; with `console`, a
socket on which that master comes before the container runs. It listens on the socket `attach` in FOLDER for frames: a kind and
four bytes of length, then bytes of input (d), a terminal's size (r), or nothing: the end of input (e), which is passed on where
input is for the first who attaches only. On SIGTERM, or if it finds the file `over`, the container has ended: it copies what the
terminal still holds, and ends.
"""

import fcntl
import os
import select
import selectors
import signal
import socket
import struct
import sys
import termios
from contextlib import suppress

HEAD = struct.Struct(">cI")
KEPT = 6  # the descriptor
MOST = 64 * 1024  # bytes that wait for the container, until no more are read
LAST = 64  # pieces that are still read of a terminal whose container has ended
PIECE = 64 * 1024


class Keeper:
    """`mode`: open, once, tty or console."""

    def __init__(self, mode: str) -> None:
        self._is_terminal, self._once, self._awaits = mode in ("tty", "console"), mode == "once", mode == "console"
        self._input = b""
        self._closing = False
        self._clients: dict[int, tuple[socket.socket, bytearray]] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("attach")
        self._listener.listen()
        self._told, telling = os.pipe()
        signal.signal(signal.SIGTERM, lambda *_: os.write(telling, b"."))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        os.set_blocking(KEPT, False)

    def run(self) -> None:
        """Until the container has ended, or its input."""
        if self._awaits and not self._receive():
            return
        if os.path.exists("over"):
            self._copy_rest()
            return
        for fd in (self._told, self._listener.fileno(), KEPT):
            self._selector.register(fd, selectors.EVENT_READ)
        while not self._closing or self._input or self._is_terminal:
            self._choose()
            for key, events in self._selector.select():
                if key.fd == self._told:
                    self._copy_rest()
                    return
                if key.fd == KEPT and not self._tend(events):
                    return
                if key.fd == self._listener.fileno():
                    client, _ = self._listener.accept()
                    self._clients[client.fileno()] = client, bytearray()
                if key.fd in self._clients:
                    self._hear(key.fd)

    def _receive(self) -> bool:
        """Wait for the terminal. False if the container has ended, and there was none."""
        if not os.path.exists("over"):
            select.select([KEPT, self._told], [], [])
        with suppress(OSError, IndexError), socket.socket(fileno=os.dup(KEPT)) as console:
            with console.accept()[0] as sender:
                sender.setblocking(True)  # what sends it has done so, or has died, when the container ends
                _, received, _, _ = socket.recv_fds(sender, PIECE, 1)
            os.dup2(received[0], KEPT)
            os.close(received[0])
            os.set_blocking(KEPT, False)
            return True
        return False

    def _choose(self) -> None:
        """While much waits for the container, clients are not read."""
        writes = selectors.EVENT_WRITE if self._input else 0
        self._selector.modify(KEPT, selectors.EVENT_READ | writes)
        for fd in self._clients:
            is_heard = fd in self._selector.get_map()
            if is_heard and len(self._input) >= MOST:
                self._selector.unregister(fd)
            elif not is_heard and len(self._input) < MOST:
                self._selector.register(fd, selectors.EVENT_READ)

    def _tend(self, events: int) -> bool:
        """False once the container has closed its end. Nothing else can be read of an input."""
        if events & selectors.EVENT_WRITE:
            try:
                self._input = self._input[os.write(KEPT, self._input) :]
            except BlockingIOError:
                pass
            except OSError:
                return False
        return not events & selectors.EVENT_READ or (self._is_terminal and self._copy())

    def _copy(self) -> bool:
        """Return what the terminal shows; False when it never will again."""
        try:
            data = os.read(KEPT, PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        with suppress(OSError):  # the disk is full
            os.write(1, data)
        return bool(data)

    def _copy_rest(self) -> None:
        for _ in range(LAST if self._is_terminal else 0):
            try:
                data = os.read(KEPT, PIECE)
                os.write(1, data)
            except OSError:
                return

    def _hear(self, fd: int) -> None:
        client, held = self._clients[fd]
        try:
            data = client.recv(PIECE)
        except OSError:
            data = b""
        held += data
        while len(held) >= HEAD.size:
            kind, length = HEAD.unpack_from(held)
            if len(held) < HEAD.size + length:
                break
            self._take(kind, bytes(held[HEAD.size : HEAD.size + length]))
            del held[: HEAD.size + length]
        if not data:
            if fd in self._selector.get_map():
                self._selector.unregister(fd)
            del self._clients[fd]
            client.close()

    def _take(self, kind: bytes, data: bytes) -> None:
        if kind == b"d" and not self._closing:
            self._input += data
        elif kind == b"r" and self._is_terminal:
            with suppress(OSError):
                fcntl.ioctl(KEPT, termios.TIOCSWINSZ, data)
        elif kind == b"e":
            self._closing = self._closing or self._once


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Keeper(sys.argv[2]).run()
