"""make_plan: what an easyconfig and a site together decide."""

from pathlib import Path

import pytest

from sifmod.config.load_easyconfig import load_easyconfig
from sifmod.config.load_site import load_site
from sifmod.module.make_plan import Choices, make_plan
from sifmod.module.plan import Activation, Bind, Plan, Wrapper
from sifmod.module.render import render

IMAGE = "image: {sources: [/x.sif]}\n"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "SIFMOD_CONFIG_DIR": str(tmp_path / "none"), "SIFMOD_ARCH": "amd64"}


def planned(tmp_path: Path, environ: dict[str, str], text: str, site: str = "") -> Plan:
    path = tmp_path / "X-1.yaml"
    path.write_text(f"name: X\nversion: '1'\n{IMAGE}{text}")
    (tmp_path / "site.yaml").write_text(f"name: here\n{site}")
    loaded = load_site({"site": str(tmp_path / "site.yaml")}, environ)
    return make_plan(
        load_easyconfig(path, loaded, None, {}, environ).easyconfig, loaded.site, Choices("X-1.yaml", "copy")
    )


def test_an_easyconfigs_bind_wins_over_the_sites(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = planned(tmp_path, environ, "binds: [/mine:/data:ro]\n", "binds: {files: ['/theirs:/data', /scratch]}\n")
    assert plan.binds == (Bind("/mine", "/data", ("ro",)), Bind("/scratch", "/scratch"))


def test_an_easyconfigs_variable_wins_over_the_sites(tmp_path: Path, environ: dict[str, str]) -> None:
    site = "env: {A: site, B: site}\nhost_env: {C: site}\nrunscript_env: {D: site}\n"
    plan = planned(tmp_path, environ, "env: {A: mine}\nrunscript_env: {D: mine}\n", site)
    assert dict(plan.env)["A"] == "mine"
    assert dict(plan.env)["B"] == "site"
    assert (plan.host_env, plan.runscript_env) == ((("C", "site"),), (("D", "mine"),))


def test_null_takes_a_default_away(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = planned(tmp_path, environ, "env: {PYTHONPATH: null, PIP_USER: '1'}\n")
    assert plan.env == (("LD_PRELOAD", ""), ("PIP_USER", "1"), ("PYTHONNOUSERSITE", "1"))


@pytest.mark.parametrize(
    ("text", "activation", "env", "path"),
    [
        ("", Activation("true", ""), {}, ()),
        (
            "activate: source /a b/activate\n",
            Activation("source /a b/activate", "source /a b/activate"),
            {},
            (),
        ),
        (
            "conda: {prefix: /c, env: e}\n",
            Activation("source /c/bin/activate e", ""),
            {"CONDA_PREFIX": "/c/envs/e", "CONDA_DEFAULT_ENV": "e", "CONDA_EXE": "/c/bin/conda"},
            ("/c/envs/e/bin", "/c/condabin"),
        ),
        (
            "conda: {prefix: /c}\n",
            Activation("source /c/bin/activate base", ""),
            {"CONDA_PREFIX": "/c", "CONDA_DEFAULT_ENV": "base", "CONDA_EXE": "/c/bin/conda"},
            ("/c/bin", "/c/condabin"),
        ),
        (
            "venv: /v\nconda: {prefix: /c}\n",
            Activation("source /v/bin/activate", ""),
            {"VIRTUAL_ENV": "/v", "CONDA_PREFIX": "/c", "CONDA_DEFAULT_ENV": "base", "CONDA_EXE": "/c/bin/conda"},
            ("/v/bin", "/c/bin", "/c/condabin"),
        ),
    ],
)
def test_activation(
    text: str,
    activation: Activation,
    env: dict[str, str],
    path: tuple[str, ...],
    tmp_path: Path,
    environ: dict[str, str],
) -> None:
    plan = planned(tmp_path, environ, text)
    python = {"LD_PRELOAD": "", "PIP_USER": "0", "PYTHONNOUSERSITE": "1", "PYTHONPATH": ""}
    assert plan.activation == activation
    assert dict(plan.env) == python | env
    assert plan.path == ("/runscripts", *path)


@pytest.mark.parametrize(
    ("accelerator", "resolved", "flags", "binds"),
    [
        ("rocm", "", ("rocm",), ()),
        ("rocm", "accelerators: {rocm: none}\n", (), ()),
        (
            "rocm",
            "accelerators: {rocm: devices}\n",
            (),
            (Bind("/dev/kfd", "/dev/kfd", optional=True), Bind("/dev/dri", "/dev/dri", optional=True)),
        ),
        ("cuda", "", ("nv",), ()),
        ("cuda", "accelerators: {cuda: nvccli}\n", ("nvccli",), ()),
        ("cuda", "accelerators: {cuda: none}\n", (), ()),
        ("none", "", (), ()),
    ],
)
def test_the_site_resolves_an_accelerator(
    accelerator: str,
    resolved: str,
    flags: tuple[str, ...],
    binds: tuple[Bind, ...],
    tmp_path: Path,
    environ: dict[str, str],
) -> None:
    plan = planned(tmp_path, environ, f"accelerator: {accelerator}\n", resolved)
    assert (plan.gpu_flags, plan.binds) == (flags, binds)


def test_wrappers_that_are_runscripts_bring_them(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = planned(tmp_path, environ, "wrappers: [python, start-shell, python]\nrunscripts: [get-master]\n")
    assert plan.wrappers == (Wrapper("python", ("python",)), Wrapper("start-shell", ("/runscripts/start-shell",)))
    assert plan.runscripts == ("get-master", "start-shell")


def test_what_packs_the_users_software_is_no_wrapper(tmp_path: Path, environ: dict[str, str]) -> None:
    wrappers = "wrappers: [make-squashfs, {unmake-squashfs: mine}]\n"
    plan = planned(tmp_path, environ, f"user_software: true\n{wrappers}")
    assert plan.wrappers == (Wrapper("unmake-squashfs", ("mine",)),)
    assert plan.packers == ("make-squashfs",)
    plan = planned(tmp_path, environ, wrappers)  # a command of the image, like any other
    assert plan.wrappers[0] == Wrapper("make-squashfs", ("make-squashfs",))
    assert plan.packers == ()


def test_how_an_image_is_started_and_used(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = planned(tmp_path, environ, "")
    assert (plan.verb, plan.user_software, plan.gpu_selection, plan.cache_directory) == ("exec", False, "slurm", "")
    plan = planned(tmp_path, environ, "verb: run\nuser_software: true\n", "cache_directory: /local\n")
    assert (plan.verb, plan.user_software, plan.cache_directory) == ("run", True, "/local")
    assert (plan.gpus_per_node, planned(tmp_path, environ, "", "gpus_per_node: 8\n").gpus_per_node) == (4, 8)


@pytest.mark.parametrize(
    ("easyconfig", "site", "selected"),
    [
        ("", "gpu_selection: localid\n", "localid"),
        ("gpu_selection: none\n", "gpu_selection: localid\n", "none"),
        ("gpu_selection: slurm\n", "gpu_selection: none\n", "slurm"),
    ],
)
def test_the_easyconfigs_gpu_selection_wins(
    tmp_path: Path, environ: dict[str, str], easyconfig: str, site: str, selected: str
) -> None:
    assert planned(tmp_path, environ, easyconfig, site).gpu_selection == selected


@pytest.mark.parametrize(
    ("bind", "text"),
    [
        (Bind("/data", "/data"), "/data"),
        (Bind("/data/x", "/data"), "/data/x:/data"),
        (Bind("/data", "/data/x"), "/data:/data/x"),
        (Bind("/data", "/data", ("ro",)), "/data:/data:ro"),
        (Bind("/data", "/data/x", ("image-src=/", "ro")), "/data:/data/x:image-src=/,ro"),
        (Bind("/data", "/data", optional=True), "/data"),
    ],
)
def test_how_a_bind_is_spelled(bind: Bind, text: str) -> None:
    """Without its target only where that is the very same."""
    assert str(bind) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("moduleclass: base", ()),
        ("moduleclass: ai\nlicense: MIT", ("Category: ai", "License: MIT")),
        ("moduleclass: ai\nwhatis: ['Category: mine', 'Keywords: a']", ("Category: mine", "Keywords: a")),
    ],
)
def test_class_and_licence_are_said_in_lmods_words(
    text: str, expected: tuple[str, ...], tmp_path: Path, environ: dict[str, str]
) -> None:
    plan = planned(tmp_path, environ, text)
    assert plan.help.whatis == expected
    for file in render(plan, 1):
        if file.path.startswith("modulefile."):
            assert [line for line in expected if line not in file.text] == []


@pytest.mark.parametrize(
    ("text", "looked_for"),
    [
        ("", False),
        ("user_software: true", True),
        ("user_software: true\nvenv: /opt/venv", True),
        ("user_software: true\nactivate: source /x", True),
        ("user_software: true\npath: [/user-software/bin]", False),
        ("user_software: true\nenv: {VIRTUAL_ENV: /user-software/venv/x}", False),
    ],
)
def test_the_users_venv_is_looked_for_unless_the_easyconfig_says_where_it_is(
    text: str, looked_for: bool, tmp_path: Path, environ: dict[str, str]
) -> None:
    activation = planned(tmp_path, environ, text).activation
    assert activation.users_venv is looked_for
    assert ("/user-software" in " ".join(activation.activated(("python",)))) is looked_for


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("", "torch/2.2.0, torchvision/0.17.0, DeepSpeed/0.12"),
        ("extensions: all\n", "torch/2.2.0, torchvision/0.17.0, DeepSpeed/0.12"),
        ("extensions: [deepspeed, torchv*]\n", "torchvision/0.17.0, DeepSpeed/0.12"),
        ("extensions: none\n", None),
        ("extensions: []\n", None),
    ],
)
def test_a_site_says_which_packages_spider_finds(
    tmp_path: Path, environ: dict[str, str], said: str, wanted: str | None
) -> None:
    contents = "contents: {torch: '2.2.0', torchvision: 0.17.0, DeepSpeed: '0.12'}\n"
    made = planned(tmp_path, environ, contents, f"module_syntax: lua\n{said}")
    (text,) = (file.text for file in render(made, 1) if file.path == "modulefile.lua")
    if wanted:
        assert f'extensions("{wanted}")\n' in text
    else:
        assert "extensions(" not in text
    assert "Contents: torch 2.2.0, torchvision 0.17.0, DeepSpeed 0.12\n" in text


VIEW = "modules: [A/1, B]\ndepends_on: [C]\nbinds: [/mine:/data]\nenv: {A: view}\npath: [/p]\n"


def test_a_view_has_what_it_says_itself_and_nothing_of_the_site(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "V-1.yaml"
    path.write_text(f"name: V\nversion: '1'\n{VIEW}")
    (tmp_path / "site.yaml").write_text(
        "name: here\naccelerator: rocm\nbinds: {x: [/b]}\nenv: {E: x}\nhost_env: {H: x}\n"
    )
    site = load_site({"site": str(tmp_path / "site.yaml")}, environ)
    view = make_plan(load_easyconfig(path, site, None, {}, environ).easyconfig, site.site, Choices("V-1", "copy"))
    assert (view.image, view.modules, view.depends_on) == (None, ("A/1", "B"), ("A/1", "B", "C"))
    assert (view.binds, view.path, view.gpu_flags) == ((Bind("/mine", "/data"),), ("/p",), ())
    assert (view.plain_env, view.host_env, view.wrappers) == ((("A", "view"),), (), ())
    names = {file.path.rpartition(".")[0] for file in render(view, 1)}
    assert names == {"modulefile", "share/module", "share/environment", "share/job"}
