"""What a hostile user does. Each attack is a function of the daemon's socket, the GPU's UUID and the card's bytes; it runs
as a process of that user until it is killed, and calls `ready` once all of it is under way."""
import os
import random
import resource
import select
import socket
import time

from played import ALL, BODIES, SIZE, TYPES, Client, Full, Gone, Silent, attached, pack

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40
PATIENCE_S = 5
HELD = []  # connections that end with their process
CLIENT_TYPES = [name for name, value in TYPES.items() if value < 32]
CONTROL_TYPES = [name for name, value in TYPES.items() if 64 <= value < 96]


def raise_limits():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def gather(path, uuid, total_bytes, count, used_bytes=0, ready=lambda: None, seconds=20):
    """As many attached clients as there may be, and no more than that; within this time."""
    clients, end = [], time.monotonic() + seconds
    while len(clients) < count and time.monotonic() < end:
        try:
            client = Client(path, PATIENCE_S)
            client.register("fake")
            client.attach(uuid, total_bytes, used_bytes)
            clients.append(client)
        except (Gone, Silent):
            time.sleep(0.05)
    ready()
    return clients


def for_ever():
    while True:
        time.sleep(60)


# ---- liars ----

def liars_size(path, uuid, _total_bytes, ready):
    """The card is tiny, or huge: who believes it has no memory for anybody, or no turns."""
    clients = gather(path, uuid, MIB, 10) + gather(path, uuid, TIB, 10, ready=ready)
    for client in clients:
        answer(client, lambda: client.send("MEM_REQUEST", TIB // 2, 0, 0), lambda: client.send("REQ_LOCK"))
    for_ever()


def liars_memory(path, uuid, total_bytes, ready):
    """All of the card is theirs, and stays there, and more and more; what they are granted they never answer."""
    clients = gather(path, uuid, total_bytes, 10, total_bytes // 4, ready)
    while True:
        for client in clients:
            used = random.choice([0, total_bytes // 2, total_bytes, TIB, (1 << 64) - 1])
            answer(client, lambda: client.send("MEM_REPORT", used, used // 2, 0),
                   lambda: client.send("RESIDENT", used, 1 << 62, used, 0), lambda: client.send("REQ_LOCK"),
                   lambda: client.send("MEM_REQUEST", used, used, 0), lambda: client.send("MEM_SHORT", used))
        clients = [client for client in clients if client.socket.fileno() >= 0] or \
            gather(path, uuid, total_bytes, 10, total_bytes // 4)
        time.sleep(0.01)


def liars_silent(path, uuid, total_bytes, ready):
    """They have little memory, want the GPU, and answer nothing once they have it. Those that are evicted come again."""
    clients = gather(path, uuid, total_bytes, 10, MIB, ready)
    while True:
        for client in clients:
            answer(client, lambda: client.send("REQ_LOCK"))
        clients = [client for client in clients if client.socket.fileno() >= 0]
        clients += gather(path, uuid, total_bytes, 10 - len(clients), MIB)
        time.sleep(0.01)


def answer(client, *sends):
    """An attacker's connection may end at any time."""
    try:
        for send in sends:
            send()
        client.drain()
    except (Gone, Silent):
        client.close()


def uuids(path, _uuid, total_bytes, ready):
    """GPUs that there are not."""
    clients = []
    while len(clients) < 8:
        try:
            client = Client(path, PATIENCE_S)
            client.register()
            clients.append(client)
            for gpu in range(64):
                client.attach(os.urandom(16), total_bytes, gpu=gpu)
            client.drain()
        except (Gone, Silent):
            pass
    ready()
    for_ever()


# ---- floods ----

def random_packet(name):
    body = bytes(random.choice([0, 0, 1, 255, random.randrange(256)]) for _ in range(SIZE - 24))
    packet = bytearray(pack(name, gpu=random.choice([0, 0, 1, 63, 64, ALL])))
    packet[24:] = body
    return bytes(packet)


def flood_messages(path, uuid, total_bytes, ready):
    """Each kind of message, as fast as they are taken."""
    ready()
    while True:
        for name in CLIENT_TYPES + CONTROL_TYPES:
            try:
                with Client(path, 1) as client:
                    if name in CLIENT_TYPES:
                        client.register()
                        client.attach(uuid, total_bytes, 0)
                    packet = random_packet(name) if name in BODIES else pack(name)
                    for _ in range(2000):
                        client.send_packet(packet)
                        client.drain()
            except (Gone, Silent):
                pass


def flood_connects(path, _uuid, _total_bytes, ready):
    """Some stay without a word, others come and go."""
    silent = []
    ready()
    while True:
        try:
            client = Client(path, 0)
            if len(silent) < 2500 and random.random() < 0.5:
                silent.append(client)
            else:
                client.close()
        except Full:
            pass
        except Gone:
            for client in silent:
                client.close()
            silent = []


def flood_closes(path, _uuid, _total_bytes, ready):
    """Connections that end as soon as they are there: each costs the daemon something outside this user's turn."""
    ready()
    while True:
        try:
            for client in [Client(path, 0) for _ in range(16)]:
                client.close()
        except Gone:
            pass


def flood_declares(path, uuid, total_bytes, ready):
    """A job that has other terms all the time, as often as a connection may say so."""
    said = False
    while True:
        try:
            with attached(path, uuid, total_bytes) as client:
                if not said:
                    ready()
                said = True
                while True:
                    for weight in range(1, 1000):
                        client.send("DECLARE", weight, 0, 0, 0, b"", 0, 0, 0, 0)
                    client.drain()
        except (Gone, Silent):
            pass


def flood_unread(path, ready, *question):
    """Questions whose answers nobody reads."""
    clients = []
    while True:
        try:
            client = Client(path, 1)
            client.send(*question)
            clients.append(client)
        except (Gone, Silent):
            time.sleep(0.01)
        if len(clients) == 100:
            ready()
        if len(clients) > 1000:
            clients.pop(0).close()


def flood_status(path, _uuid, _total_bytes, ready):
    flood_unread(path, ready, "GET_STATUS")


def flood_events(path, _uuid, _total_bytes, ready):
    flood_unread(path, ready, "GET_EVENTS", 1, 0, 0, 1)


# ---- fakes ----

def fakes_many(path, uuid, total_bytes, ready):
    """1,500 programs that are none, and 500 messages a second."""
    clients = gather(path, uuid, total_bytes, 1500, MIB, ready)
    while True:
        client = random.choice(clients)
        answer(client, *[lambda: client.send("REQ_LOCK"), lambda: client.send("MEM_REPORT", MIB, 0, 0),
                         lambda: client.send("CLIENT_STATE", 0, 0, 1)][:random.randrange(1, 4)])
        time.sleep(0.002)


def fakes_gpu(path, uuid, total_bytes, ready):
    """100 programs that do as they are told, and want the GPU all the time."""
    clients = {client.socket.fileno(): client for client in gather(path, uuid, total_bytes, 100, total_bytes // 2)}
    for client in clients.values():
        answer(client, lambda: client.send("REQ_LOCK"))
    ready()
    while True:
        for fd in select.select(list(clients), [], [], 10)[0]:
            try:
                obey(clients[fd])
            except (Gone, Silent):
                clients.pop(fd).close()


def obey(client):
    message = client.receive()
    if message.name in ("ROOM", "LOCK_OK", "DROP_LOCK"):
        room_bytes, room_seq = message.values()[:2]
        client.send("RESIDENT", room_bytes, room_seq, 0, 0)
    if message.name == "LOCK_OK":
        client.send("LOCK_ACTIVE", 0, 0, epoch=message.epoch)
    elif message.name == "DROP_LOCK":
        client.send("LOCK_RELEASED", 0, epoch=message.epoch)
        client.send("REQ_LOCK")


# ---- slow readers ----

def slow_readers(path, _uuid, _total_bytes, ready):
    """Of the metrics' socket, beside the daemon's."""
    metrics = os.path.join(os.path.dirname(path), "metrics.sock")
    readers = []
    while len(readers) < 200:
        reader = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        reader.settimeout(1)
        try:
            reader.connect(metrics)
            reader.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * (len(readers) % 2) or b"GET /met")
        except OSError:
            pass
        readers.append(reader)
    flood_unread(path, ready, "GET_STATUS")


# ---- a holder that dies; and one whose child has its socket ----

def hold(path, uuid, total_bytes):
    """The number of its job."""
    client = Client(path)
    job = client.register().values()[0]
    client.attach(uuid, total_bytes, total_bytes // 2)
    client.send("REQ_LOCK")
    grant = client.expect("LOCK_OK")
    client.send("LOCK_ACTIVE", 0, 0, epoch=grant.epoch)
    HELD.append(client)
    return job


def holder(path, uuid, total_bytes, ready):
    ready(f"{hold(path, uuid, total_bytes)}\n")
    for_ever()


def holder_with_child(path, uuid, total_bytes, ready):
    hold(path, uuid, total_bytes)
    if os.fork() == 0:
        for_ever()
    ready()
    for_ever()
