"""A login for an index of packages: it works where it belongs, and is in no file, output or command; else refused."""

import ast
import base64
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

import pytest

from sifmod.digest import sha256_bytes
from support.command import Result, run
from support.config import write
from support.images import Images
from support.layered import BACKEND, NAME, Machine, make_machine
from support.web import Handler, Web, answer
from support.wheels import wheel

SECRET = "s3cret-of-index"
LOGIN = f"me:{SECRET}"
SIGNED = f"X-Amz-Credential=a&X-Amz-Signature={SECRET}"
ENCODED = base64.b64encode(LOGIN.encode()).decode()


@pytest.fixture
def machine(shared_tmp: Path, images: Images) -> Machine:
    return make_machine(shared_tmp / "ma chine", images)


@pytest.fixture
def index(machine: Machine) -> Iterator[Web]:
    """What has the machine's wheels, as an index and as a page of links, for who shows the login."""
    server = Web()

    def locked(content: bytes, handler: Handler) -> None:
        if handler.headers.get("Authorization") == f"Basic {ENCODED}":
            answer(200, content, {"Content-Type": "text/html"} if content[:2] != b"PK" else {})(handler)
        else:
            answer(401, b"", {"WWW-Authenticate": "Basic realm=x"})(handler)

    pages: dict[str, list[str]] = {}
    for path in machine.wheels.iterdir():
        server.answers[f"/files/{path.name}"] = partial(locked, path.read_bytes())
        pages.setdefault(path.name.split("-")[0], []).append(f'<a href="/files/{path.name}">{path.name}</a>')
    for name, links in pages.items():
        server.answers[f"/simple/{name}/"] = partial(locked, "".join(links).encode())
    server.answers["/links"] = partial(locked, "".join(chain.from_iterable(pages.values())).encode())
    server.start()
    yield server
    server.stop()


def words_seen(stop: threading.Event, seen: set[str]) -> None:
    """Collect the command lines of all processes."""
    while not stop.wait(0.01):
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                try:
                    seen.add(Path("/proc", entry, "cmdline").read_bytes().decode("utf-8", "replace"))
                except OSError:
                    continue


def holding(top: Path) -> list[str]:
    """The files below a directory in which the login is, in any of its forms, but for the user's own."""
    forms = (SECRET.encode(), ENCODED.encode())
    files = (path for path in top.rglob("*") if path.is_file() and not path.is_symlink() and path.name != ".netrc")
    return [str(path) for path in files if path.parts[-2] != "own" and any(one in path.read_bytes() for one in forms)]


def checked(machine: Machine, words: tuple[str, ...], env: dict[str, str]) -> Result:
    stop, seen = threading.Event(), set[str]()
    watcher = threading.Thread(target=words_seen, args=(stop, seen))
    watcher.start()
    done = machine.sifmod(*words, env=env)
    stop.set()
    watcher.join()
    assert SECRET not in done.stdout + done.stderr
    assert holding(machine.top) == []
    assert any("sifmod" in one for one in seen)  # it looks; uv itself may be too short under load
    assert [one for one in seen if SECRET in one and "pytest" not in one] == []
    return done


def ways(machine: Machine, index: Web) -> dict[str, dict[str, str]]:
    """How people give a login: variables for each way."""
    home = machine.top / "home"
    plain, page = index.url("/simple", "127.0.0.1"), index.url("/links", "127.0.0.1")
    write(home / ".netrc", f"machine 127.0.0.1\nlogin me\npassword {SECRET}\n").chmod(0o600)
    named = write(machine.top / "named.toml", f'[[index]]\nname = "company"\nurl = "{plain}"\ndefault = true\n')
    own = write(machine.top / "own/uv.toml", f'index-url = "{plain.replace("//", f"//{LOGIN}@")}"\n')
    return {
        "netrc": {"HOME": str(home), "UV_INDEX_URL": plain},
        "UV_INDEX_URL": {"UV_INDEX_URL": plain.replace("//", f"//{LOGIN}@")},
        "UV_FIND_LINKS": {"UV_NO_INDEX": "1", "UV_FIND_LINKS": page.replace("//", f"//{LOGIN}@")},
        "a named index": {
            "UV_CONFIG_FILE": str(named),
            "UV_INDEX_COMPANY_USERNAME": "me",
            "UV_INDEX_COMPANY_PASSWORD": SECRET,
        },
        "uv.toml": {"UV_CONFIG_FILE": str(own)},
    }


