"""Convert an EasyBuild easyconfig that installs a container, such as LUMI's, to an easyconfig of sifmod."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from sifmod.imports.container import Found
from sifmod.imports.easybuild_commands import Scripts, read_build, sanity_commands, take_commands
from sifmod.imports.lua import read_lua
from sifmod.imports.lua_values import HOLE, text_of
from sifmod.imports.python import Constants, evaluate
from sifmod.imports.python_text import Python
from sifmod.imports.result import Budget, CannotImportError, Imported, Value, read_text

INSTALLDIR = "/%(installdir)s"  # as a path, to recognise what is inside it
_TEMPLATE = re.compile(r"%\(([a-z_]+)\)s|%%")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_OWN = re.compile("(SIF|RUNSCRIPTS)[A-Z0-9_]*|CONTAINERROOT|(SINGULARITY|APPTAINER)_BIND(PATH)?")
_CONTENTS = re.compile("local_c_([A-Za-z][A-Za-z0-9_]*)_version")
# keys without a note: those that are read, and how EasyBuild installs, which sifmod does in its own way
_HOW = (
    *("easyblock", "toolchain", "skipsteps", "files_to_copy", "sanity_check_paths", "name", "version", "versionsuffix"),
    *("sources", "source_urls", "checksums", "description", "homepage", "docurls", "whatis", "moduleclass"),
    *("modextravars", "modluafooter", "postinstallcmds", "sanity_check_commands"),
)


def read_easybuild(path: Path) -> Imported:
    """The easyconfig for the SIF among the sources; raises CannotImportError with the reason if there is none."""
    file = _File(evaluate(read_text(path)))
    commands = file.texts("postinstallcmds", raw=True)
    build, commands = read_build(commands, file.notes)
    scripts = take_commands(commands, file.notes)
    filename, image = file.image()
    if build:
        own = {key: file.filled(value) if isinstance(value, str) else value for key, value in build.items()}
        if own["from"] == filename and "sha256" in image:
            file.notes.append(f"checksums: not imported, since {filename} is the base image here")
        image = {"build": own}
    found = Found(notes=file.notes)
    for name, value in file.map("modextravars").items():
        if INSTALLDIR in value and not _OWN.fullmatch(name):
            file.notes.append(f"modextravars.{name}: a path in EasyBuild's directory is not imported")
        else:
            found.set(name, value)
    conflicts = _footer(file, found)
    found.user_software = found.user_software or scripts.user_software
    inside = [bind for bind in found.binds if INSTALLDIR in bind]
    found.binds = [bind for bind in found.binds if bind not in inside]
    file.notes.extend(f"bind path {bind}: in EasyBuild's directory, not imported" for bind in inside)
    keys = file.described() | file.named_by(path.stem) | found.keys() | {"image": image}
    keys |= _accelerator(file, filename, found.gpus)
    keys |= _conda(file, scripts, keys, filename)
    keys |= {"wrappers": tuple(scripts.wrappers)} if scripts.wrappers else {}
    keys |= {"runscripts": tuple(scripts.runscripts)} if scripts.runscripts else {}
    keys |= {"conflict": conflicts} if conflicts else {}
    commands = sanity_commands(file.texts("sanity_check_commands"), scripts, file.notes)
    keys |= {"sanity_check": {"commands": commands}} if commands else {}
    file.rest()
    return Imported(keys, tuple(dict.fromkeys(file.notes)))


class _File:
    """The constants of a file, with EasyBuild's templates expanded, and the notes."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.notes: list[str] = []
        self._budget = Budget()
        self.templates: dict[str, str] = {"installdir": INSTALLDIR}
        name, version = self.needed("name"), self.needed("version")
        major, _, rest = version.partition(".")
        minor = rest.partition(".")[0]
        self.templates |= {"name": name, "namelower": name.lower(), "nameletter": name[:1], "version": version}
        self.templates |= {"version_major": major, "version_minor": minor, "version_major_minor": f"{major}.{minor}"}
        self.templates["versionsuffix"] = self.text("versionsuffix")

    def needed(self, key: str) -> str:
        if not (text := self.text(key)):
            raise CannotImportError(f"{key}: {self.constants.unknown.get(key, 'is missing, empty or not a text')}")
        return text

    def text(self, key: str) -> str:
        value = self.constants.values.get(key, "")
        return self.filled(value) if isinstance(value, str) else ""

    def filled(self, text: str) -> str:
        """`text` with known templates expanded; others stay."""
        self._budget.letters(len(text) + text.count("%(") * max(map(len, self.templates.values())))
        return _TEMPLATE.sub(lambda found: self.templates.get(found[1], found[0]) if found[1] else "%", text)

    def texts(self, key: str, *, raw: bool = False) -> tuple[str, ...]:
        value = self.constants.values.get(key, ())
        items: tuple[Python, ...] = value if isinstance(value, tuple) else (value,)
        self._budget.letters(sum(len(item) for item in items if isinstance(item, str)))
        found = tuple(item if raw else self.filled(item) for item in items if isinstance(item, str))
        if len(found) < len(items):
            self.notes.append(f"{key}: only its texts are imported")
        return found

    def map(self, key: str) -> Mapping[str, str]:
        value = self.constants.values.get(key, {})
        entries = value if isinstance(value, dict) else {}
        found: dict[str, str] = {}
        for name, item in entries.items():
            inner = item.get("value") if isinstance(item, dict) else item
            if isinstance(name, str) and isinstance(inner, str | int | float):
                found[name] = self.filled(str(inner).replace("%(installdir)s", INSTALLDIR).replace("//%(", "/%("))
            else:
                self.notes.append(f"{key}.{str(name)[:60]} is not imported: its name or value is not a text")
        return found

    def image(self) -> tuple[str, Mapping[str, Value]]:
        """The SIF's name and the key `image`. Raises CannotImportError unless exactly one source is a SIF."""
        value = self.constants.values.get("sources", ())
        names: list[str] = []
        for item in value if isinstance(value, tuple) else ():
            name = item.get("filename") if isinstance(item, dict) else item
            names.append(self.filled(name) if isinstance(name, str) else "")
        sifs = [name for name in names if name.endswith(".sif")]
        if len(sifs) != 1:
            reason = self.constants.unknown.get("sources", f"expected one SIF, got {len(sifs)}")
            raise CannotImportError(f"sources: {reason}")
        self.notes.extend(f"sources: {name} is not imported" for name in names if name and name not in sifs)
        urls = tuple(f"{url.rstrip('/')}/{sifs[0]}" for url in self.texts("source_urls"))
        image: dict[str, Value] = {"filename": sifs[0], "sources": (sifs[0], *urls)}
        checksums = self.constants.values.get("checksums", ())
        at = names.index(sifs[0])
        checksum = checksums[at] if isinstance(checksums, tuple) and len(checksums) > at else ""
        if isinstance(checksum, str) and re.fullmatch("[0-9a-f]{64}", checksum):
            image["sha256"] = checksum
        else:
            self.notes.append("the SIF has no SHA256 that can be imported; `sifmod install` prints one to add")
        return sifs[0], image

    def described(self) -> dict[str, Value]:
        keys: dict[str, Value] = {
            key: text.strip()
            for key in ("name", "version", "versionsuffix", "description", "homepage", "moduleclass")
            if (text := self.text(key))
        }
        for key in ("whatis", "docurls"):
            if texts := tuple(" ".join(text.split()) for text in self.texts(key)):
                keys[key] = texts
        contents: dict[str, Value] = {
            found[1].replace("_", "-"): value.strip()
            for name, value in self.constants.values.items()
            if (found := _CONTENTS.fullmatch(name))
            and isinstance(value, str)
            and _VERSION.fullmatch(value[:200].strip())
        }
        return keys | ({"contents": contents} if contents else {})

    def named_by(self, stem: str) -> dict[str, Value]:
        """The versionsuffix from the file's name if the file has another: two of LUMI's files define one module."""
        own, said = (
            self.text("versionsuffix"),
            stem.removeprefix(f"{self.templates['name']}-{self.templates['version']}"),
        )
        if said in (stem, own) or not re.fullmatch("[-A-Za-z0-9._+]*", said):
            return {}
        self.notes.append(f"versionsuffix: {said or 'none'} from the file's name, because the file has {own or 'none'}")
        return {"versionsuffix": said}

    def rest(self) -> None:
        for key in self.constants.values:
            if key not in _HOW and not key.startswith("local_"):
                self.notes.append(f"{key[:60]} is not imported")
        for key, reason in self.constants.unknown.items():
            if key in _HOW and key not in ("toolchain", "skipsteps", "easyblock"):
                self.notes.append(f"{key} could not be read: {reason}")


