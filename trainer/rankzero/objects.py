"""Object stores by URL: what training data is read from, and checkpoints are copied to.

``s3://``, ``gs://`` and ``az://`` are served by obstore, which takes address and credentials from the environment
variables that the chart's `objectStorage` sets (AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, ...), ``file://`` too,
where it is asked for. Its own calls are used, not those that it offers to fsspec: behind fsspec one process in six
aborted at its end (obstore 0.12.1), and a rank that does so has failed.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from rankzero.errors import ConfigError

BY_OBSTORE = ("s3", "s3a", "gs", "az", "abfs")
CREDENTIALS = (
    "check address and credentials: objectStorage.endpoint, .region and .secret in the chart's values, "
    "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY elsewhere"
)
CHECKPOINT_SCHEMES = ("s3", "gs", "az", "file")
SECONDS = 120
"""For one request of a large transfer: a piece of a file on a line that others use, too."""


def is_url(text: str) -> bool:
    """Whether it is a URL rather than a path."""
    return "://" in text


def check_checkpoint_url(url: str, key: str) -> None:
    """Raises :class:`ConfigError`, for the setting ``key``, unless checkpoints can be copied to or from there."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:  # not repeated: errors are kept and shown
        raise ConfigError(
            f"{key} holds a user name, key or query, which manifests and logs would show",
            hint="only where it is: s3://bucket/folder; credentials come from the environment, in the chart from the "
            "Secret that objectStorage.secret names",
        )
    place = parts.path if parts.scheme == "file" else parts.netloc
    if parts.scheme not in CHECKPOINT_SCHEMES or not place or (parts.scheme == "file" and parts.netloc):
        raise ConfigError(
            f"{key} is {url}",
            hint=f"allowed: {', '.join(f'{scheme}://' for scheme in CHECKPOINT_SCHEMES)} with a bucket (or container) "
            "and a folder in it, such as s3://bucket/folder or file:///folder",
        )


def opened(url: str, *, seconds: int = 0, make: bool = False) -> Any:
    """The obstore store of everything below ``url``, with ``seconds`` for one request (0: obstore's own limit).

    ``make`` makes a folder that is not there. Raises :class:`ConfigError` where that is not possible, as where
    obstore is missing.
    """
    try:
        from obstore.store import from_url  # only where it is needed
    except ImportError as error:
        raise ConfigError(f"{url} needs the package {error.name}", hint="pip install 'rankzero[train]'") from error
    options: Any = {"timeout": f"{seconds}s"} if seconds else {}
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        options["allow_http"] = True
    try:
        if url.startswith("file://"):
            return from_url(url, mkdir=make, automatic_cleanup=True)
        return from_url(url, client_options=options or None)
    except Exception as error:  # obstore's own kinds
        raise ConfigError(f"{url}: {said(error)}", hint="a URL such as s3://bucket/folder") from error


def said(error: Exception) -> str:
    """What an object store said, in a line, without what signs a request."""
    text = re.sub(r"\?[^\s\"')]+", "?...", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:400]}"
