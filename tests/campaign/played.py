"""A client of the daemon, and a gpusharectl, as somebody writes them who has read protocol.h: also wrong ones."""
import os
import random
import re
import select
import socket
import struct
import time

SIZE = 128
HEADER = struct.Struct("=IHHIiQ")
ALL = 0xFFFFFFFF
BODIES = {  # as they are packed; what is not given is 0
    "REGISTER": "i32sIQ", "COMMAND": "72s", "EXITING": "i", "DECLARE": "IiQQ48sQIIQ", "ATTACH": "16sQQII32sQ",
    "MEM_REQUEST": "QQQ", "MEM_REPORT": "QQQ", "CLIENT_STATE": "IIQ", "RESIDENT": "QQQQ", "MEM_SHORT": "Q",
    "LOCK_RELEASED": "Q", "LOCK_ACTIVE": "QQ", "SET_TQ": "16sQ", "SET_MODE": "16sQ",
    "SET_CAPACITY": "16sQ", "SET_POLICY": "16sQ", "SET_TERMS": "IIQ", "GET_EVENTS": "QQII", "REGISTERED": "IIQ",
    "EVICT": "I", "ALLOT": "16sQQII40s", "ATTACHED": "QIIII", "ROOM": "QQQQ", "LOCK_OK": "QQQQ", "DROP_LOCK": "QQQQ", "MEM_REPLY": "QII",
}


def read_header(path):
    """Magic, version, and the types by their names."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    types = {name: int(value) for name, value in re.findall(r"X\((\w+), (\d+)\)", text.split("enum gs_msg_type")[0])}
    return (int(re.search(r"GS_MAGIC (0x\w+)u", text).group(1), 16),
            int(re.search(r"GS_PROTOCOL_VERSION (\d+)u", text).group(1)), types)


MAGIC, VERSION, TYPES = read_header(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                 "../../include/gpushare/protocol.h"))
NAMES = {value: name for name, value in TYPES.items()}


class Gone(Exception):
    """The daemon has ended the connection, or is not there."""


class Full(Gone):
    """As many connections wait to be accepted as may."""


class Silent(Exception):
    """Nothing comes."""


def pack(name, *values, gpu=0, epoch=0, version=VERSION, magic=MAGIC):
    body = struct.pack("=" + BODIES[name], *values) if values else b""
    return (HEADER.pack(magic, version, TYPES[name], gpu, 0, epoch) + body).ljust(SIZE, b"\0")


class Message:
    def __init__(self, packet):
        _, _, kind, self.gpu, self.status, self.epoch = HEADER.unpack_from(packet)
        self.name, self.body = NAMES.get(kind, str(kind)), packet[HEADER.size:]

    def values(self):
        return struct.unpack_from("=" + BODIES[self.name], self.body)


class Client:
    def __init__(self, path, patience_s=10):
        self.patience_s, self.holds = patience_s, None  # holds: the number of the grant
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(patience_s)
        try:
            self.connect(path, time.monotonic() + patience_s)
        except OSError as error:
            self.socket.close()
            raise (Full if isinstance(error, BlockingIOError) else Gone)(str(error)) from error

    def connect(self, path, end):
        """As clients do: again and again while no more may wait, and not in step with others."""
        while True:
            try:
                return self.socket.connect(path)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(random.uniform(0.001, 0.005))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, name, *values, **header):
        self.send_packet(pack(name, *values, **header))

    def send_packet(self, packet):
        try:
            self.socket.send(packet)
        except TimeoutError as error:
            raise Silent("the daemon does not read") from error
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self, patience_s=None):
        self.socket.settimeout(self.patience_s if patience_s is None else patience_s)
        try:
            packet = self.socket.recv(SIZE)
        except (TimeoutError, BlockingIOError) as error:
            raise Silent("no answer") from error
        except OSError as error:
            raise Gone(str(error)) from error
        if not packet:
            raise Gone("the connection has ended")
        return Message(packet)

    def expect(self, *names, patience_s=None):
        """The next message of these; others are passed over."""
        end = time.monotonic() + (self.patience_s if patience_s is None else patience_s)
        while True:
            message = self.receive(max(0.001, end - time.monotonic()))
            if message.name in names:
                return message

    def register(self, name="played"):
        self.send("REGISTER", os.getpid(), name.encode(), 0, 0)
        answer = self.expect("REGISTERED", "REJECTED")
        if answer.name == "REJECTED":
            raise Gone("rejected")
        return answer

    def attach(self, uuid, total_bytes, used_bytes=0, resident_bytes=0, flags=0, gpu=0, name=b"a card"):
        self.send("ATTACH", uuid, total_bytes, used_bytes, flags, 0, name, resident_bytes, gpu=gpu)

    def drain(self):
        """Whatever has come is read, so that nothing piles up."""
        while select.select([self.socket], [], [], 0)[0]:
            self.receive()


def attached(path, uuid, total_bytes, used_bytes=0, name="played", **options):
    client = Client(path)
    client.register(name)
    client.attach(uuid, total_bytes, used_bytes, **options)
    client.expect("ATTACHED", "CAPACITY")
    return client
