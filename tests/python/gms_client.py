# SPDX-License-Identifier: Apache-2.0
"""A client of the GMS protocols, V0 and V1, for the tests.

It is stricter than the clients that engines use. Every answer must have the type and exactly the fields of
the protocol, in order and in the shortest form (the decoded answer is encoded again and must give the same
bytes), and a descriptor only where the protocol says so. It can also send invalid requests. Every wait has a
limit, so that no test can hang.
"""

import array
import contextlib
import os
import socket
import struct
import time

import msgpack

TIMEOUT = 40 * int(os.environ.get("GMSFS_TEST_SLOW", "1"))

# Room for one descriptor and no other: CMSG_SPACE would be padded, and hold two.
ROOM_FOR_ONE = socket.CMSG_LEN(struct.calcsize("i"))
RECEIVE_BYTES = 64 << 10


# ---- messages --------------------------------------------------------------------------------

# Fields in the order of the wire. A type with `?` may be nil; `[NAME]` is a list of maps of the fields of
# NAME, with their own `type`; a name with `=` before it has none.
ALLOCATION = "allocation_id=text size=int aligned_size=int tag=text layout_slot=int"
LOCK_STATE = (
    "state=text has_rw_session=bool ro_session_count=int waiting_writers=int committed=bool is_ready=bool "
)

V0_REQUESTS = {
    "handshake_request": "lock_type=text timeout_ms=int?",
    "commit_request": "",
    "commit_layout_request": "",
    "allocate_request": "size=int tag=text",
    "export_allocation_request": "allocation_id=text",
    "get_allocation_request": "allocation_id=text",
    "list_allocations_request": "tag=text?",
    "free_allocation_request": "allocation_id=text",
    "metadata_put_request": "key=text allocation_id=text offset_bytes=int value=bytes",
    "metadata_get_request": "key=text",
    "metadata_delete_request": "key=text",
    "metadata_list_request": "prefix=text",
    "get_lock_state_request": "",
    "get_allocation_state_request": "",
    "get_memory_layout_hash_request": "",
    "get_runtime_state_request": "",
    "get_event_history_request": "",
}

# Of clients of early 2026.
V0_OLD_REQUESTS = {
    "export_request": "allocation_id=text",
    "free_request": "allocation_id=text",
    "clear_all_request": "",
}

V0_ANSWERS = {
    "handshake_response": "success=bool committed=bool granted_lock_type=text?",
    "commit_response": "success=bool",
    "commit_layout_response": "success=bool memory_layout_hash=text granted_lock_type=text?",
    "allocate_response": "allocation_id=text size=int aligned_size=int layout_slot=int",
    "export_allocation_response": ALLOCATION,
    "get_allocation_response": ALLOCATION,
    "list_allocations_response": "allocations=[get_allocation_response]",
    "free_allocation_response": "success=bool",
    "free_response": "success=bool",
    "clear_all_response": "cleared_count=int",
    "metadata_put_response": "success=bool",
    "metadata_get_response": "found=bool allocation_id=text? offset_bytes=int? value=bytes?",
    "metadata_delete_response": "deleted=bool",
    "metadata_list_response": "keys=[text]",
    "get_lock_state_response": LOCK_STATE + "layout_committed=bool",
    "get_allocation_state_response": "allocation_count=int total_bytes=int",
    "get_memory_layout_hash_response": "memory_layout_hash=text",
    "get_runtime_state_response": LOCK_STATE
    + "allocation_count=int memory_layout_hash=text layout_committed=bool",
    "get_event_history_response": "events=[=event]",
    "=event": "kind=text allocation_count=int",
    "error_response": "error=text code=int",
}

V1_REQUESTS = {
    "handshake_request": "lock_type=text expected_identity=identity?",
    "allocate_request": "allocation_id=text aligned_size=int",
    "export_request": "allocation_id=text",
    "free_request": "allocation_id=text",
    "list_allocations_request": "",
    "commit_request": "",
    "abort_request": "",
    "prepare_checkpoint_request": "",
    "abort_checkpoint_request": "token=text",
    "complete_restore_request": "token=text",
    "get_checkpoint_state_request": "",
}

V1_ANSWERS = {
    "handshake_response": "lock_type=text server_nonce=text gpu_uuid=text",
    "success_response": "",
    "export_response": "",
    "list_allocations_response": "allocations=[=allocation]",
    "=allocation": "allocation_id=text aligned_size=int",
    "checkpoint_state_response": "state=text token=text?",
    "error_response": "message=text out_of_memory=bool",
}

CHECKPOINT_REQUESTS = (
    "prepare_checkpoint_request",
    "abort_checkpoint_request",
    "complete_restore_request",
    "get_checkpoint_state_request",
)

