"""What the plugin makes of peers that send what no kubelet sends: the right status or the end of the connection, no
more memory, and service to others as ever. Needs grpcio, protobuf and h2; ends with 77 without them."""
import contextlib
import pathlib
import socket
import struct
import sys
import unittest

try:
    import grpc
    import h2.config
    import h2.connection
    import h2.events

    import messages
    from kubelet import GPU, PATIENCE_S, UUIDS, scene, service_path, wait_until
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
CONNECTIONS_MAX = 8  # as kubelet/rpc_listener.c has it
MEMORY_MAX_KIB = 48 << 10


def frame(kind, flags=0, stream=0, payload=b"", size=None):
    return struct.pack(">I", len(payload) if size is None else size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def framed(message, flag=0, size=None):
    return struct.pack(">BI", flag, len(message) if size is None else size) + message


class Peer:
    """A client that sends what it is told to, by the frame."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(str(path))
        config = h2.config.H2Configuration(validate_outbound_headers=False, normalize_outbound_headers=False)
        self.http = h2.connection.H2Connection(config)
        self.http.initiate_connection()  # sent together with the first call

    def close(self):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.http.data_to_send())

    def begin(self, path, method="POST", kind="application/grpc", authority="localhost", end=False, **more):
        stream = self.http.get_next_available_stream_id()
        headers = [(":method", method), (":scheme", "http"), (":path", path), (":authority", authority), ("te", "trailers")]
        headers += [("content-type", kind)] if kind else []
        self.http.send_headers(stream, headers + list(more.items()), end_stream=end)
        self.flush()
        return stream

    def events(self):
        """What comes next; [] at the end of the connection."""
        data = self.socket.recv(65536)
        if not data:
            return []
        events = self.http.receive_data(data)
        for event in events:
            if isinstance(event, h2.events.DataReceived):
                self.http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()
        return events

    def result(self, stream):
        """Headers and trailers of the answer, once it has ended, and what else was said of the stream."""
        headers = {}
        while True:
            events = self.events()
            if not events and not headers:
                return None
            for event in events:
                if getattr(event, "stream_id", None) != stream:
                    continue
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    headers.update({(k if isinstance(k, str) else k.decode()): (v if isinstance(v, str) else v.decode()) for k, v in event.headers})
                if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    return headers

    def call(self, path, *parts, end=True, **more):
        stream = self.begin(path, **more)
        for i, part in enumerate(parts):
            self.http.send_data(stream, part, end_stream=end and i == len(parts) - 1)
        self.flush()
        return self.result(stream)


def ends(path, data):
    """Whether the connection ends after these bytes."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            peer.sendall(data)
            while peer.recv(65536):
                pass
    return True


def memory_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


class Malformed(unittest.TestCase):
    """One plugin bears all of it."""

    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.here = cls.stack.enter_context(scene(gpus=2))
        cls.here.kubelet.wait_healthy(20)
        cls.path = cls.here.socket()

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def tearDown(self):
        environment = self.here.kubelet.clients[GPU].allocate(f"{UUIDS[1]}.1")[0]
        self.assertEqual(environment["NVIDIA_VISIBLE_DEVICES"], UUIDS[1])
        self.assertEqual(len(self.here.kubelet.healthy()), 20)
        self.assertEqual(len(self.here.kubelet.registrations), 1)  # the kubelet's own connection has not suffered
        self.assertLess(memory_kib(self.here.plugin), MEMORY_MAX_KIB)

    @contextlib.contextmanager
    def peer(self):
        with contextlib.closing(Peer(self.path)) as peer:
            yield peer

    def status(self, *parts, method="Allocate", **more):
        with self.peer() as peer:
            return int(peer.call(service_path(method), *parts, **more)["grpc-status"])

    # ---- gRPC ----

    def test_a_right_call(self):
        request = messages.new("ContainerAllocateRequest", devices_ids=[f"{UUIDS[0]}.3"])
        whole = framed(messages.new("AllocateRequest", container_requests=[request]).SerializeToString())
        self.assertEqual(self.status(whole), 0)
        self.assertEqual(self.status(*(whole[i : i + 1] for i in range(len(whole)))), 0)  # byte by byte
        self.assertEqual(self.status(framed(b""), method="GetDevicePluginOptions"), 0)

    def test_authorities_of_older_kubelets(self):
        for authority in ("/var/lib/kubelet/device-plugins/gpushare.sock", "unix:///x", ""):
            with self.subTest(authority):
                self.assertEqual(self.status(framed(b""), method="GetDevicePluginOptions", authority=authority), 0)

    def test_frames(self):
        for name, body, status in (
            ("nothing", b"", 13),
            ("half a head", b"\0\0\0", 13),
            ("a message that is not whole", framed(b"\x0a", size=2), 13),
            ("two messages", framed(b"") * 2, 13),
            ("one byte more", framed(b"") + b"\0", 13),
            ("no flag", framed(b"", flag=7), 13),
            ("compressed", framed(b"", flag=1), 12),
            ("4 GiB", framed(b"", size=0xFFFFFFFF), 8),
            ("a byte too many", framed(b"", size=(512 << 10) + 1), 8),
        ):
            with self.subTest(name):
                self.assertEqual(self.status(body), status)

    def test_an_answer_before_the_end(self):
        for body, status in ((framed(b"", size=0xFFFFFFFF), 8), (framed(b"", flag=1), 12)):
            self.assertEqual(self.status(body, end=False), status)

    def test_messages(self):
        strings = b"\x0a\x00" * 1000
        for name, message, status in (
            ("noise", b"\xff" * 50, 13),
            ("a length beyond the end", b"\x0a\x7f\x0a", 13),
            ("a varint without end", b"\x08" + b"\x80" * 20, 13),
            ("a length of 2^64", b"\x0a" + b"\xff" * 9 + b"\x01", 13),
            ("unknown fields", b"\x98\x06\x01", 0),
            ("no container", b"", 0),
            ("a container without devices", b"\x0a\x00", 3),
            ("a thousand containers", strings, 3),
            ("a thousand empty names", b"\x0a\xd0\x0f" + strings, 3),
        ):
            with self.subTest(name):
                self.assertEqual(self.status(framed(message)), status)

    def test_methods(self):
        for path in ("/", "/v1beta1.DevicePlugin/", "/v1beta1.DevicePlugin/Allocat", "/v1beta1.DevicePlugin/Allocate2",
                     "/v1.DevicePlugin/Allocate", "/" + "x" * 8000, "*", "", "x"):
            with self.subTest(path[:40]), self.peer() as peer:
                self.assertEqual(peer.call(path, framed(b""))["grpc-status"], "12")

    def test_not_grpc(self):
        for more, status in (({"method": "GET"}, "405"), ({"kind": "text/html"}, "415"), ({"kind": None}, "415")):
            with self.subTest(more=more), self.peer() as peer:
                self.assertEqual(peer.call(service_path("Allocate"), framed(b""), **more)[":status"], status)

    # ---- HTTP/2 ----

    def test_not_http2(self):
        for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"\xff" * 100000, b"\x16\x03\x01" + bytes(60), PREFACE + b"x" * 1000):
            with self.subTest(data=data[:20]):
                self.assertTrue(ends(self.path, data))

    def test_frames_that_break_the_connection(self):
        for name, data in (
            ("16 MiB", frame(0, 0, 1, size=0xFFFFFF)),
            ("data of no stream", frame(0, 0, 1, b"x")),
            ("headers of stream 0", frame(1, 4, 0, b"\x82")),
            ("headers of an even stream", frame(1, 4, 2, b"\x82")),
            ("noise as headers", frame(1, 4, 1, b"\xff" * 40)),
            ("a settings frame of 5 bytes", frame(4, 0, 0, b"12345")),
            ("a window update of 0", frame(8, 0, 0, bytes(4))),
            ("windows beyond 2^31", frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2),
            ("a continuation of nothing", frame(9, 4, 1, b"\x82")),
            ("something between headers", frame(1, 0, 1, b"\x82") + frame(6, 0, 0, bytes(8))),
            ("headers without end", frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\0\1a\1b" * 3000) * 12),
        ):
            with self.subTest(name):
                self.assertTrue(ends(self.path, PREFACE + SETTINGS + data))

    def test_half_a_preface_holds_up_nobody(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as idle:
            idle.connect(str(self.path))
            idle.sendall(PREFACE[:10])
            self.tearDown()

    # ---- too much ----

    def count_refused(self, count):
        """Of so many connections at the same time. Who comes too late is sent away without a word."""
        peers = [Peer(self.path) for _ in range(count)]
        refused = sum(not self.is_served(peer) for peer in peers)
        for peer in peers:
            peer.close()
        return refused

    def test_too_many_connections(self):
        # The kubelet has one. Those of other tests, and of the last try, end as soon as the plugin comes to it.
        wait_until("all but five are served", lambda: self.count_refused(CONNECTIONS_MAX + 4) == 5)
        wait_until("all are served", lambda: self.count_refused(CONNECTIONS_MAX - 1) == 0)

    @staticmethod
    def is_served(peer):
        try:
            result = peer.call(service_path("GetDevicePluginOptions"), framed(b""))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return result is not None and result["grpc-status"] == "0"

    def test_too_many_watchers(self):
        with self.peer() as peer:
            streams = [peer.begin(service_path("ListAndWatch")) for _ in range(5)]
            for stream in streams:
                peer.http.send_data(stream, framed(b""), end_stream=True)
            peer.flush()
            self.assertEqual(peer.result(streams[-1])["grpc-status"], "8")

    def test_too_many_requests_that_are_not_whole(self):
        part = bytes(16000)
        with self.peer() as peer:
            streams = [peer.begin(service_path("Allocate")) for _ in range(40)]
            head = framed(b"", size=512 << 10)
            refused = 0
            for stream in streams:
                peer.http.send_data(stream, head)
            for _ in range(30):  # 40 streams of 480 kB are 19 MB
                for stream in list(streams):
                    while peer.http.local_flow_control_window(stream) < len(part):
                        refused += self.take_refusals(peer, streams)
                        if stream not in streams:
                            break
                    if stream in streams:
                        peer.http.send_data(stream, part)
                        peer.flush()
            self.assertGreater(refused, 30)

    @staticmethod
    def take_refusals(peer, streams):
        refused = 0
        for event in peer.events():
            if isinstance(event, h2.events.ResponseReceived):
                headers = dict(event.headers)
                refused += headers.get(b"grpc-status", headers.get("grpc-status")) in (b"8", "8")
            if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)) and event.stream_id in streams:
                streams.remove(event.stream_id)
        return refused

    def test_streams_that_are_reset_at_once(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(str(self.path))
            headers = b"\x83\x86\x44\x04/abc\x41\x01x"  # POST, http, path, authority
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(PREFACE + SETTINGS)
                for i in range(20000):
                    stream = 2 * i + 1
                    peer.sendall(frame(1, 4, stream, headers) + frame(3, 0, stream, b"\0\0\0\x08"))

    def test_questions_whose_answers_nobody_reads(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as peer:
            peer.connect(str(self.path))
            peer.settimeout(0.2)
            with contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
                peer.sendall(PREFACE + SETTINGS)
                while True:  # until the plugin has stopped reading, or ends it
                    peer.sendall(frame(6, 0, 0, bytes(8)) * 1000)
            self.tearDown()


if __name__ == "__main__":
    unittest.main()
