"""Messages of few keys, one letter each: sending them, and what a handler by key saw of them."""

import threading
from collections import defaultdict

from cometmq import Admin, Message, Producer, RetryLater


class Seen:
    """What a handler was called with."""

    def __init__(self):
        self.bodies, self.by_key = [], defaultdict(list)
        self._lock = threading.Lock()

    def note(self, messages):
        with self._lock:
            for message in messages:
                self.bodies.append(message.body.decode())
                self.by_key[message.sharding_key].append(message.body.decode())

    def note_but(self, body):
        """A handler that notes, but for one message that is to come later."""

        def handle(messages):
            if messages[0].body == body:
                raise RetryLater
            self.note(messages)

        return handle


def send(cluster, topic, *bodies):
    """Send texts of the form "key" + number in one queue's order; "-" is no key."""
    with Producer("senders", namesrv=cluster.namesrv) as producer:
        for body in bodies:
            key = None if body[0] == "-" else body[0]
            producer.send(Message(topic, body.encode(), sharding_key=key))


def committed(cluster, group, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        return sum(offset or 0 for offset in admin.group_offsets(group, topic).values())
