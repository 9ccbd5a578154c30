"""Quirks: which easyconfigs they are for, what they set and unset, and who says so."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.version import within
from sifmod.errors import ConfigError
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import installations
from support.config import Configuration, lines, write
from support.disk_state import disk_state
from support.images import Images
from support.module_tool import ModuleTool

QUIRK = """
    description: no GDR level
    reason: with it, jobs hang
    link: https://example.org/1
    match: {MATCH}
    env: {NCCL_NET_GDR_LEVEL: null, FI_MR_CACHE_MONITOR: userfaultfd}
    """
BASE = """
    name: App
    version: '2.7.0'
    image: {sources: ['docker://r.example/a@sha256:DIGEST'], filename: lumi-app-1.sif, sha256: PROMISE}
    env: {NCCL_NET_GDR_LEVEL: 3, OTHER: 1}
    """.replace("DIGEST", "d" * 64).replace("PROMISE", "e" * 64)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(tmp_path)


def quirk(configuration: Configuration, match: str, name: str = "gdr", directory: str = "etc") -> Path:
    return write(configuration.root / directory / "quirks" / f"{name}.yaml", QUIRK.replace("MATCH", match))


def variables(configuration: Configuration) -> dict[str, str]:
    path = write(configuration.root / "ec" / "App-2.7.0.yaml", BASE)
    return dict(configuration.load(path).easyconfig.env)


@pytest.mark.parametrize(
    ("match", "applies"),
    [
        ("name: App", True),
        ("name: Other", False),
        ("versions: '>=2.6'", True),
        ("versions: ['>=2.6', '<2.8']", True),
        ("versions: ['>=2.6', '<2.7']", False),
        ("image: lumi-app-*.sif", True),
        ("image: [other-*, 'lumi-*']", True),
        ("image: lumi-app", False),
        (f"image: sha256:{'d' * 64}", True),
        (f"image: sha256:{'e' * 64}", True),
        (f"image: sha256:{'f' * 64}", False),
        ("site: generic", True),
        ("site: [lumi-g, generic]", True),
        ("site: lumi-g", False),
        ("name: App, site: lumi-g", False),
        ("name: App, versions: '2.7', image: '*.sif', site: generic", True),
    ],
)
def test_what_is_given_must_fit(configuration: Configuration, match: str, applies: bool) -> None:
    quirk(configuration, match)
    found = variables(configuration)
    assert found["OTHER"] == "1"
    assert ("NCCL_NET_GDR_LEVEL" not in found) == applies
    assert (found.get("FI_MR_CACHE_MONITOR") == "userfaultfd") == applies


@pytest.mark.parametrize(
    ("version", "inside", "outside"),
    [
        ("2.7.0", (">=2.7", "==2.7", "2.7.0.0", "<2.10", ">2.6.9", "!=2.7.1", "<=2.7"), (">2.7", "2.70", "<2.7")),
        ("2.7.0rc1", ("<2.7", ">2.6", ">=2.7.0a0"), (">=2.7", "==2.7")),
        ("2.7.1+cu121", ("==2.7.1", ">2.7"), ("!=2.7.1",)),
        ("24.01", (">=24.1", "<24.10"), (">24.01",)),
        ("20240315", (">20231231",), ("<2025",)),
    ],
)
def test_ranges_of_versions(version: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    assert [within(version, (text,)) for text in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


def test_a_nearer_file_hides_one_of_its_name(configuration: Configuration) -> None:
    quirk(configuration, "name: App")
    assert "NCCL_NET_GDR_LEVEL" not in variables(configuration)
    quirk(configuration, "name: Nothing", directory="home/.config/sifmod")
    assert variables(configuration)["NCCL_NET_GDR_LEVEL"] == "3"


def test_what_is_wrong_is_told_with_its_place(configuration: Configuration) -> None:
    write(
        configuration.root / "etc/quirks/bad.yaml",
        "description: x\nmatch: {versions: ['=>2'], image: sha256:12}\nenv: {PATH: /x, A: [1]}\nenvs: {}\n",
    )
    write(configuration.root / "etc/quirks/worse.yaml", "description: x\nreason: y\nlink: z\nmatch: {}\n")
    with pytest.raises(ConfigError) as caught:
        assert configuration.site().quirks
    assert lines(caught.value) == [
        "bad.yaml:1:1: link: is missing",
        "bad.yaml:1:1: reason: is missing",
        "bad.yaml:2:19: match.versions: expected a version, perhaps behind >=, <=, ==, !=, > or <, got '=>2'",
        "bad.yaml:2:35: match.image: expected sha256: and 64 lower-case hexadecimal digits, got 'sha256:12'",
        "bad.yaml:3:7: env.PATH: PATH is made from the key path: write the directories there",
        "bad.yaml:3:20: env.A: expected text, got a list",
        "bad.yaml:4:1: envs: unknown key; did you mean env?",
        "worse.yaml:4:8: match: expected one of name, versions, image and site",
    ]


@pytest.mark.parametrize("text", ["2.x", ">=2.X", "x", "latest", "two.0"])
def test_what_is_no_version_is_refused(configuration: Configuration, text: str) -> None:
    quirk(configuration, f"versions: ['{text}']")
    with pytest.raises(ConfigError, match=r"match\.versions: expected a version, perhaps behind "):
        assert configuration.site().quirks


@pytest.mark.parametrize("key", ["description", "reason", "link"])
def test_a_text_for_all_users_holds_no_login(configuration: Configuration, key: str) -> None:
    texts = "".join(
        f"{one}: {'https://me:hunter2@x.org' if one == key else 'x'}\n" for one in ("description", "reason", "link")
    )
    write(configuration.root / "etc/quirks/open.yaml", f"{texts}match: {{name: App}}\nenv: {{A: '1'}}\n")
    with pytest.raises(ConfigError) as caught:
        assert configuration.site().quirks
    assert lines(caught.value)[0].endswith(f"{key}: a login cannot be used here, because all users would read it")


def test_one_without_variables_is_refused(configuration: Configuration) -> None:
    write(configuration.root / "etc/quirks/idle.yaml", "description: x\nreason: y\nlink: z\nmatch: {name: A}\n")
    with pytest.raises(ConfigError) as caught:
        assert configuration.site().quirks
    assert lines(caught.value) == [
        "idle.yaml:1:1: expected variables under env, host_env or runscript_env; env: {} switches it off"
    ]


@pytest.mark.parametrize("nothing", ["env: {}", "env: null", "host_env: {}"])
def test_one_is_switched_off_by_a_nearer_file_that_does_nothing(configuration: Configuration, nothing: str) -> None:
    quirk(configuration, "name: App")
    off = quirk(configuration, "name: App", directory="home/.config/sifmod")
    off.write_text(off.read_text().partition("env:")[0] + f"{nothing}\n")
    loaded = configuration.load(write(configuration.root / "ec" / "App-2.7.0.yaml", BASE))
    assert dict(loaded.easyconfig.env)["NCCL_NET_GDR_LEVEL"] == "3"
    assert loaded.quirks == ()


def test_origins_name_the_quirk(configuration: Configuration) -> None:
    path = quirk(configuration, "name: App")
    loaded = configuration.load(write(configuration.root / "ec" / "App-2.7.0.yaml", BASE))
    told = {key: (value, origin) for key, value, origin in loaded.origins}
    assert told["quirks.gdr"] == ("no GDR level", str(path))
    assert told["env.NCCL_NET_GDR_LEVEL"] == ("(unset)", f"{path}:5")
    assert told["env.FI_MR_CACHE_MONITOR"] == ("userfaultfd", f"{path}:5")


# ------------------------------------------------------------------------------------------- installed, with a real SIF


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "prefix"))
    monkeypatch.setenv("SIFMOD_SITE", "generic")
    monkeypatch.setenv("SIFMOD_MODULE_SYNTAX", "both")
    write(tmp_path / "etc-sifmod.d" / "own.yaml", "env: {NCCL_NET_GDR_LEVEL: PHB, KEPT: 1}\nhost_env: {GONE: 1}\n")
    return tmp_path / "prefix"


@pytest.fixture
def install(tmp_path: Path, images: Images) -> Callable[[], int]:
    (tmp_path / "tiny.sif").write_bytes(images.tiny_sif.read_bytes())
    text = f"name: Tiny\nversion: '1.0'\nimage: {{sources: ['{tmp_path}/tiny.sif']}}\nwrappers: [sh]\n"
    easyconfig = write(tmp_path / "Tiny-1.0.yaml", text)
    return lambda: run(["install", str(easyconfig)])


def machines_quirk(tmp_path: Path, match: str) -> Path:
    text = QUIRK.replace("MATCH", match) + (
        "host_env: {NCCL_NET_GDR_LEVEL: null, GONE: null}\n    runscript_env: {NCCL_NET_GDR_LEVEL: null}\n"
    )
    return write(tmp_path / "etc-sifmod.d" / "quirks" / "gdr.yaml", text)


def test_an_installed_module_has_them_and_says_so(
    install: Callable[[], int], prefix: Path, tmp_path: Path, module_tool: ModuleTool, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the site sets is unset too; the next install after the quirk has come, changed or gone notices."""
    assert install() == 0
    load = ("true", "module load Tiny/1.0", "module help Tiny/1.0")
    env = module_tool.session(load, prefix / "modules")[1].environment
    assert (env["SINGULARITYENV_NCCL_NET_GDR_LEVEL"], env["GONE"]) == ("PHB", "1")
    path = machines_quirk(tmp_path, "name: Tiny")
    capfd.readouterr()
    assert install() == 0
    one_line = "gdr: no GDR level (FI_MR_CACHE_MONITOR=userfaultfd, no NCCL_NET_GDR_LEVEL, no GONE)"
    assert f"== quirk {one_line}\n" in capfd.readouterr().err
    _, loaded, helped = module_tool.session(load, prefix / "modules")
    env = loaded.environment
    assert "SINGULARITYENV_NCCL_NET_GDR_LEVEL" not in env
    assert "GONE" not in env
    assert (env["SINGULARITYENV_KEPT"], env["SINGULARITYENV_FI_MR_CACHE_MONITOR"]) == ("1", "userfaultfd")
    assert f"{one_line}\n    with it, jobs hang (https://example.org/1)\n" in helped.stdout + helped.stderr
    (installation,) = installations(Layout(prefix))
    assert str(path) in [seen.path for seen in installation.provenance.inputs if seen.sha256]
    assert install() == 0
    assert "already installed" in capfd.readouterr().err
    path.unlink()
    assert install() == 0
    assert "SINGULARITYENV_FI_MR_CACHE_MONITOR" not in module_tool.session(load, prefix / "modules")[1].environment


