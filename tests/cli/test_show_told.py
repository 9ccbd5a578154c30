"""Each line of `show` of an installed module beside what `--json` says; the hint for an option of easyconfigs."""

from pathlib import Path

import pytest

from sifmod import __version__
from sifmod.cli.main import run
from sifmod.config.name import ModuleName
from sifmod.system import size_text
from sifmod.tree.layout import Layout
from support.answer import answer
from support.config import write
from support.images import Images

SKIP = "--skip-sanity-check"
EASYCONFIG = """
name: Pair
version: '1'
image: {{sources: ['{one}'], filename: pair.sif}}
wrappers: [sh, cat]
variants:
  left: {{versionsuffix: -l, accelerator: rocm}}
  right: {{versionsuffix: -r, accelerator: cuda, image: {{sources: ['{two}'], filename: right.sif}}}}
"""


@pytest.fixture
def layout(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Two variants of one file, of two images, for modulefiles of both kinds; the second in its second generation."""
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "my tree"))
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    work = tmp_path / "my work"
    write(work / "Pair-1.yaml", EASYCONFIG.format(one=images.tiny("crash-a"), two=images.tiny("crash-b")))
    write(work / "View-1.yaml", "name: View\nversion: '1'\nmodules: [Pair/1-r, Other/2]\n")
    monkeypatch.chdir(work)
    for words in (
        ("--variant", "left"),
        ("--variant", "right", "--link", "reference"),
        ("--variant", "right", "--rebuild"),
    ):
        assert run(["install", "-q", SKIP, "Pair-1.yaml", *words]) == 0
    assert run(["install", "-q", "View-1.yaml"]) == 0
    return Layout(tmp_path / "my tree")


@pytest.mark.parametrize(
    ("suffix", "variant", "number", "accelerator"), [("l", "left", 1, "rocm"), ("r", "right", 2, "cuda")]
)
def test_a_module_with_an_image(
    suffix: str,
    variant: str,
    number: int,
    accelerator: str,
    layout: Layout,
    images: Images,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = f"Pair/1-{suffix}"
    found = answer(capfd, ("show", name))
    image, prefix = found["image"], layout.prefix
    source = images.tiny("crash-a" if suffix == "l" else "crash-b")
    assert image["source"] == str(source)
    assert run(["show", name]) == 0
    rows = dict(line.split("  ", 1) for line in capfd.readouterr().out.splitlines())
    assert {key.strip(): text.strip() for key, text in rows.items()} == {
        "module": name,
        "generation": f"{number} ({prefix}/software/Pair/.generations/1-{suffix}/{number})",
        "stable path": f"{prefix}/software/{name}",
        "modulefiles": f"{prefix}/modules/{name}.lua {prefix}/modules/{name}",
        "wrappers": "sh cat",
        "image": f"{source} ({image['arch']}, {size_text(source.stat().st_size)}, {image['link']})",
        "sha256": image["sha256"],
        "stored in": image["path"],
        "easyconfig": f"{Path.cwd()}/Pair-1.yaml, variant {variant}",
        "site": f"{found['provenance']['site']}, accelerator {accelerator}",
        "your own files": str(layout.user_software(ModuleName("Pair", f"1-{suffix}"))),
        "installed by": f"sifmod {__version__}",
    }
    assert (found["generation"], found["path"]) == (number, f"{prefix}/software/Pair/.generations/1-{suffix}/{number}")


def test_a_view_has_no_image(layout: Layout, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "View/1"]) == 0
    out = capfd.readouterr().out
    assert "loads         Pair/1-r Other/2\n" in out
    assert not [word for word in ("image", "sha256", "wrappers", "your own files") if f"\n{word} " in out]
    assert f"modulefiles   {layout.modules}/View/1.lua {layout.modules}/View/1\n" in out


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("option", [("--origins",), ("--variant", "left")])
def test_an_option_of_easyconfigs_names_the_modules_own(
    option: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """The hint can be typed."""
    assert run(["show", "Pair/1-r", *option]) == 2
    err = capfd.readouterr().err
    assert f"{option[0]} needs an easyconfig, and Pair/1-r is an installed module" in err
    hint = f"sifmod show '{Path.cwd()}/Pair-1.yaml' --variant right --origins"
    assert f"its easyconfig: `{hint}`" in err
    assert run(["show", f"{Path.cwd()}/Pair-1.yaml", "--variant", "right", "--origins"]) == 0
    assert "accelerator" in capfd.readouterr().out
