"""Make a certificate authority and the server's certificate with openssl.

Existing files are never overwritten: one that no longer fits is an error.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from deploy.flower.programs import program
from fedeas import InputError

LOOPBACK = ("127.0.0.1", "localhost")
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")


@dataclass(frozen=True)
class Certificates:
    """The files of an authority and of a server in `folder`."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The authority's certificate, which goes to all nodes."""
        return self.folder / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """The authority's key, which signs the server's certificate."""
        return self.folder / "ca.key"

    @property
    def server(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.pem"

    @property
    def server_key(self) -> Path:
        """The server's key."""
        return self.folder / "server.key"

    def make(self, hosts: Sequence[str] = ()) -> None:
        """Make what is missing; the server's certificate is valid for loopback and `hosts`."""
        names = list(dict.fromkeys([*LOOPBACK, *hosts]))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.authority.exists() or self.authority_key.exists()):
            extensions = ["basicConstraints=critical,CA:TRUE,pathlen:0", "keyUsage=critical,keyCertSign,cRLSign"]
            self._make(self.authority, "FedEAS deployment authority", AUTHORITY_DAYS, extensions)
        if not (self.server.exists() or self.server_key.exists()):
            _need(self.authority, self.authority_key)
            kinds = ("IP" if _is_address(name) else "DNS" for name in names)
            own = ",".join(f"{kind}:{name}" for kind, name in zip(kinds, names, strict=True))
            extensions = [
                f"subjectAltName={own}",
                "basicConstraints=critical,CA:FALSE",
                "keyUsage=critical,digitalSignature",
                "extendedKeyUsage=serverAuth",
            ]
            signer = ["-CA", str(self.authority), "-CAkey", str(self.authority_key)]
            self._make(self.server, "FedEAS SuperLink", SERVER_DAYS, extensions, signer)
        self.check(names)

    def check(self, names: Sequence[str] = LOOPBACK) -> None:
        """Refuse missing and expired certificates, and a server's certificate that does not name a host."""
        _need(self.authority, self.server, self.server_key)
        for path in (self.authority, self.server):
            if "will expire" in _openssl(path, "x509", "-in", str(path), "-noout", "-checkend", "0"):
                raise InputError(f"{path}: it has expired; remove it and its key, and make new ones")
        for name in names:
            kind = "-checkip" if _is_address(name) else "-checkhost"
            if "NOT match" in _openssl(self.server, "x509", "-in", str(self.server), "-noout", kind, name):
                raise InputError(f"{self.server}: does not name {name}; remove it and its key to have others made")

    def _make(self, path: Path, subject: str, days: int, extensions: Sequence[str], signer: Sequence[str] = ()) -> None:
        """Make a certificate and its key; both appear as a whole, the key first."""
        with tempfile.TemporaryDirectory(dir=self.folder) as made:
            key, certificate = Path(made) / "key", Path(made) / "pem"
            own = ["-keyout", str(key), "-out", str(certificate), "-days", str(days), "-subj", f"/CN={subject}"]
            added = [part for each in extensions for part in ("-addext", each)]
            _openssl(path, "req", "-x509", "-config", "/dev/null", *KEY, *own, *added, *signer)
            for kind, file in (("pkey", key), ("x509", certificate)):  # openssl does not notice that a disk is full
                _openssl(path, kind, "-in", str(file), "-noout")
            certificate.chmod(0o644)
            key.rename(path.with_suffix(".key"))
            certificate.rename(path)


def _openssl(path: Path, *arguments: str) -> str:
    """The output of openssl, which makes or reads the file `path`."""
    done = subprocess.run([program("openssl"), *arguments], capture_output=True, text=True, umask=0o077)
    if done.returncode and "will expire" not in done.stdout:
        reason = (done.stderr.strip() or "openssl gives no reason").splitlines()[0]
        raise InputError(f"{path}: cannot be made or used ({reason})")
    return done.stdout


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _need(*paths: Path) -> None:
    for path in paths:
        if not path.exists():
            raise InputError(
                f"{path}: no such file; make it with `python -m deploy.flower keys`, which needs the files of a "
                "certificate and its key to be both there or both missing"
            )
