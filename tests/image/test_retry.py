"""How long is waited, and when it is enough."""

import time
from pathlib import Path

import pytest

from sifmod.cli.main import run as sifmod
from sifmod.errors import FetchError
from sifmod.image.registry.network import RETRY_POLICY, Attempts, RetryPolicy, TransientError
from support.misbehaving import Misbehaving
from support.web import Handler, answer

BROKEN = TransientError("it broke", "mend it")


def waits(attempts: Attempts, count: int) -> list[float]:
    return [attempts.failed(BROKEN, came=0, answered=True) for _ in range(count)]


def test_waits_double_with_jitter() -> None:
    patience = RetryPolicy(attempts=9, delay=1, longest_delay=20)
    expected = [1, 2, 4, 8, 16, 20, 20, 20]
    samples = [waits(Attempts(patience), 8) for _ in range(50)]
    for number, longest in enumerate(expected):
        seen = [sample[number] for sample in samples]
        assert longest / 2 <= min(seen) < max(seen) <= longest


def test_enough_is_enough() -> None:
    attempts = Attempts(RetryPolicy(attempts=3))
    waits(attempts, 2)
    with pytest.raises(FetchError) as caught:
        waits(attempts, 1)
    assert not isinstance(caught.value, TransientError)
    assert (caught.value.message, caught.value.hint) == ("it broke (3 attempts)", "mend it")


def test_a_server_that_never_answered_is_given_up_sooner() -> None:
    attempts = Attempts(RETRY_POLICY)
    for _ in range(RETRY_POLICY.first_attempts - 1):
        attempts.failed(BROKEN, came=0, answered=False)
    with pytest.raises(FetchError, match="3 attempts"):
        attempts.failed(BROKEN, came=0, answered=False)


def test_progress_starts_the_count_again() -> None:
    attempts = Attempts(RetryPolicy(attempts=2, delay=1))
    for _ in range(20):
        attempts.failed(BROKEN, came=0, answered=True)
        assert attempts.failed(BROKEN, came=1 << 20, answered=True) <= 1


def test_a_little_is_no_progress() -> None:
    """Less than 1 KiB a second, with the wait before."""
    attempts = Attempts(RetryPolicy(attempts=2, delay=0.05))
    with pytest.raises(FetchError, match="2 attempts"):
        for _ in range(9):
            time.sleep(attempts.failed(BROKEN, came=1, answered=True))


def test_the_server_decides_how_long_at_least() -> None:
    assert Attempts().failed(TransientError("busy", retry_after=77.0), came=0, answered=True) == 77


def test_a_long_wait_for_a_manifest_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command was silent for as long as a registry asked it to wait, ten minutes at most."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    web = Misbehaving()

    def busy(handler: Handler) -> None:
        (answer(429, headers={"Retry-After": "3"}) if len(web.asked) == 1 else answer(404))(handler)

    web.put("manifests/1.0", busy)
    web.start()
    try:
        assert sifmod(["fetch", web.source()]) == 10
    finally:
        web.stop()
    host = web.source().split("/")[2]
    assert f"== {host} answered 429 Too Many Requests; retrying in 3 s\n" in capfd.readouterr().err
