"""Signatures made by real apptainer with real keys, checked; and everything that can be wrong with one."""

import json
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sifmod.errors import ImageError, RuntimeMissingError, SignatureError
from sifmod.image.convert.sif.header import read_sif
from sifmod.image.signature.openpgp import DamagedError, parse_clear_signed, public_keys, verify
from sifmod.image.signature.openpgp import Verdict as Who
from sifmod.image.signature.signatures import check, parse_list, signatures
from support.command import run
from support.hand_made import our_metadata, our_sif
from support.images import Images
from support.runtime import RUNTIME
from support.signing import Signer

OBJECTS = len(our_metadata({}).objects)
PRIMARY = OBJECTS + 1
SIGNATURE = PRIMARY + 1  # the first one's number
TABLE, ROW, NAME = 4096, 585, 4 + 1 + 12 + 56


@pytest.fixture(scope="module")
def keys() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="sifmod-k-"))
    yield directory
    shutil.rmtree(directory)


def signer(keys: Path, name: str, algorithm: str = "ed25519") -> Iterator[Signer]:
    made = Signer(keys / name, name, algorithm)
    yield made
    made.end()


@pytest.fixture(scope="module")
def ann(keys: Path) -> Iterator[Signer]:
    yield from signer(keys, "Ann")


@pytest.fixture(scope="module")
def eve(keys: Path) -> Iterator[Signer]:
    yield from signer(keys, "Eve", "rsa2048")


@pytest.fixture
def old(keys: Path) -> Iterator[Signer]:
    yield from signer(keys, "Old")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return our_sif(tmp_path_factory.mktemp("sif") / "plain.sif", {"Cmd": ["true"]})


@pytest.fixture
def sif(plain: Path, tmp_path: Path) -> Path:
    """An unsigned SIF to change."""
    return Path(shutil.copy(plain, tmp_path / "image.sif"))


@pytest.fixture(scope="module")
def anns(plain: Path, ann: Signer) -> Path:
    return ann.sign(Path(shutil.copy(plain, plain.with_name("anns.sif"))))


@pytest.fixture
def signed(anns: Path, tmp_path: Path) -> Path:
    """A SIF signed by Ann, to change."""
    return Path(shutil.copy(anns, tmp_path / "image.sif"))


def checked(sif: Path, *who: Signer) -> tuple[Who, ...]:
    return check(sif, read_sif(sif), tuple(one.public() for one in who))


def refused(sif: Path, *who: Signer) -> SignatureError:
    before = sif.read_bytes()
    with pytest.raises(SignatureError) as caught:
        checked(sif, *who)
    assert str(sif) in caught.value.message
    assert caught.value.hint
    assert sif.read_bytes() == before
    return caught.value


def change(sif: Path, at: int, new: bytes) -> None:
    with sif.open("r+b") as file:
        file.seek(at)
        assert file.read(len(new)) != new
        file.seek(at)
        file.write(new)


def place(sif: Path, number: int) -> tuple[int, int]:
    entry = next(entry for entry in read_sif(sif).descriptors if entry.id == number)
    return entry.offset, entry.size


def add_signature(sif: Path, text: bytes, fingerprint: str) -> None:
    """Put a signature into the SIF as apptainer does, but for the link to the group, which siftool cannot make."""
    file = sif.with_name("signature")
    file.write_bytes(text)
    options = ("--datatype", "5", "--signhash", "1", "--signentity", fingerprint, "--filename", "")
    run(("siftool", "add", sif, file, *options)).ok()
    number = max(entry.id for entry in read_sif(sif).descriptors)
    change(sif, TABLE + ROW * (number - 1) + 4 + 1 + 8, struct.pack("<I", 0xF0000001))


def signed_text(sif: Path) -> str:
    at, size = place(sif, SIGNATURE)
    return parse_clear_signed(sif.read_bytes()[at : at + size]).text.decode()


@pytest.mark.parametrize("armored", [True, False], ids=["armored", "binary"])
def test_a_signed_image_is_found_in_order(anns: Path, ann: Signer, armored: bool) -> None:
    found = check(anns, read_sif(anns), (ann.public(armored),))
    assert [(who.fingerprint, who.name) for who in found] == [(ann.fingerprint, ann.user)]
    assert ann.verify(anns).code == 0


def test_a_key_that_apptainer_made(sif: Path, tmp_path: Path) -> None:
    names = ("--name", "Zoë", "--email", "z@example.org", "--password", "", "--push=false", "--bit-length", "2048")
    (tmp_path / "keys").mkdir(mode=0o700)
    env = {**os.environ, RUNTIME.keyring: str(tmp_path / "keys")}
    run((RUNTIME.path, "key", "newpair", *names), env=env).ok()
    run((RUNTIME.path, "sign", sif), env=env).ok()
    found = check(sif, read_sif(sif), (tmp_path / "keys" / "pgp-public",))
    assert found[0].name == "Zoë <z@example.org>"