@pytest.mark.parametrize(
    ("variables", "default", "host"),
    [
        ("env: {NCCL_NET_GDR_LEVEL: null}", False, False),
        ("env: {NCCL_NET_GDR_LEVEL: null}\nrunscript_env: {NCCL_NET_GDR_LEVEL: SYS}", True, False),
        ("env: {NCCL_NET_GDR_LEVEL: null}\nhost_env: {NCCL_NET_GDR_LEVEL: SYS}", False, True),
        ("runscript_env: {NCCL_NET_GDR_LEVEL: null}", False, True),
        ("host_env: {NCCL_NET_GDR_LEVEL: null}", True, False),
    ],
)
def test_null_in_env_unsets_in_the_runscripts_and_on_the_host_too(
    install: Callable[[], int], prefix: Path, tmp_path: Path, variables: str, default: bool, host: bool
) -> None:
    """The site's as well as the easyconfig's; the other maps unset for themselves alone."""
    maps = "{kind}: {{NCCL_NET_GDR_LEVEL: PHB}}\n"
    site = "".join(maps.format(kind=kind) for kind in ("env", "host_env", "runscript_env"))
    write(tmp_path / "etc-sifmod.d/own.yaml", site)
    head = "description: d\nreason: r\nlink: l\nmatch: {name: Tiny}\n"
    write(tmp_path / "etc-sifmod.d/quirks/gdr.yaml", f"{head}{variables}\n")
    assert install() == 0
    for easyconfigs in ("", site):
        path = tmp_path / "Tiny-1.0.yaml"
        path.write_text(path.read_text() + easyconfigs)
        assert install() == 0
        root = prefix / "software/Tiny/1.0"
        for name in ("conda-python-distributed", "torchrun-distributed"):
            assert ("default NCCL_NET_GDR_LEVEL" in (root / "runscripts" / name).read_text()) == default
        launcher = (root / "share/launch.sh").read_text()
        assert ("ENV_NCCL_NET_GDR_LEVEL" in launcher) == ("env: {NCCL" not in variables.replace("_env:", ""))
        assert ('NCCL_NET_GDR_LEVEL = "' in _after((root / "modulefile.lua").read_text(), "      env = {")) == host


