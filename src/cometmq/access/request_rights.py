"""What a request needs, by its code: the one table of resources and actions.

A code that is missing here is for super users alone; a test compares the table with all endpoints
of broker and name server. Where Apache RocketMQ asks for nothing (listing topics or settings, say)
this asks for a right on the cluster.
Java: DefaultAuthorizationContextBuilder, and the annotations of request headers.
"""

from __future__ import annotations

from typing import NamedTuple

from cometmq.model.access import Action
from cometmq.wire.codes import RequestCode as Code

_PUB, _SUB, _GET, _LIST = Action.PUB, Action.SUB, Action.GET, Action.LIST
_CREATE, _UPDATE, _DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

Actions = tuple[Action, ...]
"""One of these is enough."""


class RequestRight(NamedTuple):
    """What a request does to each topic and each group that it names, or to the cluster."""

    topics: Actions = ()
    groups: Actions = ()
    cluster: Actions = ()
    cluster_field: str = ""
    """Which field names the cluster that a name server is asked about; empty: all that it knows."""
    found: Actions = ()
    """On the topic of the message that the request is about, which only its handler finds."""
    may_name_nothing: bool = False
    """Whether a request without a topic and a group is admitted."""


_SEND = RequestRight(topics=(_PUB,))
_READ = RequestRight(topics=(_SUB,), groups=(_SUB,))
_LOOK_AT_TOPIC = RequestRight(topics=(_SUB, _GET))
_ASK_ABOUT_TOPIC = RequestRight(topics=(_GET,), groups=(_GET,))
_ASK_ABOUT_GROUP = RequestRight(topics=(_SUB, _GET), groups=(_SUB, _GET))
_ASK_CLUSTER = RequestRight(cluster=(_GET,))
_LIST_TOPICS = RequestRight(cluster=(_LIST, _GET))
_CHANGE_CLUSTER = RequestRight(cluster=(_UPDATE,))
_CHANGE_ITS_CLUSTER = _CHANGE_CLUSTER._replace(cluster_field="clusterName")
_ASK_ITS_CLUSTER = _ASK_CLUSTER._replace(cluster_field="clusterName")
_CHANGE_OFFSETS = RequestRight(topics=(_UPDATE,), groups=(_UPDATE,))
_MAKE_GROUP = RequestRight(groups=(_CREATE, _UPDATE))

