"""The values of variables in sources: a bundle has those of paths, hosts and repositories, and never a secret."""

import json
import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.load_site import load_site
from sifmod.config.name import ModuleName
from sifmod.tree.layout import Layout
from sifmod.tree.receipt import live
from support.config import write
from support.disk_state import disk_state
from support.images import Images

SKIP = "--skip-sanity-check"


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("PULL_TOKEN", "https://x/i.sif?at=${PULL_TOKEN}", "its name looks like a secret"),
        ("my_password", "/x/${my_password}/i.sif", "its name looks like a secret"),
        ("SIG", "https://x/i.sif?sig=${SIG}", "its name looks like a secret"),
        ("WHO", "https://${WHO}@x.org/i.sif", "it is used in the login or query of a URL"),
        ("SUM", "https://x.org/i.sif?sig=${SUM:-a}", "it is used in the login or query of a URL"),
        ("PLACE", "${PLACE}/i.sif", "its value is not a path, host or repository"),
        ("HOST", "https://${HOST}/i.sif", "its value is not a path, host or repository"),
        ("KNOWN", "/x/${KNOWN}/i.sif", "its value looks like a secret"),
        ("HEADER", "/x/${HEADER}/i.sif", "its value looks like a secret"),
        ("COMMAND", "/x/${COMMAND}/i.sif", "its value looks like a secret"),
    ],
)
def test_a_value_that_may_be_a_secret_is_refused(
    name: str,
    source: str,
    why: str,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    sources = json.dumps([str(images.tiny_sif), source])
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\nimage: {{sources: {sources}, filename: tiny.sif}}\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    values = {"PLACE": "https://me:hunter2@x.org", "HOST": "me:hunter2@x.org", "KNOWN": f"ghp_hunter2{'a' * 30}"}
    values |= {"HEADER": "Authorization: Bearer hunter2", "COMMAND": "mysql -u me -phunter2"}
    monkeypatch.setenv(name, values.get(name, "hunter2"))
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "it.tar"]) == 18
    said = capfd.readouterr().err
    assert f"Good-1.yaml uses the variable {name}, which a bundle cannot include: {why}" in said
    assert "hunter2" not in said
    assert not [path for path in tmp_path.iterdir() if ".tar" in path.name]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("get --password=${WORD}", 18),
        ("get --api-key '${WORD}'", 18),
        ("Authorization: Bearer ${WORD}", 18),
        ("token=${WORD:-none};", 18),
        ("get --pass ${PLACE}", 0),
        ("pass it on to ${WORD}", 0),
    ],
)
def test_a_variable_that_is_used_as_a_password_is_refused(
    words: str,
    code: int,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A path is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    monkeypatch.setenv("WORD", "hunter2")
    monkeypatch.setenv("PLACE", "/etc/passwords")
    _here(tmp_path, str(images.tiny_sif))
    with (tmp_path / "Good-1.yaml").open("a") as text:
        text.write(f"env: {{A: {json.dumps(words)}}}\n")
    said = _bundle("it.tar", code, capfd)
    assert code == 0 or "uses the variable WORD, which a bundle cannot include: it is used as a password" in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("Good-1.yaml", "sanity_check: {commands: ['curl https://me:hunter2@x.org']}"),
        ("Good-1.yaml", "# once at https://x.org/i.sif?sig=hunter2"),
        ("Good-1.yaml", f"wrappers: [{{sh: 'sh --with ghp_hunter2{'a' * 30}'}}]"),
        ("Good-1.yaml", "sanity_check: {commands: ['mysql -u me -phunter2 db']}"),
        ("stack.yaml", "# once at https://me:hunter2@x.org"),
    ],
)
def test_a_login_that_a_file_spells_out_is_refused(
    file: str,
    line: str,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    _here(tmp_path, str(images.tiny_sif))
    with (tmp_path / file).open("a") as text:
        text.write(f"{line}\n")
    said = _bundle("it.tar", 18, capfd)
    number = len((tmp_path / file).read_text().splitlines())
    assert f"{file}:{number} has a login or token, which a bundle must not contain" in said
    assert "hunter2" not in said
    assert not [path for path in tmp_path.iterdir() if ".tar" in path.name]


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "SIFMOD_PREFIX", "PYTHONPATH", "HOME", "A_TOKEN"])
def test_a_bundle_sets_no_variable_that_programs_know(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = {"format": 1, "stack": "ours", "sifmod": {"version": "1", "sha256": "0"}, "settings": {}}
    write(tmp_path / "bundle.json", json.dumps({**head, "variables": {name: "/x"}}))
    assert run(["stack", "apply", "--bundle", str(tmp_path), "--prefix", str(tmp_path / "p")]) == 2
    assert f"it sets the variable {name}" in capfd.readouterr().err
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    "what",
    [
        "HF_TOKEN: hunter2",
        "https_proxy: 'http://me:hunter2@proxy:3128'",
        "INDEX: 'https://x.org/simple?token=hunter2'",
        "OPTS: '-v --api-key=hunter2'",
        "OPTS: '--password hunter2 -v'",
        "OPTS: 'Authorization: Bearer hunter2'",
        "OPTS: 'Basic bWU6aHVudGVyMg=='",
        "OPTS: 'mysql -u me -phunter2 db'",
        "OPTS: 'sshpass -p hunter2 ssh x'",
        "OPTS: 'curl -u me:hunter2 https://x.org'",
    ],
)
@pytest.mark.parametrize("key", ["env", "host_env", "runscript_env"])
def test_a_secret_in_settings_is_refused(
    key: str,
    what: str,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "conf"))
    write(tmp_path / "conf/sifmod/config.yaml", f"{key}: {{PLAIN: x, {what}}}\n")
    _here(tmp_path, str(images.tiny_sif))
    said = _bundle("it.tar", 18, capfd)
    assert f"{key} of the site or the settings sets {what.partition(':')[0]}, which a bundle must not contain" in said
    assert "hunter2" not in said
    assert not [path for path in tmp_path.iterdir() if ".tar" in path.name]


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("Good-1.yaml", "host_env: {HF_TOKEN: hunter2}"),
        ("Good-1.yaml", "variants: {one: {host_env: {https_proxy: 'http://me:hunter2@proxy:3128'}}}"),
        ("robot/presets/ours.yaml", "default_env: {HF_TOKEN: hunter2}"),
    ],
)
def test_a_secret_in_an_easyconfig_or_preset_is_refused(
    file: str,
    what: str,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """`true`, a number or a path under such a name is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "robot"))
    plain = "env: {TOKENIZERS_PARALLELISM: 'false', NCCL_IB_PKEY: '0x7fff', SSL_KEY_FILE: /etc/key.pem,\n"
    plain += "  SAID: Basic Linear Algebra, RUN: 'mysql -p; docker run -u 1000:1000',\n"
    plain += "  BY: 'Authorization: Bearer $MINE'}\n"
    write(tmp_path / "robot/presets/ours.yaml", plain)
    _here(tmp_path, str(images.tiny_sif))
    with (tmp_path / "Good-1.yaml").open("a") as text:
        text.write("preset: ours\n")
    for added, code, bundle in (("", 0, "plain.tar"), (what, 18, "secret.tar")):
        with (tmp_path / file).open("a") as text:
            text.write(added)
        said = _bundle(bundle, code, capfd)
    assert re.search(f"{Path(file).name} sets (HF_TOKEN|https_proxy), which a bundle must not contain", said)
    assert "hunter2" not in said
    assert not (tmp_path / "secret.tar").exists()


def _bundle(output: str, code: int, capfd: pytest.CaptureFixture[str]) -> str:
    """What `stack bundle` of the installed and locked stack here prints as errors, when it ends with that code."""
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    capfd.readouterr()
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", output]) == code
    return capfd.readouterr().err


def _here(tmp_path: Path, source: str) -> None:
    """A stack of one module, of that source."""
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\nimage: {{sources: ['{source}'], filename: tiny.sif}}\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [Good-1.yaml]\n")


@pytest.mark.parametrize(
    "words",
    ["install --module-only --installed", "install --rebuild {0}/Good-1.yaml", "lock {0}/Good-1.yaml -o it.lock"],
)
def test_what_lacks_the_bundles_settings_and_variables_names_the_bundle(
    words: str, tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`there is no site 'child'` and `IMAGES is empty or not set` did not say where these came from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "one"))
    _here(tmp_path, f"${{IMAGES}}/{images.tiny_sif.name}")
    site = write(tmp_path / "settings/sites/child.yaml", "name: child\ndescription: a site\naccelerator: none\n")
    with monkeypatch.context() as patch:
        for name, value in (("IMAGES", images.tiny_sif.parent), ("CONFIG_DIR", site.parents[1]), ("SITE", "child")):
            patch.setenv(name if name == "IMAGES" else f"SIFMOD_{name}", str(value))
        _bundle("it.tar", 0, capfd)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "two"))
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP]) == 0
    capfd.readouterr()
    place = tmp_path / "two/stacks/ours"
    assert run(words.format(place).split()) in (2, 5)
    again = f"{place}/Good-1.yaml is from a bundle: `sifmod stack apply --bundle FILE` installs it again"
    assert f"hint: {again}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("source", "here", "elsewhere"),
    [
        ("oci:${IMAGES}/some layout", "{place}", None),
        ("oci:${IMAGES}/some layout", "{place}", "/another"),
        ("oci:${LAYOUT}", "{place}/some layout", None),
        ("oci:${IMAGES:-/none}/some layout", "{place}", None),
        ("oci:${IMAGES:-PLACE}/some layout", None, "/another"),
    ],
)
def test_an_image_of_a_variable_is_applied_where_it_is_not_set(
    source: str,
    here: str | None,
    elsewhere: str | None,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As README's demo has it; or has another value, which one's own settings go on meaning."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "a place"
    shutil.copytree(images.tiny_layout(), place / "some layout")
    name = source[6:].partition("}")[0].partition(":")[0]
    _here(tmp_path, source.replace("PLACE", str(place)))
    if here:
        monkeypatch.setenv(name, here.format(place=place))
    for words in (("apply", SKIP), ("lock",), ("bundle", "--no-wheels", "-o", "it.tar")):
        assert run(["stack", *words[:1], "stack.yaml", *words[1:], "--prefix", "first"]) == 0
    place.rename(tmp_path / "gone")
    monkeypatch.delenv(name, raising=False)
    if elsewhere:
        monkeypatch.setenv(name, elsewhere)
        write(tmp_path / "home/.config/sifmod/config.yaml", f"prefix: '{tmp_path}/${{{name}}}/../second'\n")
    monkeypatch.setenv("SIFMOD_PREFIX", "" if elsewhere else str(tmp_path / "second"))
    apply = ("stack", "apply", "--bundle", "it.tar", SKIP)
    assert run([*apply]) == 0, capfd.readouterr().err
    first, second = (live(Layout(tmp_path / prefix), ModuleName("Good", "1")) for prefix in ("first", "second"))
    assert first
    assert second
    assert second.image_sha256 == first.image_sha256
    assert second.required_image.source == first.required_image.source
    assert run([*apply]) == 0
    assert "1 installed" in capfd.readouterr().err


def test_the_catalogue_loads_no_retired_module(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    """W8: "retired", and then how to load it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    image = f"image: {{sources: ['{images.tiny_sif}'], filename: tiny.sif}}"
    for name in ("Good", "Gone"):
        write(tmp_path / f"{name}-1.yaml", f"name: {name}\nversion: '1'\n{image}\n")
        assert run(["install", SKIP, f"{name}-1.yaml"]) == 0
    assert run(["retire", "Gone/1"]) == 0
    assert run(["stack", "catalogue", "-o", "pages"]) == 0
    texts = {path.name: path.read_text() for path in Path("pages").rglob("*") if path.is_file()}
    assert any("module load Good/1" in text for text in texts.values())
    assert [name for name, text in texts.items() if "module load Gone/1" in text] == []


def test_sites_of_sifmod_that_a_bundle_does_not_read_have_not_changed(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "a prefix"))
    write(tmp_path / "Good-1.yaml", f"name: Good\nversion: '1'\nimage: {{sources: ['{images.tiny_sif}']}}\n")
    write(tmp_path / "stack.yaml", "name: ours\neasyconfigs: [Good-1.yaml]\n")
    assert run(["stack", "apply", "stack.yaml", SKIP]) == 0
    assert run(["stack", "lock", "stack.yaml"]) == 0
    (locked,) = json.loads((tmp_path / "stack.lock").read_text())["modules"]
    shipped = [name for name in locked["inputs"] if name.startswith("sifmod:sites/")]
    assert shipped
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "it.tar"]) == 0
    capfd.readouterr()
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "other")]) == 0
    assert "changed since the lock was written" not in capfd.readouterr().err
    locked["inputs"][shipped[0]] = "0" * 64  # as of another sifmod
    (tmp_path / "stack.lock").write_text(json.dumps({"format": 1, "modules": [locked]}))
    assert run(["stack", "bundle", "stack.yaml", "--no-wheels", "-o", "older.tar"]) == 0
    capfd.readouterr()
    assert run(["stack", "apply", "--bundle", "older.tar", SKIP, "--prefix", str(tmp_path / "third")]) == 0
    assert f"changed since the lock was written: {shipped[0]}" in capfd.readouterr().err


