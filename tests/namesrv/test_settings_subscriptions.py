"""A live setting that changes reaches whoever works with it: nobody keeps the old one."""

from __future__ import annotations

from dataclasses import replace

from cometmq.namesrv.app import NameServer
from cometmq.net.channel import connect
from cometmq.settings.namesrv import NamesrvSettings
from cometmq.wire.codes import RequestCode
from cometmq.wire.command import request
from net.serving import run
from settings.distinct_settings import as_request, reads_live, with_odd_numbers
from settings.reachable_objects import reachable


def test_nothing_keeps_old_settings_after_a_change() -> None:
    async def scenario() -> None:
        before = NamesrvSettings(listen_port=0, kv_config_path="")
        after = with_odd_numbers(before, {}, 1_200_347)
        server = NameServer.open(before)
        await server.start()
        after = replace(after, listen_port=server.port)  # the one that the system chose
        channel = await connect(server.address)
        command = request(RequestCode.UPDATE_NAMESRV_CONFIG, 0, None, as_request(after).encode())
        answer = await channel.call(command, 5)
        channel.close()
        await server.stop()
        assert answer.code == 0, answer
        found = [
            (path, holder, value)
            for path, holder, value in reachable(server)
            if isinstance(value, NamesrvSettings)
        ]
        assert any(value == after for _, _, value in found)
        stale = [
            path
            for path, holder, value in found
            if value != after and reads_live(holder, type(value))
        ]
        assert stale == []

    run(scenario())
