"""The Python environments of an image, found by its variables and in the usual places."""

from pathlib import Path

import pytest

from sifmod.image.inspect.python_environments import (
    PythonEnvironment,
    activated_environment,
    find_environments,
    normalized,
)
from sifmod.image.inspect.rootfs import USUAL_PATH, find_command, search_path
from support.inside import Files, programs, rootfs

# the pattern of a line took the square of its blanks, and of the empty lines: a minute for 64 KiB
VENV_OF_BLANKS = (
    f"x = y{' ' * 30_000}z\n{chr(10) * 30_000}  home =/usr/bin \nInclude-System =\n"
    "include-system-site-packages\t= true  \n"
)


def found(tmp_path: Path, files: Files, **environment: str) -> tuple[PythonEnvironment, ...]:
    with rootfs(tmp_path / "image", files) as inside:
        return find_environments(inside, environment)


def places(tmp_path: Path, files: Files, **environment: str) -> list[tuple[str, str]]:
    return [(one.kind, one.directory) for one in found(tmp_path, files, **environment)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b:/c", ("/a/b", "/c")),
        ("/a/:/a:/b//:/a", ("/a", "/b")),
        ("bin:/x:.:", ("/x",)),
        ("/", ("/",)),
        ("", ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")),
        ("bin:.", USUAL_PATH),
    ],
)
def test_a_search_path(path: str, expected: tuple[str, ...]) -> None:
    assert search_path(path) == expected


def test_a_command_is_the_first_program_of_its_name(tmp_path: Path) -> None:
    files = {"/a/tool": "no program", **programs("/b/tool", "/c/tool", "/opt/x")}
    with rootfs(tmp_path / "image", files) as inside:
        assert find_command(inside, "tool", ("/a", "/b", "/c")) == "/b/tool"
        assert find_command(inside, "tool", ("/c", "/b")) == "/c/tool"
        assert find_command(inside, "tool", ("/a", "/nowhere")) == ""
        assert find_command(inside, "/opt/x", ("/a",)) == "/opt/x"
        assert find_command(inside, "/a/tool", ("/b",)) == ""


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("source /opt/conda/bin/activate pytorch", "/opt/conda/envs/pytorch"),
        (". /opt/conda/bin/activate base", "/opt/conda"),
        (". /opt/venv/bin/activate", "/opt/venv"),
        ("true; source /opt/conda/bin/activate a.b_c && true", "/opt/conda/envs/a.b_c"),
        ("conda activate pytorch", ""),
        ("", ""),
    ],
)
def test_what_a_command_activates(command: str, directory: str) -> None:
    assert activated_environment(command) == directory


@pytest.mark.parametrize("name", ["Flash_Attn", "flash.attn", "flash--attn", "FLASH-._attn"])
def test_a_name_is_normalized(name: str) -> None:
    assert normalized(name) == "flash-attn"


def test_an_environment_of_conda_before_conda_itself(tmp_path: Path) -> None:
    files = {
        **programs("/opt/conda/bin/python", "/opt/conda/envs/b/bin/python", "/opt/conda/envs/a/bin/python3"),
        "/opt/conda/bin/activate": "",
        "/opt/conda/conda-meta/history": "",
        "/opt/conda/envs/a/lib/python3.12/site-packages/numpy-2.0.0.dist-info/METADATA": "",
        "/opt/conda/envs/no-python/bin": None,
    }
    assert found(tmp_path, files) == (
        PythonEnvironment(
            "conda", "/opt/conda/envs/a", "3.12", {"numpy": "2.0.0"}, "/opt/conda", "a",
            ("/opt/conda/envs/a/lib/python3.12/site-packages",), "/opt/conda/envs/a/lib/python3.12/site-packages",
        ),
        PythonEnvironment("conda", "/opt/conda/envs/b", "", {}, "/opt/conda", "b", ()),
        PythonEnvironment("conda", "/opt/conda", "", {}, "/opt/conda", "base", ()),
    )  # fmt: skip


def test_what_makes_an_environment_conda_s(tmp_path: Path) -> None:
    """One below envs needs a conda above it, by its directory or its activate; conda's own needs both."""
    files = {
        **programs(*(f"/opt/{name}/envs/e/bin/python" for name in ("meta", "activate", "neither"))),
        **programs(*(f"/opt/{name}/bin/python" for name in ("meta", "activate", "neither"))),
        "/opt/meta/conda-meta": None,
        "/opt/activate/bin/activate": "",
    }
    directories = [f"/opt/{name}{below}" for name in ("meta", "activate", "neither") for below in ("", "/envs/e")]
    path = ":".join(f"{directory}/bin" for directory in directories)
    assert places(tmp_path, files, PATH=path) == [
        ("prefix", "/opt/meta"),
        ("conda", "/opt/meta/envs/e"),
        ("prefix", "/opt/activate"),
        ("conda", "/opt/activate/envs/e"),
        ("prefix", "/opt/neither"),
        ("prefix", "/opt/neither/envs/e"),
    ]