@pytest.mark.parametrize("way", ["netrc", "UV_INDEX_URL", "UV_FIND_LINKS", "a named index", "uv.toml"])
def test_a_login_that_belongs_there_works_and_is_kept_nowhere(machine: Machine, index: Web, way: str) -> None:
    env = ways(machine, index)[way]
    if way != "netrc":
        env["HOME"] = str(machine.top / "nobody")
    checked(machine, ("add", NAME, "demo"), env).ok()
    assert machine.python("import demo, helper; print(helper.__version__)").ok().stdout == "2.5\n"
    assert SECRET not in machine.sifmod("layers", "--json").ok().stdout
    lock = write(machine.top / "pylock.toml", (machine.live() / "pylock.toml").read_text())
    machine.sifmod("remove", NAME, "--all").ok()
    checked(machine, ("sync", NAME, str(lock)), env).ok()
    wrong = checked(machine, ("add", NAME, "nowhere"), env)
    assert wrong.code != 0


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("way", ["netrc", "UV_INDEX_URL", "a named index"])
def test_a_login_that_an_index_refuses_is_named(machine: Machine, index: Web, way: str, status: int) -> None:
    """It was called a package that does not exist."""
    env = ways(machine, index)[way] | ({} if way == "netrc" else {"HOME": str(machine.top / "nobody")})
    index.answers["/simple/demo/"] = answer(status, b"", {"WWW-Authenticate": "Basic realm=x"} if status == 401 else {})
    refused = checked(machine, ("add", NAME, "demo"), env)
    assert refused.code == 10
    said = {401: "401 Unauthorized", 403: "403 Forbidden"}[status]
    url = index.url("/simple", "127.0.0.1")
    assert re.search(rf"error: the index {url}/? answered {said}, and was not searched for demo\n", refused.stderr)
    assert "check the login: put it in ~/.netrc" in refused.stderr


def test_a_login_that_would_be_kept_is_refused(machine: Machine) -> None:
    machine.add("demo").ok()
    lock = (machine.live() / "pylock.toml").read_text()
    url = f"https://{LOGIN}@host.invalid"
    asked = write(machine.top / "requirements.txt", f"helper\ndemo @ {url}/demo.whl\n")
    locked = write(machine.top / "pylock.toml", re.sub(r'(path|url) = "[^"]*/', f'url = "{url}/', lock))
    recipe = "name: Own\nversion: '1'\nimage: {build: {from: /x.sif, pip: ['demo @ %s/x.whl']}}\n"
    own = write(machine.top / "Own-1.yaml", recipe % url)
    source = write(machine.top / "Src-1.yaml", f"name: Src\nversion: '1'\nimage: {{sources: ['{url}/x.sif']}}\n")
    asked_of = "name: Req\nversion: '1'\nimage: {build: {from: %s, requirements: %s}}\n"
    (base,) = machine.prefix.glob("images/sha256/*.sif") or [Path("/x.sif")]
    written = write(machine.top / "Req-1.yaml", asked_of % (base, asked.name))
    there = machine.listing()
    for words in (
        ("add", NAME, f"demo @ {url}/x.whl"),
        ("add", NAME, f"https://{LOGIN}@host.invalid/x.whl"),
        ("add", NAME, f"git+https://{LOGIN}@host.invalid/x.git"),
        ("add", NAME, "-r", str(asked)),
        ("add", NAME, "helper", "--find-links", f"{url}/links"),
        ("sync", NAME, str(locked)),
        ("sync", NAME, str(locked), "--find-links", str(machine.wheels)),
        ("install", str(own)),
        ("check", str(own)),
        ("install", str(source)),
        ("install", str(written)),
    ):
        done = machine.sifmod(*words)
        assert done.code in (2, 5, 10), (words, done)
        assert SECRET not in done.stdout + done.stderr, (words, done)
        assert re.search("netrc|names a path or URL", done.stdout + done.stderr), (words, done)
        assert machine.listing() == there, words
    assert [one for one in holding(machine.prefix) if SECRET in one] == [] == holding(machine.prefix)
    assert json.loads(machine.sifmod("layers", "--json").ok().stdout)[0]["requirements"] == ["demo"]