def _after(text: str, line: str) -> str:
    return text.partition(line)[2]


def test_what_the_user_exports_himself_stays(install: Callable[[], int], prefix: Path, tmp_path: Path) -> None:
    machines_quirk(tmp_path, "name: Tiny")
    assert install() == 0
    for variables, seen in (({}, b"none\n"), ({"NCCL_NET_GDR_LEVEL": "mine"}, b"mine\n")):
        command = (prefix / "software/Tiny/1.0/bin/sh", "-c", 'echo "${NCCL_NET_GDR_LEVEL-none}"')
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True)
        assert done.stdout == seen


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("quirks/gdr.yaml", "description: no reason\n", "quirks/gdr.yaml:1:1: reason: is missing"),
        ("own.yaml", "gpu_selection: all\n", "own.yaml:1:16: gpu_selection: expected slurm, localid or none, got "),
        ("own.yaml", "binds: {a: ['/a,/b']}\n", "own.yaml:1:13: binds.a[0].source: a path with , cannot be bound "),
    ],
)
def test_what_cannot_be_used_stops_an_install(
    install: Callable[[], int],
    prefix: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    file: str,
    text: str,
    message: str,
) -> None:
    assert install() == 0
    before = disk_state(prefix)
    write(tmp_path / "etc-sifmod.d" / file, text)
    capfd.readouterr()
    assert install() == 5
    assert f"{tmp_path}/etc-sifmod.d/{message}" in capfd.readouterr().err
    assert run(["install", "--module-only", "--installed"]) == 5
    assert f"{tmp_path}/etc-sifmod.d/{message}" in capfd.readouterr().err
    assert disk_state(prefix) == before


