"""The sockets of the API: addresses that are refused, with what to do."""

import asyncio
import errno
import socket

import pytest

from app.api.http.listening_sockets import ListenError, bind_sockets, explain_listen_error


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EADDRINUSE, "port 6443 of h is in use: pass another --port, or stop the program that listens there"),
        (errno.EACCES, "cannot listen on h:6443: pass a --port above 1023"),
        (errno.EADDRNOTAVAIL, "h is not an address of this machine: pass another --host, or 0.0.0.0"),
        (socket.EAI_NONAME, "cannot listen on h:6443 (why): pass another --host"),
    ],
)
def test_a_refusal_says_what_to_do(number: int, expected: str) -> None:
    assert expected in explain_listen_error(OSError(number, "why"), "h", 6443)


async def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(ListenError, match=r"192\.0\.2\.1 is not an address of this machine"):
        await bind_sockets("192.0.2.1", 0)


async def test_all_addresses_of_a_name_are_listened_on() -> None:
    sockets = await bind_sockets("localhost", 0)
    try:
        assert "127.0.0.1" in {each.getsockname()[0] for each in sockets}
        assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)
        assert not any(each.getblocking() for each in sockets)
    finally:
        for each in sockets:
            each.close()


async def test_a_port_that_is_given_up_in_time_is_taken() -> None:
    """As by an API before, which was told to end a moment ago."""
    before = socket.create_server(("127.0.0.1", 0))
    port = before.getsockname()[1]
    waiting = asyncio.create_task(bind_sockets("127.0.0.1", port))
    await asyncio.sleep(0)
    before.close()
    [taken] = await waiting
    assert taken.getsockname()[1] == port
    taken.close()
