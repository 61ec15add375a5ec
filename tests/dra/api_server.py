"""A stand-in for the API server, over HTTPS: ResourceSlices, ResourceClaims and Nodes, with resource versions and
conflicts as the real one has them. It fails when it is told to."""
import http.server
import json
import pathlib
import ssl
import subprocess
import threading
import time

RESOURCE = "/apis/resource.k8s.io/v1"
SLICES = f"{RESOURCE}/resourceslices"


def make_certificate(folder):
    """A certificate of its own for 127.0.0.1."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", folder / "key.pem", "-out", folder / "ca.crt"]
    subprocess.run(command, check=True, capture_output=True)


def canonical(value):
    """Quantities as the real server writes them: with the largest unit that leaves a whole number."""
    if isinstance(value, dict):
        return {key: canonical(part) for key, part in value.items()}
    if isinstance(value, list):
        return [canonical(part) for part in value]
    if isinstance(value, str) and value.endswith("Mi") and value[:-2].isdigit() and int(value[:-2]) % 1024 == 0:
        return f"{int(value[:-2]) // 1024}Gi"
    return value


class ApiServer:
    """Objects by their path. Starts at once."""

    def __init__(self, folder, token):
        self.folder = pathlib.Path(folder)
        self.changed = threading.Condition(threading.RLock())
        self.objects = {}
        self.tokens = {token}
        self.failures = []  # (method, part of the path, status): the first that fits a request answers it
        self.requests = []  # (method, path, status)
        self.delays = []  # (part of the path, seconds): how late a request that fits is answered
        self.version = 100
        self.server = None
        make_certificate(self.folder)
        self.port = 0
        self.start()

    def start(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                time.sleep(sum(seconds for part, seconds in outer.delays if part in self.path))
                status, answer = outer.answer(self.command, self.path, self.headers.get("Authorization"), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass  # connections that the driver's end has cut

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "ca.crt", self.folder / "key.pem")
        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    # ---- what is asked ----

    def answer(self, method, path, authorization, body):
        with self.changed:
            status, answer = self.decide(method, path, authorization, body)
            self.requests.append((method, path, status))
            self.changed.notify_all()
            return status, answer

    def decide(self, method, path, authorization, body):
        if (authorization or "").removeprefix("Bearer ") not in self.tokens:
            return self.refusal(401, "Unauthorized")
        for failure in self.failures:
            if failure[0] == method and failure[1] in path:
                self.failures.remove(failure)
                return self.refusal(failure[2], "it is told to fail")
        if method == "POST":
            return self.create(path, json.loads(body))
        if path not in self.objects:
            return self.refusal(404, f"{path} not found")
        if method == "PUT":
            return self.replace(path, json.loads(body))
        if method == "DELETE":
            del self.objects[path]
            return 200, {"kind": "Status", "status": "Success"}
        return 200, self.objects[path]

    @staticmethod
    def refusal(status, message):
        return status, {"kind": "Status", "status": "Failure", "code": status, "message": message}

    def create(self, folder, thing):
        path = f"{folder}/{thing['metadata']['name']}"
        if path in self.objects:
            return self.refusal(409, "already exists")
        self.put(path, thing)
        return 201, self.objects[path]

    def replace(self, path, thing):
        if thing["metadata"].get("resourceVersion") != self.objects[path]["metadata"]["resourceVersion"]:
            return self.refusal(409, "the object has been modified")
        self.put(path, thing)
        return 200, self.objects[path]

    # ---- for tests ----

    def put(self, path, thing):
        with self.changed:
            self.version += 1
            thing["metadata"]["resourceVersion"] = str(self.version)
            self.objects[path] = canonical(thing)
            self.changed.notify_all()

    def touch(self, path):
        """Somebody else has changed something of it."""
        with self.changed:
            self.put(path, self.objects[path])

    def remove(self, path):
        with self.changed:
            self.objects.pop(path, None)

    def fail(self, method, part, *statuses):
        with self.changed:
            self.failures += [(method, part, status) for status in statuses]

    def wait(self, what, condition, patience_s):
        with self.changed:
            if not self.changed.wait_for(condition, patience_s):
                raise AssertionError(f"not within {patience_s} s: {what}; asked: {self.requests[-20:]}")

    def count(self, method, part="", status=None):
        return sum(1 for m, p, s in self.requests if m == method and part in p and status in (None, s))