V1_ANSWER_OF = {
    "handshake_request": "handshake_response",
    "export_request": "export_response",
    "list_allocations_request": "list_allocations_response",
    **{name: "checkpoint_state_response" for name in CHECKPOINT_REQUESTS},
}

EXPORTS = ("export_allocation_request", "export_request")

PYTHON_TYPES = {"int": int, "bool": bool, "text": str, "bytes": bytes}


def fields_of(schemas, name):
    """{field: type} of a message, in the order of the wire."""
    return dict(field.split("=", 1) for field in schemas[name].split())


class BadAnswer(AssertionError):
    """The server violated the protocol."""


class Closed(Exception):
    """The server closed the connection."""


class Refused(Exception):
    """An error_response; str() is its text."""

    def __init__(self, text, message):
        super().__init__(text)
        self.message = message


def frame(payload):
    return struct.pack(">I", len(payload)) + payload


def encode(message):
    """The frame of a message, as the reference encodes it."""
    return frame(msgpack.packb(message, use_bin_type=True))


def decode(payload, schemas):
    """Returns the message of an answer, which must follow one of `schemas` to the byte."""
    try:
        message = msgpack.unpackb(payload, raw=False)
    except Exception as error:
        raise BadAnswer(f"an answer that is no msgpack ({error}): {payload[:200].hex()}") from error
    if not isinstance(message, dict) or message.get("type") not in schemas:
        raise BadAnswer(f"an answer that the protocol does not know: {message!r:.500}")
    check_fields(schemas, message["type"], message)
    if msgpack.packb(message, use_bin_type=True) != payload:
        raise BadAnswer(f"an answer that is not in its shortest form: {payload[:500].hex()}")
    return message


def check_fields(schemas, name, message):
    fields = fields_of(schemas, name)
    expected = list(fields) if name.startswith("=") else ["type", *fields]
    if list(message) != expected:
        raise BadAnswer(f"{name} has {list(message)}, expected {expected}")
    if "type" in message and message["type"] != name:
        raise BadAnswer(f"{message['type']} where {name} belongs")
    for field, kind in fields.items():
        check_value(schemas, f"{name}.{field}", message[field], kind)


def check_value(schemas, name, value, kind):
    if kind.endswith("?"):
        if value is None:
            return
        kind = kind[:-1]
    if kind.startswith("["):
        if not isinstance(value, list):
            raise BadAnswer(f"{name} is no list: {value!r:.200}")
        for item in value:
            if kind[1:-1] in schemas:
                check_fields(schemas, kind[1:-1], item)
            else:
                check_value(schemas, name, item, kind[1:-1])
    elif type(value) is not PYTHON_TYPES[kind]:
        raise BadAnswer(f"{name} is {value!r:.200}, expected {kind}")


# ---- connections -----------------------------------------------------------------------------


class Answer:
    """A message, the payload that it was, and its descriptors (none or one)."""

    def __init__(self, message, payload, descriptors):
        self.message = message
        self.payload = payload
        self.descriptors = descriptors


