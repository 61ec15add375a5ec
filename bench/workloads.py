#!/usr/bin/env python3
"""Single workloads, which alone.py, pairs.py and sweep.py run: stock PyTorch programs, some bound by the GPU, some by launching.

It obeys orders from its stdin; a bare line ends it. A workload that fails is an answer, not an end.

  {"do": "build", "workload": NAME}    with "batch" where the name has none, and "gib" if it needs that much in all
  {"do": "run", "iterations": N}, or with "seconds": S
  {"do": "run", "start_s": T, "until_s": T}   on the monotonic clock: a training, which keeps two iterations queued
  {"do": "run", "start_s": T, "requests_s": [...]}   a server (bench/serve.py)
  {"do": "time"}, {"do": "check"}, {"do": "drop"}
"""
import gc
import time

import gpubench
import serve
import steady
import torchjob
import train

LIMIT_GIB = 12  # what a process may have; the largest workload needs about 10
WARMUP_S = 0.4
WARMUP_STEPS = 8
SETTLE_STEPS = 2  # before each run: another process has had the GPU meanwhile
IMAGES = {"shufflenet": "shufflenet_v2_x1_0", "mobilenet": "mobilenet_v2", "resnet50": "resnet50"}
SERVERS = ("server", "llm")
TOKENS = 4  # of a request to llm


