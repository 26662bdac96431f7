"""Certificates and node keys: made once, private, and refused when they no longer fit."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedeas[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from deploy.flower import keys
from deploy.flower.keys import make_certificates, make_node_key
from fedeas.core.errors import InputError


def mode(path):
    return path.stat().st_mode & 0o777


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_existing_files_are_never_changed(tmp_path):
    make_certificates(tmp_path, ["example.org"])
    make_node_key(tmp_path / "node0")
    before = contents(tmp_path)
    make_certificates(tmp_path, ["example.org"])
    make_node_key(tmp_path / "node0")
    assert contents(tmp_path) == before
    assert set(before) == {"ca.pem", "ca.key", "server.pem", "server.key", "node0", "node0.pub", ".lock"}


def test_private_keys_can_be_read_by_their_owner_only(tmp_path):
    make_certificates(tmp_path)
    make_node_key(tmp_path / "node0")
    assert {mode(tmp_path / name) for name in ("ca.key", "server.key", "node0")} == {0o600}


def test_flower_can_read_a_node_key(tmp_path):
    public = load_ssh_public_key(make_node_key(tmp_path / "node0").read_bytes())
    private = load_ssh_private_key((tmp_path / "node0").read_bytes(), None)
    assert private.public_key() == public
    assert isinstance(private.curve, ec.SECP384R1)


def test_the_servers_certificate_names_loopback_and_the_given_hosts(tmp_path):
    made = make_certificates(tmp_path, ["server.example.org", "10.0.0.7"])
    certificate = x509.load_pem_x509_certificate(made.server.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("127.0.0.1", "10.0.0.7")]
    context = ssl.create_default_context(cafile=made.authority)
    context.load_cert_chain(made.server, made.server_key)  # fails unless the key fits
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(made.authority.read_bytes()))


def test_a_kept_certificate_must_name_a_new_host(tmp_path):
    make_certificates(tmp_path, ["a.example.org"])
    with pytest.raises(InputError, match=r"does not name b\.example\.org; remove it"):
        make_certificates(tmp_path, ["a.example.org", "b.example.org"])


def test_a_new_server_certificate_comes_from_the_kept_authority(tmp_path):
    made = make_certificates(tmp_path)
    authority = made.authority.read_bytes()
    made.server.unlink()
    renewed = make_certificates(tmp_path, ["new.example.org"])
    assert renewed.authority.read_bytes() == authority
    certificate = x509.load_pem_x509_certificate(renewed.server.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


def test_an_expired_certificate_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "SERVER_DAYS", -0.5)
    make_certificates(tmp_path)
    yesterday = datetime.now(UTC) - timedelta(days=0.5)
    with pytest.raises(InputError, match=f"expired on {yesterday:%Y-%m-%d}; remove it"):
        make_certificates(tmp_path)


@pytest.mark.parametrize("lost", ["ca.pem", "server.key"])
def test_a_missing_file_of_a_pair_is_named(tmp_path, lost):
    make_certificates(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(InputError, match=f"{lost}: missing"):
        make_certificates(tmp_path)


def test_a_public_key_without_its_private_one_is_not_replaced(tmp_path):
    make_node_key(tmp_path / "node0")
    (tmp_path / "node0").unlink()
    with pytest.raises(InputError, match=r"restore it, or remove node0\.pub"):
        make_node_key(tmp_path / "node0")


@pytest.mark.parametrize("name", ["ca.key", "ca.pem", "server.key"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN", b"\xff\0"])
def test_a_damaged_file_is_named_in_one_line(tmp_path, name, content):
    made = make_certificates(tmp_path)
    made.server.unlink()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: cannot be used .*; bring it back"):
        make_certificates(tmp_path)
