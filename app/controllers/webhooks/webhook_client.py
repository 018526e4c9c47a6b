"""HTTP client of webhooks: sends a message to an address that was checked, and follows no redirect.

Used by `webhook_delivery`. The name is resolved once, each of its addresses is checked, and the connection goes to one of them: a
name that changes its mind in between leads nowhere else. Proxies of the environment are not used, for the same reason.
"""

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from app.plans.webhooks import is_refused

if TYPE_CHECKING:
    import httpx

SECONDS = 10.0  # for one attempt in all
_RESOLVE_SECONDS = 5.0
_THREADS = 64


class DeliveryError(Exception):
    """The receiver did not take the message; says why, without the URL."""


class WebhookClient:
    """`allows_local`: receivers on this machine's loopback addresses are allowed."""

    def __init__(self, *, allows_local: bool = False, seconds: float = SECONDS) -> None:
        self._allows_local = allows_local
        self._seconds = seconds
        self._http: httpx.AsyncClient | None = None
        # A name server that does not answer holds a thread for long: none that others need.
        self._threads = ThreadPoolExecutor(_THREADS, "webhook-names")

    async def post(self, url: str, headers: dict[str, str], body: bytes) -> None:
        """Return if the receiver answered 2xx; else raise DeliveryError."""
        import httpx  # with the first webhook: most clusters have none

        client = await self._client()
        try:
            async with asyncio.timeout(self._seconds):
                status = await self._post(client, httpx.URL(url), headers, body)
        except TimeoutError:
            raise DeliveryError(f"no answer within {self._seconds:g}s") from None
        except httpx.InvalidURL:
            raise DeliveryError("the URL is invalid") from None
        except (httpx.HTTPError, OSError, ssl.SSLError) as error:
            raise DeliveryError(f"the connection failed: {type(error).__name__}") from error
        if not 200 <= status < 300:
            hint = " (redirects are not followed)" if 300 <= status < 400 else ""
            raise DeliveryError(f"answered {status}{hint}")

    async def _post(self, client: "httpx.AsyncClient", url: "httpx.URL", headers: dict[str, str], body: bytes) -> int:
        """The answer's status. Its body is not read."""
        address = await self._resolve(url)
        request = client.build_request(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers={**headers, "host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.host},
        )
        response = await client.send(request, stream=True)
        await response.aclose()
        return response.status_code

    async def _resolve(self, url: "httpx.URL") -> str:
        """An address of the URL's host. DeliveryError if one of them is refused."""
        port = url.port or (443 if url.scheme == "https" else 80)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_RESOLVE_SECONDS):
                find = partial(socket.getaddrinfo, url.host, port, type=socket.SOCK_STREAM)
                found = await loop.run_in_executor(self._threads, find)
        except (OSError, UnicodeError) as error:
            raise DeliveryError("the name of the host cannot be resolved") from error
        addresses = [str(each[4][0]) for each in found]
        if not addresses or any(is_refused(each, allows_local=self._allows_local) for each in addresses):
            raise DeliveryError(
                "the host has an address to which webhooks may not send: loopback, link-local or reserved"
            )
        return addresses[0]

    async def _client(self) -> "httpx.AsyncClient":
        import httpx

        if self._http is None:
            loop = asyncio.get_running_loop()  # it reads every authority of this machine
            context = await loop.run_in_executor(self._threads, ssl.create_default_context)
            limits = httpx.Limits(max_keepalive_connections=0)
            self._http = httpx.AsyncClient(
                verify=context, trust_env=False, timeout=self._seconds, limits=limits, follow_redirects=False
            )
        return self._http
