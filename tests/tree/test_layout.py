from pathlib import Path

import pytest

from sifmod.config.name import ModuleName
from sifmod.errors import OptionError
from sifmod.tree.layout import Layout
from support.tree import MODULE, install


@pytest.mark.parametrize("prefix", ["/a,b", "/a:b", "/a\nb", "/a\x1bb", "/a/b,", "/a\x7f"])
def test_a_prefix_that_bind_paths_cannot_express_is_refused(prefix: str) -> None:
    with pytest.raises(OptionError) as caught:
        Layout(Path(prefix))
    assert repr(prefix) in caught.value.message
    assert "--prefix" in caught.value.hint
    assert caught.value.exit_code == 2


def test_a_relative_prefix_is_refused() -> None:
    with pytest.raises(OptionError, match="not an absolute path"):
        Layout(Path("here/there"))


@pytest.mark.parametrize("prefix", ["/a b", "/ä", "/a'b\"c", "/a$b", "/[x]", "/-"])
def test_a_prefix_with_other_signs_is_fine(prefix: str) -> None:
    assert Layout(Path(prefix)).generation(MODULE, 3) == Path(prefix, "software/Tiny/.generations/1.0/3")


def test_paths_are_those_of_the_design() -> None:
    layout = Layout(Path("/p"))
    module = ModuleName("PyTorch", "2.2.0-rocm")
    assert [
        str(path.relative_to("/p"))
        for path in (
            layout.modules,
            layout.module_file(module, "lua"),
            layout.module_file(module, "tcl"),
            layout.switch(module),
            layout.generation(module, 3),
            layout.user_software(module),
            layout.image("ab"),
            layout.locks,
            layout.staging,
        )
    ] == [
        "modules",
        "modules/PyTorch/2.2.0-rocm.lua",
        "modules/PyTorch/2.2.0-rocm",
        "software/PyTorch/2.2.0-rocm",
        "software/PyTorch/.generations/2.2.0-rocm/3",
        "user-software/PyTorch/2.2.0-rocm",
        "images/sha256/ab.sif",
        ".locks",
        ".staging",
    ]


def test_a_tree_that_is_moved_as_a_whole_keeps_its_links(tmp_path: Path) -> None:
    installation = install(Layout(tmp_path / "old"), "a")
    (tmp_path / "old").rename(tmp_path / "new")
    root = Layout(tmp_path / "new").switch(MODULE)
    assert (root / installation.required_image.filename).read_text().startswith("image a")
    (root / "user-software" / "mine").write_text("x")
    assert (tmp_path / "new/user-software/Tiny/1.0/user-software/mine").exists()
