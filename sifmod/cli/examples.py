"""Examples of each command, for its `--help` and man page: two at least."""

from itertools import dropwhile

# command, and what it is for; the verb is its second word, or two; each of them is typed in tests/cli/test_help.py
_OF_COMMANDS = (
    ("sifmod install PyTorch-2.2.0.yaml", "the variant for this machine"),
    ("sifmod install --dry-run PyTorch-2.2.0.yaml", "a preview"),
    ("sifmod fetch docker://docker.io/library/busybox:1.36", "into the store"),
    ("sifmod fetch -o my.sif oras://ghcr.io/owner/image:1.0", "into a file"),
    ("sifmod push PyTorch/2.2.0 oras://ghcr.io/owner/pytorch:2.2.0", "the SIF with signatures"),
    ("sifmod push my.sif docker://ghcr.io/owner/image:1.0", "an OCI image"),
    ("sifmod export PyTorch/2.2.0 --to sqsh -o pytorch.sqsh", "for enroot and pyxis"),
    ("sifmod export my.sif --to oci-archive", "for podman and skopeo"),
    ("sifmod new docker://docker.io/pytorch/pytorch:2.2.0-cuda12.1-cudnn8-runtime", ""),
    ("sifmod new -o - my.sif", "for your own image, to the screen"),
    ("sifmod new --from my.sif --pip lightning==2.5.0", "for an image built from it"),
    ("sifmod import PyTorch-2.7.1-rocm.eb", "one file of another tool"),
    ("sifmod import registry -o easyconfigs", "every file below a directory"),
    ("sifmod add PyTorch/2.2.0 transformers==4.57.1 lightning", "with dependencies"),
    ("sifmod add PyTorch/2.2.0 -r requirements.txt", "the packages in a file"),
    ("sifmod layer add PyTorch/2.2.0 lightning", "a package, with dependencies"),
    ("sifmod layer add PyTorch/2.2.0 -r requirements.txt", "the packages in a file"),
    ("sifmod layer remove PyTorch/2.2.0 lightning", "a package, and its unused dependencies"),
    ("sifmod layer remove PyTorch/2.2.0 --all", "the whole layer"),
    ("sifmod layer list", "all layers"),
    ("sifmod layer list PyTorch/2.2.0", "the layers of a module"),
    ("sifmod layer sync PyTorch/2.2.0 pylock.toml", "from the lock's index"),
    ("sifmod layer sync PyTorch/2.2.0 pylock.toml --layer tuned", "into the layer tuned"),
    ("sifmod jobscript PyTorch/2.2.0 --nodes 4", "a process for each GPU"),
    ("sifmod jobscript PyTorch/2.2.0 --style torchrun -o job.sh", "into a file"),
    ("sifmod jupyter PyTorch/2.2.0", "a kernel for Jupyter, Open OnDemand and VS Code"),
    ("sifmod jupyter PyTorch/2.2.0 --lab", "JupyterLab, on this node"),
    ("sifmod outdated", "all installed modules"),
    ("sifmod outdated PyTorch", "the modules with this name"),
    ("sifmod upgrade PyTorch/2.2.0", "install its newest version, beside this one"),
    ("sifmod upgrade --all -D", "what would be installed"),
    ("sifmod help", "all commands"),
    ("sifmod help install", "one command"),
    ("sifmod help change", "a topic: the commands that change and undo"),
    ("sifmod list", "all modules"),
    ("sifmod list pytorch", "modules whose names contain this text"),
    ("sifmod show PyTorch/2.2.0", "an installed module"),
    ("sifmod show --origins PyTorch-2.2.0.yaml", "the origin of each value"),
    ("sifmod search pytorch 2.4 rocm", "all of these words match"),
    ("sifmod search cuda 12.4 torch", "a version of a package in the image"),
    ("sifmod stack init stack.yaml", "with all installed modules"),
    ("sifmod stack init -", "to the screen"),
    ("sifmod stack plan stack.yaml", "for the configured prefix"),
    ("sifmod stack plan stack.yaml --prefix /appl/staging", "for another prefix"),
    ("sifmod stack apply stack.yaml --prefix /appl/staging", "into a staging tree"),
    ("sifmod stack apply stack.yaml --locked --from /appl/staging", "exactly the tested stack"),
    ("sifmod stack bundle stack.yaml -o stack.tar", "one file"),
    ("sifmod stack bundle stack.yaml -o stack.tar --without list.txt", "without listed images"),
    ("sifmod stack outdated stack.yaml", "which tags have moved, and newer easyconfigs"),
    ("sifmod stack outdated stack.yaml --json", "data for a program"),
    ("sifmod stack lock stack.yaml", "a lock of what is installed"),
    ("sifmod stack lock stack.yaml --prefix /appl/staging", "of what is in a staging tree"),
    ("sifmod stack lock stack.yaml --forget", "`gc` may remove its images"),
    ("sifmod lock PyTorch-2.2.0.yaml", "into PyTorch-2.2.0.lock"),
    ("sifmod lock PyTorch-2.2.0.yaml TensorFlow-2.16.yaml -o ai.lock", "one lock for both"),
    ("sifmod stack catalogue -o DIR", "the installed modules"),
    ("sifmod stack catalogue --all -o DIR", "and those that can be installed"),
    ("sifmod verify", "all modules"),
    ("sifmod verify --signature my.sif", "the signers of an image"),
    ("sifmod verify --modes", "access permissions, against the site's settings"),
    ("sifmod test PyTorch/2.2.0", "on this node"),
    ("sifmod test PyTorch/2.2.0 --nodes 2 --network --job", "on two nodes; shows the network"),
    ("sifmod sbom PyTorch/2.2.0 -o sbom.json", "the packages of a module"),
    ("sifmod sbom my.sif --format xml", "the packages of an image"),
    ("sifmod diff PyTorch/2.2.0", "since the generation before"),
    ("sifmod diff PyTorch/2.2.0 PyTorch/2.4.0", "between two modules"),
    ("sifmod uninstall PyTorch/2.2.0", "`rollback` brings it back"),
    ("sifmod uninstall --purge PyTorch/2.2.0", "and free its space at once"),
    ("sifmod rollback PyTorch/2.2.0", "to the generation before"),
    ("sifmod rollback PyTorch/2.2.0 --to 3", "to generation 3"),
    ("sifmod default PyTorch/2.2.0", "the module that `module load PyTorch` loads"),
    ("sifmod default --none PyTorch", "the module system decides"),
    ("sifmod hide PyTorch/2.2.0", "it loads by its full name only"),
    ("sifmod hide --undo PyTorch/2.2.0", "list it again"),
    ("sifmod deprecate PyTorch/2.2.0 --until 2099-03-31", "a load prints a notice"),
    ("sifmod deprecate --undo PyTorch/2.2.0", "remove the notice"),
    ("sifmod retire PyTorch/2.2.0 --successor PyTorch/2.13.0", "from today on"),
    ("sifmod retire --undo PyTorch/2.2.0", "it loads again"),
    ("sifmod log", "every change"),
    ("sifmod log PyTorch", "changes of the modules with this name"),
    ("sifmod gc", "preview, with reasons to keep the rest"),
    ("sifmod gc --yes", "remove what the preview listed"),
    ("sifmod check PyTorch-2.2.0.yaml", "an easyconfig"),
    ("sifmod check ~/.config/sifmod/config.yaml", "a file of settings"),
    ("sifmod schema > easyconfig.schema.json", "for an editor"),
    ("sifmod schema --output list", "the output of `list --json`"),
    ("sifmod schema --hooks", "the input of a hook"),
    ("sifmod config show", "every setting"),
    ("sifmod config show --site lumi-g", "as on another machine"),
    ("sifmod site detect", "the name of this machine's site"),
    ("sifmod site detect --json", "and how it was recognised"),
    ("sifmod site show", "the settings for this machine"),
    ("sifmod site show lumi-g", "the settings of another site"),
    ("sifmod site new hilltop", "into ~/.config/sifmod/sites"),
    ("sifmod site new hilltop -o -", "to the screen"),
    ("sifmod doctor", "this machine"),
    ("sifmod doctor --runtime singularity", "with another runtime"),
    ("sifmod self module /appl/modulefiles", "for users who type `module use /appl/modulefiles`"),
    ("sifmod self module - --syntax lua", "to the screen"),
    ('eval "$(sifmod init bash)"', "in this shell"),
    ("sifmod init bash >> ~/.bashrc", "in every new shell"),
)
_OF_GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("sifmod doctor", "what this machine has and what it lacks"),
        ("sifmod search pytorch", "which modules there are to install"),
        ("sifmod install NAME", "install one, and print the commands that load it"),
    ),
    "layer": (
        ("sifmod layer list", "all layers"),
        ("sifmod layer remove PyTorch/2.2.0 lightning", "a package, and its unused dependencies"),
    ),
    "self": (
        ("sifmod self module /appl/modulefiles", "Lua and Tcl"),
        ("sifmod self module - --syntax tcl", "to the screen"),
    ),
    "stack": (
        ("sifmod stack plan stack.yaml", "the changes, with reasons"),
        ("sifmod stack apply stack.yaml", "make the changes"),
    ),
    "config": (
        ("sifmod config show", "every setting"),
        ("sifmod config show --site lumi-g", "as on another machine"),
    ),
    "site": (
        ("sifmod site show", "the settings for this machine"),
        ("sifmod site new hilltop", "write it down as a first site file"),
    ),
}


def _examples() -> dict[str, tuple[tuple[str, str], ...]]:
    """The examples of each command, as it is typed: `install`, `site show`; sifmod's own under the empty text."""
    found = dict(_OF_GROUPS)
    for command, text in _OF_COMMANDS:
        words = dropwhile(lambda word: not word.endswith("sifmod"), command.split())
        _, verb, inner, *_ = (*words, "")
        name = f"{verb} {inner}" if verb in _OF_GROUPS else verb
        found[name] = (*found.get(name, ()), (command, text))
    return found


EXAMPLES = _examples()
