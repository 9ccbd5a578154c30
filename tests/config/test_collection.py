"""The collection: LUMI's modules by their names, both vendors', and what every file and its neighbours must be."""

import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from sifmod.config.find import find_easyconfig, shipped
from sifmod.config.load_easyconfig import LoadedEasyconfig, all_variants
from sifmod.config.quirk import read_quirk
from support.collection import FILES, SITES, modules
from support.config import Configuration
from support.lumi import AS_VARIANT, SIFS

ROOT = Path(__file__).parents[2]
PROGRAMS = (
    *("colabfold", "cp2k", "gromacs", "jax", "lammps", "llama.cpp", "nemo", "nvhpc", "ollama", "openfoam2512"),
    *("openfold3", "physicsnemo", "primus", "quantumespresso", "r", "rapids", "scipy-notebook", "sglang", "tensorflow"),
    *("tensorrt-llm", "vllm"),
)
PRESETS = {"laif", "lumi-g1", "lumi-g2", "lumi-g3", "ngc", "plain", "pytorch", "rocm-docker", *PROGRAMS}
MINORS = tuple(f"2.{minor}" for minor in range(15))


def variants(tmp_path: Path, path: Path, site: str) -> tuple[LoadedEasyconfig, ...]:
    configuration = Configuration(tmp_path)
    return all_variants(path, configuration.site(site=site), configuration.environ)


@pytest.fixture(scope="module")
def by_name() -> dict[str, LoadedEasyconfig]:
    return {str(each.easyconfig.module): each for each in modules()}


def minor(module: str) -> str:
    return ".".join(module.partition("/")[2].partition("-")[0].split(".")[:2])


def test_lumis_modules_have_their_names_and_images(by_name: dict[str, LoadedEasyconfig]) -> None:
    assert len(SIFS) == 65
    of_lumi = {
        module: each.easyconfig.required_image.filename
        for module, each in by_name.items()
        if each.easyconfig.required_image.filename.startswith("lumi-")
        and not each.easyconfig.required_image.filename.startswith("lumi-multitorch-")
    }
    assert of_lumi == SIFS
    for module, sif in SIFS.items():
        easyconfig = by_name[module].easyconfig
        assert easyconfig.required_image.sources == (sif,)
        assert (easyconfig.accelerator, easyconfig.required_image.arch) == ("rocm", "amd64")
        assert "/appl/local/containers/easybuild-sif-images" in easyconfig.required_image.available


@pytest.mark.parametrize("module", sorted(SIFS))
def test_lumis_module_is_found_by_the_name_of_its_recipe(module: str) -> None:
    name = module.replace("/", "-", 1)
    wanted = "PyTorch-2.2.0" if module == AS_VARIANT else name
    assert find_easyconfig(wanted, (shipped(),)).stem == wanted


def test_no_two_files_make_one_module() -> None:
    made = Counter(str(each.easyconfig.module) for each in modules())
    assert [module for module, times in made.items() if times > 1] == []


def test_every_minor_version_of_pytorch_comes_from_both_vendors(by_name: dict[str, LoadedEasyconfig]) -> None:
    """Since 2.0: NVIDIA's images, AMD's, and PyTorch's own. For 2.2 LUMI's and AMD's are in two files."""
    sources = {
        module: each.easyconfig.required_image.sources[-1]
        for module, each in by_name.items()
        if "PyTorch/" in module and each.easyconfig.required_image.sources
    }
    for place in ("docker://nvcr.io/nvidia/pytorch:", "docker://rocm/pytorch:", "docker://pytorch/pytorch:"):
        assert {minor(module) for module, source in sources.items() if source.startswith(place)} == set(MINORS)
    in_one_file = {path.stem: set(yaml.safe_load(path.read_text()).get("variants", ())) for path in FILES}
    both = {stem for stem, names in in_one_file.items() if {"rocm", "cuda"} <= names}
    assert {minor(stem.replace("-", "/", 1)) for stem in both} == set(MINORS)


def test_every_file_is_short_and_plain() -> None:
    for path in FILES:
        text = path.read_text()
        assert text.startswith("# yaml-language-server: $schema=../easyconfig.schema.json\n"), path
        assert len(text.splitlines()) <= 30, path
        # block style; an empty list has no other spelling
        for event in yaml.parse(re.sub(r" \[\]$", "", text, flags=re.MULTILINE)):
            assert not (isinstance(event, yaml.CollectionStartEvent) and event.flow_style), path


