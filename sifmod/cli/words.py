"""Words to choose from, of an option or a question."""

import click

from sifmod.config.kinds import accelerator_of


class Words(click.Choice[str]):
    """One of these words. An accelerator may be typed as people call it."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word itself. Raises click.BadParameter for another."""
        word = value if value in self.choices else accelerator_of(value)
        return super().convert(word, param, ctx)