RIGHTS: dict[int, RequestRight] = {
    # Messages
    Code.SEND_MESSAGE: _SEND,
    Code.SEND_MESSAGE_V2: _SEND,
    Code.SEND_BATCH_MESSAGE: _SEND,
    Code.RECALL_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE: _SEND,
    Code.SEND_REPLY_MESSAGE_V2: _SEND,
    Code.END_TRANSACTION: RequestRight(topics=(_PUB,), found=(_PUB,), may_name_nothing=True),
    Code.PULL_MESSAGE: _READ,
    Code.LITE_PULL_MESSAGE: _READ,
    Code.CONSUMER_SEND_MSG_BACK: RequestRight(groups=(_SUB,), found=(_SUB,)),
    Code.QUERY_MESSAGE: _LOOK_AT_TOPIC,
    Code.VIEW_MESSAGE_BY_ID: RequestRight(found=(_SUB, _GET), may_name_nothing=True),
    Code.RESUME_CHECK_HALF_MESSAGE: _CHANGE_CLUSTER,
    # Clients
    Code.HEART_BEAT: RequestRight(topics=(_SUB,), groups=(_SUB,), may_name_nothing=True),
    Code.UNREGISTER_CLIENT: RequestRight(groups=(_SUB,), may_name_nothing=True),
    Code.CHECK_CLIENT_CONFIG: _READ,
    Code.GET_CONSUMER_LIST_BY_GROUP: RequestRight(groups=(_SUB, _GET)),
    Code.LOCK_BATCH_MQ: _READ,
    Code.UNLOCK_BATCH_MQ: _READ,
    # Offsets
    Code.QUERY_CONSUMER_OFFSET: _ASK_ABOUT_GROUP,
    Code.UPDATE_CONSUMER_OFFSET: RequestRight(topics=(_SUB, _UPDATE), groups=(_SUB, _UPDATE)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _LOOK_AT_TOPIC,
    Code.GET_MAX_OFFSET: RequestRight(topics=(_PUB, _SUB, _GET)),  # producers probe brokers with it
    Code.GET_MIN_OFFSET: _LOOK_AT_TOPIC,
    Code.GET_EARLIEST_MSG_STORETIME: _LOOK_AT_TOPIC,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _CHANGE_OFFSETS,
    Code.CLONE_GROUP_OFFSET: _CHANGE_OFFSETS,
    Code.QUERY_CORRECTION_OFFSET: _ASK_ABOUT_TOPIC,
    Code.GET_ALL_CONSUMER_OFFSET: _ASK_CLUSTER,
    Code.GET_ALL_DELAY_OFFSET: _ASK_CLUSTER,
    Code.GET_TIMER_CHECK_POINT: _ASK_CLUSTER,
    Code.GET_TIMER_METRICS: _ASK_CLUSTER,
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: RequestRight(topics=(_CREATE,)),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: RequestRight(topics=(_CREATE,)),
    Code.DELETE_TOPIC_IN_BROKER: RequestRight(topics=(_DELETE,)),
    Code.CLEAN_UNUSED_TOPIC: _CHANGE_CLUSTER,
    Code.GET_ALL_TOPIC_CONFIG: _LIST_TOPICS,
    Code.GET_TOPIC_CONFIG: RequestRight(topics=(_GET,)),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _LIST_TOPICS,
    Code.GET_TOPIC_STATS_INFO: _LOOK_AT_TOPIC,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: RequestRight(topics=(_GET,)),
    Code.QUERY_CONSUME_TIME_SPAN: _ASK_ABOUT_TOPIC,
    Code.QUERY_CONSUME_QUEUE: _ASK_ABOUT_TOPIC,
    # Groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _MAKE_GROUP,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _MAKE_GROUP,
    Code.DELETE_SUBSCRIPTIONGROUP: RequestRight(groups=(_DELETE,)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: RequestRight(groups=(_GET,)),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _LIST_TOPICS,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _CHANGE_OFFSETS,
    Code.GET_CONSUME_STATS: _ASK_ABOUT_GROUP,
    Code.QUERY_TOPICS_BY_CONSUMER: RequestRight(groups=(_GET,)),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _ASK_ABOUT_TOPIC,
    Code.GET_BROKER_CONSUME_STATS: _ASK_CLUSTER,
    Code.GET_CONSUMER_CONNECTION_LIST: RequestRight(groups=(_GET,)),
    Code.GET_PRODUCER_CONNECTION_LIST: _ASK_CLUSTER,
    Code.GET_ALL_PRODUCER_INFO: _ASK_CLUSTER,
    Code.GET_CONSUMER_RUNNING_INFO: RequestRight(groups=(_SUB, _GET)),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _ASK_ABOUT_TOPIC,
    Code.CONSUME_MESSAGE_DIRECTLY: _READ._replace(found=(_SUB,)),
    # Brokers
    Code.UPDATE_BROKER_CONFIG: _CHANGE_CLUSTER,
    Code.GET_BROKER_CONFIG: _ASK_CLUSTER,
    Code.GET_BROKER_RUNTIME_INFO: _ASK_CLUSTER,
    Code.VIEW_BROKER_STATS_DATA: _ASK_CLUSTER,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE_CLUSTER,
    Code.DELETE_EXPIRED_COMMITLOG: _CHANGE_CLUSTER,
    Code.GET_BROKER_HA_STATUS: _ASK_CLUSTER,
    Code.GET_BROKER_EPOCH_CACHE: _ASK_CLUSTER,
    Code.NOTIFY_BROKER_ROLE_CHANGED: _CHANGE_CLUSTER,
    # Name servers
    Code.GET_ROUTEINFO_BY_TOPIC: RequestRight(topics=(_PUB, _SUB, _GET)),
    Code.GET_BROKER_CLUSTER_INFO: _LIST_TOPICS,
    Code.GET_BROKER_MEMBER_GROUP: _ASK_ITS_CLUSTER,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _LIST_TOPICS,
    Code.GET_TOPICS_BY_CLUSTER: _LIST_TOPICS._replace(cluster_field="cluster"),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LIST_TOPICS,
    Code.GET_UNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _LIST_TOPICS,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _LIST_TOPICS,
    Code.REGISTER_BROKER: _CHANGE_ITS_CLUSTER,
    Code.UNREGISTER_BROKER: _CHANGE_ITS_CLUSTER,
    Code.BROKER_HEARTBEAT: _CHANGE_ITS_CLUSTER,
    Code.QUERY_DATA_VERSION: _ASK_ITS_CLUSTER,
    Code.WIPE_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.ADD_WRITE_PERM_OF_BROKER: _CHANGE_CLUSTER,
    Code.DELETE_TOPIC_IN_NAMESRV: _CHANGE_ITS_CLUSTER,
    Code.REGISTER_TOPIC_IN_NAMESRV: _CHANGE_CLUSTER,
    Code.PUT_KV_CONFIG: _CHANGE_CLUSTER,
    Code.GET_KV_CONFIG: _ASK_CLUSTER,
    Code.DELETE_KV_CONFIG: _CHANGE_CLUSTER,
    Code.GET_KVLIST_BY_NAMESPACE: _ASK_CLUSTER,
    Code.UPDATE_NAMESRV_CONFIG: _CHANGE_CLUSTER,
    Code.GET_NAMESRV_CONFIG: _ASK_CLUSTER,
    # Users and policies
    Code.AUTH_CREATE_USER: _CHANGE_CLUSTER,
    Code.AUTH_UPDATE_USER: _CHANGE_CLUSTER,
    Code.AUTH_DELETE_USER: _CHANGE_CLUSTER,
    Code.AUTH_GET_USER: _ASK_CLUSTER,
    Code.AUTH_LIST_USER: _ASK_CLUSTER,
    Code.AUTH_CREATE_ACL: _CHANGE_CLUSTER,
    Code.AUTH_UPDATE_ACL: _CHANGE_CLUSTER,
    Code.AUTH_DELETE_ACL: _CHANGE_CLUSTER,
    Code.AUTH_GET_ACL: _ASK_CLUSTER,
    Code.AUTH_LIST_ACL: _ASK_CLUSTER,
}
