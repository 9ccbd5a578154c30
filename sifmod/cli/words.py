"""Words to choose from, of an option or a question."""

import click

from sifmod.config.kinds import accelerator_of


class Words(click.Choice[str]):
    """One of these words. The accelerator `none` may be typed as `cpu`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word, as in the choices. Raises click.BadParameter if it is none of them."""
        word = value if value in self.choices else accelerator_of(value)
        return super().convert(word, param, ctx)