def test_a_new_image_takes_at_most_twelve_lines() -> None:
    """NVIDIA's of PyTorch, which differ by their release only, and all that have a preset of their program's."""
    texts = {path: path.read_text() for path in FILES}
    extending = [path for path, text in texts.items() if "-ngc-" in path.stem and "extends:" in text]
    programs = "|".join(map(re.escape, PROGRAMS))
    own = [path for path, text in texts.items() if re.search(rf"^preset: ({programs})$", text, re.MULTILINE)]
    assert (len(extending), len(own)) == (14, 45)
    # one line more for a licence other than the program's
    lines = {path: [line for line in texts[path].splitlines() if not line.startswith("license:")] for path in texts}
    assert [path for path in (*extending, *own) if len(lines[path]) > 12] == []


def test_what_nvidia_builds_has_nvidias_licence() -> None:
    """Images of nvcr.io/hpc are other projects' programs, under their licences."""
    found = {
        str(each.easyconfig.module): each.easyconfig.license
        for each in modules()
        if "docker://nvcr.io/nvidia/" in " ".join(each.easyconfig.required_image.sources)
    }
    assert len(found) == 29
    assert {module: text for module, text in found.items() if not text.startswith("NVIDIA ")} == {}


def test_the_guide_shows_one_and_the_next_is_a_copy_with_new_numbers(tmp_path: Path) -> None:
    """The numbers of the next are made up."""
    _, _, section = (ROOT / "docs" / "guide.md").read_text().partition("### The next version")
    text = section.split("```yaml\n")[1].split("```")[0]
    newest = shipped() / "PyTorch" / "PyTorch-2.14.0-cuda-13.4-python-3.12-ngc-26.08.yaml"
    assert text == newest.read_text().partition("\n")[2]
    path = tmp_path / "PyTorch-2.99.0-cuda-13.4-python-3.12-ngc-99.08.yaml"
    path.write_text(text.replace("2.14.0", "2.99.0").replace("26.08", "99.08").replace("26-08", "99-08"))
    (made,) = variants(tmp_path, path, "generic-cuda")
    assert str(made.easyconfig.module) == "PyTorch/2.99.0-cuda-13.4-python-3.12-ngc-99.08"
    assert made.easyconfig.required_image.sources == ("docker://nvcr.io/nvidia/pytorch:99.08-py3",)
    assert made.easyconfig.accelerator == "cuda"
    assert "torchrun" in made.easyconfig.wrappers


def test_the_page_is_what_is_written_from_the_files() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "collection"))["page"]
    text = page(each.easyconfig for each in modules())
    assert (ROOT / "docs" / "collection.md").read_text() == text, "run scripts/collection"


def test_every_file_checks() -> None:
    names = [str(path) for path in FILES]
    command = (sys.executable, "-m", "sifmod", "check", "--site", "lumi-g", *names)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, f"== {len(FILES)} of {len(FILES)} files ok\n")
    assert {line.partition(": ok: ")[0] for line in result.stdout.splitlines()} == set(names)


def test_presets_are_those_of_the_collection(tmp_path: Path) -> None:
    assert {path.stem for path in (shipped() / "presets").glob("*.yaml")} == PRESETS
    used = {line.split()[1] for path in FILES for line in path.read_text().splitlines() if "preset:" in line}
    assert used == PRESETS - {"plain"}
    # plain is for an image that nothing is known of
    path = tmp_path / "Any-1.yaml"
    path.write_text("name: Any\nversion: '1'\npreset: plain\nimage:\n  sources: ['docker://x/y:1']\n")
    (made,) = variants(tmp_path, path, "generic")
    assert (made.easyconfig.wrappers, made.easyconfig.wrappers_auto) == (("start-shell",), True)
    assert (made.easyconfig.runscripts, made.easyconfig.accelerator) == ((), "none")


def test_sites_are_those_of_the_collection() -> None:
    assert {path.stem for path in (shipped() / "sites").glob("*.yaml")} == set(SITES)


@pytest.mark.parametrize("name", sorted(SITES))
def test_every_site_resolves(tmp_path: Path, name: str) -> None:
    accelerator, arch = SITES[name]
    site = Configuration(tmp_path).site(site=name).site
    assert (site.name, site.accelerator) == (name, accelerator)
    assert arch in ("auto", site.arch)
    assert all(bind.optional for bind in site.binds)
    # where there is a fabric a missing plugin fails loudly
    fabric = name not in ("generic", "generic-cuda", "generic-rocm", "lumi-c")
    assert ("NCCL_NET" in dict(site.runscript_env)) == fabric


def test_every_quirk_says_why_and_fits_something() -> None:
    needed = {each.name for found in modules() for each in found.quirks}
    for path in sorted((shipped() / "quirks").glob("*.yaml")):
        quirk, _ = read_quirk(path)
        assert quirk.file.reason.endswith(".")
        assert quirk.file.link.startswith("https://")
        assert quirk.name in needed
