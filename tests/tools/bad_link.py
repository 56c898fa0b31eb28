#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A link between two network namespaces that loses packets and delays them.

Makes two network devices, one in each namespace, and passes packets between them. Both directions
lose a share of them at random; from the first device to the second they are delayed. For kernels
without netem. Ends at SIGTERM, with a line of how many packets were lost; the devices go with it.
"""

import argparse
import collections
import ctypes
import fcntl
import os
import random
import select
import signal
import struct
import time

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME_BYTES = 65536
MOST_QUEUED = 4096  # frames in one direction; a router has a bound, too


def make_device(pid, name):
    with open(f"/proc/{pid}/ns/net", encoding="ascii") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to that of process {pid}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def take(device, queue, loss, delay_s):
    """Takes the frames that are there; a device that is down has none. Returns how many are lost."""
    lost = 0
    try:
        while len(queue) < MOST_QUEUED:
            frame = os.read(device, FRAME_BYTES)
            if random.random() < loss:
                lost += 1
            else:
                queue.append((time.monotonic() + delay_s, frame))
    except OSError:
        pass
    return lost


def deliver(device, queue):
    now = time.monotonic()
    while queue and queue[0][0] <= now:
        try:
            os.write(device, queue.popleft()[1])
        except OSError:
            pass  # the device is down, or full: one more packet is lost


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("first", help="process of the first namespace")
    parser.add_argument("first_name", help="of the device there")
    parser.add_argument("second", help="process of the second namespace")
    parser.add_argument("second_name", help="of the device there")
    parser.add_argument("--loss", type=float, default=0, help="share of lost packets, 0 to 1")
    parser.add_argument("--delay", type=float, default=0, help="from first to second, in seconds")
    asked = parser.parse_args()
    devices = [
        make_device(asked.first, asked.first_name),
        make_device(asked.second, asked.second_name),
    ]
    queues = [collections.deque(), collections.deque()]
    delays_s = [asked.delay, 0]
    ended, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGTERM, lambda *_: os.write(end, b"e"))
    print("ready", flush=True)
    lost = 0
    while True:
        due = [queue[0][0] for queue in queues if queue]
        wait_s = max(min(due) - time.monotonic(), 0) if due else None
        if ended in select.select([*devices, ended], [], [], wait_s)[0]:
            break
        for i in (0, 1):
            lost += take(devices[i], queues[i], asked.loss, delays_s[i])
            deliver(devices[1 - i], queues[i])
    print(f"lost {lost} packets", flush=True)


if __name__ == "__main__":
    main()
