"""An own certificate authority, the server's certificate, and the keys by which nodes are known.

Nothing is ever overwritten: a file that exists is kept, and one that no longer fits is an error that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedeas.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
PRIVATE, PUBLIC = 0o600, 0o644  # file modes


@dataclass(frozen=True)
class Certificates:
    """Paths: the authority that everyone trusts, and what the server shows and keeps."""

    authority: Path
    server: Path
    server_key: Path


def make_certificates(folder: Path, hosts: Iterable[str] = ()) -> Certificates:
    """The certificates in `folder`, made where they are missing; the server's is good for loopback and `hosts`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    names = list(dict.fromkeys([*LOOPBACK, *hosts]))
    if made.server.exists():
        _check_server(made, names)
        return made
    authority, authority_key = _authority(made.authority, folder / "ca.key")
    key = _existing_key(made.server_key) or _new_key(made.server_key)
    _write(made.server, _server_certificate(names, key, authority, authority_key).public_bytes(Encoding.PEM), PUBLIC)
    return made


def make_node_key(path: Path) -> Path:
    """A node's private key at `path`, made where it is missing, and beside it the public one, which is returned."""
    public = path.with_name(f"{path.name}.pub")
    if not path.exists():
        if public.exists():
            raise InputError(f"{path}: missing while {public.name} is there; restore it, or remove {public.name} too")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP384R1())
        _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), PRIVATE)
    if not public.exists():
        key = read_node_key(path)
        _write(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n", PUBLIC)
    return public


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key of a node."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no private key of a node ({error}); make one with `fedeas flower keys`") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: not an elliptic-curve key; make one with `fedeas flower keys`")
    return key


def public_bytes(path: Path) -> bytes:
    """A public key file as the SuperLink keeps it."""
    return load_ssh_public_key(path.read_bytes()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not exist; its mode is right before the first byte is in it."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), PRIVATE)
    return key


def _existing_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    if not path.exists():
        return None
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: not an elliptic-curve key; move it away to have one made")
    return key


def _authority(path: Path, key_path: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = _existing_key(key_path)
    if path.exists():
        if key is None:
            raise InputError(
                f"{key_path}: needed to sign a server certificate; bring it back, or remove {path.name} too"
            )
        return x509.load_pem_x509_certificate(path.read_bytes()), key
    key = key or _new_key(key_path)
    certificate = _authority_certificate(key)
    _write(path, certificate.public_bytes(Encoding.PEM), PUBLIC)
    return certificate, key


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("FedEAS deployment authority")
    return (
        _begun(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server_certificate(
    names: Iterable[str],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _begun(_name("FedEAS SuperLink"), authority.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(**allowed: bool) -> x509.KeyUsage:
    every = [
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ]
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in every})


def _check_server(made: Certificates, names: Iterable[str]) -> None:
    """Refuse a kept certificate that is out of date or does not know a host; it would only fail later, and darkly."""
    for path in (made.authority, made.server_key):
        if not path.exists():
            raise InputError(f"{path}: missing while {made.server.name} is there; restore it, or remove that too")
    certificate = x509.load_pem_x509_certificate(made.server.read_bytes())
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise InputError(
            f"{made.server}: expired on {certificate.not_valid_after_utc:%Y-%m-%d}; remove it for a new one"
        )
    known = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = [name for name in names if _general_name(name) not in known]
    if missing:
        raise InputError(f"{made.server}: does not name {', '.join(missing)}; remove it to have one made that does")