def test_a_sif_that_apptainer_made_and_signed(tmp_path: Path, ann: Signer, images: Images) -> None:
    sif = ann.sign(Path(shutil.copy(images.tiny_sif, tmp_path / "tiny.sif")))
    sif.chmod(0o644)
    assert checked(sif, ann)  # raises where anything is without a signature


def test_several_keys_and_several_signatures(signed: Path, ann: Signer, eve: Signer) -> None:
    assert [who.fingerprint for who in checked(signed, eve, ann)] == [ann.fingerprint]
    eve.sign(signed)
    assert [who.fingerprint for who in checked(signed, eve, ann)] == [ann.fingerprint, eve.fingerprint]
    assert [who.fingerprint for who in checked(signed, eve)] == [eve.fingerprint]
    both = signed.with_name("both.asc")
    both.write_bytes(eve.public().read_bytes() + b"\n" + ann.public().read_bytes())
    assert len(check(signed, read_sif(signed), (both,))) == 2


def test_signatures_are_listed_unchecked(signed: Path, plain: Path, ann: Signer, eve: Signer) -> None:
    assert signatures(plain, read_sif(plain)) == ()
    eve.sign(signed, "--sif-id", "1")
    found = signatures(signed, read_sif(signed))
    assert [(entry.id, entry.form, entry.fingerprint) for entry in found] == [
        (SIGNATURE, "pgp", ann.fingerprint),
        (SIGNATURE + 1, "pgp", eve.fingerprint),
    ]


def test_an_unsigned_image(sif: Path, ann: Signer) -> None:
    error = refused(sif, ann)
    assert error.message == f"{sif} is not signed"
    assert error.exit_code == 10


def test_a_wrong_key(signed: Path, ann: Signer, eve: Signer) -> None:
    message = refused(signed, eve).message
    assert f"was made by the key {ann.fingerprint}, which is not a trusted" in message
    assert str(eve.directory) in message


