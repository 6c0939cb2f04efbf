"""How the host's proxies, index and certificates reach a build."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from scripts.image import host_network
from scripts.image.host_network import HostNetworkError


def options(environ: dict[str, str]) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    parser.read_string(host_network.pip_conf(environ))
    return dict(parser["global"])


def test_a_host_without_settings_gives_pip_none() -> None:
    assert options({}) == {}
    assert options({"PIP_INDEX_URL": "", "SSL_CERT_FILE": ""}) == {}


@pytest.mark.parametrize("name", host_network.INDEX)
def test_an_index_for_pip_or_uv_is_used_inside_the_build(name: str) -> None:
    assert options({name: "https://user:p%40ss@index.example/simple"}) == {
        "index-url": "https://user:p%40ss@index.example/simple"
    }


def test_pips_own_variable_wins_over_uvs() -> None:
    assert options({"UV_INDEX_URL": "https://b.example", "PIP_INDEX_URL": "https://a.example"}) == {
        "index-url": "https://a.example"
    }


@pytest.mark.parametrize("name", host_network.CA_BUNDLE)
def test_the_hosts_certificates_become_a_secret_of_the_build(name: str, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificates", encoding="utf-8")

    secrets = host_network.secrets({name: str(bundle)}, tmp_path / "private")

    assert secrets["ca-bundle"] == bundle
    assert host_network.MOUNTED_CA_BUNDLE in secrets["pip-conf"].read_text(encoding="utf-8")


def test_certificates_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(HostNetworkError, match=r"SSL_CERT_FILE names .*gone\.pem"):
        host_network.secrets({"SSL_CERT_FILE": str(tmp_path / "gone.pem")}, tmp_path)


def test_the_file_with_an_indexs_password_is_private(tmp_path: Path) -> None:
    secrets = host_network.secrets({"PIP_INDEX_URL": "https://user:secret@index.example"}, tmp_path)
    assert secrets["pip-conf"].stat().st_mode & 0o077 == 0


def test_only_proxies_that_are_set_are_passed_on() -> None:
    assert host_network.proxies({"https_proxy": "http://proxy:3128", "no_proxy": "", "PATH": "/bin"}) == (
        "https_proxy",
    )
