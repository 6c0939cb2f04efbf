"""A Kubernetes API as a pod sees it: a TLS server of this machine and a mounted service account."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"


@dataclass
class Api:
    """``requests`` are those that came; ``answer`` is the status of the next answers, or what is sent instead."""

    port: int
    account: Path
    answer: int | bytes = 200
    requests: list[tuple[str, str, dict[str, str], dict[str, Any]]] = field(default_factory=list)


@contextmanager
def serve(account: Path) -> Iterator[Api]:
    """Serve until the body ends; ``account`` becomes the folder of a service account that trusts the server."""
    key = account.with_name("key.pem")
    account.mkdir()
    _write_certificate(account / "ca.crt", key)
    (account / "token").write_text("secret\n")

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            api.requests.append((self.command, self.path, dict(self.headers), body))
            if isinstance(api.answer, bytes):
                self.wfile.write(api.answer)
                return
            self.send_response(api.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PATCH = do_POST = handle_request

        def log_message(self, format: str, *args: Any) -> None:
            """No lines in the tests' output."""

    server = HTTPServer((ADDRESS, 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(account / "ca.crt", key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    api = Api(server.server_address[1], account)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _write_certificate(certificate: Path, key: Path) -> None:
    """A certificate for :data:`ADDRESS` that is its own authority."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ADDRESS))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
