# SPDX-License-Identifier: Apache-2.0
"""Kills the worker of a mount at its steps for the requests of Triton clients; the Triton server is another
process. Each request must be answered once, as if the worker had not been killed.

    triton_kills.py CONTROL KEEPER REGIONS KEY EVERY AGAIN

CONTROL is the file made by `kills new` (tests/fault), KEEPER a pid, REGIONS the user's directory in the
mount; KEY becomes an object in /dev/shm. The worker is killed before each EVERY-th step. If AGAIN is not 0,
each of these kills is repeated with a second kill, of the next worker, at each of its AGAIN-th steps. Used
by tests/59-crash-sample.bats and tests/crash-test; GMSFS_TEST_HTTP and _GRPC hold the server's addresses."""

import base64
import json
import mmap
import os
import struct
import sys
import time

from cuda_sharer import Sharer
from triton_raw import H2, Http

NEVER = 2**31 - 1
PATIENCE_S = 20
SIZE, HALF = 128, 64


class Control:
    """struct kill_control."""

    ARMED, KILLS, AFTER, AT, NAME = 4, 2, 4, 28, 32

    def __init__(self, path):
        with open(path, "r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)
        self.words = memoryview(self.bytes)[:28].cast("I")

    def arm(self, *after):
        for at in range(3):
            self.words[self.AFTER + at] = after[at] if at < len(after) else NEVER
        self.words[self.KILLS] = 0
        self.bytes[self.ARMED] = 1

    def disarm(self):
        self.bytes[self.ARMED] = 0
        return self.words[self.KILLS]

    def places(self):
        names = (self.bytes[self.AT + at * self.NAME:][:self.NAME].split(b"\0")[0].decode()
                 for at in range(self.words[self.KILLS]))
        return ", then ".join(names)


# ---- requests, by either protocol -------------------------------------------------------------


def field(number, value):
    """Returns a field of a protobuf message: a number, text or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number):
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


class ByHttp:
    def __init__(self):
        self.connection = Http()

    def _ask(self, method, path, body=None):
        status, _, said = self.connection.ask(method, f"/v2/{path}", body)
        return status, said

    def register(self, kind, name, where):
        body = {"key": where, "offset": 0} if kind == "system" else \
            {"raw_handle": {"b64": where}, "device_id": 0}
        return self._ask("POST", f"{kind}sharedmemory/region/{name}/register",
                         json.dumps(dict(body, byte_size=SIZE)).encode())

    def status(self, kind, name):
        return self._ask("GET", f"{kind}sharedmemory/{f'region/{name}/' if name else ''}status")

    def unregister(self, kind, name):
        return self._ask("POST", f"{kind}sharedmemory/{f'region/{name}/' if name else ''}unregister", b"")

    def infer(self, name):
        place = {"shared_memory_region": name, "shared_memory_byte_size": HALF}
        inputs = [{"name": f"INPUT{at}", "shape": [1, 16], "datatype": "INT32", "parameters": place}
                  for at in range(2)]
        outputs = [{"name": "OUTPUT0", "parameters": dict(place, shared_memory_offset=HALF)}]
        return self._ask("POST", "models/simple/infer",
                         json.dumps({"inputs": inputs, "outputs": outputs}).encode())


class ByGrpc:
    def __init__(self):
        self.connection = H2()

    def _ask(self, call, data=b""):
        return self.connection.answer(self.connection.call(call, data))

    def register(self, kind, name, where):
        memory = field(2, where if kind == "system" else base64.b64decode(where))
        return self._ask(f"{kind.title()}SharedMemoryRegister", field(1, name) + memory + field(4, SIZE))

    def status(self, kind, name):
        return self._ask(f"{kind.title()}SharedMemoryStatus", field(1, name))

    def unregister(self, kind, name):
        return self._ask(f"{kind.title()}SharedMemoryUnregister", field(1, name))

    def infer(self, name):
        def place(number, offset):
            values = (("shared_memory_region", field(3, name)), ("shared_memory_byte_size", field(2, HALF)),
                      ("shared_memory_offset", field(2, offset)))
            return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values)

        shape = field(2, "INT32") + field(3, b"\x01\x10")
        inputs = b"".join(field(5, field(1, f"INPUT{at}") + shape + place(4, 0)) for at in range(2))
        outputs = field(6, field(1, "OUTPUT0") + place(2, HALF))
        return self._ask("ModelInfer", field(1, "simple") + inputs + outputs)


def deeds(system, cuda):
    """Returns the calls that a connection makes in turn; every answer is compared."""

    def kind(name, where):
        return [lambda by: by.register(name, "r", where), lambda by: by.status(name, "r"),
                lambda by: by.register(name, "r", where),  # a second time: must be refused
                lambda by: by.infer("r"), lambda by: by.status(name, ""), lambda by: by.unregister(name, "r"),
                lambda by: by.status(name, ""), lambda by: by.register(name, "q", where),
                lambda by: by.unregister(name, "")]

    return {"system": kind("system", system), "cuda": kind("cuda", cuda)}


# ---- kills ------------------------------------------------------------------------------------


class Object:
    """In shared memory: two halves of integers, of which inference makes the second from the first."""

    FIRST = struct.pack("<16i", *range(16))
    SECOND = struct.pack("<16i", *range(0, 32, 2))

    def __init__(self, key):
        self.path = f"/dev/shm/{key}"
        with open(self.path, "w+b") as file:
            file.truncate(SIZE)
            self.bytes = mmap.mmap(file.fileno(), SIZE)

    def begin(self):
        self.bytes[:] = self.FIRST + bytes(HALF)

    def is_done(self):
        return self.bytes[:] == self.FIRST + self.SECOND

    def remove(self):
        os.unlink(self.path)


class Trials:
    def __init__(self, control, keeper, regions, shared):
        self.control, self.keeper, self.regions, self.shared = control, keeper, regions, shared
        self.count = self.wrong = 0

    def complain(self, text):
        self.wrong += 1
        print(text)

    def do(self, protocol, deed, after):
        """Does the calls of a deed. Returns their answers, and the number of killed workers."""
        by = protocol()
        self.shared.begin()
        self.control.arm(*after)
        try:
            answers = [ask(by) for ask in deed]
        except (OSError, EOFError) as error:
            answers = [repr(error)]
        kills = self.control.disarm()
        by.connection.socket.close()
        return answers, kills

    def settles(self, condition):
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > end:
                return False
            time.sleep(0.002)
        return True

    def names(self):
        try:
            return os.listdir(self.regions)
        except FileNotFoundError:  # no user has regions
            return []

    def attempt(self, where, protocol, deed, wanted, after):
        answers, kills = self.do(protocol, deed, after)
        if kills == 0:
            return 0
        self.count += 1
        place = f"{where}: killed before {self.control.places()} ({after})"
        if answers != wanted:
            self.complain(f"{place}: it is answered otherwise:\n  {answers}\n  wanted:\n  {wanted}")
        if where.startswith("triton/system") and not self.shared.is_done():
            self.complain(f"{place}: the inference's output is missing")
        if not self.settles(lambda: not self.names()):
            self.complain(f"{place}: still there: {self.names()}")
        return kills

    def run(self, where, protocol, deed, every, again):
        wanted, _ = self.do(protocol, deed, ())
        if self.do(protocol, deed, ())[0] != wanted:
            sys.exit(f"{where}: it is answered otherwise each time: {wanted}")
        if os.environ.get("KILLS_SHOW"):
            print(where, wanted)
        before, start = self.count, time.monotonic()
        first = 0
        while self.attempt(where, protocol, deed, wanted, (first,)):
            second = first % again if again else NEVER
            while again and self.attempt(where, protocol, deed, wanted, (first, second)) > 1:
                second += again
            first += every
        print(f"{where}: {self.count - before} kills, {(time.monotonic() - start) * 1000:.0f} ms")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.keeper}/fd"))


def main(control, keeper, regions, key, every, again):
    shared = Object(key)
    trials = Trials(Control(control), keeper, regions, shared)
    before = None
    with Sharer() as sharer:
        _, handle = sharer.share(SIZE, 1)
        for kind, deed in deeds(key, handle.decode()).items():
            for protocol in (ByHttp, ByGrpc):
                trials.do(protocol, deed, ())
                before = before or trials.descriptors()
                where = f"triton/{kind}-{protocol.__name__[2:].lower()}"
                trials.run(where, protocol, deed, int(every), int(again))
    if not trials.settles(lambda: trials.descriptors() <= before):
        trials.complain(f"the keeper has {trials.descriptors()} descriptors, and had {before}")
    shared.remove()
    print(f"{trials.count} trials, {trials.wrong} wrong")
    return bool(trials.wrong) or trials.count == 0


if __name__ == "__main__":
    if len(sys.argv) != 7:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