def test_an_environment_with_a_name_that_conda_is_not_told(tmp_path: Path) -> None:
    files = {**programs("/opt/c/envs/a/b/bin/python"), "/opt/c/conda-meta": None}
    assert places(tmp_path, files, PATH="/opt/c/envs/a/b/bin") == [("prefix", "/opt/c/envs/a/b")]


def test_a_conda_below_a_directory_called_envs(tmp_path: Path) -> None:
    files = {**programs("/envs/c/envs/e/bin/python"), "/envs/c/conda-meta": None}
    (one,) = found(tmp_path, files, PATH="/envs/c/envs/e/bin")
    assert (one.kind, one.prefix, one.env) == ("conda", "/envs/c", "e")


def test_what_makes_a_venv(tmp_path: Path) -> None:
    files = {
        **programs(*(f"/{name}/bin/python" for name in ("both", "cfg", "activate"))),
        **{f"/{name}/pyvenv.cfg": "" for name in ("both", "cfg")},
        **{f"/{name}/bin/activate": "" for name in ("both", "activate")},
    }
    expected = [("venv", "/both"), ("prefix", "/cfg"), ("prefix", "/activate")]
    assert places(tmp_path, files, PATH="/both/bin:/cfg/bin:/activate/bin") == expected


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_variables_that_name_an_environment(tmp_path: Path, name: str) -> None:
    files = programs("/one/bin/python", "/two/bin/python")
    assert places(tmp_path, files, **{name: "/two//"}, PATH="/one/bin") == [("prefix", "/two"), ("prefix", "/one")]
    assert places(tmp_path, files, **{name: "two"}) == []


def test_lumi_s_variable_names_an_environment_and_its_conda(tmp_path: Path) -> None:
    files = {**programs("/c/bin/python", "/c/envs/e/bin/python", "/p/bin/python"), "/c/bin/activate": ""}
    expected = [("conda", "/c/envs/e"), ("prefix", "/c"), ("prefix", "/p")]
    assert places(tmp_path, files, WITH_CONDA="source /c/bin/activate e", PATH="/p/bin") == expected


def test_path_names_environments_by_their_bin(tmp_path: Path) -> None:
    files = programs("/a/bin/python", "/b/python", "/b/bin/python", "/c/sbin/bin/python")
    assert places(tmp_path, files, PATH="/a/bin:/b:/c/sbin") == [("prefix", "/a")]


USUAL = (
    *(
        f"{parent}/{name}"
        for parent in ("/opt", "/usr/local", "/root", "")
        for name in (
            *("conda", "miniconda3", "miniconda", "miniforge3", "miniforge", "mambaforge", "anaconda3", "micromamba"),
        )
    ),
    *("/opt/venv", "/venv", "/.venv", "/app/.venv", "/app/venv", "/workspace/.venv", "/workspace/venv"),
    "/opt/anything",
)


def test_the_usual_places_in_their_order(tmp_path: Path) -> None:
    files = programs(*(f"{place}/bin/python" for place in sorted(USUAL)))
    assert places(tmp_path, files) == [("prefix", place) for place in USUAL]


@pytest.mark.parametrize("conda", USUAL[:32:7])
def test_environments_below_each_usual_conda(tmp_path: Path, conda: str) -> None:
    files = {**programs(f"{conda}/envs/e/bin/python"), f"{conda}/conda-meta": None}
    assert places(tmp_path, files) == [("conda", f"{conda}/envs/e")]


def test_the_first_of_very_many_are_looked_at(tmp_path: Path) -> None:
    files = programs(*(f"/opt/conda/envs/{number:03d}/bin/python" for number in range(51)))
    files |= programs(*(f"/opt/n{number:03d}/bin/python" for number in range(200)))
    directories = [directory for _, directory in places(tmp_path, files)]
    assert directories[:50] == [f"/opt/conda/envs/{number:03d}" for number in range(50)]
    assert directories[50:] == [f"/opt/n{number:03d}" for number in range(199)]


def test_a_directory_that_an_easyconfig_may_not_name_is_left_out(tmp_path: Path) -> None:
    files = programs("/a b/bin/python", "/good/x/bin/python", "/good'/bin/python", "/good/\n/bin/python")
    path = "/a b/bin:/good'/bin:/good/\n/bin:/good/../good/x/bin:/usr/bin"
    assert places(tmp_path, {**files, **programs("/usr/bin/python3")}, PATH=path) == [("system", "/usr")]


