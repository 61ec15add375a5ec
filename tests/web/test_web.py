"""The page of gpushare-web: what it shows, to whom, and what readers can't do to the daemon.
usage: test_web.py BUILD [unittest's arguments]     exits with 77 if only Browser is wanted and there is none"""
import concurrent.futures
import contextlib
import html
import http.server
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(SOURCES, "tests", "metrics"))
from scene import MIB, PATIENCE_S, Scene, ask, wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PLACES = 64
READER_S = 10  # a connection has so long
SOON_S = 10  # a page that ends within that time is given up
TRIES = 3
NOBODY = 65534
SECRET = "--rounds 0 --spin"  # of a command line
DATA = ("/api/status", "/api/why", "/api/events")


class WebScene(Scene):
    """A daemon with a page, in a folder that other users reach."""

    def __init__(self, *settings, web=None, **environment):
        self.web = web
        super().__init__(BUILD, *settings, metrics="off", **environment)

    def write_config(self, _):
        os.chmod(self.folder, 0o755)
        if self.web is None:
            self.web = "unix:" + os.path.join(self.folder, "web.sock")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"web = {self.web}\n")

    def get(self, path="/", method="GET", **headers):
        return ask(self.web, path, method, **{"Host": "localhost", **headers})

    def json(self, path):
        status, _, text = self.get(path)
        assert status == 200, text
        return json.loads(text)

    def events(self, after=None):
        """The present, and the events."""
        status, _, text = self.get("/api/events" + (f"?after={after}" if after is not None else ""))
        assert status == 200, text
        lines = [json.loads(line) for line in text.splitlines()]
        return lines[0], lines[1:]

    def page_process(self):
        """The child of the daemon that is the page's; None."""
        listing = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(self.daemon.pid)], capture_output=True, text=True, check=False)
        found = [int(line.split()[0]) for line in listing.stdout.splitlines() if line.split()[1] == "gpushare-web"]
        return found[0] if found else None

    def reload(self, address):
        self.web = address
        self.write_config(None)
        count = self.log().count("has been read again")
        self.daemon.send_signal(signal.SIGHUP)
        wait_until("it has been read again", lambda: self.log().count("has been read again") > count)


