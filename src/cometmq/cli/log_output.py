"""Where the log of a role goes, and in which form: plain lines or JSON, to stderr or a file.

Owns the handler of the process; a file is renamed when it is full, and so many are kept. Refuses to
know what is logged: secrets are in no line because nobody logs settings. Java: logback.xml.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import TYPE_CHECKING

from cometmq.errors import SettingsError
from cometmq.settings.logs import JSON

if TYPE_CHECKING:
    from cometmq.settings.logs import LogSettings

_PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class JsonLineFormatter(logging.Formatter):
    """An object a line: `time` (UTC), `level`, `logger`, `message`; `error` has a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        fields = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _utc(epoch_s: float) -> str:
    text = datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def log_by(settings: LogSettings, verbosity: int) -> None:
    """Log warnings and errors; with 1 also what happens, with 2 everything, and by `logLevels`.

    Raises SettingsError where the file cannot be written.
    """
    handler = _handler(settings)
    is_json = settings.log_format == JSON
    handler.setFormatter(JsonLineFormatter() if is_json else logging.Formatter(_PLAIN))
    logging.basicConfig(level=_LEVELS[min(verbosity, 2)], handlers=[handler])
    for name, level in settings.levels.items():
        logging.getLogger(name).setLevel(level)


def _handler(settings: LogSettings) -> logging.Handler:
    if not settings.log_file:
        return logging.StreamHandler()
    try:
        return RotatingFileHandler(
            settings.log_file,
            maxBytes=settings.log_file_bytes_max,
            backupCount=settings.log_files_max,
            encoding="utf-8",
        )
    except OSError as error:
        raise SettingsError(
            f"logFile {settings.log_file} cannot be written: {error.strerror or error}"
        ) from error
