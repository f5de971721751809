"""Publishes what a handler returns to whoever asked: a waiting client, or the topic of `reply-to`.

Java: none
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faststream._internal.endpoint.publisher.fake import FakePublisher

from cometmq.faststream.messages import REQUESTER, CometPublishCommand

if TYPE_CHECKING:
    from faststream.message import StreamMessage
    from faststream.response import PublishCommand

    from cometmq.faststream.producer import StreamProducer


class ReplyPublisher(FakePublisher):
    """Publishes one reply."""

    __slots__ = ("_message",)

    def __init__(self, producer: StreamProducer, message: StreamMessage[Any]) -> None:
        super().__init__(producer=producer)
        self._message = message

    def patch_command(self, cmd: PublishCommand) -> CometPublishCommand:
        """The command with its address."""
        found = CometPublishCommand.from_cmd(super().patch_command(cmd))
        found.destination = self._message.reply_to
        if self._message.reply_to.startswith(REQUESTER):
            found.request_of = self._message.raw_message
        return found
