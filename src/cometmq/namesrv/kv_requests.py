"""Requests about texts by namespace and key: keep, tell and forget them (100, 101, 102, 219).

Refuses to keep state; `KvConfig` does. Java: DefaultRequestProcessor (putKVConfig and its like).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.errors import Reject
from cometmq.net.endpoint import Endpoint, RequestEffect
from cometmq.net.handler import Reply
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers import namesrv as headers

if TYPE_CHECKING:
    from cometmq.namesrv.kv_config import KvConfig
    from cometmq.net.connection import Connection
    from cometmq.wire.command import Command


class KvRequests:
    """Answers requests about the KV configuration."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The requests that this class answers."""
        return (
            Endpoint(RequestCode.PUT_KV_CONFIG, self.put_kv, RequestEffect.MUTATING),
            Endpoint(RequestCode.GET_KV_CONFIG, self.get_kv),
            Endpoint(RequestCode.DELETE_KV_CONFIG, self.delete_kv, RequestEffect.MUTATING),
            Endpoint(RequestCode.GET_KVLIST_BY_NAMESPACE, self.list_kv),
        )

    async def put_kv(self, request: Command, _connection: Connection) -> Reply:
        """Keep a text (100)."""
        header = headers.PutKVConfigRequestHeader.decode(request.ext)
        await self._kv.put(header.namespace, header.key, header.value)
        return Reply()

    def get_kv(self, request: Command, _connection: Connection) -> Reply:
        """Tell a text (101)."""
        header = headers.GetKVConfigRequestHeader.decode(request.ext)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"no config item, namespace: {header.namespace} key: {header.key}"
            raise Reject(ResponseCode.QUERY_NOT_FOUND, remark)
        return Reply(ResponseCode.SUCCESS, headers.GetKVConfigResponseHeader(value=value))

    async def delete_kv(self, request: Command, _connection: Connection) -> Reply:
        """Forget a text (102)."""
        header = headers.DeleteKVConfigRequestHeader.decode(request.ext)
        await self._kv.delete(header.namespace, header.key)
        return Reply()

    def list_kv(self, request: Command, _connection: Connection) -> Reply:
        """Tell all texts of a namespace (219)."""
        header = headers.GetKVListByNamespaceRequestHeader.decode(request.ext)
        body = self._kv.encoded(header.namespace)
        if body is None:
            remark = f"no config item, namespace: {header.namespace}"
            raise Reject(ResponseCode.QUERY_NOT_FOUND, remark)
        return Reply(body=body)
