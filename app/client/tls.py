"""Server name of an API's certificate: its host in the address, unless another name is given."""

import errno
import ssl
from pathlib import Path


def context(ca_file: Path | None, name: str = "") -> ssl.SSLContext:
    """With `ca_file` only that authority is trusted, else the machine's. Raises OSError, which names the file."""
    try:
        return _context(str(ca_file) if ca_file else None, name)
    except OSError as error:  # OpenSSL does not say which file
        reason = (errno.EINVAL, "holds no certificate") if isinstance(error, ssl.SSLError) else error.args
        raise OSError(*reason, str(ca_file)) from error


def _context(cafile: str | None, name: str) -> ssl.SSLContext:
    if not name:
        return ssl.create_default_context(cafile=cafile)
    made = _Named(ssl.PROTOCOL_TLS_CLIENT)
    made.name = name
    if cafile:
        made.load_verify_locations(cafile)
    else:
        made.load_default_certs()
    return made


class _Named(ssl.SSLContext):
    """Asks for this name, whatever host it is that answers. Event loops make their connections by `wrap_bio`."""

    name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - this is what is replaced
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.name, session)
