"""CommandGroup: commands of one noun, and what a wrong call of them is answered."""

from __future__ import annotations

import click


class CommandGroup(click.Group):
    """A group that names the nearest command, and says where options stand."""

    group_class = type
    """Groups within it are of the same class."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; UsageError with the nearest name for none."""
        name = args[0]
        is_name = not ctx.resilient_parsing and not name.startswith("-")
        if is_name and self.get_command(ctx, name) is None:
            # not at the top: `--help` has no use for difflib
            from cometmq.client.admin.nearest_name import nearest

            ctx.fail(f"there is no command {name!r}{nearest(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options of the group itself, which has none but `--help`."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"{ctx.command_path} COMMAND {error.option_name}"
            said = f"{error.format_message()} Options of a command follow it: {where} ..."
            raise click.UsageError(said, ctx) from error
