"""An EasyBuild easyconfig that installs a container: what each line of it becomes, and every note."""

from pathlib import Path

import pytest

from sifmod.imports.easybuild import read_easybuild
from sifmod.imports.result import CannotImportError, Imported, Value

HEAD = "name = 'Tool'\nversion = '1.2.3'\nsources = ['tool-1.sif']\n"
NO_SUM = "the SIF has no SHA256 that can be imported; `sifmod install` prints one to add"
NO_GPUS = "the file does not name just one accelerator: without `accelerator` the site's is used"
OPTIONAL = "binds: all are optional here, skipped if their source is missing"
GUESSED = "conda: guessed /opt/miniconda3 and {}, as in LUMI's images; the file only has WITH_CONDA"
ITS_OWN = "the image activates conda with its own WITH_CONDA: write `conda: {prefix: …, env: …}`"
USERS = "a command for user-software or a venv is not imported: run it after the installation"
PLAIN: dict[str, Value] = {
    "name": "Tool",
    "version": "1.2.3",
    "image": {"filename": "tool-1.sif", "sources": ("tool-1.sif",)},
}


def read(directory: Path, text: str, name: str = "Tool-1.2.3.eb") -> Imported:
    path = directory / name
    path.write_text(text)
    return read_easybuild(path)


def writes(place: str, body: str = "", end: str = "EOF") -> str:
    return f"postinstallcmds = ['''cat > %(installdir)s/{place} << {end}\n#!/bin/bash\n{body}\nEOF''']"


def image(name: str) -> dict[str, Value]:
    return {"image": {"filename": name, "sources": (name,)}}


PASSES = 'singularity exec $SIF $TOOL "$@"'
LUMI = "sources = ['lumi-tool.sif']\n"

