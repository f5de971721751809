"""The bare framed echo where no C compiler is: splits frames, answers each with a canned header.

Usage: echo.py CPU (-1 = not pinned); prints its port, runs until it is ended.
"""

import asyncio
import os
import re
import struct
import sys

HEAD = struct.Struct(">II")
OPAQUE = re.compile(rb'"opaque":(\d+)')
ANSWER = (
    b'{"code":0,"extFields":{"queueId":"3","TRACE_ON":"true","MSG_REGION":"DefaultRegion",'
    b'"msgId":"7F00000100002A9F0000000012345678","queueOffset":"12345678"},"flag":1,'
    b'"language":"PYTHON","opaque":%s,"version":513}'
)


class Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self.left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data, at, answers = self.left + data, 0, []
        while len(data) - at >= 8:
            total, mark = HEAD.unpack_from(data, at)
            if len(data) - at < total + 4:
                break
            header = ANSWER % OPAQUE.search(data, at + 8, at + 8 + (mark & 0xFFFFFF))[1]
            answers.append(HEAD.pack(4 + len(header), len(header)) + header)
            at += total + 4
        self.left = data[at:]
        self.transport.write(b"".join(answers))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    if int(sys.argv[1]) >= 0:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    asyncio.run(main())
