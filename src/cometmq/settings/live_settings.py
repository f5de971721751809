"""The settings in force of a running role, and who works with them.

Owns the one reference of each kind that is swapped, and the subscriptions. Refuses to know files,
requests, and what a setting does. Invariant: subscribers of a kind hear of each change of it, in
the order in which they subscribed, and nothing else changes.
Java: Configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from cometmq.settings.update import table_of, update

if TYPE_CHECKING:
    from collections.abc import Callable

    from cometmq.settings.update import SettingsUpdate

S = TypeVar("S")


class LiveSettings:
    """One object of settings of each kind. Belongs to the loop of its role."""

    def __init__(self, *settings: object) -> None:
        self._current: dict[type, Any] = {type(each): each for each in settings}
        assert len(self._current) == len(settings), "two objects of one kind of settings"
        self._subscribers: dict[type, list[Callable[[Any], None]]] = {
            kind: [] for kind in self._current
        }

    def of(self, kind: type[S]) -> S:
        """Return the settings of this kind that are in force."""
        return cast("S", self._current[kind])

    def subscribe(self, kind: type[S], *callbacks: Callable[[S], None]) -> None:
        """Have these called with the new settings of this kind whenever one of them changes."""
        self._subscribers[kind] += callbacks

    def note_chosen(self, settings: object) -> None:
        """Show what the system chose at the start, a port, say; nobody is called."""
        assert type(settings) in self._current
        self._current[type(settings)] = settings

    def text(self) -> str:
        """Return all settings as a properties file has them, sorted by key."""
        found = table_of(tuple(self._current.values()))
        return "".join(f"{key}={value}\n" for key, value in found.items())

    def prepare(self, text: str) -> SettingsUpdate:
        """Return what the lines `key=value` of a request would change; `apply` changes it.

        Raises SettingsError as `settings.update.update` does.
        """
        return update(tuple(self._current.values()), text)

    def apply(self, change: SettingsUpdate) -> None:
        """Put prepared settings in force and tell the subscribers of each kind that changed."""
        before = self._current
        self._current = {type(each): each for each in change.settings}
        assert self._current.keys() == before.keys(), "a change of other kinds of settings"
        for kind, settings in self._current.items():
            if settings != before[kind]:
                for callback in self._subscribers[kind]:
                    callback(settings)