def _footer(file: _File, found: Found) -> tuple[str, ...]:
    """Add to `found` what the Lua of `modluafooter` sets; returns the conflicting modules."""
    value = file.constants.values.get("modluafooter", "")
    text = file.filled(value.replace("%(installdir)s", INSTALLDIR)) if isinstance(value, str) else ""
    if not isinstance(value, str):
        file.notes.append("modluafooter: its value is not a text")
    conflicts: list[str] = []
    read = read_lua(text, file.templates["name"], file.templates["version"])
    file.notes.extend(f"modluafooter: {what}" for what in read.skipped)
    for call in read.calls:
        texts = tuple(text_of(value) for value in call.arguments)
        if call.function == "conflict":
            conflicts += [one for one in call.texts if HOLE not in one]
        elif call.function == "create_container_vars":
            if len(texts) > 3:  # given binds, LUMI's function binds the user's additions too
                found.bind(texts[3])
                found.user_software = True
        elif call.function in ("setenv", "pushenv", "prepend_path", "append_path") and HOLE not in "".join(texts):
            found.set(texts[0], texts[1] if len(texts) > 1 else "")
        else:
            file.notes.append(f"modluafooter: {call.function[:60]} is not imported")
    return tuple(dict.fromkeys(conflicts))


def _accelerator(file: _File, filename: str, gpus: Collection[str]) -> dict[str, Value]:
    """The key `accelerator`, by the names of SIF and module, else by the runtime's flags; or {}, with a note."""
    said = f"{filename} {file.text('versionsuffix')} {file.text('name')}".lower()
    if "rocm" in said:
        return {"accelerator": "rocm"}
    if "cuda" in said:
        return {"accelerator": "cuda"}
    if len(gpus) == 1:
        return {"accelerator": next(iter(gpus))}
    file.notes.append("the file does not name just one accelerator: without `accelerator` the site's is used")
    return {}


def _conda(file: _File, scripts: Scripts, keys: Mapping[str, Value], filename: str) -> dict[str, Value]:
    """The key `conda`, unless variables gave it: from a script, or guessed for LUMI's images; else {}, with a note."""
    if "conda" in keys or "activate" in keys or not scripts.uses_conda:
        return {}
    if scripts.conda:
        return {"conda": dict(zip(("prefix", "env"), scripts.conda, strict=True))}
    if not filename.startswith("lumi-"):
        file.notes.append("the image activates conda with its own WITH_CONDA: write `conda: {prefix: …, env: …}`")
        return {}
    env = file.text("local_conda_env") or file.templates["namelower"]
    file.notes.append(f"conda: guessed /opt/miniconda3 and {env}, as in LUMI's images; the file only has WITH_CONDA")
    return {"conda": {"prefix": "/opt/miniconda3", "env": env}}
