"""A small certificate authority for the webhook and the ingest server: which certificates to keep and when to renew them. Pure: PEM
in, PEM out.

Serving certificates are renewed under the same authority, of which nobody has to be told. An authority is replaced in two steps:
the new one is first published beside the old one, and signs only after Lifetimes.publish. By then the API server, and pods that
were created with the old one, must know it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY = "ca.crt"
"""Key in the Secret: the certificates of all authorities that must be trusted, the one that signs first."""
_SIGNER_KEY = "signer.key"
_NEXT, _NEXT_KEY = "next.crt", "next.key"

Moment = datetime.datetime


@dataclass(frozen=True)
class Lifetimes:
    """How long certificates are valid, and how long a new authority is published before it signs."""

    authority: datetime.timedelta = datetime.timedelta(days=3650)
    serving: datetime.timedelta = datetime.timedelta(days=90)
    publish: datetime.timedelta = datetime.timedelta(hours=1)
    overlap: datetime.timedelta = datetime.timedelta(days=365)
    """How long before its end an authority is replaced."""


DEFAULT_LIFETIMES = Lifetimes()


@dataclass(frozen=True)
class Server:
    """A server that gets a certificate, which the Secret holds as NAME.crt and NAME.key."""

    name: str
    hosts: tuple[str, ...]


def renewed(
    held: Mapping[str, bytes], servers: Sequence[Server], now: Moment, lifetimes: Lifetimes = DEFAULT_LIFETIMES
) -> dict[str, bytes]:
    """Returns the data that the Secret must have (key -> PEM), equal to `held` if nothing is due. Certificates that cannot be
    read are replaced. now: a time with a time zone."""
    found = dict(held)
    try:
        _renew_authority(found, now, lifetimes)
    except ValueError:
        found = _new_authority(now, lifetimes)
    signer = x509.load_pem_x509_certificates(found[AUTHORITY])[0]
    for server in servers:
        if not _is_good(found, server, signer, now, lifetimes):
            found |= _serving_certificate(server, signer, found[_SIGNER_KEY], now, lifetimes)
    return found


def expiry(pem: bytes) -> Moment:
    """When the first certificate in `pem` expires. Raises ValueError."""
    return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc


def _renew_authority(found: dict[str, bytes], now: Moment, lifetimes: Lifetimes) -> None:
    if AUTHORITY not in found or _SIGNER_KEY not in found:
        raise ValueError("there is no authority yet")
    trusted = x509.load_pem_x509_certificates(found[AUTHORITY])
    signer = trusted[0]
    if signer.public_key() != _key(found[_SIGNER_KEY]).public_key() or signer.not_valid_after_utc <= now:
        raise ValueError("the authority is not valid")
    if _NEXT in found:
        new = x509.load_pem_x509_certificate(found[_NEXT])
        if now >= new.not_valid_before_utc + _BACKDATED + lifetimes.publish:
            found[AUTHORITY] = found.pop(_NEXT) + _pem(signer)
            found[_SIGNER_KEY] = found.pop(_NEXT_KEY)
    elif signer.not_valid_after_utc - now < min(lifetimes.overlap, lifetimes.authority / 3):
        fresh = _new_authority(now, lifetimes)
        found[_NEXT], found[_NEXT_KEY] = fresh[AUTHORITY], fresh[_SIGNER_KEY]
        found[AUTHORITY] = _pem(signer) + fresh[AUTHORITY]


def _is_good(
    held: Mapping[str, bytes], server: Server, signer: x509.Certificate, now: Moment, times: Lifetimes
) -> bool:
    try:
        mine = x509.load_pem_x509_certificate(held[f"{server.name}.crt"])
        mine.verify_directly_issued_by(signer)
        names = mine.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_of_key = mine.public_key() == _key(held[f"{server.name}.key"]).public_key()
    except Exception:  # whatever is wrong with the certificate, a new one is made
        return False
    good_until = min(mine.not_valid_after_utc - times.serving / 3, signer.not_valid_after_utc)
    return is_of_key and set(names.get_values_for_type(x509.DNSName)) == set(server.hosts) and now < good_until


_BACKDATED = datetime.timedelta(minutes=5)
"""Certificates start this long before now, because machines' clocks differ."""


def _new_authority(now: Moment, lifetimes: Lifetimes) -> dict[str, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"stitchfleet authority of {now:%Y-%m-%d %H:%M:%S}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key(), now, lifetimes.authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return {AUTHORITY: _pem(certificate), _SIGNER_KEY: _key_pem(key)}


def _serving_certificate(
    server: Server, signer: x509.Certificate, signer_key: bytes, now: Moment, lifetimes: Lifetimes
) -> dict[str, bytes]:
    key, authority = ec.generate_private_key(ec.SECP256R1()), _key(signer_key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"stitchfleet {server.name}")])
    certificate = (
        _builder(name, signer.subject, key.public_key(), now, lifetimes.serving)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in server.hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    return {f"{server.name}.crt": _pem(certificate), f"{server.name}.key": _key_pem(key)}


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: Moment, life: datetime.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    found = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is of another kind")
    return found
