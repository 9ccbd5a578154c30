"""What real runtimes make of an extended SIF, and how it differs from what Apptainer builds of the same definition."""

import json
import os
import shutil
from pathlib import Path

import pytest

from sifmod.image.convert.extend import Addition, extend
from sifmod.image.convert.sif.header import PARTITION, read_sif
from sifmod.image.inspect.sif import describe_sif
from support.command import run
from support.extending import EPOCH, contents, sif_of
from support.hand_made import busybox
from support.images import Images
from support.runtime import RUNTIME
from support.signing import Signer
from support.squashfs_trees import mksquashfs
from support.user import OrdinaryUser

VALUES = {"GREETING": "it's $HOME `x` \" \\ end", "LINES_": "one\ntwo", "PATH": "/opt/bin:/bin"}
ADDED = Addition(
    documents=(("opt/text", b"works\n"),),
    env=tuple(VALUES.items()),
    labels=(("org.example", "ours"), ("of.both", "ours")),
    deffile="Bootstrap: docker\nFrom: example.org/base@sha256:00\n\n%files\n  text /opt\n",
    epoch=EPOCH,
)


@pytest.fixture(scope="module")
def base(images: Images) -> Path:
    """Of Apptainer, with labels and a variable of its own."""
    return images.tiny("labelled", labels={"of.base": "theirs", "of.both": "theirs"}, env=("OWN=kept", "GREETING=no"))


@pytest.fixture
def new(base: Path, tmp_path: Path) -> Path:
    assert extend(base, ADDED, tmp_path / "new.sif", 2) == ()
    return tmp_path / "new.sif"


def inspect(sif: Path) -> dict[str, object]:
    options = ("--labels", "--environment", "--deffile", "--runscript", "--startscript", "--json")
    said = json.loads(run((RUNTIME.path, "inspect", *options, sif)).ok().stdout)
    attributes: dict[str, object] = said["data"]["attributes"]
    return attributes


def test_it_starts_with_the_files_and_variables_of_both(new: Path) -> None:
    names = " ".join(f'"${name}"' for name in (*VALUES, "OWN"))
    script = f"cat /opt/text; printf '%s|' {names}; env | grep ^FROM_HOST"
    environment = {**os.environ, **RUNTIME.userns, f"{RUNTIME.prefix}ENV_FROM_HOST": "yes"}
    said = run((RUNTIME.path, "-q", "exec", new, "sh", "-c", script), env=environment).ok().stdout
    assert said == "works\n" + "|".join((*VALUES.values(), "kept")) + "|FROM_HOST=yes\n"


def test_what_inspect_says_is_the_bases_and_ours(base: Path, new: Path) -> None:
    before, after = inspect(base), inspect(new)
    assert after["runscript"] == before["runscript"]
    assert after["startscript"] == before["startscript"]
    assert after["deffile"] == ADDED.deffile.rstrip("\n")
    of_base, labels = before["labels"], after["labels"]
    assert isinstance(of_base, dict)
    assert isinstance(labels, dict)
    build = "org.label-schema"
    assert labels == of_base | {
        "org.example": "ours", "of.both": "ours",
        f"{build}.build-date": "Tuesday_14_November_2023_22:13:20_UTC",
        f"{build}.usage.singularity.deffile.bootstrap": "docker",
        f"{build}.usage.singularity.deffile.from": "example.org/base@sha256:00",
    }  # fmt: skip
    theirs, ours = before["environment"], after["environment"]
    assert isinstance(theirs, dict)
    assert isinstance(ours, dict)
    name = "/.singularity.d/env/90-environment.sh"
    assert {key: text for key, text in ours.items() if key != name} == {k: t for k, t in theirs.items() if k != name}
    assert ours[name].startswith(theirs[name].rstrip("\n"))
    assert "export GREETING=" in ours[name]


def test_what_sifmod_says_of_it(base: Path, new: Path) -> None:
    described = describe_sif(new)
    environment = dict(described.config.environment)
    assert (environment["OWN"], environment["LINES_"]) == ("kept", VALUES["LINES_"])
    assert dict(described.config.labels)["of.both"] == "ours"
    assert described.source == "docker://example.org/base@sha256:00"
    assert described.manifest == ""
    assert described.config.cmd == describe_sif(base).config.cmd


def test_a_base_that_has_no_metadata_at_all(tmp_path: Path) -> None:
    """As siftool makes one of any root file system: it starts, with our variables and the user's."""
    top = tmp_path / "tree"
    for entry in busybox():
        path = top / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            path.symlink_to(entry.link)
        elif entry.content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(entry.content)
            path.chmod(entry.mode)
    base, new = sif_of(mksquashfs(top, tmp_path / "squashfs"), tmp_path / "base.sif"), tmp_path / "new.sif"
    assert extend(base, ADDED, new, 2) == ()
    environment = {**os.environ, **RUNTIME.userns, f"{RUNTIME.prefix}ENV_FROM_HOST": "yes"}
    command = (RUNTIME.path, "-q", "exec", new, "sh", "-c", 'echo "$GREETING|$FROM_HOST"; cat /opt/text')
    assert run(command, env=environment).ok().stdout == f"{VALUES['GREETING']}|yes\nworks\n"
    assert inspect(new)["deffile"] == ADDED.deffile.rstrip("\n")