class Workloads:
    """Each method makes ready one workload and returns its step. Names end with the batch size where it matters."""

    def __init__(self, torch, models):
        self.torch, self.models = torch, models
        self.kept = []  # what only the step knows must live as long
        self.is_right = lambda: True  # its memory holds what was written

    def make(self, name, batch=0):
        """By its method, or, of those with any batch, by a name of bench/pairs.py."""
        if name in IMAGES:
            return self.train_images(self.network(IMAGES[name]), batch)
        named = {"graph": lambda: train.Training(self.torch, batch).captured(), "transformer": self.gpt_train_b8,
                 "server": self.resnet50_infer_b1, "llm": lambda: self.llm_tokens(TOKENS)}
        return named.get(name, getattr(self, name, None))()

    def network(self, name):
        import torchvision
        return torchvision.models.get_model(name, weights=None)

    def images(self, batch):
        return self.torch.randn(batch, 3, 224, 224, device="cuda")

    def train_images(self, model, batch, shape=(3, 224, 224)):
        torch = self.torch
        images, labels = torch.randn(batch, *shape, device="cuda"), torch.randint(1000, (batch,), device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        loss_of = torch.nn.CrossEntropyLoss()

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss_of(model(images), labels).backward()
            optimizer.step()
        return step

    def resnet50_train_b64(self):
        return self.train_images(self.network("resnet50"), 64)

    def resnet50_train_b4(self):
        return self.train_images(self.network("resnet50"), 4)

    def mobilenet_train_b32(self):
        return self.train_images(self.network("mobilenet_v2"), 32)

    def resnet50_infer_b1(self):
        """A server's: the answer is on the GPU once it has been worked out."""
        model, image = self.network("resnet50").eval(), self.images(1)

        def step():
            with self.torch.inference_mode():
                return model(image).argmax()
        return step

    def resnet50_infer_b128(self):
        model, images = self.network("resnet50").eval(), self.images(128)

        def step():
            with self.torch.inference_mode(), self.torch.autocast("cuda", self.torch.bfloat16):
                model(images)
        return step

    def resnet50_graph_infer_b8(self):
        model, images = self.network("resnet50").eval(), self.images(8)

        def infer():
            self.kept = [model, images, model(images)]
        return self.graph_of(infer).replay

    def encoder_train_b32(self):
        torch = self.torch
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
        model = torch.nn.Sequential(torch.nn.Embedding(8192, 512), torch.nn.TransformerEncoder(layer, 6),
                                    torch.nn.Linear(512, 8192))
        tokens = torch.randint(8192, (32, 128), device="cuda")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def step():
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
        return step

    def gpt_train_b8(self):
        torch = self.torch
        model = self.models.Gpt()
        tokens = torch.randint(16384, (8, 513), device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                found = model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(found.flatten(0, 1).float(), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
        return step

    def gpt_generate_b1(self):
        """One word after the other; each goes to the host."""
        torch = self.torch
        model = self.models.Gpt().to(torch.bfloat16).eval()
        caches = torch.zeros(12, 2, 1, 12, 512, 64, dtype=torch.bfloat16, device="cuda")
        state = {"token": torch.zeros(1, 1, dtype=torch.int64, device="cuda"), "place": 0}

        def step():
            with torch.inference_mode():
                found = model(state["token"], caches, state["place"])
                state["token"] = found[:, -1:].argmax(-1)
            state["place"] = (state["place"] + 1) % 512
            return int(state["token"])
        return step

    def llm_tokens(self, count):
        """Of a language model of 14 GiB: so many tokens, one after the other, each the launch of a CUDA graph. What it
        attends to is as long for all of them."""
        torch = self.torch
        model = self.models.large_gpt()
        caches = torch.zeros(len(model.blocks), 2, 1, *self.models.LARGE_CACHE, dtype=torch.bfloat16, device="cuda")
        token = torch.zeros(1, 1, dtype=torch.int64, device="cuda")

        def decode():
            token.copy_(model(token, caches, 256)[:, -1:].argmax(-1))
        graph = self.graph_of(decode)

        def step():
            for _ in range(count):
                graph.replay()
            return token
        step.kept = [model, caches]
        return step

    def graph_of(self, work):
        with self.torch.inference_mode():
            return torchjob.capture(self.torch, work)

    def recommender_train_b4096(self):
        """Its input comes from pinned host memory."""
        torch = self.torch
        model = self.models.Recommender()
        inputs = [torch.randint(500_000, (8, 4096, 4), device="cpu").pin_memory() for _ in range(4)]
        wanted = torch.rand(4096, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        state = {"next": 0}

        def step():
            state["next"] = (state["next"] + 1) % len(inputs)
            places = inputs[state["next"]].to("cuda", non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.binary_cross_entropy_with_logits(model(places), wanted).backward()
            optimizer.step()
        return step

    def sweep_pointnet(self):
        return self.train_images(self.models.PointNet(), 32, (3, 1024))

    def sweep_resnet18(self):
        return self.train_images(self.network("resnet18"), 64, (3, 64, 64))

    def sweep_dcgan(self):
        torch = self.torch
        maker, judge = self.models.generator(), self.models.discriminator()
        images, noise = torch.randn(64, 3, 64, 64, device="cuda"), torch.randn(64, 100, 1, 1, device="cuda")
        optimizers = [torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)) for model in (judge, maker)]
        real, false = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits

        def step():
            made = maker(noise)
            for optimizer, loss in ((optimizers[0], lambda: loss_of(judge(images).flatten(), real) +
                                     loss_of(judge(made.detach()).flatten(), false)),
                                    (optimizers[1], lambda: loss_of(judge(made).flatten(), real))):
                optimizer.zero_grad(set_to_none=True)
                loss().backward()
                optimizer.step()
        return step

    def salus_kept(self):
        """Salus' example: 1 GiB for good, 7 GiB in each iteration, taken one by one. PyTorch keeps them."""
        return self.progressive(lambda: None)

    def salus_freed(self):
        """The same, but the iteration's memory goes back to the driver at its end."""
        return self.progressive(self.torch.cuda.empty_cache)

    def progressive(self, end):
        torch = self.torch
        kept = torch.zeros(1 << 28, dtype=torch.int32, device="cuda")
        right = torch.ones((), dtype=torch.bool, device="cuda")

        def step():
            kept.add_(1)
            pieces = []
            for index in range(7):
                pieces.append(kept + index)
                for _ in range(20):
                    pieces[-1].bitwise_xor_(kept).bitwise_xor_(kept)
            for index, piece in enumerate(pieces):
                right.logical_and_(torch.sum(piece[::1 << 20] - kept[::1 << 20]) == index << 8)
            pieces.clear()
            piece = None
            end()
        self.is_right = lambda: bool(right) and int(kept.min()) == int(kept.max())
        return step

    def mlp_train_b256(self):
        """Hardly any work in each launch."""
        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256),
                                    torch.nn.ReLU(), torch.nn.Linear(256, 10))
        data, labels = torch.randn(256, 256, device="cuda"), torch.randint(10, (256,), device="cuda")
        optimizer = torch.optim.Adam(model.parameters())

        def step():
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(model(data), labels).backward()
            optimizer.step()
        return step


NAMES = tuple(name for name in vars(Workloads) if "_train" in name or "_infer" in name or "_generate" in name)


class Player:
    """Builds, runs and drops one workload at a time."""

    def __init__(self, torch, models):
        self.torch, self.models = torch, models
        self.workloads = self.step = self.ballast = None

    def build(self, order):
        self.drop(order)
        self.workloads = Workloads(self.torch, self.models)
        self.torch.manual_seed(1)
        with self.torch.device("cuda"):
            self.step = self.workloads.make(order["workload"], order.get("batch"))
        end = time.perf_counter() + WARMUP_S
        steps = 0
        while steps < WARMUP_STEPS or time.perf_counter() < end:
            self.step()
            steps += 1
        if order.get("gib"):
            self.step, self.ballast = torchjob.with_ballast(self.torch, 0, self.step, order["gib"])
        self.torch.cuda.synchronize()
        return {}

    def run(self, order):
        """So many iterations, or as many as take so long."""
        step, count, clock = self.step, 0, time.perf_counter
        if "requests_s" in order:
            return serve.run(step, order)
        if "until_s" in order:
            time.sleep(max(0, order["start_s"] - time.monotonic()))
            return steady.run(self.torch, step, order)
        for _ in range(SETTLE_STEPS):
            step()
        self.torch.cuda.synchronize()
        start = clock()
        if "iterations" in order:
            for count in range(1, order["iterations"] + 1):
                step()
        else:
            while clock() - start < order["seconds"]:
                step()
                count += 1
        self.torch.cuda.synchronize()
        return {"iterations": count, "seconds": clock() - start}

    def time(self, _, count=10):
        """Of a request, by itself."""
        start_s = time.monotonic()
        for _ in range(count):
            int(self.step())
        return {"request_s": (time.monotonic() - start_s) / count}

    def check(self, _):
        """Its memory holds what was written."""
        return {"memory_right": self.workloads.is_right() and (not self.ballast or self.ballast.is_right())}

    def drop(self, _):
        self.workloads = self.step = self.ballast = None
        gc.collect()
        self.torch.cuda.empty_cache()
        return {}

    def obey(self, order):
        try:
            return getattr(self, order["do"])(order)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            self.step = None
            return {"error": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def main():
    parser = torchjob.parser(__doc__)
    parser.add_argument("--limit-gib", type=float, default=LIMIT_GIB, help="of memory (default: %(default)g)")
    args = parser.parse_args()
    torch, stages = torchjob.begin("torchvision")
    import models
    stages.reach("imported")
    torchjob.require_gpu(torch)
    gpubench.limit_torch(torch, args.limit_gib)
    gc.disable()
    torchjob.run_orders(Player(torch, models), stages, {"preloaded": gpubench.is_preloaded()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
