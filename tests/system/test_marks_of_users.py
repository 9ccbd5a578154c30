"""The marks of a user's tree upon two images of a site's store, through all that becomes of a module."""

import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from sifmod.actions import image_marks
from sifmod.cli.main import run
from sifmod.tree.mark import leave
from support.command import SIFMOD
from support.config import write
from support.images import Images


class Tree:
    """A user's tree beside a site's, which lends two images."""

    def __init__(self, top: Path, images: Images) -> None:
        self.top, self.site, self.own = top, top / "site's", top / "user's"
        write(top / "etc-sifmod.d/a.yaml", f'sharing: site\nprefix: "{self.site}"\nlink: reference\n')
        self.names = {}
        for name, sif in (("a", images.tiny("crash-a")), ("b", images.tiny("crash-b"))):
            known = set(self.site.glob("images/sha256/*.sif"))
            assert run(["fetch", str(sif)]) == 0
            (image,) = set(self.site.glob("images/sha256/*.sif")) - known
            self.names[image.stem] = name

    def install(self, name: str, *words: str) -> int:
        sha256 = next(digest for digest, one in self.names.items() if one == name)
        image = f"{{sources: ['https://127.0.0.1:9/none.sif'], sha256: {sha256}, filename: mine.sif}}"
        write(self.top / "Mine-1.yaml", f"name: Mine\nversion: '1'\nwrappers: [sh]\nimage: {image}\n")
        return self.run("install", str(self.top / "Mine-1.yaml"), "--skip-sanity-check", *words)

    def run(self, *words: str) -> int:
        return run([*words, "--prefix", str(self.own)])

    def marks(self) -> str:
        """The images that are marked, the fresh ones in upper case; all are old from now on."""
        found = []
        for mark in self.site.glob("images/marks/*"):
            name = self.names[mark.name[:64]]
            found.append(name.upper() if time.time() - mark.stat().st_mtime < 600 else name)
            os.utime(mark, (1000, 1000))
        return "".join(sorted(found, key=str.lower))


@pytest.fixture
def tree(tmp_path: Path, images: Images) -> Tree:
    return Tree(tmp_path, images)


def test_marks_follow_a_module(tree: Tree) -> None:
    assert (tree.install("a"), tree.marks()) == (0, "A")
    assert (tree.install("b"), tree.marks()) == (0, "aB")  # `rollback` goes back to a
    assert (tree.run("rollback", "Mine"), tree.marks()) == (0, "Ab")
    assert (tree.run("uninstall", "Mine"), tree.marks()) == (0, "b")
    assert (tree.run("rollback", "Mine", "--to", "1"), tree.marks()) == (0, "Ab")
    for command in (tree.own / "software/Mine/.generations/1/2/bin", tree.own / "software/Mine/.generations/1/2/share"):
        command.chmod(0o755)
    (tree.own / "software/Mine/.generations/1/2/bin/sh").unlink()
    assert tree.run("rollback", "Mine", "--to", "2") != 0  # of which a file is gone
    assert tree.marks() == "a"


@pytest.mark.parametrize(("first", "then", "left"), [("a", "a", "A"), ("a", "b", "a")])
def test_an_install_that_fails_takes_back_the_mark_that_it_left(tree: Tree, first: str, then: str, left: str) -> None:
    """And none that was there before."""
    assert tree.install(first) == 0
    assert tree.marks() == "A"
    program = write(tree.top / "no", "#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    write(tree.top / "etc-sifmod.d/b.yaml", f"hooks: {{after_install: ['{program}']}}\n")
    assert tree.install(then, "--rebuild") != 0
    assert tree.marks() == left


GC = ("gc", "--yes", "--now", "--ignore-jobs", "--prefix")


@pytest.mark.parametrize("when", ["after the fetch", "before the mark"])
def test_a_gc_of_the_site_that_was_faster_than_the_mark(
    tree: Tree, when: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The image was looked at, and nothing kept it yet: no module is made that refers to what is gone."""
    if when == "after the fetch":
        words = shlex.join((*SIFMOD, *GC, str(tree.site)))
        program = write(tree.top / "gc", f"#!/bin/sh\nexec {words}\n")
        program.chmod(0o755)
        write(tree.top / "etc-sifmod.d/b.yaml", f"hooks: {{after_fetch: ['{program}']}}\n")
    else:

        def late(*asked: Any) -> tuple[Path, bool]:
            assert run([*GC, str(tree.site)]) == 0
            return leave(*asked)

        monkeypatch.setattr(image_marks, "leave", late)
    assert tree.install("a") == 10
    assert "was removed meanwhile, as by gc\n\nhint: repeat the command" in capfd.readouterr().err
    assert list(tree.site.glob("images/sha256/*.sif")) == []
    assert tree.marks() == ""
    assert list(tree.own.glob("modules/*/*")) == list(tree.own.glob("software/*/*")) == []


def test_a_gc_in_each_tree(tree: Tree) -> None:
    """That of the site keeps what is marked, that of the user lets go what no generation refers to any more."""
    for name in "abab":
        assert tree.install(name) == 0
    assert run(["gc", "--yes", "--now", "--rollbacks", "--ignore-jobs", "--prefix", str(tree.site)]) == 0
    assert len(list(tree.site.glob("images/sha256/*.sif"))) == 2
    assert tree.run("gc", "--yes", "--now", "--rollbacks", "--ignore-jobs") == 0
    assert [tree.names[mark.name[:64]] for mark in tree.site.glob("images/marks/*")] == ["b"]
    assert run(["gc", "--yes", "--now", "--ignore-jobs", "--prefix", str(tree.site)]) == 0
    assert [tree.names[image.stem] for image in tree.site.glob("images/sha256/*.sif")] == ["b"]
    assert run(["gc", "--yes", "--now", "--marks", "--ignore-jobs", "--prefix", str(tree.site)]) == 0
    assert list(tree.site.glob("images/sha256/*.sif")) == list(tree.site.glob("images/marks/*")) == []
