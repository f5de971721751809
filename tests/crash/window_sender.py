"""Sends windows of messages until its broker dies, and keeps what was acknowledged."""

from __future__ import annotations

from collections import defaultdict
from threading import Thread

from broker.commands import send_header
from cometmq.errors import RemotingError
from cometmq.net.blocking_channel import BlockingChannel
from cometmq.wire.codes import RequestCode, ResponseCode
from crash.pulled_messages import ANSWER_WITHIN_S

TOPIC, QUEUES, WINDOW = "CrashTest", 4, 16


class Sender(Thread):
    """Sends windows of messages until the connection breaks; keeps what was acknowledged."""

    def __init__(self, broker: str, name: int) -> None:
        super().__init__()
        self.broker, self.number = broker, name * 1_000_000
        self.acked: dict[int, dict[int, bytes]] = defaultdict(dict)

    def run(self) -> None:
        try:
            with BlockingChannel(self.broker, ANSWER_WITHIN_S) as channel:
                while True:
                    self._send_window(channel)
        except RemotingError:
            pass  # the broker is dead, as it should be

    def _send_window(self, channel: BlockingChannel) -> None:
        sent = []
        for _ in range(WINDOW):
            self.number += 1
            body = b"%d " % self.number + bytes(self.number % 700)
            header = send_header(
                TOPIC,
                default_topic_queue_nums=QUEUES,
                queue_id=self.number % QUEUES,
                properties={"UNIQ_KEY": str(self.number)},
            )
            sent.append((channel.post(RequestCode.SEND_MESSAGE_V2, header, body), body))
        for opaque, body in sent:
            answer = channel.wait(opaque)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            queue_id, offset = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
            self.acked[queue_id][offset] = body
