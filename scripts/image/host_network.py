"""How a build reaches package indexes: the host's proxies, index and certificates, none of which the image keeps."""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping
from pathlib import Path

from rankzero.errors import RankzeroError

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""Build arguments that every engine knows without an ARG line and keeps out of the image's history."""
INDEX = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
EXTRA_INDEX = ("PIP_EXTRA_INDEX_URL", "UV_EXTRA_INDEX_URL")
CA_BUNDLE = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
MOUNTED_CA_BUNDLE = "/run/secrets/ca-bundle"


class HostNetworkError(RankzeroError):
    """An environment variable about the network does not fit this machine."""


def proxies(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the proxy variables that are set."""
    return tuple(name for name in PROXIES if environ.get(name))


def ca_bundle(environ: Mapping[str, str]) -> Path | None:
    """The certificates that the host trusts instead of pip's own, if it names any."""
    for name in CA_BUNDLE:
        if value := environ.get(name):
            path = Path(value)
            if not path.is_file():
                raise HostNetworkError(f"{name} names {value}, which is no file", hint=f"correct or unset {name}")
            return path
    return None


def pip_conf(environ: Mapping[str, str]) -> str:
    """A pip configuration file that says, inside a build, what the environment says outside."""
    options = {
        "index-url": first(environ, INDEX),
        "extra-index-url": first(environ, EXTRA_INDEX),
        "cert": MOUNTED_CA_BUNDLE if ca_bundle(environ) else "",
    }
    parser = configparser.RawConfigParser()
    parser["global"] = {name: value for name, value in options.items() if value}
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()


def secrets(environ: Mapping[str, str], folder: Path) -> dict[str, Path]:
    """The secrets of a build by id; ``folder`` takes the generated one and must stay until the build has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "pip.conf"
    conf.touch(mode=0o600)
    conf.write_text(pip_conf(environ), encoding="utf-8")
    found = {"pip-conf": conf}
    if bundle := ca_bundle(environ):
        found["ca-bundle"] = bundle
    return found


def first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Value of the first of ``names`` that is set and not empty."""
    return next((environ[name] for name in names if environ.get(name)), "")
