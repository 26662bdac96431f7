"""Make a certificate authority, the server's certificate, and the keys of nodes and of the operator.

Existing files are never overwritten: one that no longer fits is an error.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from inspect import signature
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

from fedeas.core.errors import InputError
from fedeas.core.files import make_folder, write_bytes
from fedeas.core.locks import locked
from fedeas.core.records import read_bytes

LOOPBACK = ("127.0.0.1", "localhost")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
PRIVATE, PUBLIC = 0o600, 0o644  # file modes
LOCK = ".lock"
SHORTEST_KEY = 32  # letters of an operator's key


@dataclass(frozen=True)
class Certificates:
    """Paths of the authority's certificate, the server's certificate and the server's key."""

    authority: Path
    server: Path
    server_key: Path

    @staticmethod
    def existing(folder: Path) -> Certificates:
        """The certificates in `folder`; missing and expired ones are an error."""
        found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
        for path in (found.authority, found.server, found.server_key):
            if not path.exists():
                raise InputError(f"{path}: no such file; make it with `fedeas flower keys {folder}`")
        for path in (found.authority, found.server):
            _check_in_time(path)
        return found


def make_certificates(folder: Path, hosts: Iterable[str] = ()) -> Certificates:
    """Make missing certificates in `folder` and return all; the server's is valid for loopback and `hosts`."""
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    names = list(dict.fromkeys([*LOOPBACK, *hosts]))
    if made.server.exists():
        _check_server(made, names)
        return made
    make_folder(folder, 0o700)
    with locked(folder / LOCK):
        _make_missing(made, folder / "ca.key", names)
    return made


def _make_missing(made: Certificates, authority_key: Path, names: list[str]) -> None:
    if made.server.exists():
        return  # another process has made it meanwhile
    authority, signer = _authority(made.authority, authority_key)
    key = _existing_key(made.server_key) or _new_key(made.server_key)
    certificate = _server_certificate(names, key, authority, signer)
    write_bytes(made.server, certificate.public_bytes(Encoding.PEM), PUBLIC)


def make_node_key(path: Path) -> Path:
    """Make a node's private key at `path` and the public key beside it, if missing; return the public key's path."""
    public = path.with_name(f"{path.name}.pub")
    if not (path.exists() and public.exists()):
        make_folder(path.parent, 0o700)
        with locked(path.parent / LOCK):
            _make_missing_key(path, public)
    return public


def _make_missing_key(path: Path, public: Path) -> None:
    if not path.exists():
        if public.exists():
            raise InputError(f"{path}: missing while {public.name} is there; restore it, or remove {public.name} too")
        key = ec.generate_private_key(ec.SECP384R1())
        write_bytes(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), PRIVATE)
    if not public.exists():
        key = read_node_key(path)
        write_bytes(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n", PUBLIC)


def read_node_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read the private key of a node."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no private key of a node ({error}); make one with `fedeas flower keys`") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path}: not an elliptic-curve key; make one with `fedeas flower keys`")
    return key


def public_bytes(path: Path) -> bytes:
    """The content of a public key file in the SuperLink's format."""
    try:
        return pem_of(read_bytes(path).decode())
    except ValueError as error:
        raise _unusable(path, error) from None


def pem_of(public_key: str) -> bytes:
    """A public key, as OpenSSH writes it, in the SuperLink's format; ValueError if it is none."""
    return load_ssh_public_key(public_key.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def fingerprint_of(public_key: str) -> str:
    """The fingerprint of a public key as `ssh-keygen -l` shows it, to be compared with the key's owner."""
    content = load_ssh_public_key(public_key.encode()).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(content.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def make_operator_key(path: Path) -> Path:
    """Make the operator's key, a line of random letters, if it is missing; return its path."""
    make_folder(path.parent, 0o700)
    with locked(path.parent / LOCK):
        if not path.exists():
            write_bytes(path, f"{secrets.token_urlsafe(32)}\n".encode(), PRIVATE)
    return path


def read_operator_key(path: Path) -> str:
    """Read the operator's key."""
    if not path.exists():
        raise InputError(f"{path}: no such key; make one with `fedeas flower keys`")
    key = read_bytes(path).decode("ascii", errors="replace").strip()
    if len(key) < SHORTEST_KEY or not key.isprintable() or " " in key:
        raise InputError(f"{path}: no operator's key; make one with `fedeas flower keys`")
    return key


def write_secret(path: Path) -> None:
    """Write a new secret to a file that only its owner can ever read."""
    write_bytes(path, secrets.token_bytes(32), PRIVATE)


def read_certificate(path: Path) -> bytes:
    """The authority's certificate."""
    if not path.exists():
        raise InputError(f"{path}: no such certificate; copy ca.pem there")
    return path.read_bytes()


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    write_bytes(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), PRIVATE)
    return key


def _existing_key(path: Path) -> ec.EllipticCurvePrivateKey | None:
    if not path.exists():
        return None
    try:
        key = load_pem_private_key(read_bytes(path), None)
    except ValueError as error:
        raise _unusable(path, error) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _unusable(path, "not an elliptic-curve key")
    return key


def _authority(path: Path, key_path: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = _existing_key(key_path)
    if path.exists():
        if key is None:
            raise InputError(
                f"{key_path}: needed to sign a server certificate; bring it back, or remove {path.name} too"
            )
        return _certificate(path), key
    key = key or _new_key(key_path)
    certificate = _authority_certificate(key)
    write_bytes(path, certificate.public_bytes(Encoding.PEM), PUBLIC)
    return certificate, key


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_bytes(path))
    except ValueError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, reason: object) -> InputError:
    first = str(reason).partition("\n")[0].removeprefix(f"{path}: ")
    return InputError(f"{path}: cannot be used ({first}); bring it back, or move it away to have one made")


def _authority_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("FedEAS deployment authority")
    return (
        _builder(name, name, key, AUTHORITY_DAYS)
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
        _builder(_name("FedEAS SuperLink"), authority.subject, key, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
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
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in signature(x509.KeyUsage).parameters})


def _check_server(made: Certificates, names: Iterable[str]) -> None:
    """Refuse an existing certificate that has expired or lacks a host; connections would fail for no clear reason."""
    for path in (made.authority, made.server_key):
        if not path.exists():
            raise InputError(f"{path}: missing while {made.server.name} is there; restore it, or remove that too")
    known = _check_in_time(made.server).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = [name for name in names if _general_name(name) not in known]
    if missing:
        raise InputError(f"{made.server}: does not name {', '.join(missing)}; remove it to have one made that does")


def _check_in_time(path: Path) -> x509.Certificate:
    certificate = _certificate(path)
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise InputError(
            f"{path}: expired on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            "remove it and run `fedeas flower keys` for a new one"
        )
    return certificate
