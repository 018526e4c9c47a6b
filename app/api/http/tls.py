"""TLS settings of the serving socket: what a scanner would look for. `app.api.serve` applies them to uvicorn's context.

TLS 1.2 and 1.3, forward secrecy and AEAD only, no renegotiation and no compression, as in Mozilla's intermediate profile
(https://wiki.mozilla.org/Security/Server_Side_TLS). Python's default offers suites with CBC, too; the rest is stated here so that
no other default of Python, OpenSSL or uvicorn changes it.
"""

import ssl

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; all suites of TLS 1.3 are such


def restrict(context: ssl.SSLContext) -> None:
    """Refuse older protocols, renegotiation and compression."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
