"""llama.cpp as its users start it: two servers, each with a model of its own, whose memory does not fit together, answer by
turns. Each answers as it does alone without us, and nearly all of the one that is away leaves the card. Prints how long a
request waits for its first token: alone, where the server's memory is on the card, and where the other's is.

GPUSHARE_LLAMA is the folder of llama-server and its libraries, built with CUDA. Without it the test is skipped.
"""
import contextlib
import functools
import http.client
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import threading
import time

import harness

ROUNDS = 4
CAPACITY, MODEL = 6 * harness.GIB, 4 * harness.GIB
ROOM = 256 * harness.MIB  # beside the memory of one, where nearly all of the other must leave
LEAVES = 0.98  # of a server's memory, at least
SEEDS = (1, 2)
ANSWER = 48  # tokens
PROMPTS = [[1, *(259 + (7 * i + j * i * i) % 250 for i in range(200))] for j in (1, 3)]  # words of llama_model.py


def llama_folder():
    folder = os.environ.get("GPUSHARE_LLAMA", "")
    if not pathlib.Path(folder, "llama-server").is_file():
        raise harness.Skip("no llama-server: set GPUSHARE_LLAMA to the folder that has it, built with CUDA")
    return pathlib.Path(folder)


class Connection(http.client.HTTPConnection):
    """To a server on a socket of the file system."""

    def __init__(self, path):
        super().__init__("localhost", timeout=harness.PROGRAM_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Server(harness.Program):
    """llama-server with one model."""

    def __init__(self, test, label, model, env):
        self.address = str(test.folder / f"{label}.sock")
        pathlib.Path(self.address).unlink(missing_ok=True)
        super().__init__(test, label, [llama_folder() / "llama-server", "-m", model, "-ngl", "99", "-c", "4096", "-np", "1",
                                       "--host", self.address], env)

    def ask(self, method, path, content=None):
        """The status of the reply, and what it says."""
        with contextlib.closing(Connection(self.address)) as connection:
            connection.request(method, path, json.dumps(content), {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.load(reply)

    def wait_ready(self):
        budget = harness.Budget(self.test.budget.clip(harness.PROGRAM_S))
        while True:
            with contextlib.suppress(OSError):
                if self.ask("GET", "/health")[0] == 200:
                    return
            if self.process.poll() is not None:
                raise self.trouble(f"ended with {self.process.returncode} before it could answer")
            if budget.left() <= 0:
                raise self.trouble("can't answer in time")
            time.sleep(0.05)

    def complete(self, prompt, tokens):
        """The tokens of a greedy answer, and the seconds that it took."""
        started = time.monotonic()
        try:
            status, said = self.ask("POST", "/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0,
                                                            "ignore_eos": True, "cache_prompt": False,
                                                            "return_tokens": True})
        except (OSError, http.client.HTTPException) as error:
            raise self.trouble(f"no answer ({error})") from None
        harness.check(status == 200, f"{self.label}: answers {status}: {said}")
        harness.check(len(said["tokens"]) == tokens, f"{self.label}: {len(said['tokens'])} tokens, not {tokens}")
        return said["tokens"], time.monotonic() - started

    def first_token(self):
        return self.complete(PROMPTS[0], 1)[1]


def milliseconds(seconds):
    return f"{1000 * statistics.median(seconds):.1f}"


def write_models(test):
    models = [test.folder / f"model{seed}.gguf" for seed in SEEDS]
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(test.start("llama_model.py", path, seed, MODEL, env=test.env()))
                   for seed, path in zip(SEEDS, models)]
        for writer in writers:
            harness.check(writer.end() == 0, f"{writer.label}: {harness.tail(writer.log)}")
    return models


class Alone:
    """What each server answers without us, with the card to itself; found when a case first needs it."""

    def __init__(self, test):
        self.test = test

    @functools.cached_property
    def models(self):
        llama_folder()
        if not importlib.util.find_spec("numpy"):
            raise harness.Skip("no numpy, which writes the models")
        return write_models(self.test)

    @functools.cached_property
    def answers(self):
        """Of each model: the answer to each prompt."""
        found, delays = [], []
        for i, model in enumerate(self.models):
            with Server(self.test, f"alone{i}", model, server_env(self.test)) as server:
                server.wait_ready()
                found.append([server.complete(prompt, ANSWER)[0] for prompt in PROMPTS])
                delays += [server.first_token() for _ in range(ROUNDS)]
        different = {tuple(answer) for answers in found for answer in answers}
        harness.check(len(different) == len(SEEDS) * len(PROMPTS), "models that answer alike tell nothing")
        print(f"  alone: first token {milliseconds(delays)} ms", flush=True)
        return found


def server_env(test, daemon=None, extra=None):
    toolkit = [harness.library_folder(f"{name}.so*") for name in ("libcudart", "libcublas")]
    return test.env(daemon, libraries=[llama_folder(), *filter(None, toolkit)], extra=extra)


def job_of(daemon, server):
    jobs = harness.jobs_of(daemon.status())
    harness.check(server.pid in jobs, f"{server.label}: the daemon does not know it")
    return jobs[server.pid]


def check_answers(server, wanted):
    for prompt, answer in zip(PROMPTS, wanted):
        said = server.complete(prompt, ANSWER)[0]
        harness.check(said == answer, f"{server.label}: another answer than alone: {said}, not {answer}")


def rounds(daemon, servers, alone):
    """Both answer by turns: the delays at a switch, those without one, and what the other had on the card, at least."""
    switch, still, stayed = [], [], []
    for _ in range(ROUNDS):
        for i, server in enumerate(servers):
            switch.append(server.first_token())
            still.append(server.first_token())
            check_answers(server, alone.answers[i])
            away = servers[1 - i]
            stayed.append(job_of(daemon, away)["resident_bytes"])
    return switch, still, min(stayed)


def at_once(servers, alone):
    """Both answer at the same time."""
    failures = []

    def answer(server, wanted):
        try:
            check_answers(server, wanted)
        except harness.Failure as failure:
            failures.append(failure)

    threads = [threading.Thread(target=answer, args=pair) for pair in zip(servers, alone.answers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def by_turns(test, alone, memory):
    alone.answers  # before the daemon starts
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(test.daemon(mode="auto", tq_s=0.1, capacity=f"{CAPACITY >> 20}M"))
        env = server_env(test, daemon, {"GPUSHARE_MEMORY": memory})
        servers = [stack.enter_context(Server(test, f"{memory}{i}", model, env)) for i, model in enumerate(alone.models)]
        for server in servers:
            server.wait_ready()
        used = max(job_of(daemon, server)["used_bytes"] for server in servers)
        harness.check(used > CAPACITY / 2, f"{used >> 20} MiB a server: both fit into the capacity")
        switch, still, _ = rounds(daemon, servers, alone)
        print(f"  {memory}: first token {milliseconds(still)} ms, {milliseconds(switch)} ms at a switch, with {used >> 20} MiB"
              f" a server in {CAPACITY >> 20} MiB", flush=True)
        at_once(servers, alone)
        daemon.ctl("set-capacity", f"{used + ROOM >> 20}M")
        switch, still, stayed = rounds(daemon, servers, alone)
        left = 1 - max(0, stayed - ROOM) / used
        print(f"  {memory}: first token {milliseconds(still)} ms, {milliseconds(switch)} ms at a switch, in"
              f" {used + ROOM >> 20} MiB; {left:.4f} of a server leaves the card", flush=True)
        harness.check(left >= LEAVES, f"only {left:.3f} of it leaves the card")


def cases(test):
    alone = Alone(test)
    for memory in ("managed", "swap"):
        test.case(memory, lambda: by_turns(test, alone, memory))


harness.main(cases)
