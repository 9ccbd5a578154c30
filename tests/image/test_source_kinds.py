"""The table of source kinds: each has what it must have, and schema and pages speak of these kinds."""

import json
import re
from pathlib import Path

import pytest

from sifmod.cli.main import run
from sifmod.config.expand import resolve_sources
from sifmod.config.redact import LOCAL, REGISTRIES, shown
from sifmod.config.schema import easyconfig_schema
from sifmod.config.yaml.node import Mark, Node
from sifmod.image.artifact import FetchRequest, no_progress
from sifmod.image.inspect.description import describe_image
from sifmod.image.reference import SourceKind, nothing, says_nothing
from sifmod.image.sources.source_kinds import KINDS, local_files, parse, references
from support.fetching import Prefix, plan

DOCS = Path(__file__).parents[2] / "docs"
SCHEMES = {scheme for kind in KINDS for scheme in kind.schemes}
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def test_names_and_schemes_are_each_of_one_kind() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(SCHEMES) == sum(len(kind.schemes) for kind in KINDS)


@each_kind
def test_a_kind_parses_its_own_example(kind: SourceKind) -> None:
    reference = kind.reference(kind.example)
    assert (reference.kind, reference.source) == (kind, kind.example)
    assert reference.location
    assert reference.location in kind.example
    assert reference.name
    if kind.schemes:
        assert kind.example.partition(":")[0] in kind.schemes
        assert parse(kind.example) == reference
        assert bool(reference.tag) == (kind.location == "repository" or ":1.0" in kind.example)


@each_kind
def test_a_kind_is_described_or_says_why_not(kind: SourceKind) -> None:
    """Container images and registries are described before anything is fetched; nothing else is."""
    assert (kind.describe is describe_image) == (kind.open is not None)
    assert (kind.describe is says_nothing) == (kind.open is None and kind.location != "repository")


@pytest.mark.parametrize(
    ("source", "ready_made"),
    [
        ("x.sif", True),
        ("https://host/x.sif", True),
        ("oras://host/x:1", True),
        ("library://a/b/c:1", True),
        ("docker://host/x:1", False),
        ("oci:x", False),
        ("docker-archive:x.tar", False),
    ],
)
def test_which_sifs_were_made_elsewhere(source: str, ready_made: bool) -> None:
    assert parse(source).kind.ready_made is ready_made
    assert not references(plan(build=Path("/x.def")).required_image)[0].kind.ready_made


@each_kind
def test_the_parts_of_a_kind_fit_together(kind: SourceKind) -> None:
    known = kind.location in ("repository", "definition", "recipe")  # by a digest: the registry's, or of what goes in
    assert (kind.pinned is nothing) != known
    assert (kind.local_sif is nothing) != (kind.is_local and kind.ready_made)
    reference = kind.reference(kind.example)
    watched = kind.watched(reference, ("/images",))
    assert bool(watched) == (kind.location in ("path", "definition")), "a file here decides which image it is"
    assert all(path.startswith("/") for path in watched)


@each_kind
def test_a_local_kind_that_finds_nothing_announces_nothing(kind: SourceKind, tmp_path: Path) -> None:
    if not kind.is_local:
        return
    image = plan("/none/x", image_dirs=(tmp_path,)).required_image
    reference = parse(kind.example.replace("/images", str(tmp_path / "none")))
    with Prefix(tmp_path / "prefix").store() as store:
        assert kind.announced(FetchRequest(reference, image, plan().runtime, store, no_progress)) is None


def test_the_configuration_knows_how_each_kind_is_spelled() -> None:
    """It decides what a path is relative to, and where a password may be in a source."""
    assert {scheme for kind in KINDS if kind.is_local for scheme in kind.schemes} == set(LOCAL)
    named = {scheme for kind in KINDS if kind.location in ("repository", "library") for scheme in kind.schemes}
    assert named == set(REGISTRIES)


@each_kind
def test_a_source_is_relative_to_its_file(kind: SourceKind) -> None:
    """Where a path stands behind the scheme; anything else stays as it is written."""
    mark = Mark("/somewhere/x.yaml", 1, 1)
    relative = kind.example.replace("//", "").replace(":/", ":")
    is_path = kind.is_local and bool(kind.schemes)
    written = relative if is_path else kind.example
    ((settled,), _) = resolve_sources((Node(written, mark, mark),), {})
    expected = relative.replace(":", ":/somewhere/", 1) if is_path else kind.example
    assert settled.value == expected
    if kind.schemes:
        assert parse(expected).kind == kind


@each_kind
def test_an_example_is_shown_as_it_is(kind: SourceKind) -> None:
    assert shown(kind.example) == kind.example


@each_kind
def test_a_login_before_a_local_path_is_refused_and_not_repeated(
    kind: SourceKind, capfd: pytest.CaptureFixture[str]
) -> None:
    if not kind.is_local or not kind.schemes:
        return
    assert run(["fetch", f"{kind.schemes[0]}://me:planted@host/x"]) == 10
    shown = "".join(capfd.readouterr())
    assert kind.example in shown or "file:///absolute/path" in shown
    assert "planted" not in shown


def test_an_image_is_built_or_has_sources() -> None:
    assert [one.kind.name for one in references(plan(build=Path("/x.def")).required_image)] == ["build"]
    assert [
        one.kind.name for one in references(plan(*(kind.example for kind in KINDS if kind.schemes)).required_image)
    ] == [kind.name for kind in KINDS if kind.schemes]
    assert local_files(plan(build=Path("/x.def")).required_image) == ("/x.def",)


def test_the_schema_speaks_of_these_kinds() -> None:
    sources = json.dumps(easyconfig_schema()["$defs"]["Image"]["properties"]["sources"])
    said = set(re.findall(r"([a-z-]+):[,.]", sources))
    assert said
    assert said <= SCHEMES


def test_the_page_has_a_row_for_each_scheme() -> None:
    """But for http, which is for this machine alone."""
    table = (DOCS / "images.md").read_text().partition("## Sources")[2].partition("\n\n[")[0].partition("\nA ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    said = {scheme for row in rows for scheme in re.findall(r"`([a-z-]+):", row)}
    assert said == SCHEMES - {"http"}


def test_the_help_of_fetch_has_each_scheme(capfd: pytest.CaptureFixture[str]) -> None:
    """But for http, which is for this machine alone, and file, which a path is without it."""
    assert run(["fetch", "--help"]) == 0
    listed = capfd.readouterr().out.partition("as in an easyconfig:")[2].partition(".\n")[0]
    said = set(re.findall(r"([a-z-]+):", listed))
    assert said == SCHEMES - {"http", "file"}
