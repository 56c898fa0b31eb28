#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of the GMS sockets (V0); the test kills the worker during its requests.

  gms_resume.py halves SOCKET DIRECTORY   sends frames in two halves: prints `half N` between them, and sends
                                          the second half when DIRECTORY/N exists
  gms_resume.py churn SOCKET SECONDS|FILE  a writer that sends requests without a pause, one by one and many
                                          ahead, for SECONDS or until FILE exists; a request done twice or
                                          not at all shows in slots, keys and lists
  gms_resume.py read SOCKET SECONDS       a reader that exports and reads everything again and again
  gms_resume.py long SOCKET DIRECTORY     asks for a list longer than a socket's buffer, reads a part of it,
                                          prints `begun`, reads the rest when DIRECTORY/0 exists, and prints
                                          `whole` or `closed`
"""

import os
import sys
import time

from gms_client import BadAnswer, Closed, TIMEOUT, V0, encode

SIZE = 65536


def wait_for(path):
    end = time.monotonic() + 6 * TIMEOUT
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.01)


def halves(path, directory):
    client = V0(path)
    count = 0

    def ask(type_, **fields):
        nonlocal count
        frame = encode({"type": type_, **fields})
        client.send_raw(frame[: len(frame) // 2])
        print("half", count, flush=True)
        wait_for(os.path.join(directory, str(count)))
        count += 1
        client.send_raw(frame[len(frame) // 2 :])
        return client.result(client.answer_of(type_))

    assert ask("handshake_request", lock_type="rw", timeout_ms=None)["granted_lock_type"] == "rw"
    made = ask("allocate_request", size=SIZE, tag="t")
    assert made["layout_slot"] == 0, made
    value = os.urandom(400000)
    ask("metadata_put_request", key="k", allocation_id=made["allocation_id"], offset_bytes=0, value=value)
    assert ask("metadata_get_request", key="k")["value"] == value
    ask("commit_request")
    client.expect_closed()


class Writer:
    def __init__(self, path):
        self.client = V0(path)
        if self.client.lock("rw", None) != "rw":
            raise BadAnswer("no writer's lock")
        self.slot = 0
        self.keys = set()
        self.ids = []

    def take(self, made):
        """Every allocation has the next slot: none was made twice, none was lost."""
        if made["layout_slot"] != self.slot:
            raise BadAnswer(f"slot {made['layout_slot']}, expected {self.slot}")
        self.slot += 1
        self.ids.append(made["allocation_id"])

    def one_by_one(self):
        self.take(self.client.allocate(SIZE, "one"))
        key = f"key{self.slot}"
        self.client.put(key, self.ids[-1], 8, key.encode())
        self.keys.add(key)
        if self.client.get_entry(key)[2] != key.encode():
            raise BadAnswer(key)
        answer, descriptor = self.client.export(self.ids[-1])
        os.close(descriptor)
        if answer["layout_slot"] != self.slot - 1:
            raise BadAnswer(f"{answer} was exported")

    def ahead(self, count):
        for _ in range(count):
            self.client.send("allocate_request", size=SIZE, tag="ahead")
        for _ in range(count):
            self.take(self.client.result("allocate_response"))

    def free_some(self):
        while len(self.ids) > 40:
            if not self.client.free(self.ids.pop(0)):
                raise BadAnswer("an allocation was gone already")

    def compare(self):
        names = [item["allocation_id"] for item in self.client.list()]
        if names != self.ids:
            raise BadAnswer(f"{len(names)} allocations, expected {len(self.ids)}")
        for key in self.client.keys(""):
            if key not in self.keys:
                raise BadAnswer(key)


def going_on(until):
    begin = time.monotonic()
    if "/" not in until:
        return lambda: time.monotonic() < begin + float(until)

    def is_not_there():
        if time.monotonic() > begin + 6 * TIMEOUT:
            raise TimeoutError(until)
        return not os.path.exists(until)

    return is_not_there


def churn(path, until):
    writer = Writer(path)
    goes_on = going_on(until)
    rounds = 0
    while goes_on():
        writer.one_by_one()
        if rounds % 5 == 0:
            writer.ahead(30)
        writer.free_some()
        if rounds % 7 == 0:
            writer.compare()
        rounds += 1
    writer.compare()
    writer.client.commit()
    print("rounds", rounds)


def read(path, seconds):
    client = V0(path)
    client.lock("ro", None)
    known = client.list()
    end = time.monotonic() + float(seconds)
    rounds = 0
    while time.monotonic() < end:
        for item in known:
            answer, descriptor = client.export(item["allocation_id"])
            if answer["layout_slot"] != item["layout_slot"]:
                raise BadAnswer(f"{answer} was exported")
            expected = f"slot {item['layout_slot']}.".encode()
            if os.pread(descriptor, len(expected), 0) != expected:
                raise BadAnswer("other bytes")
            os.close(descriptor)
        if client.list() != known:
            raise BadAnswer("another list")
        rounds += 1
    print("rounds", rounds)


def long(path, directory):
    client = V0(path)
    client.lock("ro", None)
    client.send("metadata_list_request", prefix="")
    while client.socket.recv(1, 2) == b"":  # MSG_PEEK: its beginning is there
        time.sleep(0.01)
    time.sleep(0.2)
    print("begun", flush=True)
    wait_for(os.path.join(directory, "0"))
    try:
        print("whole", len(client.result("metadata_list_response")["keys"]))
    except (Closed, BadAnswer):
        print("closed")


if __name__ == "__main__":
    {"halves": halves, "churn": churn, "read": read, "long": long}[sys.argv[1]](*sys.argv[2:])
