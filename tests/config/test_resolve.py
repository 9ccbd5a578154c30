"""What settings leave open, found out from facts of a machine, whichever it is."""

from pathlib import Path

import pytest

from sifmod.config.input import current_facts, find_program, module_syntax
from sifmod.config.resolve_site import Resolved, resolve
from sifmod.config.site import SiteFile
from sifmod.errors import OptionError
from support.config import write

FACTS = {
    "device cuda": "",
    "device rocm": "",
    "program apptainer": "",
    "program singularity": "",
    "machine": "x86_64",
    "module syntax": "lua",
}


def resolved(facts: dict[str, str] | None = None, **settings: object) -> Resolved:
    return resolve(SiteFile.model_validate(settings), (), {"HOME": "/h"}, {**FACTS, **(facts or {})})


@pytest.mark.parametrize(
    ("machine", "arch"), [("x86_64", "amd64"), ("amd64", "amd64"), ("aarch64", "arm64"), ("arm64", "arm64")]
)
def test_the_architecture_is_that_of_the_machine(machine: str, arch: str) -> None:
    found = resolved({"machine": machine})
    assert found.site.arch == arch
    assert (found.how["arch"], found.found("arch")) == (f"this is a {machine} machine", arch)


def test_a_machine_without_images_is_refused_unless_a_setting_says_otherwise() -> None:
    with pytest.raises(OptionError) as caught:
        resolved({"machine": "riscv64"})
    assert caught.value.message == "there are no images for a riscv64 machine"
    assert caught.value.hint == "set SIFMOD_ARCH to the architecture to install for"
    found = resolved({"machine": "riscv64"}, arch="arm64")
    assert found.site.arch == "arm64"
    assert "arch" not in found.how


@pytest.mark.parametrize(
    ("devices", "accelerator", "how"),
    [
        ((), "none", "neither /dev/nvidiactl nor /dev/kfd exists"),
        (("cuda",), "cuda", "/dev/nvidiactl exists"),
        (("rocm",), "rocm", "/dev/kfd exists"),
        (("cuda", "rocm"), "cuda", "/dev/nvidiactl exists"),
    ],
)
def test_the_accelerator_is_that_of_the_device(devices: tuple[str, ...], accelerator: str, how: str) -> None:
    facts = {f"device {name}": "present" for name in devices}
    found = resolved(facts)
    assert (found.site.accelerator, found.how["accelerator"]) == (accelerator, how)
    assert found.found("accelerator") == accelerator
    said = resolved(facts, accelerator="none")
    assert (said.site.accelerator, "accelerator" in said.how) == ("none", False)


@pytest.mark.parametrize(
    ("wanted", "in_use", "syntax"),
    [
        ("auto", "lua", ("lua",)),
        ("auto", "tcl", ("tcl",)),
        ("lua", "tcl", ("lua",)),
        ("tcl", "lua", ("tcl",)),
        ("both", "tcl", ("lua", "tcl")),
    ],
)
def test_the_syntax_of_modulefiles(wanted: str, in_use: str, syntax: tuple[str, ...]) -> None:
    found = resolved({"module syntax": in_use}, module_syntax=wanted)
    assert found.site.module_syntax == syntax
    assert found.how.get("module_syntax") == ("the module tool in use" if wanted == "auto" else None)
    assert found.found("module_syntax") == ", ".join(syntax)


APPTAINER = "/b/apptainer\t/opt/apptainer/bin/apptainer"
SINGULARITY = "/b/singularity\t/opt/singularity-ce/bin/singularity"
RENAMED = "/b/singularity\t/opt/apptainer/bin/apptainer"


@pytest.mark.parametrize(
    ("wanted", "apptainer", "singularity", "kind", "path", "how"),
    [
        ("auto", APPTAINER, SINGULARITY, "apptainer", "/b/apptainer", "/b/apptainer is on PATH"),
        ("auto", "", SINGULARITY, "singularity", "/b/singularity", "/b/singularity is on PATH"),
        ("auto", "", RENAMED, "apptainer", "/b/singularity", "/b/singularity is on PATH"),
        ("singularity", APPTAINER, SINGULARITY, "singularity", "/b/singularity", "/b/singularity is on PATH"),
        ("apptainer", "", SINGULARITY, "apptainer", "", "no apptainer on PATH"),
        ("singularity", APPTAINER, "", "singularity", "", "no singularity on PATH"),
        ("auto", "", "", "apptainer", "", "no apptainer or singularity on PATH"),
    ],
)
def test_the_runtime_is_the_one_on_path(
    wanted: str, apptainer: str, singularity: str, kind: str, path: str, how: str
) -> None:
    found = resolved({"program apptainer": apptainer, "program singularity": singularity}, runtime=wanted)
    assert (found.site.runtime_kind, found.site.runtime_path, found.how["runtime"]) == (kind, path, how)
    assert found.found("runtime") == (path or "(none)")