def test_signatures_and_other_partitions_are_left_out(base: Path, tmp_path: Path) -> None:
    sif, more = Path(shutil.copy(base, tmp_path / "base.sif")), tmp_path / "more"
    sif.chmod(0o644)
    more.write_bytes(b"data of a partition")
    run(("siftool", "add", "--datatype", "4", "--parttype", "3", "--partfs", "4", "--partarch", "2", sif, more)).ok()
    run(("siftool", "add", "--datatype", "7", "--filename", "notes", sif, more)).ok()
    Signer(tmp_path / "s", "Somebody").sign(sif)
    assert extend(sif, ADDED, tmp_path / "new.sif", 2) == (
        "the base's partition (object 5) is not copied",
        "the base's data notes (object 6) is not copied",
        "the base's signature is not copied, because it is only valid for the base: sign the new image if necessary",
    )
    found = read_sif(tmp_path / "new.sif")
    assert [entry for entry in found.descriptors if entry.type == PARTITION] == [found.primary]
    extend(base, ADDED, tmp_path / "plain.sif", 2)
    assert (tmp_path / "new.sif").read_bytes() == (tmp_path / "plain.sif").read_bytes()
    Signer(tmp_path / "other", "Other").sign(tmp_path / "new.sif")
    run(
        (RUNTIME.path, "-q", "exec", tmp_path / "new.sif", "cat", "/opt/text"), env={**os.environ, **RUNTIME.userns}
    ).ok()


OF_A_BUILD = {
    b"/.singularity.d",
    b"/.singularity.d/Singularity",  # the recipe's own definition
    b"/.singularity.d/bootstrap_history",  # when
    b"/.singularity.d/bootstrap_history/Apptainer0",
    b"/.singularity.d/env",
    b"/.singularity.d/env/90-environment.sh",  # how a value is quoted
    b"/.singularity.d/labels.json",  # when, and from what
    b"/.singularity.d/env/94-appsbase.sh",  # written anew, empty as before
}


def test_the_differences_from_what_apptainer_builds(base: Path, ordinary_user: OrdinaryUser, shared_tmp: Path) -> None:
    """Those of docs/internals/builds.md: times, modes of new files, and the metadata above. All else is the same."""
    here = shared_tmp / "build"
    (here / "tree/inner").mkdir(parents=True)
    for name, mode in (("program", 0o755), ("text", 0o644), ("inner/private", 0o600)):
        (here / "tree" / name).write_text(f"{name}\n")
        (here / "tree" / name).chmod(mode)
    (here / "tree/link").symlink_to("text")
    shutil.copy(base, here / "base.sif")
    (here / "image.def").write_text(
        "Bootstrap: localimage\nFrom: base.sif\n%files\n  tree/program /opt/tree/program\n  tree/text /opt/tree/text\n"
        "  tree/inner /opt/tree/inner\n  tree/link /opt/tree/link\n%environment\n"
        "  export GREETING=hello\n%labels\n  org.example ours\n  of.both ours\n"
        "%post\n  rm /etc/variant\n"
    )
    ordinary_user.own(here)
    ordinary_user.run(
        (RUNTIME.path, "-s", "build", "--ignore-fakeroot-command", "theirs.sif", "image.def"), cwd=here
    ).ok()
    names = ("program", "text", "inner", "inner/private", "link")
    addition = Addition(
        files=tuple((f"opt/tree/{name}", here / "tree" / name) for name in names),
        removed=("etc/variant",),
        env=(("GREETING", "hello"),),
        labels=(("org.example", "ours"), ("of.both", "ours")),
        deffile=(here / "image.def").read_text(),
        epoch=EPOCH,
    )
    extend(base, addition, here / "ours.sif", 2)
    ours, theirs = contents(here / "ours.sif", here / "ours"), contents(here / "theirs.sif", here / "theirs")
    before = contents(base, here / "before")
    assert ours.keys() == theirs.keys()
    different = {path for path in ours if ours[path] != theirs[path]} - OF_A_BUILD
    added = {b"/opt/tree", *(f"/opt/tree/{name}".encode() for name in names)}
    # a directory that something comes into or goes from has a new time there, and its own here
    assert different == added | {b"/opt", b"/etc", b"/dev"}
    labels, labels_there = (
        json.loads((here / who / ".singularity.d/labels.json").read_text()) for who in ("ours", "theirs")
    )
    assert {name for name in labels if labels[name] != labels_there[name]} == {"of.both", "org.label-schema.build-date"}
    assert (labels["of.both"], labels_there["of.both"]) == ("ours", "theirs")
    assert (here / "ours/opt/tree/link").readlink() == Path("text")
    assert not (here / "theirs/opt/tree/link").is_symlink()
    root = (os.geteuid(), os.getegid())  # an ordinary user unpacks it as what is the user's
    for path in different - {b"/opt/tree/link"}:
        here_is, there_is = ours[path], theirs[path]
        assert here_is[1:3] == there_is[1:3] == root
        assert here_is[4:] == there_is[4:]
        assert here_is[3] == (EPOCH if path in added else before[path][3])
        assert here_is[0] == ("0o100644" if path.endswith(b"private") else there_is[0])
    said = (here / "ours/.singularity.d/env/90-environment.sh").read_text().splitlines()
    said_there = (here / "theirs/.singularity.d/env/90-environment.sh").read_text().splitlines()
    assert [line.strip() for line in said if line] == [line.strip() for line in said_there if line]