@pytest.fixture
def signing(machine: Machine) -> Iterator[Web]:
    """An index of the machine's wheels whose links are signed, as those of a bucket; without signature: 403."""
    server = Web()

    def signed(content: bytes, handler: Handler) -> None:
        answer(200 if handler.path.endswith(f"?{SIGNED}") else 403, content)(handler)

    for name in ("demo", "helper"):
        links = []
        for path in sorted(machine.wheels.glob(f"{name}-*")):
            digest = sha256_bytes(path.read_bytes())
            links.append(f'<a href="/files/{path.name}?{SIGNED.replace("&", "&amp;")}#sha256={digest}">{path.name}</a>')
            server.answers[f"/files/{path.name}"] = partial(signed, path.read_bytes())
        server.answers[f"/simple/{name}/"] = answer(200, "".join(links).encode(), {"Content-Type": "text/html"})
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("how", ["a directory", "editable", "a repository"])
def test_a_login_for_a_named_index_goes_to_no_project_that_names_one_alike(
    machine: Machine, index: Web, how: str
) -> None:
    """The index of the project got it, while uv read the project's requirements."""
    env, got = ways(machine, index)["a named index"], list[str]()
    other = Web()

    def asked(handler: Handler) -> None:
        got.append(handler.headers.get("Authorization", ""))
        answer(401, b"", {"WWW-Authenticate": "Basic realm=x"})(handler)

    other.answers["/simple/helper/"] = asked
    other.start()
    try:
        text = "[project]\nname = 'own'\nversion = '1'\ndependencies = ['helper']\n[tool.uv.sources]\n"
        text += "helper = {index = 'company'}\n[[tool.uv.index]]\nname = 'company'\n"
        project = write(machine.top / "own project/pyproject.toml", f"{text}url = '{other.url('/simple')}'\n").parent
        (project / "own.py").touch()
        words: tuple[str, ...] = (str(project),)
        if how == "a repository":
            git = ("git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@x")
            for each in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
                run((*git, *each)).ok()
            words = (f"git+file://{project}".replace(" ", "%20"),)
        elif how == "editable":
            words = ("-e", str(project))
        refused = checked(machine, ("add", NAME, *words), env)
    finally:
        other.stop()
    assert not [one for one in got if one]
    assert refused.code == 2, refused
    assert "names another index company, which would get your login of UV_INDEX_COMPANY_USERNAME" in refused.stderr


def exposed(top: Path, stop: threading.Event, seen: set[str]) -> None:
    """Collect the files with the signature that anybody could read for a moment."""
    while not stop.is_set():
        for directory, below, files in os.walk(top):
            with suppress(OSError):
                below[:] = [name for name in below if Path(directory, name).stat().st_mode & 0o001]
                below[:] = [name for name in below if name not in ("images", "software", "modules")]
            for path in (Path(directory, name) for name in files if name.endswith((".toml", ".txt", ".in", ".json"))):
                with suppress(OSError):
                    if path.stat().st_mode & 0o004 and SECRET in path.read_text():
                        seen.add(str(path))