def test_the_systems_own_comes_last(tmp_path: Path) -> None:
    files = {
        **programs("/usr/bin/python3", "/usr/bin/python3.11", "/usr/local/bin/python", "/venv/bin/python"),
        "/usr/lib/python3.11": None,
        "/usr/lib/python3.9": None,
        "/usr/lib/python3/dist-packages/six-1.16.0.egg-info": "",
        "/usr/local/lib/python3.11/dist-packages/numpy-1.26.4.dist-info/METADATA": "",
        "/usr/local/lib/python3.9/site-packages/old-1.0.dist-info/METADATA": "",
    }
    both = found(tmp_path, files, PATH="/usr/local/bin:/usr/bin")
    local = "/usr/local/lib/python3.11/dist-packages"
    assert [(one.kind, one.directory, one.version) for one in both] == [
        ("prefix", "/venv", ""),
        ("system", "/usr/local", "3.11"),
        ("system", "/usr", "3.11"),
    ]
    assert both[1].packages == {"numpy": "1.26.4"}
    assert both[2].packages == {"numpy": "1.26.4", "six": "1.16.0"}
    assert both[2].libraries == (local, "/usr/lib/python3/dist-packages")


def test_the_version_is_that_of_the_python_that_is_there(tmp_path: Path) -> None:
    """Of several the newest, as numbers; without a program of the name, of what libraries there are."""
    libraries = {f"/venv/{each}": None for each in ("lib/python3.9", "lib64/python3.10", "lib/python3.8")}
    both = found(tmp_path, {**programs("/venv/bin/python"), **libraries, "/venv/lib/python3.11x": None})
    assert [one.version for one in both] == ["3.10"]
    own = programs("/venv/bin/python", "/venv/bin/python3.9", "/venv/bin/python3.8")
    assert [one.version for one in found(tmp_path, {**own, **libraries})] == ["3.9"]
    assert [one.version for one in found(tmp_path, programs("/venv/bin/python"))] == [""]


def test_packages_in_every_directory_of_libraries(tmp_path: Path) -> None:
    below = "/venv/{}/python3.12/{}/{}"
    names = {
        ("lib", "site-packages", "torch-2.7.1+cu126.dist-info"): None,
        ("lib", "dist-packages", "Flash_Attn-2.8.3-py3.12.egg-info"): "",
        ("lib", "dist-packages", "torch-1.0.dist-info"): None,
        ("lib64", "site-packages", "ray-2.0.0rc1.dist-info"): None,
        ("lib64", "dist-packages", "x-1!2.dist-info"): None,
        ("lib", "site-packages", "torch"): None,
        ("lib", "site-packages", "nothing-1.0.dist-info.old"): None,
        ("lib", "site-packages", "-1.0.dist-info"): None,
    }
    files = {**programs("/venv/bin/python3"), **{below.format(*parts): text for parts, text in names.items()}}
    (one,) = found(tmp_path, files)
    assert one.packages == {"torch": "2.7.1+cu126", "flash-attn": "2.8.3", "ray": "2.0.0rc1", "x": "1!2"}
    assert one.libraries == tuple(
        f"/venv/{place}/python3.12/{name}" for name in ("site-packages", "dist-packages") for place in ("lib", "lib64")
    )


DEBIAN, RED_HAT, UPSTREAM = (
    "... / 'dist-packages'",
    "if ENABLE_USER_SITE and 'RPM_BUILD_ROOT' not in os.environ: prefixes.insert(0, '/usr/local')",
    "... 'site-packages'",
)


def stdlib(directory: str, version: str, site: str = UPSTREAM) -> Files:
    return {f"{directory}/python{version}/os.py": "", f"{directory}/python{version}/site.py": site}


def python(bin_: str, version: str, text: str = "#!") -> Files:
    return {f"{bin_}/python3": f"-> python{version}", f"{bin_}/python{version}": text}


