"""Requests about the name server's settings: change some (318), tell all (319).

Java: DefaultRequestProcessor (updateConfig, getConfig).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.config_requests import CHANGE_BYTES_MAX, ConfigRequests
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from cometmq.runtime.text_file import TextFile
    from cometmq.settings.live_settings import LiveSettings


class NamesrvConfigRequests(ConfigRequests):
    """Answers 318 and 319."""

    def __init__(self, live: LiveSettings, file: TextFile | None) -> None:
        super().__init__(live, file, "name server", _not_written)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(
                RequestCode.UPDATE_NAMESRV_CONFIG,
                self.change_settings,
                RequestEffect.MUTATING,
                body_bytes_max=CHANGE_BYTES_MAX,
            ),
            Endpoint(RequestCode.GET_NAMESRV_CONFIG, self.get_settings),
        )


def _not_written(file: TextFile, error: OSError) -> Reject:
    remark = f"{file.path} cannot be written: {error.strerror or error}"
    return Reject(ResponseCode.SYSTEM_ERROR, remark)
