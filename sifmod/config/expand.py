"""Bind paths as this machine has them: patterns by their matches, and beside links the places they lead to."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sifmod.config.bind import BindSpec
from sifmod.config.bind_paths import is_pattern, matches, tops_of_links, within
from sifmod.config.input import Input, read_input
from sifmod.config.text import can_be_bound


@dataclass(frozen=True)
class Expanded:
    """Bind paths without patterns or links to follow, and what was looked at."""

    binds: tuple[BindSpec, ...]
    inputs: tuple[Input, ...]


def expand(binds: tuple[BindSpec, ...], environ: Mapping[str, str]) -> Expanded:
    """Look at this machine once, as it is now.

    What a pattern gives is optional, since another node may have other matches; a required pattern without any stays
    as it is, a missing source. With a target of its own the matches go into that. Where links lead is bound behind
    everything else, unless it is below a bind path anyway.
    """
    spelled: list[BindSpec] = []
    tops: list[str] = []
    inputs: list[Input] = []
    for bind in binds:
        found: tuple[BindSpec, ...] = (bind,)
        if is_pattern(bind.source):
            inputs.append(read_input(f"*{bind.source}", environ))
            found = _matching(bind)
        spelled += found
        for source in (each.source for each in found if bind.links):
            inputs.append(read_input(f"@{source}", environ))
            tops += tops_of_links(source)
    bound = tuple(bind.source for bind in spelled if bind.source == bind.target)
    wanted = sorted({top for top in tops if can_be_bound(top) and not within(top, bound)})
    linked = [BindSpec(source=top, target=top, optional=True) for top in wanted]
    return Expanded((*spelled, *linked), tuple(inputs))


def _matching(bind: BindSpec) -> tuple[BindSpec, ...]:
    found = [path for path in matches(bind.source) if can_be_bound(path)]
    if not found:
        return () if bind.optional else (bind,)
    directory = None if bind.target == bind.source else bind.target.rstrip("/")
    targets = (path if directory is None else f"{directory}/{Path(path).name}" for path in found)
    return tuple(
        bind.model_copy(update={"source": path, "target": target, "optional": True})
        for path, target in zip(found, targets, strict=True)
    )