def _image(images: Images) -> str:
    return f"image: {{sources: ['{images.tiny_sif}']}}\n"


def _bundled(here: Path, images: Images, files: Mapping[str, str], stack: str) -> int:
    """Apply, lock and bundle a stack with these files; `EC` in one is the text of an easyconfig."""
    easyconfig = f"name: Good\nversion: '1'\n{_image(images)}"
    for name, text in files.items():
        write(here / name, text.replace("EC", easyconfig))
    for words in (("apply", stack, SKIP), ("lock", stack)):
        assert run(["stack", *words, "--prefix", str(here / "tree")]) == 0
    return run(["stack", "bundle", stack, "--no-wheels", "-o", "it.tar", "--prefix", str(here / "tree")])


@pytest.mark.parametrize(
    ("files", "stack", "name"),
    [
        ({"a.yaml": "include: [stack.yaml]\n", "stack.yaml": "easyconfigs: [G.yaml]\n"}, "a.yaml", "stack.yaml"),
        *(
            ({"s.yaml": f"easyconfigs: ['{place}/*.yaml']\n", f"{place}/G.yaml": "EC"}, "s.yaml", f"{place}/G.yaml")
            for place in ("images", "settings", "wheels")
        ),
    ],
)
def test_no_bundle_is_made_of_a_stack_with_a_file_that_it_would_hide(
    tmp_path: Path,
    images: Images,
    files: Mapping[str, str],
    stack: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One was made, with exit code 0, and could not be applied."""
    monkeypatch.chdir(tmp_path)
    assert _bundled(tmp_path, images, {"G.yaml": "EC", **files}, stack) == 18
    assert f"{tmp_path / name} cannot be {name} in a bundle, which needs that name" in capfd.readouterr().err
    assert not Path("it.tar").exists()


@pytest.mark.parametrize("name", ["our stack", "é", "-x", "a:b", "x" * 101])
def test_no_bundle_is_made_of_a_stack_whose_name_apply_refuses(
    name: str, tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The name is that of its file, which may be any."""
    monkeypatch.chdir(tmp_path)
    assert (
        _bundled(tmp_path, images, {"G.yaml": "EC", f"{name}.yaml": "easyconfigs: [G.yaml]\n"}, f"./{name}.yaml") == 2
    )
    err = capfd.readouterr().err
    assert f"{name!r} cannot be the name of a bundle's stack" in err
    assert "`name:`" in err
    assert not Path("it.tar").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("easyconfigs: [G.yaml, More.yaml]\n", "does not name More/1"),
        ("easyconfigs: [More.yaml]\n", "the lock {} names Good/1, which the stack does not"),
        ("easyconfigs: [{easyconfig: G.yaml, site: site.yaml}]\n", "Good/1: does not match the lock"),
    ],
)
def test_no_bundle_is_made_of_a_stack_that_is_not_the_locked_one(
    more: str,
    said: str,
    tmp_path: Path,
    images: Images,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One was made, with exit code 0, and could not be applied."""
    monkeypatch.chdir(tmp_path)
    assert _bundled(tmp_path, images, {"G.yaml": "EC", "s.yaml": "easyconfigs: [G.yaml]\n"}, "s.yaml") == 0
    Path("it.tar").unlink()
    write(tmp_path / "s.yaml", more)
    write(tmp_path / "site.yaml", "name: other\nenv: {A: b}\n")
    write(tmp_path / "More.yaml", f"name: More\nversion: '1'\n{_image(images)}")
    capfd.readouterr()
    words = ["stack", "bundle", "s.yaml", "--no-wheels", "-o", "it.tar"]
    assert run([*words, "--prefix", str(tmp_path / "tree")]) == 18
    assert said.format(tmp_path / "s.lock") in capfd.readouterr().err
    assert not Path("it.tar").exists()


def test_a_later_bundle_leaves_nothing_of_the_earlier_one(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pattern found its old easyconfig, which the lock does not name; a file beside the stack hid a named one."""
    monkeypatch.chdir(tmp_path)
    prefix, other = tmp_path / "tree", str(tmp_path / "other")
    more = f"name: More\nversion: '1'\n{_image(images)}"
    files = {"s.yaml": "name: s\neasyconfigs: ['of/*.yaml']\n", "of/G.yaml": "EC", "of/More.yaml": more}
    assert _bundled(tmp_path, images, files, "s.yaml") == 0
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", other]) == 0
    Path("it.tar").rename("first.tar")
    Path("of/More.yaml").unlink()
    assert run(["uninstall", "More/1", "--prefix", str(prefix)]) == 0
    assert _bundled(tmp_path, images, {}, "s.yaml") == 0
    place = Path(other, "stacks/s")
    write(place / "layers/Good/1/notes", "of another")
    capfd.readouterr()
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", other]) == 0
    assert "More/1: the stack no longer names it" in capfd.readouterr().err
    found = {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}
    assert found == {
        "bundle.json",
        "of/G.yaml",
        "layers/Good/1/notes",
        "settings/decided.yaml",
        "stack.lock",
        "stack.yaml",
    }
    assert run(["stack", "apply", "--bundle", "first.tar", SKIP, "--prefix", other]) == 0
    assert (place / "of/More.yaml").is_file()


def test_a_bundle_brings_the_site_of_an_entry(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the site that it extends; this machine knows neither, and has its own prefix."""
    monkeypatch.chdir(tmp_path)
    sites = tmp_path / "home/.config/sifmod/sites"
    write(sites / "above.yaml", "env: {ABOVE: a}\n")
    write(sites / "ours.yaml", "extends: above\nenv: {OURS: o}\n")
    files = {"G.yaml": "EC", "s.yaml": "easyconfigs: [{easyconfig: G.yaml, site: ours}]\n"}
    assert _bundled(tmp_path, images, files, "s.yaml") == 0
    shutil.rmtree(sites)
    monkeypatch.setenv("SIFMOD_PREFIX", str(tmp_path / "other"))
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP]) == 0
    text = (tmp_path / "other/software/Good/1/modulefile.lua").read_text()
    assert "ABOVE" in text
    assert "OURS" in text
    capfd.readouterr()
    assert run(["config", "show", "--site", "ours"]) == 2
    assert "there is no site 'ours'" in capfd.readouterr().err


def test_a_bundle_spells_numbers_as_the_settings_do(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`0x10` gave a traceback, and `010` another value."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "home/.config/sifmod/config.yaml"
    write(config, "gpus_per_node: 8\nenv: {A: 0x10, B: 1e3, C: 010, D: 1.50, E: 2024-01-01, F: 7, G: 1_000}\n")
    assert _bundled(tmp_path, images, {"G.yaml": "EC", "s.yaml": "easyconfigs: [G.yaml]\n"}, "s.yaml") == 0
    config.unlink()
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "other")]) == 0


def test_a_bundle_of_a_path_with_a_colon(tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = {"my-robot:1/G.yaml": "EC", "s.yaml": "easyconfigs: ['my-robot:1/G.yaml']\n"}
    assert _bundled(tmp_path, images, files, "s.yaml") == 0
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "other")]) == 0


def test_a_bundle_of_paths_that_leave_a_directory_again_and_of_names(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Directories without a file of the stack are not in it; what it has of the easyconfig path has not changed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_ROBOT_PATHS", str(tmp_path / "path"))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    files = {
        "s.yaml": "name: ours\ninclude: [one/../two/i.yaml]\neasyconfigs: [one/../G.yaml, Named-1]\n",
        "two/i.yaml": "easyconfigs: [../one/../more/*.yaml]\n",
        "G.yaml": "EC",
        "more/M.yaml": f"name: More\nversion: '1'\n{_image(images)}",
        "path/Named-1.yaml": f"name: Named\nversion: '1'\n{_image(images)}",
    }
    assert _bundled(tmp_path, images, files, "s.yaml") == 0
    monkeypatch.delenv("SIFMOD_ROBOT_PATHS")
    capfd.readouterr()
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "other")]) == 0
    err = capfd.readouterr().err
    assert "3 modules: 3 new" in err
    assert "changed since the lock was written" not in err


def test_a_tree_whose_images_are_references_is_promoted_and_bundled(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It was called no tree with images, and its images not there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIFMOD_LINK", "reference")
    write(tmp_path / "s.yaml", "name: ours\neasyconfigs: [G.yaml]\n")
    assert _bundled(tmp_path, images, {"G.yaml": "EC"}, "s.yaml") == 0
    assert not Layout(tmp_path / "tree").images.exists()
    monkeypatch.delenv("SIFMOD_LINK")
    locked = ("stack", "apply", "s.yaml", SKIP, "--locked", "--from", "tree", "--prefix", str(tmp_path / "other"))
    assert run([*locked]) == 0, capfd.readouterr().err
    assert run(["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "third")]) == 0
    assert [Layout(tmp_path / prefix).images.is_dir() for prefix in ("other", "third")] == [True, True]
    assert run([*locked[:6], "nothing", *locked[7:]]) == 2
    assert "--from: nothing is not a tree of sifmod\n" in capfd.readouterr().err


@pytest.mark.parametrize("target", ["again", "again.tar"])
def test_an_image_that_a_member_has_made_a_link_is_not_read(
    tmp_path: Path, images: Images, target: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of its size, which the receipt beside it says: it was copied into the unfinished bundle, and then refused."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "s.yaml", "name: ours\neasyconfigs: [G.yaml]\n")
    assert _bundled(tmp_path, images, {"G.yaml": "EC"}, "s.yaml") == 0
    (image,) = Layout(tmp_path / "tree").images.glob("*.sif")
    (tmp_path / "secret").write_bytes(b"hunter2\n".ljust(image.stat().st_size))
    image.unlink()
    image.symlink_to(tmp_path / "secret")
    capfd.readouterr()
    words = ("stack", "bundle", "s.yaml", "--no-wheels", "-o", target, "--prefix", str(tmp_path / "tree"))
    assert run([*words]) == 18
    assert "cannot read a file of the bundle: Too many levels of symbolic links" in capfd.readouterr().err
    assert b"hunter2" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*again*") if path.is_file())
    assert b"hunter2" not in b"".join(path.read_bytes() for path in (tmp_path / "again").rglob("*.part"))


def test_a_site_file_of_a_bundle_runs_no_hook_and_chooses_no_place(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apply copies it into the tree of who applies it, so that its hooks counted as that user's own."""
    monkeypatch.chdir(tmp_path)
    stack = "name: s\neasyconfigs: [{easyconfig: G.yaml, site: ours.yaml}]\n"
    files = {"G.yaml": "EC", "ours.yaml": "name: ours\nenv: {A: b}\n", "s.yaml": stack}
    assert _bundled(tmp_path, images, files, "s.yaml") == 0
    with tarfile.open("it.tar") as bundle:
        bundle.extractall("whole")
    hook = write(tmp_path / "hook", f"#!/bin/sh\ntouch '{tmp_path}/ran'\n")
    hook.chmod(0o755)
    site = tmp_path / "whole/ours.yaml"
    site.write_text(f"{site.read_text()}hooks: {{before_install: [{hook}]}}\nprefix: {tmp_path}/planted\n")
    shutil.copytree("whole", "stacks/ours")  # in a directory that only looks like the place in a tree, it is any site
    assert str(load_site({"site": str(tmp_path / "stacks/ours/ours.yaml")}, os.environ).site.prefix).endswith(
        "/planted"
    )
    for words in (
        ["stack", "apply", "--bundle", "whole", SKIP],
        ["stack", "apply", "--bundle", "whole", "--local-settings", "--rebuild", SKIP],
        ["install", "--module-only", "--installed", "--yes"],
        ["install", "other/stacks/s/G.yaml", "--site", "other/stacks/s/ours.yaml", "--rebuild", SKIP],
    ):
        run([*words, "--prefix", str(tmp_path / "other")])
    assert live(Layout(tmp_path / "other"), ModuleName("Good", "1"))
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "planted").exists()


def test_a_bundle_takes_no_directory_of_the_user_for_its_own(
    tmp_path: Path, images: Images, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Notes in it were removed, and the stack was replaced, without a word."""
    monkeypatch.chdir(tmp_path)
    assert _bundled(tmp_path, images, {"G.yaml": "EC", "s.yaml": "name: s\neasyconfigs: [G.yaml]\n"}, "s.yaml") == 0
    place = tmp_path / "other/stacks/s"
    write(place / "NOTES", "of mine\n")
    before = disk_state(place)
    words = ["stack", "apply", "--bundle", "it.tar", SKIP, "--prefix", str(tmp_path / "other")]
    assert run(words) == 2
    assert f"{place}, the place of the bundle's stack, has files that no bundle brought" in capfd.readouterr().err
    assert disk_state(place) == before
    (place / "NOTES").unlink()
    assert run(words) == 0
