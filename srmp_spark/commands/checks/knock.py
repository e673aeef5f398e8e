"""Connect to a port and find out what answers there."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from pathlib import Path

from srmp_spark.commands.checks.report import Check
from srmp_spark.names import UrlParts

BODY_LOOK_BYTES = 4_096
"""Bytes that are read of an answer's body. They are enough to recognize the server."""
PROBE_SECONDS = 10.0
"""Longest wait for a connection, and for an answer, in seconds. Then the check fails."""
DEFAULT_PORT = {"http": 80, "https": 443}


def reachable(url: UrlParts) -> UrlParts:
    """Return ``url`` with the loopback address instead of an address that means every interface."""
    # The addresses are compared; no socket is bound to them.
    return url._replace(host="127.0.0.1") if url.host in ("0.0.0.0", "::") else url  # noqa: S104


def authority_of(url: UrlParts) -> str:
    """Return host and port of ``url`` as in a URL, without the default port of its scheme."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    return host if url.port == DEFAULT_PORT[url.scheme] else f"{host}:{url.port}"


def connection_to(url: UrlParts) -> http.client.HTTPConnection:
    """Return a connection to the server of ``url``, which is not opened yet.

    Over TLS the authorities are those of the environment, else those of the system.
    """
    if url.scheme == "http":
        return http.client.HTTPConnection(url.host, url.port, timeout=PROBE_SECONDS)
    # Imported here, because loading requests takes a while.
    from srmp_spark.client.api import ca_bundle

    bundle = ca_bundle(os.environ)
    folder = bundle is not None and Path(bundle).is_dir()
    context = ssl.create_default_context(
        cafile=None if folder else bundle, capath=bundle if folder else None
    )
    return http.client.HTTPSConnection(url.host, url.port, timeout=PROBE_SECONDS, context=context)


def knock(url: UrlParts) -> Check:
    """Return the check of whether the server at ``url`` is the SRMP port of srmp-spark.

    The SRMP port answers GET with 405 and its name in the field ``Server``.
    """
    where = f"{url.scheme}://{authority_of(url)}"
    try:
        connection = connection_to(url)
        # The probe header keeps the request out of the metric of refusals.
        connection.request("GET", "/", headers={"Srmp-Probe": "1"})
        answer = connection.getresponse()
        body = answer.read(BODY_LOOK_BYTES)
        connection.close()
    except socket.gaierror:
        return Check(
            "port", False, f"{url.host} has no address", "DNS: senders resolve this name as well"
        )
    except ConnectionRefusedError:
        return Check(
            "port",
            False,
            f"nobody listens at {where}",
            "serve --listen 0.0.0.0:PORT lets other hosts in; is the port forwarded?",
        )
    except TimeoutError:
        return Check(
            "port",
            False,
            f"no answer from {where}",
            "a firewall drops the packets: open the port for the senders",
        )
    except ssl.SSLCertVerificationError as error:
        hint = (
            "a private CA is named by REQUESTS_CA_BUNDLE=FILE or SSL_CERT_FILE=FILE; "
            "senders must trust it, too"
        )
        return Check("port", False, f"{where}: {error.verify_message}", hint)
    except (OSError, http.client.HTTPException) as error:
        return Check("port", False, f"{where}: {error}", "is this the SRMP port?")
    server = answer.headers.get("Server", "")
    if answer.status in (401, 404) and b'"error"' in body:
        return Check(
            "port",
            False,
            f"{where} is an API of srmp-spark, not its SRMP port",
            "name the address of serve --listen",
        )
    if not server.startswith("srmp-spark/"):
        return Check(
            "port",
            False,
            f"{where} is answered by {server or 'an unknown server'}, not by srmp-spark",
            "IIS or a proxy has the port",
        )
    return Check("port", True, f"srmp-spark answers at {where}")