def test_a_digest_that_only_the_fetch_tells(
    install: Callable[[], int], prefix: Path, tmp_path: Path, images: Images, capfd: pytest.CaptureFixture[str]
) -> None:
    """The easyconfig states no digest: the first install finds it out, and later ones know."""
    import hashlib

    digest = hashlib.sha256(images.tiny_sif.read_bytes()).hexdigest()
    machines_quirk(tmp_path, f"image: sha256:{digest}")
    assert install() == 0
    assert "== quirk gdr: " in capfd.readouterr().err
    assert "userfaultfd" in (prefix / "software/Tiny/1.0/modulefile.lua").read_text()
    for arguments in (["install"], ["install", "--dry-run-short"]):
        assert run([*arguments, str(tmp_path / "Tiny-1.0.yaml")]) == 0
    captured = capfd.readouterr()
    assert "already installed" in captured.err
    assert " * [x] " in captured.out


@pytest.mark.usefixtures("prefix")
def test_show_origins_tells_of_quirks(
    install: Callable[[], int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert install() == 0
    machines_quirk(tmp_path, "name: Tiny")
    capfd.readouterr()
    assert run(["show", str(tmp_path / "Tiny-1.0.yaml"), "--origins", "--json"]) == 0
    rows = {row["key"]: row["value"] for row in json.loads(capfd.readouterr().out)}
    assert rows["quirks.gdr"] == "no GDR level"
    assert rows["host_env.GONE"] == "(unset)"