# what stands behind HEAD: the keys that it adds or changes, and its notes beside those on checksum and GPUs
LINES: dict[str, tuple[dict[str, Value], tuple[str, ...]]] = {
    "": ({}, ()),
    "easyblock = 'MakeCp'\ntoolchain = SYSTEM\nskipsteps = [x]\nfiles_to_copy = []\nlocal_x = 1\nlocal_y = z": ({}, ()),
    "sanity_check_paths = {}\nmoduleclass = 'ai'": ({"moduleclass": "ai"}, ()),
    "easyblock = x": ({}, ()),
    "dependencies = []\n" + "d" * 80 + " = 1": (
        {},
        ("dependencies is not imported", "d" * 60 + " is not imported"),
    ),
    "other = x": ({}, ()),
    "homepage = x\nmodluafooter = y": (
        {},
        (
            "homepage could not be read: line 4: x is not defined in this file",
            "modluafooter could not be read: line 5: y is not defined in this file",
        ),
    ),
    # words for people, with EasyBuild's templates
    "description = ' %(name)s %(namelower)s %(nameletter)s %(version)s %(version_major)s %(version_minor)s '": (
        {"description": "Tool tool T 1.2.3 1 2"},
        (),
    ),
    "description = '%(version_major_minor)s%(versionsuffix)s 100%% %(other)s %s'\nversionsuffix = '-x%(name)s'": (
        {"description": "1.2-xTool 100% %(other)s %s", "versionsuffix": ""},
        ("versionsuffix: none from the file's name, because the file has -xTool",),
    ),
    "homepage = 3": ({}, ()),
    "whatis = ['a  b', 'c\\nd']\ndocurls = 'https://x.example/%(name)s'": (
        {"whatis": ("a b", "c d"), "docurls": ("https://x.example/Tool",)},
        (),
    ),
    "whatis = ['a', 1, ['b']]": ({"whatis": ("a",)}, ("whatis: only its texts are imported",)),
    "docurls = []": ({}, ()),
    "local_c_a_b_version = ' 1.0 '\nlocal_c_d_version = '-x'\nlocal_c_e_version = 2\nlocal_c_1_version = '1'": (
        {"contents": {"a-b": "1.0"}},
        (),
    ),
    "local_c_long_version = '1' + 'a' * 100": ({}, ()),
    # the image
    "source_urls = ['https://x.example/a/', 'https://y.example']": (
        {
            "image": {
                "filename": "tool-1.sif",
                "sources": ("tool-1.sif", "https://x.example/a/tool-1.sif", "https://y.example/tool-1.sif"),
            }
        },
        (),
    ),
    "sources = ['%(namelower)s.sif', {'filename': 'x.tar'}, 3, {}, {'filename': 4}]": (
        image("tool.sif"),
        ("sources: x.tar is not imported",),
    ),
    # variables
    "modextravars = {'A': 'b', 'C': 3, 'D': {'value': '%(name)s'}, 'E': 1.5}": (
        {"host_env": {"A": "b", "C": "3", "D": "Tool", "E": "1.5"}},
        (),
    ),
    "modextravars = {'A': ['b'], 1: 'c', 'D': {'other': 'e'}, '" + "F" * 80 + "': None}": (
        {},
        (
            "modextravars.A is not imported: its name or value is not a text",
            "modextravars.1 is not imported: its name or value is not a text",
            "modextravars.D is not imported: its name or value is not a text",
            f"modextravars.{'F' * 60} is not imported: its name or value is not a text",
        ),
    ),
    "modextravars = ['A']": ({}, ()),
    "modextravars = {'A': '%(installdir)s/x', 'SIF': '%(installdir)s/x.sif', 'SIFTOOL': '%(installdir)s/x.sif'}": (
        {},
        ("modextravars.A: a path in EasyBuild's directory is not imported",),
    ),
    "modextravars = {'CONTAINERROOT': '%(installdir)s', 'RUNSCRIPTSTOOL': '%(installdir)s/x'}": ({}, ()),
    "modextravars = {'XSIF': '%(installdir)s'}": (
        {},
        ("modextravars.XSIF: a path in EasyBuild's directory is not imported",),
    ),
    "modextravars = {'SINGULARITY_BIND': '/a,/%(installdir)s/x:/y,%(installdir)s/runscripts:/runscripts'}": (
        {"binds": ({"source": "/a", "optional": True},)},
        ("bind path /%(installdir)s/x:/y: in EasyBuild's directory, not imported", OPTIONAL),
    ),
    "modextravars = {'APPTAINER_BINDPATH': '%(installdir)s/x:/y', 'SINGULARITY_BINDPATH': '/a'}": (
        {"binds": ({"source": "/a", "optional": True},)},
        ("bind path /%(installdir)s/x:/y: in EasyBuild's directory, not imported", OPTIONAL),
    ),
    "modextravars = {'APPTAINER_BINDS': '%(installdir)s'}": (
        {},
        ("modextravars.APPTAINER_BINDS: a path in EasyBuild's directory is not imported",),
    ),
    # Lua behind it
    "modluafooter = 'conflict(\"a\", \"b\") conflict(\"a\") conflict(capture(\"x\"), \"c\")'": (
        {"conflict": ("a", "b", "c")},
        ("modluafooter: capture is not imported",),
    ),
    "modluafooter = 'create_container_vars(\"x.sif\", \"Tool\", \"%(installdir)s\", \"/a\")'": (
        {"user_software": True, "binds": ({"source": "/a", "optional": True},)},
        (OPTIONAL,),
    ),
    "modluafooter = 'create_container_vars(\"x.sif\", \"Tool\", \"%(installdir)s\")'": ({}, ()),
    "modluafooter = '''setenv('A', '%(name)s') pushenv('B', 2) prepend_path('SINGULARITYENV_PREPEND_PATH', '/a')'''": (
        {"host_env": {"A": "Tool", "B": "2"}, "path+": ("/a",)},
        (),
    ),
    "modluafooter = 'append_path(\"SINGULARITY_BIND\", \"/a\") setenv(\"C\")'": (
        {"host_env": {"C": ""}, "binds": ({"source": "/a", "optional": True},)},
        (OPTIONAL,),
    ),
    "modluafooter = 'while x do end'": ({}, ("modluafooter: line 1: a loop is not supported",)),
    "modluafooter = 'setenv(\"A\", capture(\"x\")) something()'": (
        {},
        (
            "modluafooter: capture is not imported",
            "modluafooter: setenv is not imported",
            "modluafooter: something is not imported",
        ),
    ),
    "modluafooter = 3": ({}, ("modluafooter: its value is not a text",)),
    # the scripts that it writes
    writes("bin/tool", PASSES): ({"wrappers": ("tool",)}, ()),
    writes("bin/tool", PASSES, "'EOF'"): ({"wrappers": ("tool",)}, ()),
    writes("bin/tool", "echo"): ({}, ("bin/tool: a separate script, not imported",)),
    writes("bin/start-shell"): ({"wrappers": ("start-shell",)}, ()),
    writes("bin/list-packages"): ({"wrappers": ("list-packages",)}, ()),
    writes("bin/make-squashfs"): ({"user_software": True}, ()),
    writes("bin/unmake-squashfs"): ({"user_software": True}, ()),
    writes("runscripts/get-master"): ({"runscripts": ("get-master",)}, ()),
    writes("runscripts/python-conda-simple"): (
        {"runscripts": ("conda-python-simple",)},
        ("runscript python-conda-simple: called conda-python-simple here",),
    ),
    writes("runscripts/other"): ({}, ("runscript other: sifmod has no such runscript",)),
    writes("share/x"): (
        {},
        ("postinstallcmds: 'cat > %(installdir)s/share/x << EOF #!/bin/bash EOF' is not imported",),
    ),
    writes("bin/tool", PASSES)[:-1] + ", 'ln -s tool %(installdir)s/bin/b', 'ln -s  ./b %(installdir)s/bin/c ']": (
        {"wrappers": ("tool", "b", "c")},
        (),
    ),
    writes("bin/tool", PASSES)[:-1] + ", 'ln -s tool %(installdir)s/bin/b'] * 2": ({"wrappers": ("tool", "b")}, ()),
    writes("runscripts/get-master") + " * 2": ({"runscripts": ("get-master",)}, ()),
    "postinstallcmds = ['ln -s x %(installdir)s/bin/b', 'ln -s x y', 'mkdir -p x', 'chmod a+x y', 'rm z', 'rmdir z']": (
        {},
        (
            "bin/b is not imported: a link to x, which is not a wrapper",
            "postinstallcmds: 'ln -s x y' is not imported",
            "postinstallcmds: 'rmdir z' is not imported",
        ),
    ),
    "postinstallcmds = ['python -m venv x', 'cp x user-software', 'y  " + "z" * 100 + "', 3]": (
        {},
        (
            "postinstallcmds: only its texts are imported",
            USERS,
            f"postinstallcmds: 'y {'z' * 78}' is not imported",
        ),
    ),
    writes("bin/x", "singularity build y"): ({}, ("bin/x: a separate script, not imported",)),
    # conda
    writes("bin/tool", f"$WITH_CONDA\n{PASSES}"): ({"wrappers": ("tool",)}, (ITS_OWN,)),
    LUMI + writes("bin/tool", f"$WITH_CONDA\n{PASSES}"): (
        image("lumi-tool.sif") | {"wrappers": ("tool",), "conda": {"prefix": "/opt/miniconda3", "env": "tool"}},
        (GUESSED.format("tool"),),
    ),
    LUMI + "local_conda_env = 'mine'\n" + writes("bin/tool", f"$WITH_CONDA\n{PASSES}"): (
        image("lumi-tool.sif") | {"wrappers": ("tool",), "conda": {"prefix": "/opt/miniconda3", "env": "mine"}},
        (GUESSED.format("mine"),),
    ),
    writes("bin/tool", f"$WITH_CONDA\n  source /opt/c/bin/activate mine \n{PASSES}"): (
        {"wrappers": ("tool",), "conda": {"prefix": "/opt/c", "env": "mine"}},
        (),
    ),
    writes("bin/tool", f"source /opt/c/bin/activate mine\n{PASSES}"): ({"wrappers": ("tool",)}, ()),
    writes("bin/tool", f"$WITH_CONDA\n{PASSES}") + "\nmodextravars = {'WITH_CONDA': '. /v/bin/activate'}": (
        {"wrappers": ("tool",), "activate": ". /v/bin/activate"},
        ("activate: WITH_CONDA, unchanged; if it activates conda or a venv, prefer `conda` or `venv`, which start no "
         "shell",),
    ),
    writes("bin/tool", f"$WITH_CONDA\n{PASSES}") + "\nmodextravars = {'WITH_CONDA': 'source /v/bin/activate e'}": (
        {"wrappers": ("tool",), "conda": {"prefix": "/v", "env": "e"}},
        (),
    ),
    writes("bin/tool", f"$WITH_CONDA\n{PASSES}")[:-1] + ", 'mkdir x']": ({"wrappers": ("tool",)}, (ITS_OWN,)),
    writes("bin/tool", PASSES)[:-1] + ", 'ln -s tool %(installdir)s/bin/b && x']": (
        {"wrappers": ("tool",)},
        ("postinstallcmds: 'ln -s tool %(installdir)s/bin/b && x' is not imported",),
    ),
    # what is checked
    writes("bin/tool", PASSES)
    + "\nsanity_check_commands = ['echo \"x\" ; tool  -v', 'bash -n tool', 'start-shell x', 'ls  -l']": (
        {"wrappers": ("tool",), "sanity_check": {"commands": ("tool  -v",)}},
        ("sanity_check_commands: 'ls -l' is not imported",),
    ),
    "sanity_check_commands = ['singularity exec $SIF ls', 'apptainer exec \"$SIFX\"  ls -l'] * 2": (
        {"sanity_check": {"commands": ("ls", "ls -l")}},
        (),
    ),
    "sanity_check_commands = ['apptainer exec $SIF list-packages', 'list-packages', '', 'apptainer exec $SIF a\\nb']": (
        {},
        ("sanity_check_commands: '' is not imported", "sanity_check_commands: 'a b' is not imported"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_what_a_line_adds(line: str, tmp_path: Path) -> None:
    keys, notes = LINES[line]
    made = read(tmp_path, HEAD + line)
    assert made.keys == PLAIN | keys
    assert sorted(note.replace("//", "/") for note in made.notes) == sorted((*notes, NO_SUM, NO_GPUS))


@pytest.mark.parametrize(
    ("line", "accelerator"),
    [
        ("versionsuffix = '-ROCm-6'", "rocm"),
        ("versionsuffix = '-cuda-12'", "cuda"),
        ("versionsuffix = '-rocm-cuda'", "rocm"),
        ("name = 'Rocm'", "rocm"),
        ("name = 'CUDA'", "cuda"),
        ("sources = ['tool-rocm.sif']", "rocm"),
        ("modextravars = {'SINGULARITY_NV': '1'}", "cuda"),
        ("modextravars = {'SINGULARITY_ROCM': '1'}", "rocm"),
        ("modextravars = {'SINGULARITY_ROCM': '1', 'SINGULARITY_NV': '1'}", None),
    ],
)
def test_whose_gpus(line: str, accelerator: str | None, tmp_path: Path) -> None:
    made = read(tmp_path, f"{HEAD}{line}\n", "x.eb")
    assert (made.keys.get("accelerator"), NO_GPUS in made.notes) == (accelerator, accelerator is None)


@pytest.mark.parametrize(
    ("sources", "sums", "sha256"),
    [
        (["x.sif"], ["a" * 64], "a" * 64),
        (["x.tar", "x.sif"], ["a" * 64, "b" * 64], "b" * 64),
        (["x.tar", "x.sif"], ["a" * 64], None),
        (["x.sif"], [None], None),
        (["x.sif"], ["A" * 64], None),
        (["x.sif"], ["a" * 65], None),
        (["x.sif"], "a" * 64, None),
    ],
)
def test_the_checksum_is_that_of_the_sif(sources: list[str], sums: object, sha256: str | None, tmp_path: Path) -> None:
    made = read(tmp_path, f"{HEAD}sources = {sources}\nchecksums = {sums!r}\n")
    found = made.keys["image"]
    assert isinstance(found, dict)
    assert (found.get("sha256"), NO_SUM in made.notes) == (sha256, sha256 is None)


@pytest.mark.parametrize(
    ("stem", "own", "suffix", "note"),
    [
        ("Tool-1.2.3", "", None, ""),
        ("Tool-1.2.3-a", "-a", "-a", ""),
        ("Tool-1.2.3-b", "-a", "-b", "versionsuffix: -b from the file's name, because the file has -a"),
        ("Tool-1.2.3-b", "", "-b", "versionsuffix: -b from the file's name, because the file has none"),
        ("Tool-1.2.3", "-a", "", "versionsuffix: none from the file's name, because the file has -a"),
        ("Tool-1.2.3 b", "-a", "-a", ""),
        ("Other-1.2.3-b", "-a", "-a", ""),
    ],
)
def test_the_files_name_says_the_versionsuffix(
    stem: str, own: str, suffix: str | None, note: str, tmp_path: Path
) -> None:
    made = read(tmp_path, f"{HEAD}versionsuffix = '{own}'\n", f"{stem}.eb")
    assert made.keys.get("versionsuffix", "") == (suffix or "")
    assert [said for said in made.notes if said.startswith("versionsuffix")] == ([note] if note else [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = '1'", "name: is missing, empty or not a text"),
        ("name = 3\nversion = '1'", "name: is missing, empty or not a text"),
        ("name = 'x'\nversion = y", "version: line 2: y is not defined in this file"),
        ("name = 'x'\nversion = '1'", "sources: expected one SIF, got 0"),
        ("name = 'x'\nversion = '1'\nsources = 'x.sif'", "sources: expected one SIF, got 0"),
        ("name = 'x'\nversion = '1'\nsources = ['a.sif', 'b.sif']", "sources: expected one SIF, got 2"),
        ("name = 'x'\nversion = '1'\nsources = [y]", "sources: line 3: y is not defined in this file"),
        (
            f"{HEAD}postinstallcmds = ['x; apptainer  build a.sif b.def', 'mkdir x']",
            "builds its own image, for which image.build would need b.def in a file beside the easyconfig",
        ),
    ],
)
def test_what_cannot_be_imported(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CannotImportError) as caught:
        read(tmp_path, text)
    assert caught.value.message == message


def test_an_image_that_is_built_upon_another_one(tmp_path: Path) -> None:
    """The form of LUMI's ccpe, whose files and definition are written by postinstallcmds."""
    made = read(
        tmp_path,
        f"""{HEAD}sources = [{{'filename': 'cpe-25.03.sif'}}]
local_def = r'''
Bootstrap: localimage
From: cpe-25.03.sif

%files
  %(installdir)s/config/init.sh /.singularity.d/env/99-z-init.sh
  /etc/slurm/slurm.conf /etc/slurm/slurm.conf

%post
  zypper --non-interactive install strace
  echo "\\$HOME" >/where

%runscript
  exec bash

%test
  strace --version
'''
postinstallcmds = [
    'mkdir -p %(installdir)s/config',
    'cat >%(installdir)s/config/init.sh <<EOF\\nexport VERSION=%(version)s\\nexport NOW=\\\\$PWD\\nEOF\\n',
    'cat >%(installdir)s/x.def <<EOF' + local_def + 'EOF\\n',
    'cd %(installdir)s && singularity build --force own.sif %(installdir)s/x.def',
    'chmod a+x %(installdir)s/config/init.sh',
]
""",
    )
    assert made.keys["image"] == {
        "build": {
            "from": "cpe-25.03.sif",
            "post": "to=/.singularity.d/env/99-z-init.sh\n"
            'if [ -d "$to" ]; then to=$to/init.sh; fi\n'
            'mkdir -p "$(dirname "$to")"\n'
            'cat >"$to" <<EOF\nexport VERSION=1.2.3\nexport NOW=\\$PWD\nEOF\n'
            'chmod a+rx "$to"\n'
            '  zypper --non-interactive install strace\n  echo "$HOME" >/where\n',
            "test": "strace --version\n",
        }
    }
    assert "%runscript of its definition is not imported" in made.notes
    assert any(note.startswith("%files /etc/slurm/slurm.conf: copy it beside the easyconfig") for note in made.notes)


def test_each_note_is_made_once(tmp_path: Path) -> None:
    made = read(tmp_path, f"{HEAD}postinstallcmds = ['-m venv x', 'user-software y']\n")
    assert made.notes == (USERS, NO_SUM, NO_GPUS)


def test_filled_texts_are_counted(tmp_path: Path) -> None:
    for line in ("description = '%(name)s' * 300000", "docurls = ['a' * 1000000] * 2"):
        with pytest.raises(CannotImportError, match="creates a text or a list that is too long"):
            read(tmp_path, HEAD + line)
