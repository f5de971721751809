"""Headers of what administrators ask a broker: topics, groups, connections, statistics, resets."""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.wire.headers.base import Header, Long


@dataclass(slots=True, kw_only=True)
class CreateTopicRequestHeader(Header):
    """Create or change a topic (17). `attributes`: comma list of `+name=value` and `-name`."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = False


@dataclass(slots=True, kw_only=True)
class DeleteTopicRequestHeader(Header):
    """Delete a topic on this broker (215)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetTopicConfigRequestHeader(Header):
    """One topic's configuration (351)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetAllTopicConfigRequestHeader(Header):
    """All topics (21), in pages where the client asks for them; older clients send no field."""

    topic_seq: int | None = None
    data_version: str | None = None
    max_topic_num: int | None = None


@dataclass(slots=True, kw_only=True)
class GetAllTopicConfigResponseHeader(Header):
    """Answer to 21."""

    total_topic_num: int


@dataclass(slots=True, kw_only=True)
class GetAllSubscriptionGroupRequestHeader(Header):
    """All groups (201), in pages where the client asks for them."""

    group_seq: int | None = None
    data_version: str | None = None
    max_group_num: int | None = None


@dataclass(slots=True, kw_only=True)
class GetAllSubscriptionGroupResponseHeader(Header):
    """Answer to 201."""

    total_group_num: int


@dataclass(slots=True, kw_only=True)
class GetSubscriptionGroupConfigRequestHeader(Header):
    """One group's configuration (352)."""

    group: str


@dataclass(slots=True, kw_only=True)
class DeleteSubscriptionGroupRequestHeader(Header):
    """Delete a group on this broker (207)."""

    group_name: str
    clean_offset: bool = False


@dataclass(slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader(Header):
    """Offsets of a topic's queues (202)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader(Header):
    """A consumer group's connections (203)."""

    consumer_group: str


@dataclass(slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader(Header):
    """A producer group's connections (204)."""

    producer_group: str


@dataclass(slots=True, kw_only=True)
class GetConsumeStatsRequestHeader(Header):
    """How far a group has come (208), for one topic, for some (joined by `;`), or for all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@dataclass(slots=True, kw_only=True)
class ResetOffsetRequestHeader(Header):
    """Move a group's offsets (222; 220 to clients): to `timestamp`, -1 for the end."""

    topic: str
    group: str
    queue_id: int = -1
    offset: Long | None = None
    timestamp: Long
    is_force: bool = False


@dataclass(slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader(Header):
    """The groups that read a topic (300)."""

    topic: str


@dataclass(slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader(Header):
    """The topics a group reads (343)."""

    group: str


@dataclass(slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader(Header):
    """What a group has subscribed of a topic (345)."""

    group: str
    topic: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader(Header):
    """Times of the first, last and last consumed message of each queue (303)."""

    topic: str
    group: str


@dataclass(slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """Answer to 26; the settings are in the body."""

    version: str


@dataclass(slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    """A counter of the broker, by its kind and its key (315)."""

    stats_name: str
    stats_key: str


@dataclass(slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader(Header):
    """Every group's progress on this broker (317), of order topics only if so asked."""

    is_order: bool = False


@dataclass(slots=True, kw_only=True)
class QueryConsumeQueueRequestHeader(Header):
    """`count` entries of a consume queue from `index` on (321)."""

    topic: str
    queue_id: int = 0
    index: Long = 0
    count: int = 0
    consumer_group: str | None = None


@dataclass(slots=True, kw_only=True)
class QueryCorrectionOffsetHeader(Header):
    """The least offsets of all groups of a topic but some (308), beside those of one group."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


@dataclass(slots=True, kw_only=True)
class CloneGroupOffsetRequestHeader(Header):
    """Let one group be where another is (314), in one topic or in all."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


@dataclass(slots=True, kw_only=True)
class UpdateGroupForbiddenRequestHeader(Header):
    """May a group read a topic (353)? `readable` changes it first."""

    group: str
    topic: str
    readable: bool | None = None