LAYOUTS: dict[str, tuple[Files, dict[str, str], tuple[str, str, list[str], str]]] = {
    "Debian": (
        {**python("/usr/bin", "3.11"), **stdlib("/usr/lib", "3.11", DEBIAN), "/usr/lib/python3/dist-packages": None},
        {},
        (
            *("/usr", "3.11"),
            ["/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages"],
            "/usr/local/lib/python3.11/dist-packages",
        ),
    ),
    "upstream in /usr": (
        {**python("/usr/bin", "3.12"), **stdlib("/usr/lib", "3.12")},
        {},
        ("/usr", "3.12", ["/usr/lib/python3.12/site-packages"], "/usr/lib/python3.12/site-packages"),
    ),
    "upstream in /usr/local, beside Debian's": (
        {
            **python("/usr/local/bin", "3.12"),
            **stdlib("/usr/local/lib", "3.12"),
            **python("/usr/bin", "3.11"),
            **stdlib("/usr/lib", "3.11", DEBIAN),
            "/usr/local/lib/python3.12/dist-packages/x-1.dist-info": None,
        },
        {},
        (
            *("/usr/local", "3.12"),
            ["/usr/local/lib/python3.12/site-packages"],
            "/usr/local/lib/python3.12/site-packages",
        ),
    ),
    "Red Hat": (
        {
            **python("/usr/bin", "3.9"),
            **stdlib("/usr/lib64", "3.9", RED_HAT),
            "/usr/lib/python3.9/site-packages": None,
            "/usr/local/lib64/python3.9/site-packages": None,
        },
        {},
        (
            *("/usr", "3.9"),
            ["/usr/local/lib64/python3.9/site-packages", "/usr/lib/python3.9/site-packages"],
            "/usr/lib/python3.9/site-packages",
        ),
    ),
    "two in one directory, the older is python3": (
        {
            **python("/usr/bin", "3.11"),
            **stdlib("/usr/lib", "3.11", DEBIAN),
            **programs("/usr/bin/python3.12"),
            **stdlib("/usr/lib", "3.12", DEBIAN),
            "/usr/local/lib/python3.12/dist-packages": None,
        },
        {},
        (*("/usr", "3.11"), ["/usr/local/lib/python3.11/dist-packages"], "/usr/local/lib/python3.11/dist-packages"),
    ),
    "two, by what the program says": (
        {
            "/opt/x/bin/python3": "#! libpython3.8.so",
            **programs("/opt/x/bin/python3.10"),
            **stdlib("/opt/x/lib", "3.8"),
            **stdlib("/opt/x/lib", "3.10"),
        },
        {"PATH": "/opt/x/bin"},
        ("/opt/x", "3.8", ["/opt/x/lib/python3.8/site-packages"], "/opt/x/lib/python3.8/site-packages"),
    ),
    "a link to another place": (
        {
            **python("/opt/made/bin", "3.13"),
            **stdlib("/opt/made/lib", "3.13"),
            "/app/bin/python3": "-> /opt/made/bin/python3",
        },
        {"PATH": "/app/bin"},
        ("/opt/made", "3.13", ["/opt/made/lib/python3.13/site-packages"], "/opt/made/lib/python3.13/site-packages"),
    ),
    "a venv without the system's packages": (
        {
            **python("/usr/bin", "3.11"),
            **stdlib("/usr/lib", "3.11", DEBIAN),
            "/venv/bin/python3": "-> /usr/bin/python3",
            "/venv/bin/activate": "",
            "/venv/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
            "/usr/local/lib/python3.11/dist-packages": None,
        },
        {"VIRTUAL_ENV": "/venv"},
        ("/venv", "3.11", ["/venv/lib/python3.11/site-packages"], "/venv/lib/python3.11/site-packages"),
    ),
    "a venv with them": (
        {
            **python("/usr/bin", "3.11"),
            **stdlib("/usr/lib", "3.11", DEBIAN),
            "/venv/bin/python3": "-> /usr/bin/python3",
            "/venv/bin/activate": "",
            "/venv/pyvenv.cfg": VENV_OF_BLANKS,
            "/usr/local/lib/python3.11/dist-packages": None,
        },
        {"VIRTUAL_ENV": "/venv"},
        (
            *("/venv", "3.11"),
            ["/venv/lib/python3.11/site-packages", "/usr/local/lib/python3.11/dist-packages"],
            "/venv/lib/python3.11/site-packages",
        ),
    ),
    "PYTHONPATH and .pth files": (
        {
            **python("/opt/x/bin", "3.12"),
            **stdlib("/opt/x/lib", "3.12"),
            "/opt/more": None,
            "/opt/x/lib/python3.12/site-packages/a.pth": "import os\n# no\n/opt/by-pth\n../nowhere\n",
            "/opt/by-pth": None,
        },
        {"PATH": "/opt/x/bin", "PYTHONPATH": "/opt/more:relative:/nowhere"},
        (
            *("/opt/x", "3.12"),
            ["/opt/more", "/opt/x/lib/python3.12/site-packages", "/opt/by-pth"],
            "/opt/x/lib/python3.12/site-packages",
        ),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_where_a_python_looks(tmp_path: Path, name: str) -> None:
    """By its own site.py; the last is where pip puts packages."""
    files, environment, expected = LAYOUTS[name]
    one = found(tmp_path, files, **environment)[0]
    assert (one.directory, one.version, list(one.libraries), one.library) == expected