@contextlib.contextmanager
def passed_socket(scene):
    """The address of a page that is started as systemd does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        page = subprocess.Popen(
            ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$@" 3<&%d' % listener.fileno(), "sh",
             scene.program("daemon", "gpushare-web"), scene.socket],
            pass_fds=[listener.fileno()], env={**os.environ, "LISTEN_FDS": "1"})
        try:
            yield "127.0.0.1:%d" % listener.getsockname()[1]
        finally:
            page.kill()
            page.wait()


class Case(unittest.TestCase):
    def scene(self, *settings, **options):
        scene = WebScene(*settings, **options)
        self.addCleanup(scene.end)
        return scene


class Page(Case):
    def test_it_needs_nothing_from_elsewhere_and_runs_only_its_own_script(self):
        status, headers, text = self.scene().get()
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        nonces = set(re.findall(r'<(?:script|style) nonce="([^"]*)">', text))
        self.assertEqual(len(re.findall("<(?:script|style)", text)), 2)
        self.assertEqual(len(nonces), 1)
        nonce = nonces.pop()
        self.assertRegex(nonce, "^[0-9a-f]{32}$")
        self.assertEqual((policy["script-src"], policy["style-src"]), (f"'nonce-{nonce}'", f"'nonce-{nonce}'"))
        self.assertEqual(policy["default-src"], "'none'")
        self.assertEqual(policy["require-trusted-types-for"], "'script'")
        self.assertEqual(set(re.findall(r"https?://[^\"'\s]*", text)), {"http://www.w3.org/2000/svg"})
        self.assertEqual(re.findall(r"\bsrc=|@import|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|style=", text), [])

    def test_each_answer_has_another_nonce(self):
        scene = self.scene()
        self.assertNotEqual(scene.get()[1]["Content-Security-Policy"], scene.get()[1]["Content-Security-Policy"])


def keys(value):
    """The shape of a JSON text: names at all depths."""
    if isinstance(value, dict):
        return {name: keys(each) for name, each in value.items()}
    return [keys(each) for each in value] if isinstance(value, list) else None


class Data(Case):
    def test_state_is_that_of_status(self):
        scene = self.scene()
        scene.start(bytes_each=8 * MIB)
        wait_until("the daemon has heard of all its memory", lambda: scene.status()["gpus"][0]["used_bytes"] == 8 * MIB)
        shown, told = scene.json("/api/status"), scene.status()
        self.assertEqual(keys(shown), keys(told))
        for name in ("uuid", "name", "capacity_bytes", "used_bytes", "mode", "policy"):
            self.assertEqual(shown["gpus"][0][name], told["gpus"][0][name])
        for name in ("job", "pid", "user", "name", "used_bytes", "state"):
            self.assertEqual(shown["gpus"][0]["jobs"][0][name], told["gpus"][0]["jobs"][0][name])

    def test_why_is_what_gpusharectl_says(self):
        scene = self.scene()
        scene.start(bytes_each=8 * MIB)
        self.assertEqual(scene.ctl("pause", "1").returncode, 0)
        wait_until("it is paused", lambda: scene.status()["gpus"][0]["jobs"][0]["reason"] == "paused")
        time.sleep(1)  # not the snapshot that was made before
        why = scene.json("/api/why")["jobs"]
        told = json.loads(scene.ctl("why", "1", "--json").stdout)["gpus"][0]
        self.assertEqual([(each["job"], each["gpu"], each["text"]) for each in why], [(1, 0, told["text"])])
        self.assertIn("is paused", why[0]["text"])

    def test_command_lines_are_shown_to_nobody(self):
        """Not even if what serves the page runs as their owner."""
        scene = self.scene()
        os.chmod(scene.folder, 0o777)
        scene.start(bytes_each=8 * MIB, user=NOBODY if os.geteuid() == 0 else None)
        self.assertIn(SECRET, scene.status()["gpus"][0]["jobs"][0]["command"])
        self.assertIn(SECRET, scene.ctl("events", "--json").stdout)
        self.assertIsNone(scene.json("/api/status")["gpus"][0]["jobs"][0]["command"])
        for path in ("/", *DATA):
            status, _, text = scene.get(path)
            self.assertEqual(status, 200)
            self.assertNotIn(SECRET, text, path)
        self.assertNotIn("command", {event["event"] for event in scene.events()[1]})

    def test_events_are_those_of_gpusharectl(self):
        scene = self.scene("--tq", "100ms")
        jobs = [scene.start(), scene.start()]
        for job in jobs:
            scene.stop(job)
        wait_until("both have left", lambda: scene.status()["daemon"]["jobs"] == 0)
        time.sleep(1)
        now, shown = scene.events()
        told = [json.loads(line) for line in scene.ctl("events", "--json").stdout.splitlines()]
        wanted = [event for event in told if event["event"] != "command"]
        for event in (*shown, *wanted):  # the clock on the wall is set by and by
            event.pop("time")
            event.pop("started", None)
        self.assertEqual(shown, wanted)
        self.assertEqual(now["event"], "now")
        self.assertGreaterEqual(now["at_ns"], shown[-1]["at_ns"])
        middle = shown[len(shown) // 2]["seq"]
        self.assertEqual([event["seq"] for event in scene.events(middle)[1]], [e["seq"] for e in shown if e["seq"] > middle])
        self.assertEqual(scene.events(shown[-1]["seq"])[1], [])
        for wrong in ("x", "-1", "1x", ""):
            self.assertEqual(scene.get(f"/api/events?after={wrong}")[0], 400, wrong)

    def test_new_events_come_and_none_comes_twice(self):
        scene = self.scene("--tq", "50ms")
        scene.start(), scene.start()
        seen = []
        for _ in range(4):
            events = scene.events(seen[-1] if seen else 0)[1]
            seen += [event["seq"] for event in events]
            time.sleep(1)
        self.assertEqual(seen, sorted(set(seen)))
        self.assertGreater(len(seen), 20)
        self.assertEqual([event["seq"] for event in scene.events(0)[1]][:len(seen)], seen)

    def test_the_next_daemon_has_other_events(self):
        scene = self.scene(web="off")
        with passed_socket(scene) as scene.web:
            for _ in range(2):
                scene.stop(scene.start(bytes_each=8 * MIB))
            before = [event["pid"] for event in scene.events()[1] if "job" in event]
            self.assertTrue(before)
            scene.daemon.terminate()
            scene.daemon.wait(PATIENCE_S)
            time.sleep(1)
            self.assertEqual(scene.get("/api/status")[0], 503)
            scene.start_daemon()
            scene.start(bytes_each=8 * MIB)
            wait_until("the page sees it", lambda: scene.get("/api/status")[0] == 200)
            now = [event for event in scene.events()[1] if event["event"] == "attached"]
            self.assertEqual(len(now), 1)
            self.assertNotIn(now[0]["pid"], before)


class Requests(Case):
    def test_what_is_answered(self):
        scene = self.scene()
        for path in ("/", *DATA):
            status, headers, text = scene.get(path)
            self.assertEqual(status, 200, text)
            for name, value in (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"), ("X-Frame-Options", "DENY")):
                self.assertEqual(headers[name], value, path)
            self.assertIn("default-src 'none'", headers["Content-Security-Policy"], path)
            self.assertEqual(scene.get(path, "HEAD")[::2], (200, ""))
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                status, headers, _ = scene.get(path, method, Origin="http://other.example")
                self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
                self.assertFalse([name for name in headers if name.lower().startswith("access-control")])
        self.assertEqual(scene.get("/metrics")[0], 404)
        self.assertEqual(scene.get("/../../etc/passwd")[0], 404)

    def test_only_under_names_of_this_host(self):
        """A page of somebody else's, whose name leads here (DNS rebinding), reads nothing."""
        scene = self.scene()
        for host in ("localhost", "LocalHost:9466", "127.0.0.1", "127.0.0.1:9466", "10.1.2.3:80", "[::1]", "[::1]:9466",
                     socket.gethostname()):
            self.assertEqual(scene.get("/api/status", Host=host)[0], 200, host)
        for host in ("evil.example", "evil.example:9466", "localhost.evil.example", "127.0.0.1.evil.example", "localhost@evil.example",
                     "[::1].evil.example]", "[::1", "[evil.example]", "127.0.0.1:80.evil.example", "", ":80", "[", "[]", "x" * 300):
            for path in ("/", *DATA):
                self.assertEqual(scene.get(path, Host=host)[0], 403, host)

    def test_without_a_host(self):
        scene = self.scene()
        with self.connect(scene) as guest:
            guest.sendall(b"GET /api/status HTTP/1.0\r\n\r\n")
            self.assertIn(b" 403 ", guest.recv(4096))

    def test_many_cost_as_one(self):
        scene = self.scene()
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            told = list(pool.map(lambda _: scene.json("/api/status")["daemon"]["uptime_ns"], range(100)))
        self.assertLessEqual(len(set(told)), 2 + (time.monotonic() - begin) / 0.9)

    def connect(self, scene):
        guest = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        guest.settimeout(PATIENCE_S)
        wait_until("there is room in its queue", lambda: guest.connect_ex(scene.web[len("unix:"):]) == 0)
        return guest

    def answer_beside_slow_readers_s(self, scene):
        begin = time.monotonic()
        with contextlib.ExitStack() as guests:
            for i in range(2 * PLACES):
                guest = guests.enter_context(self.connect(scene))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    guest.sendall(b"GET /api/status HTTP/1.1\r\n"[:i])
            self.assertEqual(scene.get("/api/status")[0], 200)
        return time.monotonic() - begin

    def test_who_is_slow_keeps_out_nobody(self):
        """Not even until the slow ones' time is over. A machine that is so slow itself tries again."""
        scene = self.scene()
        self.assertTrue(any(self.answer_beside_slow_readers_s(scene) < READER_S / 2 for _ in range(TRIES)))
        self.assertIsNotNone(scene.status())

    def test_what_is_no_request(self):
        scene = self.scene()
        for junk in (b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 10000, b"\x16\x03\x01\x02"):
            with self.connect(scene) as guest, contextlib.suppress(OSError):
                guest.sendall(junk)
        self.assertEqual(scene.get()[0], 200)

    def test_a_daemon_that_hangs_holds_up_no_page(self):
        scene = self.scene()
        scene.json("/api/status")
        time.sleep(1)
        scene.daemon.send_signal(signal.SIGSTOP)
        self.addCleanup(scene.daemon.send_signal, signal.SIGCONT)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(scene.get, "/api/status")
            time.sleep(0.5)
            self.assertEqual(scene.get("/")[0], 200)
            self.assertFalse(waits.done())
            status, _, text = waits.result(PATIENCE_S)
        self.assertEqual((status, text), (503, "the daemon does not answer: see gpushare-daemon's log"))
        scene.daemon.send_signal(signal.SIGCONT)
        wait_until("it answers again", lambda: scene.get("/api/status")[0] == 200)