def test_a_runtime_by_its_path_is_a_program(tmp_path: Path) -> None:
    real = write(tmp_path / "apptainer-1.3" / "apptainer", "#!/bin/sh\n")
    (tmp_path / "singularity").symlink_to(real)
    for bad in (real, tmp_path, tmp_path / "none"):
        with pytest.raises(OptionError) as caught:
            resolved(runtime=str(bad))
        assert caught.value.message == f"runtime: {bad} is not a program"
        assert caught.value.hint == "give the path of an apptainer or singularity"
    real.chmod(0o755)
    found = resolved(runtime=str(tmp_path / "singularity"))
    assert (found.site.runtime_kind, found.site.runtime_path) == ("apptainer", str(tmp_path / "singularity"))
    assert "runtime" not in found.how
    other = write(tmp_path / "apptainer-1.3" / "other", "#!/bin/sh\n")
    other.chmod(0o755)
    assert resolved(runtime=str(other)).site.runtime_kind == "singularity"


def test_a_site_is_as_its_settings_say() -> None:
    settings: dict[str, object] = {
        "name": "here",
        "description": "a machine",
        "accelerators": {"rocm": "devices", "cuda": "nvccli"},
        "prefix": "/p",
        "image_dirs": ("/i",),
        "env": {"A": "1"},
        "host_env": {"B": "2"},
        "runscript_env": {"C": "3"},
        "gpu_selection": "localid",
        "gpus_per_node": 8,
        "cache_directory": "/c",
        "link": "hardlink",
        "lock_lease": 12.0,
        "umask": "027",
        "group": "people",
        "compression": "gzip:6",
        "connections": 7,
        "processors": 3,
        "memory": 1 << 30,
        "mirrors": {"docker.io": ("m",)},
        "insecure_registries": ("r",),
        "token_servers": {"t": ("u",)},
        "striping": {"count": 3, "size": 1 << 20},
        "signatures": {"policy": "warn", "keys": ("/k",)},
    }
    site = resolved(None, **settings).site
    assert (site.name, site.description, site.prefix, site.prefix_is_default) == (
        "here",
        "a machine",
        Path("/p"),
        False,
    )
    assert (site.accelerators.rocm, site.accelerators.cuda) == ("devices", "nvccli")
    assert (site.env, site.host_env, site.runscript_env) == ((("A", "1"),), (("B", "2"),), (("C", "3"),))
    assert (site.gpu_selection, site.gpus_per_node, site.cache_directory) == ("localid", 8, "/c")
    assert (site.link, site.lock_lease, site.umask, site.group) == ("hardlink", 12.0, 0o27, "people")
    assert (site.compression, site.connections, site.processors, site.memory) == ("gzip:6", 7, 3, 1 << 30)
    assert (site.mirrors, site.insecure_registries, site.token_servers) == (
        (("docker.io", ("m",)),),
        ("r",),
        (("t", ("u",)),),
    )
    assert site.striping is not None
    assert (site.striping.count, site.striping.size) == (3, 1 << 20)
    assert (site.signatures.policy, site.signatures.keys) == ("warn", ("/k",))
    assert site.image_dirs == ("/i",)
    bare = resolved().site
    assert (bare.prefix, bare.prefix_is_default, bare.umask) == (Path("/h/.local/share/sifmod"), True, None)


@pytest.mark.parametrize(
    ("variables", "syntax"),
    [
        ({"LMOD_CMD": "/x", "MODULES_CMD": "/y"}, "lua"),
        ({"LMOD_VERSION": "8", "MODULESHOME": "/y"}, "lua"),
        ({"LMOD_CMD": "", "MODULES_CMD": "/y"}, "tcl"),
        ({"MODULESHOME": "/y"}, "tcl"),
    ],
)
def test_lmods_own_variables_count_before_those_of_both(variables: dict[str, str], syntax: str) -> None:
    assert module_syntax(variables) == syntax


@pytest.mark.parametrize(
    ("place", "syntax"),
    [
        ("/usr/share/lmod", "lua"),
        ("/opt/ohpc/admin/lmod", "lua"),
        ("/usr/share/modules", "tcl"),
        ("/usr/share/Modules", "tcl"),
        ("/nowhere", "lua"),
    ],
)
def test_without_variables_the_place_of_a_module_tool_counts(
    monkeypatch: pytest.MonkeyPatch, place: str, syntax: str
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: str(path) == place)
    assert module_syntax({}) == syntax


def test_facts_name_each_runtime_and_what_it_really_is(tmp_path: Path) -> None:
    real = write(tmp_path / "real", "#!/bin/sh\n")
    real.chmod(0o755)
    for name in ("apptainer", "singularity"):
        (tmp_path / name).symlink_to("real")
    facts = dict(current_facts({"PATH": str(tmp_path)}))
    for name in ("apptainer", "singularity"):
        assert facts[f"program {name}"] == f"{tmp_path / name}\t{real}"
        assert find_program(name, {"PATH": f"/nowhere:{tmp_path}"}) == f"{tmp_path / name}"
    assert dict(current_facts({}))["program apptainer"] == ""
