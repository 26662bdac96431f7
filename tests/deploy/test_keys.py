"""Certificates and node keys: made once, private, and refused when they no longer fit."""

import ipaddress
import ssl

import pytest

pytest.importorskip("cryptography", reason="comes with Flower: pip install 'fedeas[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from expired import expire

from deploy.flower.certificates import Certificates
from deploy.flower.one_machine import make_key
from fedeas import InputError


@pytest.fixture
def made(tmp_path):
    found = Certificates(tmp_path / "keys")
    found.make(["server.example.org", "10.0.0.7"])
    return found


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_existing_files_are_never_changed(made):
    before = contents(made.folder)
    made.make(["server.example.org"])
    assert contents(made.folder) == before
    assert set(before) == {"ca.pem", "ca.key", "server.pem", "server.key"}


def test_private_keys_can_be_read_by_their_owner_only(made):
    make_key(made.folder / "node")
    modes = {(made.folder / name).stat().st_mode & 0o777 for name in ("ca.key", "server.key", "node")}
    assert modes == {0o600}


def test_flower_can_read_a_node_key(tmp_path):
    make_key(tmp_path / "node")
    private = load_ssh_private_key((tmp_path / "node").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert isinstance(private.curve, ec.SECP384R1)


def test_the_servers_certificate_names_loopback_and_the_given_hosts(made):
    names = certificate(made.server).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "server.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("127.0.0.1", "10.0.0.7")]
    context = ssl.create_default_context(cafile=made.authority)
    context.load_cert_chain(made.server, made.server_key)  # fails unless the key fits
    certificate(made.server).verify_directly_issued_by(certificate(made.authority))


def test_a_kept_certificate_must_name_a_new_host(made):
    with pytest.raises(InputError, match=r"does not name b\.example\.org; remove it"):
        made.make(["server.example.org", "b.example.org"])


def test_a_new_server_certificate_comes_from_the_kept_authority(made):
    authority = made.authority.read_bytes()
    made.server.unlink()
    made.server_key.unlink()
    made.make(["new.example.org"])
    assert made.authority.read_bytes() == authority
    certificate(made.server).verify_directly_issued_by(certificate(made.authority))


@pytest.mark.parametrize("name", ["ca.pem", "server.pem"])
def test_an_expired_certificate_is_refused(made, name):
    expire(made.folder / name, made.authority_key)
    with pytest.raises(InputError, match=f"{name}: it has expired"):
        made.make()


@pytest.mark.parametrize("lost", ["ca.pem", "server.pem", "server.key"])
def test_a_missing_file_of_a_pair_is_named(made, lost):
    (made.folder / lost).unlink()
    with pytest.raises(InputError, match=f"{lost}: no such file"):
        made.make()


@pytest.mark.parametrize("name", ["ca.key", "ca.pem"])
@pytest.mark.parametrize("content", [b"", b"-----BEGIN", b"\xff\0"])
def test_a_damaged_authority_is_told_in_one_line(made, name, content):
    made.server.unlink()
    made.server_key.unlink()
    (made.folder / name).write_bytes(content)
    with pytest.raises(InputError, match="cannot be made or used") as told:
        made.make()
    assert "\n" not in str(told.value)
    assert not made.server.exists()
