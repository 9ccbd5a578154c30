"""The catalogue as data: what `catalogue.json` holds, and `sifmod stack catalogue --json` prints."""

from collections.abc import Iterable

from sifmod.actions.catalogue.entry import Entry

SCHEMA_VERSION = 1  # another number where a field means something else, or is gone


def document(title: str, entries: Iterable[Entry]) -> dict[str, object]:
    """The catalogue as what JSON can say; the schema is in cli/outputs/stack.py."""
    entries = tuple(entries)
    images = {one.image.sha256: one.packages for one in entries if one.image and one.packages}
    return {
        "schema_version": SCHEMA_VERSION,
        "title": title,
        "entries": [_module(entry) for entry in entries],
        "inventories": [
            {"sha256": sha256, "all_packages": [{"name": name, "version": version} for name, version in packages]}
            for sha256, packages in sorted(images.items())
        ],
    }


def _module(entry: Entry) -> dict[str, object]:
    about, image, ending, changes = entry.about, entry.image, entry.ending, entry.changes
    return {
        "module": str(entry.module),
        "version": entry.version,
        "status": entry.status,
        "default": entry.default,
        "until": ending.until or None if ending else None,
        "message": ending.message if ending else "",
        "successor": ending.successor or None if ending else None,
        "labels": dict(entry.labels),
        "accelerator": entry.accelerator,
        "arch": entry.arch,
        "site": entry.site or None,
        "description": about.description.strip(),
        "homepage": about.homepage or None,
        "docurls": list(about.docurls),
        "license": entry.license or None,
        "keywords": list(entry.keywords),
        "contents": dict(about.contents),
        "load": list(entry.load),
        "install": entry.install or None,
        "add": entry.add or None,
        "job_script": entry.job or None,
        "source": entry.source,
        "sha256": image.sha256 if image else None,
        "size": image.size if image else None,
        "installed_at": image.since or None if image else None,
        "last_test": entry.test._asdict() if entry.test else None,
        "changes": {
            "since": str(changes.since),
            "differences": [one._asdict() for one in changes.packages],
            "others": changes.others,
        }
        if changes
        else None,
    }