class Connection:
    """The base of both versions: frames, descriptors, and limits on every wait."""

    answers = {}
    error_field = ""

    def __init__(self, at, timeout=TIMEOUT, retry=0):
        """`at` is a path or a connected socket; `retry` is the time to wait for the server to start, in
        seconds."""
        self.timeout = timeout
        self._data = bytearray()
        self._position = 0  # of the first byte of _data, in bytes received since the start
        self._descriptors = []  # (position of the last byte received with it, descriptor)
        if isinstance(at, socket.socket):
            self.socket = at
        else:
            self.socket = connect(at, timeout, retry)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def fileno(self):
        return self.socket.fileno()

    def close(self):
        self.socket.close()
        for _, descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    # -- out --

    def send_raw(self, data, descriptors=()):
        """Sends the bytes unchanged. A connection closed by the server is no error here: the next receive()
        reports it."""
        self.socket.settimeout(self.timeout)
        try:
            if descriptors:
                ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
                sent = self.socket.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)
                data = data[sent:]
            self.socket.sendall(data, socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send_some(self, data):
        """Sends without waiting. Returns the number of bytes that the server took, perhaps 0."""
        self.socket.settimeout(0)
        try:
            return self.socket.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def send(self, type_, **fields):
        self.send_raw(encode({"type": type_, **fields}))

    # -- in --

    def _receive_some(self, end):
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {self.timeout} s")
        self.socket.settimeout(left)
        try:
            data, ancillary, flags, _ = self.socket.recvmsg(
                RECEIVE_BYTES, ROOM_FOR_ONE, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError as error:
            raise Closed("the server reset the connection") from error
        except socket.timeout as error:
            raise TimeoutError(f"no answer within {self.timeout} s") from error
        for level, kind, content in ancillary:
            if (level, kind) != (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                raise BadAnswer(f"a control message {level}, {kind}")
            numbers = array.array("i")
            numbers.frombytes(content[: len(content) // numbers.itemsize * numbers.itemsize])
            last = self._position + len(self._data) + len(data) - 1
            self._descriptors += [(last, number) for number in numbers]
        if flags & socket.MSG_CTRUNC:
            raise BadAnswer("more than one descriptor came")
        if not data:
            if self._data:
                raise BadAnswer(f"the connection ended within a frame: {bytes(self._data[:200]).hex()}")
            raise Closed("the server closed the connection")
        self._data += data

    def _need(self, count, end):
        while len(self._data) < count:
            self._receive_some(end)

    def receive(self, timeout=None):
        """Returns the next payload and its descriptors, unchecked."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        self._need(4, end)
        count = 4 + struct.unpack(">I", self._data[:4])[0]
        self._need(count, end)
        payload = bytes(self._data[4:count])
        del self._data[:count]
        self._position += count
        mine = [item for item in self._descriptors if item[0] < self._position]
        self._descriptors = self._descriptors[len(mine) :]
        return payload, [descriptor for _, descriptor in mine]

    def answer(self, descriptor=False, timeout=None):
        """Returns the next answer, checked against the protocol; it may be an error_response. With
        `descriptor`, any other answer must carry one."""
        payload, descriptors = self.receive(timeout)
        try:
            message = decode(payload, self.answers)
            expected = 1 if descriptor and message["type"] != "error_response" else 0
            if len(descriptors) != expected:
                raise BadAnswer(f"{message['type']} with {len(descriptors)} descriptors")
        except BaseException:
            for number in descriptors:
                os.close(number)
            raise
        return Answer(message, payload, descriptors)

    def result(self, expected, descriptor=False, timeout=None):
        """The next answer, which must be of this type; Refused if it is an error_response."""
        answer = self.answer(descriptor, timeout)
        message = answer.message
        if message["type"] == "error_response":
            raise Refused(message[self.error_field], message)
        if message["type"] != expected:
            for number in answer.descriptors:
                os.close(number)
            raise BadAnswer(f"{message['type']} came, expected {expected}")
        return (message, answer.descriptors[0]) if descriptor else message

    def request(self, type_, **fields):
        """One request and its answer; with a descriptor, a pair."""
        self.send(type_, **fields)
        return self.result(self.answer_of(type_), descriptor=type_ in EXPORTS)

    def answer_of(self, type_):
        raise NotImplementedError

    def expect_closed(self, timeout=None):
        """Nothing more comes, but the end of the connection."""
        try:
            payload, descriptors = self.receive(timeout)
        except Closed:
            return
        for number in descriptors:
            os.close(number)
        raise BadAnswer(f"an answer where the connection had to end: {payload[:300]!r}")

    def expect_silence(self, seconds):
        """Neither an answer nor the end comes for so long."""
        try:
            payload, _ = self.receive(seconds)
        except TimeoutError:
            return
        except Closed as error:
            raise BadAnswer("the connection ended where it had to wait") from error
        raise BadAnswer(f"an answer where none was due: {payload[:300]!r}")

    def is_closed(self):
        """Returns true if the server has closed the connection; a condition to wait for."""
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True


def connect(path, timeout=TIMEOUT, retry=0):
    end = time.monotonic() + timeout
    give_up = time.monotonic() + retry
    while True:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(max(end - time.monotonic(), 0.001))
            made.connect(path)
            return made
        except BlockingIOError:  # its queue of connections is full
            made.close()
            if time.monotonic() > end:
                raise
        except (FileNotFoundError, ConnectionRefusedError):
            made.close()
            if time.monotonic() > give_up:
                raise
        except BaseException:
            made.close()
            raise
        time.sleep(0.01)


class V0(Connection):
    """Each method is a request; it returns the answer's fields that are of use."""

    answers = V0_ANSWERS
    error_field = "error"

    def answer_of(self, type_):
        if type_ == "export_request":
            return "get_allocation_response"
        return type_.replace("_request", "_response")

    # -- the lock --

    def ask(self, lock_type, timeout_ms=None):
        """Asks for the lock; granted() has the answer."""
        self.send("handshake_request", lock_type=lock_type, timeout_ms=timeout_ms)

    def granted(self, timeout=None):
        message = self.result("handshake_response", timeout=timeout)
        if message["success"] != (message["granted_lock_type"] is not None):
            raise BadAnswer(f"success and granted_lock_type do not fit: {message}")
        return message

    def lock(self, lock_type, timeout_ms=None):
        """Returns the granted lock type, or None after a timeout."""
        self.ask(lock_type, timeout_ms)
        return self.granted()["granted_lock_type"]

    def commit(self):
        return self.request("commit_request")["success"]

    def commit_layout(self):
        return self.request("commit_layout_request")

    def clear_all(self):
        return self.request("clear_all_request")["cleared_count"]

    # -- allocations --

    def allocate(self, size, tag="default"):
        return self.request("allocate_request", size=size, tag=tag)

    def export(self, allocation_id):
        """(answer, descriptor)"""
        return self.request("export_allocation_request", allocation_id=allocation_id)

    def export_old(self, allocation_id):
        return self.request("export_request", allocation_id=allocation_id)

    def get(self, allocation_id):
        return self.request("get_allocation_request", allocation_id=allocation_id)

    def list(self, tag=None):
        return self.request("list_allocations_request", tag=tag)["allocations"]

    def free(self, allocation_id):
        return self.request("free_allocation_request", allocation_id=allocation_id)["success"]

    def free_old(self, allocation_id):
        return self.request("free_request", allocation_id=allocation_id)["success"]

    # -- metadata --

    def put(self, key, allocation_id, offset_bytes, value):
        return self.request(
            "metadata_put_request",
            key=key,
            allocation_id=allocation_id,
            offset_bytes=offset_bytes,
            value=value,
        )["success"]

    def get_entry(self, key):
        """(allocation id, offset, value), or None."""
        message = self.request("metadata_get_request", key=key)
        parts = (message["allocation_id"], message["offset_bytes"], message["value"])
        if [part is not None for part in parts] != [message["found"]] * 3:
            raise BadAnswer(f"found and the rest do not fit: {message}")
        return parts if message["found"] else None

    def delete(self, key):
        return self.request("metadata_delete_request", key=key)["deleted"]

    def keys(self, prefix=""):
        return self.request("metadata_list_request", prefix=prefix)["keys"]

    # -- looking --

    def lock_state(self):
        return self.request("get_lock_state_request")

    def allocation_state(self):
        return self.request("get_allocation_state_request")

    def layout_hash(self):
        return self.request("get_memory_layout_hash_request")["memory_layout_hash"]

    # -- probes: of a connection of their own, which the server closes --

    def runtime_state(self):
        message = self.request("get_runtime_state_request")
        self.expect_closed()
        return message

    def events(self):
        """[(kind, allocation count)], oldest first."""
        message = self.request("get_event_history_request")
        self.expect_closed()
        return [(event["kind"], event["allocation_count"]) for event in message["events"]]


class V1(Connection):
    """As V0, for the smaller protocol."""

    answers = V1_ANSWERS
    error_field = "message"

    def answer_of(self, type_):
        return V1_ANSWER_OF.get(type_, "success_response")

    def ask(self, lock_type, expected_identity=None):
        self.send("handshake_request", lock_type=lock_type, expected_identity=expected_identity)

    def granted(self, timeout=None):
        return self.result("handshake_response", timeout=timeout)

    def lock(self, lock_type, expected_identity=None):
        self.ask(lock_type, expected_identity)
        return self.granted()["lock_type"]

    def allocate(self, allocation_id, aligned_size):
        self.request("allocate_request", allocation_id=allocation_id, aligned_size=aligned_size)

    def export(self, allocation_id):
        """The descriptor."""
        return self.request("export_request", allocation_id=allocation_id)[1]

    def free(self, allocation_id):
        self.request("free_request", allocation_id=allocation_id)

    def list(self):
        """[(allocation id, aligned size)]"""
        found = self.request("list_allocations_request")["allocations"]
        return [(item["allocation_id"], item["aligned_size"]) for item in found]

    def commit(self):
        self.request("commit_request")

    def abort(self):
        self.request("abort_request")

    # -- checkpoint: of a connection of their own, which the server closes; (state, token) --

    def _checkpoint(self, type_, **fields):
        try:
            message = self.request(type_, **fields)
        finally:
            self.expect_closed()
        return message["state"], message["token"]

    def prepare_checkpoint(self):
        return self._checkpoint("prepare_checkpoint_request")

    def abort_checkpoint(self, token):
        return self._checkpoint("abort_checkpoint_request", token=token)

    def complete_restore(self, token):
        return self._checkpoint("complete_restore_request", token=token)

    def checkpoint_state(self):
        return self._checkpoint("get_checkpoint_state_request")


# ---- bytes -----------------------------------------------------------------------------------


@contextlib.contextmanager
def owned(descriptor):
    """Closes it at the end of a `with`."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
