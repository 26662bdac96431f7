"""Certificates that expired an hour ago."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key


def expire(path, key):
    """Sign the certificate again with the authority's key, as one that is no longer valid."""
    known, now = x509.load_pem_x509_certificate(path.read_bytes()), datetime.now(UTC)
    builder = x509.CertificateBuilder(known.issuer, known.subject, known.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=2)).not_valid_after(now - timedelta(hours=1))
    for extension in known.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(load_pem_private_key(key.read_bytes(), None), hashes.SHA256())
    path.write_bytes(signed.public_bytes(Encoding.PEM))