class Service(Case):
    def port(self, scene):
        wait_until("it says where", lambda: "web page on 127.0.0.1:" in scene.log())
        return [line.split()[-1] for line in scene.log().split("\n") if "web page on 127.0.0.1:" in line][-1]

    def test_off_unless_set(self):
        scene = self.scene(web="off")
        self.assertIsNone(scene.page_process())

    def test_a_reload_takes_it_elsewhere(self):
        scene = self.scene()
        path, first = scene.web[len("unix:"):], wait_until("it is there", scene.page_process)
        scene.reload(scene.web)
        self.assertEqual(scene.page_process(), first)
        scene.reload("127.0.0.1:0")
        self.assertFalse(os.path.exists(path))
        self.assertEqual(ask(self.port(scene), "/api/status")[0], 200)
        scene.reload("off")
        self.assertIsNone(scene.page_process())
        with self.assertRaises(ConnectionRefusedError):
            ask(self.port(scene), "/")

    def test_a_wrong_address_is_named(self):
        scene = self.scene()
        with open(scene.config, "w", encoding="utf-8") as file:
            file.write("web = 9466\n")
        result = subprocess.run([scene.program("daemon", "gpushare-daemon"), "--check-config", scene.config],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 78)
        self.assertIn(":1: web: '9466' is none of off, ADDRESS:PORT", result.stderr)

    def test_it_ends_with_the_daemon(self):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            scene = self.scene()
            scene.json("/api/status")
            page = scene.page_process()
            scene.daemon.send_signal(ending)
            scene.daemon.wait(PATIENCE_S)
            wait_until("it has ended", lambda: not os.path.exists(f"/proc/{page}"))
            self.assertEqual(os.path.exists(scene.web[len("unix:"):]), ending == signal.SIGKILL)

    def test_one_that_ends_at_once_is_told_and_a_reload_brings_it_back(self):
        scene = self.scene()
        scene.json("/api/status")
        os.kill(scene.page_process(), signal.SIGKILL)
        wait_until("it is told", lambda: f"web = {scene.web}: there is no page" in scene.log())
        self.assertIn("gpushare-web has ended, by signal 9", scene.log())
        self.assertIsNotNone(scene.status())
        scene.reload(scene.web)
        self.assertEqual(scene.get("/api/status")[0], 200)

    def test_one_that_ends_later_is_started_anew(self):
        scene = self.scene()
        first = wait_until("it is there", scene.page_process)
        time.sleep(SOON_S + 1)
        os.kill(first, signal.SIGKILL)
        wait_until("there is another", lambda: scene.page_process() not in (None, first))
        self.assertEqual(scene.get("/api/status")[0], 200)
        self.assertNotIn("there is no page", scene.log())

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            scene = self.scene(web=address)
            wait_until("it says why", lambda: f"web = {address}: there is no page" in scene.log())
        scene.reload(address)
        self.assertEqual(ask(address, "/")[0], 200)

    def test_it_has_no_rights(self):
        scene = self.scene()
        scene.json("/api/status")
        with open(f"/proc/{scene.page_process()}/status", encoding="utf-8") as file:
            status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        if os.geteuid() == 0:
            self.assertEqual(set(status["Uid"].split() + status["Gid"].split()), {"65534"})
            self.assertEqual(status["Groups"].strip(), "")
        self.assertEqual((int(status["CapEff"], 16), int(status["CapPrm"], 16), status["NoNewPrivs"]), (0, 0, "1"))

    def test_by_systemd(self):
        """As gpushare-web.socket passes it: no setting of the daemon."""
        scene = self.scene(web="off")
        with open(os.path.join(SOURCES, "packaging/systemd/gpushare-web.service.in"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"(?m)^ExecStart=@CMAKE_INSTALL_FULL_LIBEXECDIR@/gpushare/gpushare-web$")
        with passed_socket(scene) as address:
            self.assertEqual(ask(address, "/api/status")[0], 200)

    def test_without_a_socket_it_says_how_it_is_started(self):
        result = subprocess.run([os.path.join(BUILD, "daemon", "gpushare-web")], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 64)
        self.assertIn("gpushare-daemon --web ADDRESS", result.stderr)


class Browser(Case):
    """In Chromium, without a screen."""

    def look(self, address, faults=()):
        """The document, once its script has had three seconds. faults: what the browser may complain of."""
        with tempfile.TemporaryDirectory() as folder:
            result = subprocess.run(
                [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}",
                 "--enable-logging=stderr", "--window-size=360,800", "--virtual-time-budget=3000", "--dump-dom",
                 f"http://{address}/"],
                capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S)
        said = [line for line in result.stderr.splitlines() if "CONSOLE" in line and not any(fault in line for fault in faults)]
        self.assertEqual(said, [])
        return result.stdout.split("<script", 1)[0]

    def test_jobs_their_turns_and_why_they_wait(self):
        scene = self.scene("--tq", "300ms", web="127.0.0.1:0")
        name = "<b>x<i>&'\""  # a job's name is no markup
        link = os.path.join(scene.folder, name)
        os.symlink(scene.program("tests", "system", "job"), link)
        scene.start(program=link), scene.start()
        time.sleep(2)
        self.assertEqual(scene.ctl("pause", "2").returncode, 0)  # what it waits for is the same from then on
        wait_until("it has stopped", lambda: scene.status()["gpus"][0]["jobs"][1]["reason"] == "paused")
        shown = self.look(Service.port(self, scene))
        self.assertRegex(shown, r'<p id="connection" role="status"[^>]*>live</p>')
        self.assertIn("GPU 0 Simulated P100", shown)
        self.assertIn(html.escape(name, quote=False), shown)
        self.assertNotIn("<b>", shown)
        self.assertRegex(shown, r'<th scope="row"[^>]*>2 job</th>')
        self.assertIn('<span class="why">Is paused: gpusharectl resume 2 lets it go on.</span>', shown)
        self.assertRegex(shown, r'role="img" aria-label="In the last 60 s job 1 (waited|ran|stopped|restored)')
        self.assertRegex(shown, r'<path class="runs" d="M\d')
        self.assertIn("turns begin", shown)

    def played(self, answers):
        """The address of a server that has the page, and these answers instead of a daemon's."""
        with open(os.path.join(SOURCES, "daemon", "web", "page.html"), encoding="utf-8") as file:
            page = file.read()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                path = self.path.split("?")[0]
                status, text = (200, page) if path == "/" else answers.get(path, (404, ""))
                self.send_response(status)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return "127.0.0.1:%d" % server.server_port

    def test_a_daemon_that_does_not_answer(self):
        address = self.played({path: (503, "the daemon does not answer: <i>see</i> its log") for path in DATA})
        shown = self.look(address, faults=["status of 503"])
        self.assertIn("gpushare: the daemon does not answer: &lt;i&gt;see&lt;/i&gt; its log.", shown)
        self.assertRegex(shown, r"No answer since [2-9] s, trying\.")
        self.assertRegex(shown, r'<p id="connection"[^>]*>no answer</p>')

    def test_no_gpu_yet(self):
        daemon = {"release": "1", "pid": 7, "uptime_ns": 0, "jobs": 0}
        shown = self.look(self.played({"/api/status": (200, json.dumps({"daemon": daemon, "gpus": []})),
                                       "/api/why": (200, '{"jobs":[]}'),
                                       "/api/events": (200, '{"event":"now","at_ns":5}\n')}))
        self.assertRegex(shown, r'<p id="empty" class="card">No program has used a GPU yet')
        self.assertIn("version 1, up 0 ms, 0 jobs, 0 waiting", shown)


if __name__ == "__main__":
    if not BROWSER and sys.argv[1:] == ["Browser"]:
        print("skipped: no Chromium here (Debian: chromium)")
        sys.exit(77)
    unittest.main()
