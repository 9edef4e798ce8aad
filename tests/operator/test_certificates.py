"""The small authority: what is renewed when, and that whoever trusts what is published can connect at every moment."""

from __future__ import annotations

import collections
import datetime

import pytest
from cryptography import x509

from stitchfleet.operator.cluster.certificates import AUTHORITY, Lifetimes, Server, expiry, renewed

START = datetime.datetime(2026, 11, 24, tzinfo=datetime.timezone.utc)
SERVERS = [Server("webhook", ("webhook.ns.svc", "webhook")), Server("ingest", ("ingest.ns.svc",))]
DAY = datetime.timedelta(days=1)


def is_trusted(held: dict[str, bytes], published: bytes, name: str, now: datetime.datetime) -> bool:
    """Whether a client that trusts the authorities in `published` takes the server's certificate."""
    mine = x509.load_pem_x509_certificate(held[f"{name}.crt"])
    if not mine.not_valid_before_utc <= now < mine.not_valid_after_utc:
        return False
    for authority in x509.load_pem_x509_certificates(published):
        try:
            mine.verify_directly_issued_by(authority)
        except Exception:
            continue
        return authority.not_valid_before_utc <= now < authority.not_valid_after_utc
    return False


def test_from_nothing_all_is_made_and_then_nothing_is_due() -> None:
    held = renewed({}, SERVERS, START)
    assert {AUTHORITY, "webhook.crt", "webhook.key", "ingest.crt", "ingest.key"} <= set(held)
    assert renewed(held, SERVERS, START + DAY) == held
    names = x509.load_pem_x509_certificate(held["webhook.crt"]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert set(names.value.get_values_for_type(x509.DNSName)) == {"webhook.ns.svc", "webhook"}


def test_a_serving_certificate_is_renewed_in_its_last_third_under_the_same_authority() -> None:
    held = renewed({}, SERVERS, START)
    assert renewed(held, SERVERS, START + 59 * DAY) == held
    later = renewed(held, SERVERS, START + 61 * DAY)
    assert later[AUTHORITY] == held[AUTHORITY]
    assert expiry(later["webhook.crt"]) > expiry(held["webhook.crt"])


def test_through_years_every_client_can_connect_that_learned_of_the_authorities_a_while_ago() -> None:
    """Looked at every day for five years with authorities of two: who trusts what was published two days ago is always served."""
    lifetimes = Lifetimes(authority=730 * DAY, serving=90 * DAY, publish=3 * DAY)
    held = renewed({}, SERVERS, START, lifetimes)
    published, signers = collections.deque([held[AUTHORITY]] * 2, maxlen=2), set()
    for day in range(1, 5 * 365):
        now = START + day * DAY
        held = renewed(held, SERVERS, now, lifetimes)
        for server in SERVERS:
            assert is_trusted(held, published[0], server.name, now), day
            assert is_trusted(held, held[AUTHORITY], server.name, now), day
        published.append(held[AUTHORITY])
        signers.add(held["signer.key"])
    assert len(signers) >= 3


@pytest.mark.parametrize("broken", [AUTHORITY, "signer.key", "webhook.crt", "webhook.key"])
def test_what_cannot_be_read_is_made_anew(broken: str) -> None:
    held = renewed({}, SERVERS, START)
    mended = renewed(held | {broken: b"rubbish"}, SERVERS, START)
    assert is_trusted(mended, mended[AUTHORITY], "webhook", START)
    assert renewed(mended, SERVERS, START) == mended


def test_a_server_of_another_name_gets_a_certificate_of_its_own() -> None:
    held = renewed({}, SERVERS, START)
    moved = renewed(held, [Server("webhook", ("other.ns.svc",)), SERVERS[1]], START)
    assert moved["webhook.crt"] != held["webhook.crt"]
    assert moved["ingest.crt"] == held["ingest.crt"]
