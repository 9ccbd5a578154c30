"""What of this machine goes into a build."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pydantic import ValidationError

from sifmod.config.build import Build
from sifmod.errors import FetchError
from sifmod.image.sources.build import definition_upon, inputs, inputs_digest
from sifmod.module.plan import BuildPlan
from support.config import write
from support.identity import call_as
from support.user import OrdinaryUser

TEXT = """\
Bootstrap: docker
From: debian:12
Stage: one
%arguments
    version=1.0
%files
    # a comment
    a.txt /a
    "with blank.txt" /b
    'x-{{ version }}.txt'
    data/*.csv /data
    tree
    /no/such/file
%post
    cp not-an-input /tmp
    from: nothing
Bootstrap: localimage
From: base.sif
%files from one
    /a /a
%appfiles tool
    tool.sh
"""


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    for name in (
        "a.txt",
        "with blank.txt",
        "x-1.0.txt",
        "data/1.csv",
        "data/1.txt",
        "tree/deep/f",
        "base.sif",
        "tool.sh",
    ):
        write(tmp_path / "d" / name, name)
    return write(tmp_path / "d/image.def", TEXT)


def test_the_files_that_it_names(definition: Path) -> None:
    names = ["a.txt", "base.sif", "data", "data/1.csv", "image.def", "tool.sh", "tree", "tree/deep", "tree/deep/f"]
    expected = [*(definition.parent / name for name in (*names, "with blank.txt", "x-1.0.txt")), Path("/no/such/file")]
    assert inputs(definition) == tuple(sorted(expected))
    assert inputs(Path("/no/such.def")) == (Path("/no/such.def"),)


def test_each_change_of_what_goes_in_changes_the_digest_and_nothing_else_does(definition: Path, tmp_path: Path) -> None:
    directory = definition.parent
    write(tmp_path / "copy/x", "")
    digests = [inputs_digest(definition)]
    for change in (
        lambda: write(directory / "data/1.txt", "other"),
        lambda: (directory / "a.txt").touch(),
        lambda: directory.rename(tmp_path / "copy/d"),
    ):
        change()
        place = directory if directory.exists() else tmp_path / "copy/d"
        assert inputs_digest(place / "image.def") == digests[0]
    directory = tmp_path / "copy/d"
    for change in (
        lambda: write(directory / "data/2.csv", "new"),
        lambda: write(directory / "tree/deep/f", "g"),
        lambda: (directory / "tool.sh").chmod(0o755),
        lambda: (directory / "base.sif").unlink(),
        lambda: write(directory / "image.def", f"{TEXT}%runscript\n  true\n"),
    ):
        change()
        digests.append(inputs_digest(directory / "image.def"))
    assert len(set(digests)) == len(digests)


def test_what_a_shell_and_links_lead_to_goes_in_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apptainer copies through links; a link back to its own directory is entered once."""
    monkeypatch.setenv("DATA", "set")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("real/f", "d/dir/g", "d/set/1", "d/p/a.txt", "d/p/b.txt", "d/stars/x", "home/h"):
        write(tmp_path / name, name)
    (tmp_path / "d/dir/link").symlink_to("../../real")
    (tmp_path / "d/dir/back").symlink_to(".")
    (tmp_path / "d/dir/odd\udcff").write_text("x")
    lines = "dir\n$DATA\np/{a,b}.txt\nst**rs/x\n~/h\n"
    definition = write(tmp_path / "d/image.def", f"Bootstrap: docker\nFrom: x\n%files\n{lines}")
    before = {inputs_digest(definition)}
    for name in ("real/f", "d/dir/g", "d/set/1", "d/p/a.txt", "d/p/b.txt", "d/stars/x", "home/h"):
        write(tmp_path / name, "new")
        found = inputs_digest(definition)
        assert found not in before, name
        before.add(found)


@pytest.mark.parametrize("path", ["/opt/a\n%setup\n touch /tmp/x", "/opt/a\n  %post", "/a\nBootstrap: x", "/{{ b }}"])
def test_what_the_base_names_begins_no_section(path: str) -> None:
    """%setup runs on the host."""
    assert definition_upon(BuildPlan(path=("/opt/bin",)), "true\n").count("%") == 1
    for build, post in ((BuildPlan(path=(path,)), "true\n"), (BuildPlan(), f"'{path}/bin/python' -m pip\n")):
        with pytest.raises(FetchError, match=r"contains .(%setup|%post|Bootstrap:|\{\{ b \}\}).*, which has a meaning"):
            definition_upon(build, post)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("true\n  %files", "'%files' at the beginning of a line has"),
        ("cat > /x <<EOF\nbootstrap: yes\nEOF", "'bootstrap:' at the beginning of a line has"),
        ("echo '{{ name }}'", "'{{ name }}' has"),
        ("echo '{{.Id}} {{ a b }}' % ' bootstrap: x'", ""),
    ],
)
def test_commands_hold_nothing_that_a_builder_would_read(text: str, refused: str) -> None:
    """A second Bootstrap begins another stage, and the runtimes replace {{ NAME }}."""
    with pytest.raises(ValidationError, match=re.escape(refused)) if refused else nullcontext():
        Build.model_validate({"from": "x.sif", "post": text})


def test_a_layout_or_archive_that_is_the_base_is_an_input_with_a_tag_too(tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    layout.mkdir()
    (index := layout / "index.json").write_text("{}")
    for kind in ("oci", "oci-archive"):
        for tag in ("", ":1.0"):
            definition = write(tmp_path / "image.def", f"Bootstrap: {kind}\nFrom: layout{tag}\n")
            before = inputs_digest(definition)
            index.write_text(f"{kind}{tag}")
            assert index in inputs(definition)
            assert inputs_digest(definition) != before


def test_a_link_into_a_closed_directory_is_none_of_the_files(shared_tmp: Path, ordinary_user: OrdinaryUser) -> None:
    """The files beside it are, which an earlier walk left out with it."""
    definition = write(shared_tmp / "x.def", "Bootstrap: docker\nFrom: alpine\n%files\n    data /data\n")
    file = write(shared_tmp / "data/file", "a")
    (shared_tmp / "closed/below").mkdir(parents=True)
    (shared_tmp / "data/link").symlink_to("../closed/below")
    (shared_tmp / "closed").chmod(0)
    digests = []
    for text in ("a", "b"):
        file.write_text(text)
        digests.append(call_as(ordinary_user.user, lambda: inputs_digest(definition)))
    (shared_tmp / "closed").chmod(0o755)
    assert digests[0] != digests[1]