def test_a_tampered_partition(signed: Path, ann: Signer) -> None:
    at, size = place(signed, PRIMARY)
    change(signed, at + size // 2, b"tampered")
    message = refused(signed, ann).message
    who = f"{ann.user} ({ann.fingerprint})"
    assert message == (
        f"{signed} was changed after {who} signed it: the content of the partition (object {PRIMARY}) differs"
    )
    assert ann.verify(signed).code != 0


@pytest.mark.parametrize("number", range(1, OBJECTS + 1))
def test_a_tampered_object(signed: Path, ann: Signer, number: int) -> None:
    change(signed, place(signed, number)[0], b"\0")
    assert f"(object {number}) differs" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


@pytest.mark.parametrize("number", range(1, PRIMARY + 1))
def test_a_tampered_descriptor(signed: Path, ann: Signer, number: int) -> None:
    change(signed, TABLE + ROW * (number - 1) + NAME + 100, b"x")
    message = refused(signed, ann).message
    assert "was changed after Ann" in message
    assert f"(object {number}) differs" in message
    assert "the descriptor of the" in message
    assert ann.verify(signed).code != 0


def test_a_longer_object(signed: Path, ann: Signer) -> None:
    at, size = TABLE + ROW * (PRIMARY - 1) + 4 + 1 + 12 + 8, place(signed, PRIMARY)[1]
    change(signed, at, struct.pack("<q", size + 100))
    assert f"the descriptor of the partition (object {PRIMARY})" in refused(signed, ann).message


@pytest.mark.parametrize(("at", "new"), [(10, b"X"), (50, b"12345678")], ids=["launch", "uuid"])
def test_a_tampered_header(signed: Path, ann: Signer, at: int, new: bytes) -> None:
    change(signed, at, new)
    assert "signed it: its header differs" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_an_altered_list(signed: Path, ann: Signer) -> None:
    at, size = place(signed, SIGNATURE)
    text = signed.read_bytes()[at : at + size]
    change(signed, at + text.index(b'"version":1') + 10, b"2")
    assert "does not match its list of digests" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_a_signature_of_another_image(sif: Path, anns: Path, tmp_path: Path, ann: Signer) -> None:
    other = our_sif(tmp_path / "other.sif", {"Cmd": ["false"]})
    at, size = place(anns, SIGNATURE)
    add_signature(other, anns.read_bytes()[at : at + size], ann.fingerprint)
    assert "was changed after Ann" in refused(other, ann).message
    add_signature(sif, anns.read_bytes()[at : at + size], ann.fingerprint)
    assert checked(sif, ann)  # raises where anything is without a signature


@pytest.mark.parametrize("kept", [0, 20, 300, -200, -40])
def test_a_truncated_signature(signed: Path, ann: Signer, kept: int) -> None:
    at, size = place(signed, SIGNATURE)
    keep = kept if kept >= 0 else size + kept
    change(signed, at + keep, bytes(size - keep))
    message = refused(signed, ann).message
    assert ("has an unknown format" if keep < 30 else f"(object {SIGNATURE}) is damaged: ") in message
    assert ann.verify(signed).code != 0


def test_a_signature_with_other_packets(signed: Path, ann: Signer) -> None:
    at, size = place(signed, SIGNATURE)
    text = signed.read_bytes()[at : at + size]
    body = text.index(b"-----BEGIN PGP SIGNATURE")
    start = text.index(b"\n\n", body) + 2
    change(signed, at + start, b"AAAA")
    assert "is damaged" in refused(signed, ann).message


def test_a_descriptor_that_names_another_key(signed: Path, ann: Signer) -> None:
    change(signed, TABLE + ROW * (SIGNATURE - 1) + NAME + 128 + 4, b"\1\2\3")
    assert "its descriptor names the key 010203" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_an_expired_key(sif: Path, old: Signer) -> None:
    old.sign(sif)
    assert checked(sif, old)[0].fingerprint == old.fingerprint
    old.expire()
    error = refused(sif, old)
    assert f"by {old.user} ({old.fingerprint}) is made with an expired key" in error.message
    assert "renewed public key" in error.hint


def test_a_revoked_key(sif: Path, old: Signer) -> None:
    old.sign(sif)
    old.revoke()
    assert "is made with a revoked key" in refused(sif, old).message


def test_a_signature_with_an_end(anns: Path, sif: Path, ann: Signer) -> None:
    text = signed_text(anns)
    gone = ann.gpg("--default-sig-expire", "1d", "--clear-sign", stdin=text, then="20250101T000200").stdout
    add_signature(sif, gone.encode(), ann.fingerprint)
    assert "is expired" in refused(sif, ann).message


@pytest.mark.parametrize("end", ("exit 2", "kill -KILL $$"))
def test_a_gpgv_that_fails_after_its_good_word(
    signed: Path, ann: Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """As the real one does that could not read all of a keyring, or was ended before it was through."""
    program = tmp_path / "bin" / "gpgv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n{shutil.which("gpgv")} "$@"\n{end}\n')
    program.chmod(0o755)
    assert checked(signed, ann)[0].fingerprint == ann.fingerprint
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert "of a kind that gpgv does not know" in refused(signed, ann).message


def test_a_hash_that_can_be_forged(anns: Path, sif: Path, eve: Signer) -> None:
    text = signed_text(anns)
    for algorithm in ("SHA512", "SHA1"):
        made = eve.gpg("--digest-algo", algorithm, "--clear-sign", stdin=text).stdout
        copy = Path(shutil.copy(sif, sif.with_name(f"{algorithm}.sif")))
        add_signature(copy, made.encode(), eve.fingerprint)
        if algorithm == "SHA512":
            assert checked(copy, eve)[0].name == eve.user
        else:
            assert "made with a hash that can be forged" in refused(copy, eve).message


def test_a_signature_of_less_than_the_root_file_system(sif: Path, ann: Signer) -> None:
    ann.sign(sif, "--sif-id", "1")
    message = refused(sif, ann).message
    assert message.endswith(f"({ann.fingerprint}), but not its root file system (object {PRIMARY})")


def test_a_signature_of_the_root_file_system_alone(sif: Path, ann: Signer, eve: Signer) -> None:
    ann.sign(sif, "--sif-id", str(PRIMARY))
    message = refused(sif, ann).message
    assert "but not all of it; unsigned: definition (object 1), labels (object 2)" in message
    assert "partition" not in message
    for number in range(1, OBJECTS + 1):
        eve.sign(sif, "--sif-id", str(number))
    assert "unsigned: definition" in refused(sif, ann).message
    assert checked(sif, ann, eve)  # raises where anything is without a signature


@pytest.mark.parametrize(
    ("link", "why"),
    (
        (1, "is not for a group of objects"),  # of object 1, as Singularity 3.5 links them
        (0, "is not for a group of objects"),
        (0xF0000002, "object 0 is missing"),  # of a group that has no objects
    ),
)
def test_a_signature_that_is_not_about_the_group(signed: Path, ann: Signer, link: int, why: str) -> None:
    change(signed, TABLE + ROW * (SIGNATURE - 1) + 4 + 1 + 8, struct.pack("<I", link))
    assert why in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_an_object_that_was_moved_into_another_group(signed: Path, ann: Signer) -> None:
    """The digest of a descriptor leaves its group out."""
    change(signed, TABLE + ROW + 4 + 1 + 4, struct.pack("<I", 0xF0000002))
    assert "object 2 is missing" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_two_groups_each_with_its_own_signature(sif: Path, ann: Signer, eve: Signer) -> None:
    """Object 1 is moved into a group of its own: a signature of one group says nothing about the other."""
    change(sif, TABLE + 4 + 1 + 4, struct.pack("<I", 0xF0000002))
    ann.sign(sif, "--group-id", "1")
    assert "unsigned: definition (object 1)" in refused(sif, ann).message
    eve.sign(sif, "--group-id", "2")
    assert "unsigned: definition (object 1)" in refused(sif, ann).message
    assert "not its root file system" in refused(sif, eve).message
    found = checked(sif, ann, eve)
    assert {signer.fingerprint for signer in found} == {ann.fingerprint, eve.fingerprint}


@pytest.mark.parametrize("group", [(), ("--groupid", "1")], ids=["alone", "in the group"])
def test_an_object_that_was_added_later(signed: Path, ann: Signer, group: tuple[str, ...]) -> None:
    """Such as an overlay, which the runtime would mount over the root file system."""
    overlay = signed.with_name("overlay")
    overlay.write_bytes(b"hsqs" + bytes(5000))
    options = ("--datatype", "4", "--parttype", "4", "--partfs", "1", "--partarch", "2", *group)
    run(("siftool", "add", signed, overlay, *options)).ok()
    assert f"unsigned: partition (object {SIGNATURE + 1})" in refused(signed, ann).message
    assert ann.verify(signed).code != 0


def test_an_object_that_is_gone(signed: Path, ann: Signer) -> None:
    run(("siftool", "del", "2", signed)).ok()
    assert "object 2 is missing" in refused(signed, ann).message


def test_two_objects_of_one_number(signed: Path, ann: Signer) -> None:
    change(signed, TABLE + ROW + 5, struct.pack("<I", 1))
    with pytest.raises(ImageError, match="two of its objects have the same number"):
        checked(signed, ann)


def test_a_signature_of_singularity_3_5(sif: Path, ann: Signer) -> None:
    text = ann.gpg("--clear-sign", stdin="SIFHASH:\n" + 96 * "0").stdout
    add_signature(sif, text.encode(), ann.fingerprint)
    assert "was made by Singularity 3.5 or older" in refused(sif, ann).message
    assert signatures(sif, read_sif(sif))[0].form == "legacy"


def test_a_signature_by_a_pem_key(sif: Path, ann: Signer, tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    run(("openssl", "genpkey", "-algorithm", "ed25519", "-out", pem)).ok()
    run((RUNTIME.path, "sign", "--key", pem, sif)).ok()
    assert "is not an OpenPGP one, but was made with a PEM key" in refused(sif, ann).message
    assert [(entry.form, entry.fingerprint) for entry in signatures(sif, read_sif(sif))] == [("dsse", "")]
    assert checked(ann.sign(sif), ann)


def test_a_good_signature_of_something_else(sif: Path, ann: Signer) -> None:
    for text in ("hello\n", "{}", '{"version":2,"header":{},"objects":[]}'):
        copy = Path(shutil.copy(sif, sif.with_name("copy.sif")))
        add_signature(copy, ann.gpg("--clear-sign", stdin=text).stdout.encode(), ann.fingerprint)
        with pytest.raises(SignatureError, match="the signed text is not a known list of digests"):
            checked(copy, ann)


def test_more_signatures_than_a_sif_has_room_for(signed: Path, ann: Signer) -> None:
    content = bytearray(signed.read_bytes())
    row = TABLE + ROW * (SIGNATURE - 1)
    table = content[TABLE : TABLE + ROW * SIGNATURE]
    for number in range(SIGNATURE + 1, SIGNATURE + 41):
        table += content[row : row + 5] + struct.pack("<I", number) + content[row + 9 : row + ROW]
    content[88:104] = struct.pack("<qq", len(table) // ROW, len(content))
    signed.write_bytes(content + table)
    assert "has 41 signatures: expected at most 40" in refused(signed, ann).message


def test_two_messages_in_one_object(anns: Path, sif: Path, ann: Signer, eve: Signer) -> None:
    """The text that is read and the text that is checked are one."""
    real = ann.gpg("--clear-sign", stdin=signed_text(anns)).stdout
    other = eve.gpg("--clear-sign", stdin=signed_text(anns)).stdout
    for made in (real + other, other + real, "x\n" + real, real + "x\n", real.replace("Hash:", "Comment:")):
        copy = Path(shutil.copy(sif, sif.with_name("copy.sif")))
        add_signature(copy, made.encode(), ann.fingerprint)
        refused(copy, ann)


def test_keys_that_are_none(signed: Path, ann: Signer, tmp_path: Path) -> None:
    info = read_sif(signed)
    with pytest.raises(SignatureError, match="no public key"):
        check(signed, info, ())
    for content, why in (
        (b"hello\n", "it contains no OpenPGP public key"),
        (b"", "it contains no OpenPGP public key"),
        (ann.secret.read_bytes(), "it contains a private key"),
        (public_keys(ann.public().read_bytes()).replace(b"\x98", b"\x94", 1), "it contains a private key"),
        (ann.public().read_bytes()[:200], "its armor has no end"),
        (ann.public().read_bytes().replace(b"\n\nm", b"\n\n*"), "its armor is not base64"),
    ):
        path = tmp_path / "key"
        path.write_bytes(content)
        with pytest.raises(SignatureError) as caught:
            check(signed, info, (path,))
        assert caught.value.message == f"the key file {path} cannot be used: {why}" or why in caught.value.message
    with pytest.raises(ImageError.__bases__[0], match="cannot read"):
        check(signed, info, (tmp_path / "missing",))


def test_without_gpgv(signed: Path, ann: Signer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = ann.public()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeMissingError, match="gpgv is needed to verify signatures, and was not found"):
        check(signed, read_sif(signed), (key,))


def test_nothing_temporary_stays(signed: Path, ann: Signer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = sorted(tmp_path.iterdir())
    assert checked(signed, ann)
    assert sorted(tmp_path.iterdir()) == before


def test_any_text_that_gpg_signs_is_read_as_it_was_signed(ann: Signer) -> None:
    chance = random.Random(5)
    key = public_keys(ann.public().read_bytes())
    for _ in range(12):
        lines = [
            "".join(chance.choices('-- ab\tFrom \\"é{}', k=chance.randint(0, 9))) for _ in range(chance.randint(1, 6))
        ]
        message = parse_clear_signed(ann.gpg("--clear-sign", stdin="\n".join(lines) + "\n").stdout.encode())
        assert message.text.decode().split("\n") == [line.rstrip(" \t") for line in lines]
        assert verify(message, key).outcome == "good"


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_image_is_refused_or_the_change_is_where_nobody_looks(
    data: st.DataObject, anns: Path, signed: Path, ann: Signer
) -> None:
    content = bytearray(anns.read_bytes())
    spots = ((0, 128), (TABLE, TABLE + ROW * SIGNATURE), place(anns, SIGNATURE))
    start, end = data.draw(st.sampled_from(((0, 128), spots[1], (spots[2][0], sum(spots[2])), (0, len(content)))))
    at = data.draw(st.integers(start, end - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    signed.write_bytes(content)
    try:
        checked(signed, ann)
    except ImageError:
        return
    number = (at - TABLE) // ROW
    inside = (at - TABLE) % ROW
    first, last = place(anns, 1)[0], sum(place(anns, PRIMARY))
    assert not first <= at < last or at in range(sum(place(anns, OBJECTS)), place(anns, PRIMARY)[0])
    assert not (TABLE <= at < TABLE + ROW * PRIMARY and (inside >= NAME or inside < 9)), (number, inside)
    assert not (at < 45 or 48 <= at < 64)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_message_or_damaged(content: bytes) -> None:
    beginning = b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n"
    for text in (content, beginning + content, beginning + content + b"\n-----BEGIN PGP SIGNATURE-----\n" + content):
        with suppress(DamagedError):
            parse_clear_signed(text)
        with suppress(DamagedError):
            public_keys(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.just("sha256:00"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["version", "header", "digest", "objects", "relativeId"]), inner, max_size=4
            )
        ),
    )
)
def test_any_json_is_a_list_or_none(value: object) -> None:
    parse_list(json.dumps(value).encode())
    parse_list(json.dumps({"version": 1, "header": {"digest": "sha256:0"}, "objects": value}).encode())


def test_the_list_that_apptainer_makes(anns: Path) -> None:
    made = parse_list(signed_text(anns).encode())
    assert made is not None
    assert [row.relative for row in made.objects] == list(range(PRIMARY))
    assert parse_list(b"[" * 100000) is None
