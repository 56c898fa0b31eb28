#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that read one file over HTTP without end, each at a low rate: slow_readers.py PORT PATH COUNT RATE

A reader whose answer ends, or is cut, asks again. Readers come from several addresses of the loopback, 25
from each. Prints "begun" when all have the first bytes, and at SIGTERM how many answers were cut, busy (503)
and full (429).
"""
import asyncio
import collections
import signal
import socket
import sys

PORT, PATH, COUNT, RATE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
TURN_S = 0.2
counts: collections.Counter[str] = collections.Counter()
begun: set[int] = set()


async def read_answer(number: int) -> None:
    # Segments of an Ethernet: with those of the loopback the server's buffer takes megabytes, which a slow
    # reader cannot empty within the time for one write.
    connection = socket.socket()
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.bind((f"127.0.1.{number // 25 + 1}", 0))
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", PORT))
    reader, writer = await asyncio.open_connection(sock=connection, limit=8192)
    try:
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        status = head.split()[1].decode()
        if status != "200":
            counts[status] += 1
            await asyncio.sleep(1)
            return
        while await reader.read(int(RATE * TURN_S)):
            if number not in begun:
                begun.add(number)
                if len(begun) == COUNT:
                    print("begun", flush=True)
            await asyncio.sleep(TURN_S)
        counts["ended"] += 1
    except (ConnectionError, asyncio.IncompleteReadError):
        counts["cut"] += 1
    finally:
        writer.transport.abort()


async def read_on(number: int) -> None:
    while True:
        try:
            await read_answer(number)
        except OSError:
            await asyncio.sleep(0.2)


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    readers = [asyncio.create_task(read_on(number)) for number in range(COUNT)]
    await ended.wait()
    for task in readers:
        task.cancel()
    print(*(f"{name}={count}" for name, count in sorted(counts.items())), flush=True)


asyncio.run(main())