def test_nobody_can_read_a_signed_link_while_packages_are_added(machine: Machine, signing: Web) -> None:
    """uv wrote its lock with mode 0644 into `.staging/`, where it stood until sifmod had taken the signatures out."""
    stop, seen = threading.Event(), set[str]()
    watchers = [threading.Thread(target=exposed, args=(machine.prefix, stop, seen)) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        done = machine.sifmod("add", NAME, "demo", env={"UV_DEFAULT_INDEX": signing.url("/simple", "127.0.0.1")})
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()
    done.ok()
    assert seen == set()


def test_the_signature_in_a_link_of_an_index_fetches_and_is_kept_nowhere(machine: Machine, signing: Web) -> None:
    """uv's cache, which is the user's own, has it."""
    env = {"UV_DEFAULT_INDEX": signing.url("/simple", "127.0.0.1")}
    machine.sifmod("add", NAME, "demo", env=env).ok()
    assert machine.python("import demo, helper; print(helper.__version__)").ok().stdout == "2.5\n"
    there = machine.live().resolve()
    text = (there / "pylock.toml").read_text()
    assert f'url = "{signing.url("/files/demo-1.0-py3-none-any.whl", "127.0.0.1")}"' in text
    assert holding(machine.prefix) == []
    machine.sifmod("add", NAME, "demo", env=env).ok()
    assert machine.live().resolve() == there  # the same lock again
    lock = write(machine.top / "pylock.toml", text)
    machine.sifmod("remove", NAME, "--all").ok()
    refused = machine.sifmod("sync", NAME, str(lock), env={**env, "UV_CACHE_DIR": str(machine.top / "empty")})
    assert refused.code == 18
    assert "403" in refused.stderr
    machine.sifmod("sync", NAME, str(lock), "--no-index", "--find-links", str(machine.wheels)).ok()


@pytest.mark.parametrize("form", [LOGIN, "s3cret%2Dof%2Dindex", ENCODED])
def test_a_login_in_the_path_of_a_link_is_refused(machine: Machine, index: Web, form: str) -> None:
    """An index that repeats the login it got; the lock of a layer would show it to all. uv's own cache has it."""
    env = {**ways(machine, index)["UV_INDEX_URL"], "HOME": str(machine.top / "nobody")}
    (file,) = machine.wheels.glob("demo-1.0-*")
    index.answers[f"/files/{form}/{file.name}"] = answer(200, file.read_bytes())
    link = f'<a href="/files/{form}/{file.name}">{file.name}</a>'
    index.answers["/simple/demo/"] = answer(200, link.encode(), {"Content-Type": "text/html"})
    there = machine.listing()
    done = machine.sifmod("add", NAME, "demo", env=env)
    assert done.code == 2
    assert "a link of an index contains your login for it" in done.stderr
    assert form not in done.stderr
    assert machine.listing() == there
    assert holding(machine.prefix) == []


def test_nobody_else_reads_the_signature_while_a_layer_is_made(machine: Machine, tmp_path: Path) -> None:
    """As after a kill: the server looks when the file is fetched, which is after the lock was made."""
    path = wheel(tmp_path, "alone")
    content, modes = path.read_bytes(), dict[str, int]()
    server = Web()

    def looks(handler: Handler) -> None:
        modes.update({one: Path(one).stat().st_mode & 0o077 for one in holding(machine.prefix)})
        answer(200, content)(handler)

    link = (
        f'"/files/{path.name}?{SIGNED.replace("&", "&amp;")}#sha256={sha256_bytes(content)}" data-core-metadata="true"'
    )
    server.answers["/simple/alone/"] = answer(
        200, f"<a href={link}>{path.name}</a>".encode(), {"Content-Type": "text/html"}
    )
    server.answers[f"/files/{path.name}.metadata"] = answer(200, b"Metadata-Version: 2.1\nName: alone\nVersion: 1.0\n")
    server.answers[f"/files/{path.name}"] = looks
    server.start()
    try:
        machine.sifmod("add", NAME, "alone", env={"UV_DEFAULT_INDEX": server.url("/simple", "127.0.0.1")}).ok()
    finally:
        server.stop()
    assert modes
    assert set(modes.values()) == {0}, modes


def test_the_signature_in_a_link_of_an_index_is_in_no_built_image(machine: Machine, signing: Web) -> None:
    (base,) = machine.prefix.glob("images/sha256/*.sif")
    image = f"image: {{build: {{from: '{base}', pip: [demo]}}}}\npath: [/opt/miniconda3/envs/pytorch/bin]\n"
    recipe = write(machine.top / "Own-1.yaml", f"name: Own\nversion: '1'\n{image}wrappers: [python]\n")
    env = {"UV_DEFAULT_INDEX": signing.url("/simple", "127.0.0.1"), "UV_CACHE_DIR": str(machine.top / "empty")}
    machine.sifmod("install", str(recipe), "--skip-sanity-check", env=env).ok()
    python = machine.prefix / "software/Own/1/bin/python"
    lock = run((python, "-c", "print(open('/.singularity.d/build/1/pylock.toml').read())"), env=machine.env()).ok()
    assert "/files/demo-1.0-py3-none-any.whl" in lock.stdout
    assert SECRET not in lock.stdout
    assert holding(machine.prefix) == []
    run((python, "-c", "import demo"), env=machine.env()).ok()


@pytest.mark.parametrize("url", [f"http://{LOGIN}@HOST/PATH", f"http://HOST/PATH?token={SECRET}"])
def test_a_dependency_with_a_login_is_refused(machine: Machine, index: Web, tmp_path: Path, url: str) -> None:
    """A layer would keep it in its lock, and in the metadata of the package that requires it."""
    path = next(machine.wheels.glob("helper-*.whl"))
    index.answers[f"/open/{path.name}"] = answer(200, path.read_bytes())
    where = url.replace("HOST/PATH", index.url(f"/open/{path.name}", "127.0.0.1").removeprefix("http://"))
    needs = wheel(tmp_path, "needs", requires=(f"helper @ {where}",))
    done = machine.sifmod("add", NAME, str(needs), "--no-index")
    assert holding(machine.prefix) == []
    assert (done.code, SECRET in done.stdout + done.stderr) == (2, False), done.stderr
    assert "the URL of a required package" in done.stderr
    assert "stored where other users can read it" in done.stderr


def test_variables_of_the_image_are_not_settings_of_uv(machine: Machine, index: Web) -> None:
    """Its proxy would get the user's login and could give other packages; its index would replace the user's."""
    (base,) = machine.prefix.glob("images/sha256/*.sif")
    others = Web()
    url = others.url("", "127.0.0.1")
    proxies = ("http_proxy", "HTTPS_PROXY", "ALL_PROXY", "UV_HTTP_PROXY", "UV_HTTPS_PROXY", "PIP_PROXY")
    indexes = ("UV_INDEX", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_INDEX_URL")
    files = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NETRC", "GIT_SSL_CAINFO", "UV_CONFIG_FILE")
    variables = {
        **dict.fromkeys(proxies, url),
        **dict.fromkeys(indexes, f"{url}/simple"),
        **dict.fromkeys(files, "/of-the-image"),
        "no_proxy": "of-the-image",
        "GIT_PYTHON_REFRESH": "quiet",
        "CONDA_PREFIX": "/opt/conda",
    }
    recipe = f"name: Own\nversion: '1'\nimage: {{build: {{from: '{base}', env: {json.dumps(variables)}}}}}\n"
    recipe += "path: [/opt/miniconda3/envs/pytorch/bin]\nwrappers: [python]\n"
    machine.sifmod("install", str(write(machine.top / "Own-1.yaml", recipe)), "--skip-sanity-check").ok()

    # a build sees what uv sees
    seen = machine.top / "home/seen"
    backend = "import os\nopen(os.environ['SEEN'], 'w').write(repr(dict(os.environ)))\n" + BACKEND
    project = write(machine.top / "home/project/backend.py", backend).parent
    write(
        project / "pyproject.toml",
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "edited"\nversion = "0.1"\n',
    )
    simple = index.url("/simple", "127.0.0.1")
    own = {
        "HOME": str(seen.parent),
        "SEEN": str(seen),
        "HTTPS_PROXY": "http://of-the-user.invalid:1",
        "GIT_ODD": "\xe9",
    }
    others.start()
    try:
        for layer, given in (
            ("plain", {"UV_INDEX_URL": simple.replace("//", f"//{LOGIN}@")}),
            (
                "named",
                {
                    "UV_DEFAULT_INDEX": f"here={simple}",
                    "UV_INDEX_HERE_USERNAME": "me",
                    "UV_INDEX_HERE_PASSWORD": SECRET,
                },
            ),
        ):
            words = ("add", "Own/1", "demo", str(project), "--layer", layer)
            done = machine.sifmod(*words, env={**own, **given})
            assert others.asked == []
            done.ok()
            found = ast.literal_eval(seen.read_text())
            assert {name: found.get(name) for name in ("GIT_ODD", "HTTPS_PROXY")} == {
                "GIT_ODD": "\xe9",
                "HTTPS_PROXY": "http://of-the-user.invalid:1",
            }
            assert {name: found[name] for name in given} == given
            assert [name for name in variables if variables[name] == found.get(name)] == [
                "GIT_PYTHON_REFRESH",
                "CONDA_PREFIX",
            ]
    finally:
        others.stop()
