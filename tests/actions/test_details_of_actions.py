"""Small promises of what verbs do: each was once broken by fuzz/faults.py without a test that noticed."""

import time
from pathlib import Path

import pytest

from sifmod.actions.author.import_easyconfig import _letters, easyconfig_text
from sifmod.actions.author.new import _of_artifact
from sifmod.actions.garbage import _too_young
from sifmod.actions.slurm import NO_JOBS, Jobs
from sifmod.cli.main import run
from sifmod.config.easyconfig import EasyconfigFile
from sifmod.image.artifact import Artifact
from sifmod.image.sources.source_kinds import parse
from sifmod.imports.result import Imported
from sifmod.module.image_origin import ImageOrigin
from sifmod.system import abbreviated, walk
from support.config import write
from support.identity import call_as
from support.user import OrdinaryUser

DIGEST = f"sha256:{'1' * 64}"
OTHER = f"sha256:{'2' * 64}"


@pytest.mark.parametrize(
    ("source", "origin", "expected", "why"),
    [
        ("docker://h.example/x:1", ImageOrigin(), "docker://h.example/x:1", "nothing in this source pins the image"),
        ("docker://h.example/x:1", ImageOrigin(manifest=DIGEST), None, "the tag 1 as it is today; the digest pins it"),
        ("docker://h.example/x", ImageOrigin(manifest=DIGEST), None, "the tag latest as it is today; the digest"),
        ("docker://h.example/x:1", ImageOrigin(index=DIGEST, manifest=OTHER), None, "the tag 1 as it is today"),
        (f"docker://h.example/x@{OTHER}", ImageOrigin(manifest=DIGEST), f"docker://h.example/x@{OTHER}", "its digest"),
        ("https://h.example/x.sif", ImageOrigin(), "https://h.example/x.sif", "its SHA-256 pins the image"),
    ],
)
def test_a_draft_says_what_decides_which_image_it_is(
    source: str, origin: ImageOrigin, expected: str | None, why: str
) -> None:
    artifact = Artifact(Path("/store/x.sif"), "ab" * 32, 1, source, "arm64", (), origin)
    made = _of_artifact(parse(source), artifact)
    assert made.source == (expected or f"{source}@{DIGEST}")
    assert made.why.startswith(why)
    assert (made.arch, made.sha256) == ("arm64", "ab" * 32 if source.startswith("https") else "")


def test_an_importer_may_give_every_key_but_those_that_are_no_other_tools() -> None:
    own = {"extends", "gpu_selection", "modules", "mpi", "path", "preset", "protected", "runscript_env", "variants"}
    keys = {field.alias or name for name, field in EasyconfigFile.model_fields.items()} - own | {"path+"}
    text = easyconfig_text(Imported(dict.fromkeys(sorted(keys), "x"), ("a note",)), "some/file.eb")
    assert text.startswith("# Made from some/file.eb by `sifmod import`")
    assert "\n# Not imported, or only approximately:\n# - a note\nname: x\nversion: 'x'\n" in text
    assert {line.partition(":")[0] for line in text.splitlines() if line[0] != "#"} == keys


def test_letters_of_an_easyconfig_are_counted_as_often_as_they_are_used() -> None:
    assert _letters("abc") == 3
    assert _letters(("abc", "de", ("f",))) == 6
    assert _letters({"key": "abc", "k": ({"a": "b"},)}) == 9


def test_what_is_wrong_in_several_variants_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    variants = "variants:\n  a: {versionsuffix: -a, image: {sources: ['docker://X Y']}}\n"
    variants += "  b: {versionsuffix: -b, image: {sources: ['https://']}}"
    path = write(tmp_path / "App-1.yaml", f"name: App\nversion: '1'\nimage: {{sources: [a.sif]}}\n{variants}")
    assert run(["check", str(path)]) == 5
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith(str(path))]
    assert [line.split(":")[1] for line in lines] == ["5", "6"], lines
    assert not (tmp_path / "prefix").exists()


def test_the_first_names_are_told_and_how_many_more_there_are() -> None:
    assert [abbreviated("abcde"[:number], 3) for number in (1, 3, 4, 5)] == [
        "a",
        "a, b, c",
        "a, b, c and 1 more",
        "a, b, c and 2 more",
    ]


def test_why_what_was_replaced_is_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    day = 86400.0
    monkeypatch.setattr(time, "time", lambda: 10 * day)
    assert _too_young(4 * day, NO_JOBS, 7) == "out of use since 1970-01-05, kept for 7 days"
    assert _too_young(3 * day, NO_JOBS, 7) == ""
    assert _too_young(0, Jobs(None, "squeue failed"), 7) == "it may be in use by a job: squeue failed"
    assert _too_young(5, Jobs(5.0), 7) == ""
    job = "it may be in use by a job submitted 1970-01-01, before it went out of use"
    assert _too_young(6, Jobs(5.0), 7) == job


def test_a_link_into_a_closed_directory_hides_nothing_beside_it(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """Nothing in its directory was seen, such as the files of an image that is built, or those of a bundle."""
    for name in ("closed/directory", "open/below"):
        (shared_tmp / name).mkdir(parents=True)
    (shared_tmp / "open/below/file").touch()
    (shared_tmp / "open/link").symlink_to("../closed/directory")
    (shared_tmp / "closed").chmod(0)
    errors: list[OSError] = []
    found = call_as(ordinary_user.user, lambda: [*walk(shared_tmp / "open", errors.append)])
    (shared_tmp / "closed").chmod(0o755)
    assert found == [(f"{shared_tmp}/open", ["below"], ["link"]), (f"{shared_tmp}/open/below", [], ["file"])]
