"""Of two places that say something about one thing, which counts: each pair of them, both ways round."""

from pathlib import Path

import pytest

from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.config.load_site import load_site
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Plan


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "SIFMOD_CONFIG_DIR": str(tmp_path / "none"), "SIFMOD_ARCH": "amd64"}


def planned(tmp_path: Path, environ: dict[str, str], text: str, site: str) -> Plan:
    path = tmp_path / "X-1.yaml"
    path.write_text(f"name: X\nversion: '1'\n{text}")
    (tmp_path / "site.yaml").write_text(f"name: here\n{site}")
    loaded = load_site({"site": str(tmp_path / "site.yaml")}, environ)
    found = load_easyconfig(path, loaded, None, {}, environ)
    return make_plan(found.easyconfig, loaded.site, Choices("X-1.yaml", "hardlink", offline=True))


SITE = """
env: {CONDA_PREFIX: site, ONLY: site, BOTH: site}
host_env: {HOST: site, BOTH: site}
runscript_env: {RUN: site, BOTH: site}
binds: {files: ['/site:/same', '/site:/dev/kfd', '/site:/own']}
accelerators: {rocm: devices, cuda: nvccli}
gpu_selection: localid
extensions: ['TORCH*', 'x?z']
"""
IMAGE = "image: {sources: [/x.sif], sha256: '" + "1" * 64 + "'}\n"
TEXT = f"""{IMAGE}
accelerator: rocm
conda: {{prefix: /conda, env: e}}
env: {{BOTH: mine, CONDA_EXE: mine}}
host_env: {{BOTH: mine}}
runscript_env: {{BOTH: mine}}
default_env: {{BOTH: default}}
path: [/own/bin]
binds: ['/mine:/same', '/mine:/dev/dri']
depends_on: [b, a]
contents: {{Torchvision: '1', xyz: '2', other: '3'}}
whatis: ['License: mine']
license: theirs
moduleclass: ai
"""


def test_what_counts_of_site_activation_and_easyconfig(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = planned(tmp_path, environ, TEXT, SITE)
    inside = dict(plan.env)
    assert (inside["CONDA_PREFIX"], inside["CONDA_EXE"]) == (
        "/conda/envs/e",
        "mine",
    )  # the activation's, the easyconfig's
    assert (inside["ONLY"], inside["BOTH"], inside["CONDA_DEFAULT_ENV"]) == ("site", "mine", "e")
    assert dict(plan.host_env) == {"HOST": "site", "BOTH": "mine"}
    assert dict(plan.runscript_env) == {"RUN": "site", "BOTH": "mine"}
    assert plan.default_env == (("BOTH", "default"),)
    assert plan.path[:2] == ("/own/bin", "/conda/envs/e/bin")
    assert [(bind.source, bind.target) for bind in plan.binds] == [
        ("/mine", "/same"), ("/mine", "/dev/dri"), ("/site", "/dev/kfd"), ("/site", "/own"),
    ]  # fmt: skip
    assert plan.gpu_flags == ()
    assert plan.gpu_selection == "localid"
    assert plan.depends_on == ("b", "a")
    assert plan.help.extensions == (("Torchvision", "1"), ("xyz", "2"))
    assert plan.help.whatis == ("License: mine", "Category: ai")
    assert plan.help.origin == f"/x.sif (sha256 {'1' * 64})"
    assert (plan.required_image.link, plan.required_image.offline) == ("hardlink", True)


@pytest.mark.parametrize(("accelerator", "flags"), [("rocm", ("rocm",)), ("cuda", ("nvccli",)), ("none", ())])
def test_each_accelerator_has_its_own_word(
    accelerator: str, flags: tuple[str, ...], tmp_path: Path, environ: dict[str, str]
) -> None:
    site = "accelerators: {rocm: rocm, cuda: nvccli}\ngpu_selection: slurm\n"
    text = f"{IMAGE}accelerator: {accelerator}\ngpu_selection: localid\n"
    plan = planned(tmp_path, environ, text, site)
    assert (plan.gpu_flags, plan.gpu_selection, plan.accelerator) == (flags, "localid", accelerator)


def test_of_a_view_nothing_of_the_sites(tmp_path: Path, environ: dict[str, str]) -> None:
    text = (
        "modules: [b/1, a/1]\ndepends_on: [c, b/1]\nenv: {MINE: x}\nhost_env: {HOME_OF: y}\n"
        "binds: ['/mine:/same']\ndefault_env: {D: z}\n"
    )
    plan = planned(tmp_path, environ, text, SITE.replace("rocm: devices", "rocm: rocm"))
    assert plan.image is None
    assert plan.depends_on == ("b/1", "a/1", "c")
    assert (plan.env, plan.host_env, plan.default_env) == ((("MINE", "x"),), (("HOME_OF", "y"),), (("D", "z"),))
    assert [(bind.source, bind.target) for bind in plan.binds] == [("/mine", "/same")]
    assert plan.gpu_flags == ()
