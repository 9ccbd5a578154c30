"""docs/install.md: each block as an ordinary user, by uv with an old `python3` on PATH, by pip, and without a network.

Packages come from wheels of what is installed here: no index is asked. A managed Python cannot be downloaded here, so
uv is given the machine's, under a directory that is not on PATH.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sifmod import __version__
from sifmod.actions.stack.own_wheels import write_own_wheels
from sifmod.cli.main import run as run_sifmod
from support.command import ROOT, Result
from support.config import write
from support.documents import blocks
from support.images import Images
from support.memory import temporary
from support.module_tool import ModuleTool
from support.user import OrdinaryUser

PAGE = ROOT / "docs" / "install.md"
BY_UV, BY_PIP, FOR_A_SITE, OFFLINE = blocks(PAGE)
WHEEL = f"sifmod-{__version__}-py3-none-any.whl"
UV = Path(sys.executable).with_name("uv")
MACHINES = Path("/usr/bin/python3.11")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    to = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", to, ROOT)
    subprocess.run(build, check=True)
    return to / WHEEL


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def web(built: Path) -> Iterator[str]:
    """The address of the wheel's directory."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built.parent)))
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def wheels() -> Iterator[Path]:
    """What sifmod needs, in the place of an index; every user can read it."""
    with TemporaryDirectory(dir=temporary(), prefix="sifmod-test-") as directory:
        place = Path(directory)
        place.chmod(0o755)
        write_own_wheels(place)
        for own in place.glob("sifmod-*"):
            own.unlink()
        write(place / "uv.toml", f'no-index = true\nfind-links = ["{place}"]\n')
        yield place


@pytest.fixture
def tools(shared_tmp: Path) -> Path:
    """A directory on PATH with uv, and a `python3` that says 3.6 and understands nothing newer: a stand-in."""
    place = shared_tmp / "tools"
    place.mkdir()
    shutil.copy(UV, place / "uv")
    old = write(place / "python3", "#!/bin/sh\ncase $* in *-V*|*--version*) echo Python 3.6.15; exit;; esac\nexit 1\n")
    old.chmod(0o755)
    return place


def typed(block: str, user: OrdinaryUser, web: str, path: Path | str, env: dict[str, str]) -> Result:
    script = block.replace("https://example.org", web)
    environment = {"PATH": f"{path}:{user.home}/.local/bin:/usr/bin:/bin", "NO_PROXY": "*", **env}
    return user.run(("bash", "-ec", script), env=environment)


def offline(wheels: Path) -> dict[str, str]:
    return {
        "UV_CONFIG_FILE": str(wheels / "uv.toml"),
        "UV_PYTHON": str(MACHINES),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
    }


@pytest.mark.parametrize("python", ["old", "none"])
def test_by_uv(python: str, ordinary_user: OrdinaryUser, web: str, wheels: Path, tools: Path, lmod: ModuleTool) -> None:
    """Where `python3` says 3.6, and where there is none."""
    if python == "none":
        (tools / "python3").unlink()
        for program in ("bash", "env", "sh", "uname", "ldd", "cat", "mkdir"):
            (tools / program).symlink_to(f"/usr/bin/{program}")
    result = typed(
        BY_UV,
        ordinary_user,
        web,
        tools,
        offline(wheels) | ({"PATH": f"{tools}:{ordinary_user.home}/.local/bin"} if python == "none" else {}),
    )
    result.ok()
    modules = ordinary_user.home / "modulefiles"
    assert result.stdout.splitlines()[0] == f"sifmod {__version__}"
    assert (modules / "sifmod" / __version__).exists()
    loaded = lmod.run(
        "module load sifmod; command -v sifmod; sifmod -V; man -w sifmod", modules, user=ordinary_user.user
    )
    command, version, page = loaded.stdout.splitlines()
    assert (command, version) == (f"{ordinary_user.home}/.local/bin/sifmod", f"sifmod {__version__}")
    assert page.startswith(f"{ordinary_user.home}/.local/share/uv/tools/sifmod/share/man/")


def test_by_pip(ordinary_user: OrdinaryUser, web: str, wheels: Path) -> None:
    result = typed(BY_PIP, ordinary_user, web, "/usr/bin", offline(wheels)).ok()
    assert result.stdout.splitlines()[-1] == f"sifmod {__version__}"


def test_for_a_site(
    ordinary_user: OrdinaryUser, web: str, wheels: Path, tools: Path, shared_tmp: Path, module_tool: ModuleTool
) -> None:
    """Made by one user, and loaded by another who may only read it."""
    appl = shared_tmp / "appl"
    appl.mkdir()
    ordinary_user.own(appl)
    typed(FOR_A_SITE.replace("/appl", str(appl)), ordinary_user, web, tools, offline(wheels)).ok()
    step = module_tool.run("module load sifmod; command -v sifmod; sifmod -V; man -w sifmod", appl / "modulefiles")
    command, version, page = step.stdout.splitlines()
    assert (command, version) == (f"{appl}/sifmod/bin/sifmod", f"sifmod {__version__}")
    assert page == f"{appl}/sifmod/tools/sifmod/share/man/man1/sifmod.1"
    assert sorted(os.listdir(appl / "sifmod" / "bin")) == ["sifmod"]
    readable = [
        path for path in (appl / "sifmod").rglob("*") if not path.is_symlink() and not path.stat().st_mode & 0o004
    ]
    assert readable == []


def test_without_a_network(
    ordinary_user: OrdinaryUser, shared_tmp: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheels of a real bundle; the network namespace has no network."""
    monkeypatch.chdir(shared_tmp)
    monkeypatch.setenv("SIFMOD_PREFIX", str(shared_tmp / "prefix"))
    write(shared_tmp / "Tiny-1.yaml", f"name: Tiny\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    write(shared_tmp / "stack.yaml", "name: one\neasyconfigs: [Tiny-1.yaml]\n")
    assert run_sifmod(["stack", "apply", "stack.yaml", "--skip-sanity-check"]) == 0
    assert run_sifmod(["stack", "lock", "stack.yaml"]) == 0
    assert run_sifmod(["stack", "bundle", "stack.yaml", "-o", "stack.tar"]) == 0
    shutil.copy(shared_tmp / "stack.tar", ordinary_user.home)
    (ordinary_user.home / "stack.tar").chmod(0o644)
    block = OFFLINE.replace("python3 -m", f"{sys.executable if sys.version_info[:2] != (3, 11) else MACHINES} -m")
    result = ordinary_user.run(("unshare", "--user", "--map-root-user", "--net", "bash", "-ec", block)).ok()
    assert result.stdout.splitlines()[-1] == f"sifmod {__version__}"
