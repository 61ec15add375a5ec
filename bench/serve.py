#!/usr/bin/env python3
"""A server of one inference model with random weights: what many.py runs, many of them at once.

Models: --list tells those that this installation has, torchvision's and small transformers; besides llm, one of 14 GiB,
and llm_b, the same once more.

A request is one image, or 64 tokens, on the host; its answer goes to the host. Its order is {"start_s": T, "requests_s":
[...]}: when requests arrive, in seconds after T on the monotonic clock. One that arrives while another is served waits,
and that counts. The order {"warm": true} before that is one request that nobody times.
"""
import gc
import time

import gpubench
import torchjob

WARMUP = 5
TOKENS = 64
# Small and large ones in turn, so that the first ones are of all sizes, too.
VISION = """resnet50 vgg16 mobilenet_v2 vit_b_16 densenet121 wide_resnet101_2 squeezenet1_1 convnext_base resnet18 vgg19
efficientnet_b0 vit_l_16 shufflenet_v2_x1_0 resnext101_64x4d alexnet regnet_y_16gf mobilenet_v3_large convnext_large
resnet152 swin_t mnasnet1_0 vit_b_32 resnext50_32x4d efficientnet_v2_l regnet_y_400mf wide_resnet50_2 densenet201 swin_b
resnet34 vgg11 efficientnet_b4 vit_l_32 resnet101 regnet_x_32gf densenet161 vgg13 resnext101_32x8d swin_s
efficientnet_v2_m convnext_small mobilenet_v3_small efficientnet_b7 convnext_tiny regnet_y_32gf""".split()
TRANSFORMERS = {  # width, heads, layers
    "gpt_512": (512, 8, 8), "gpt_768": (768, 12, 12), "gpt_1024": (1024, 16, 24), "gpt_1280": (1280, 20, 36),
    "gpt_1536": (1536, 16, 24), "gpt_2048": (2048, 16, 16)}


def parse_arguments():
    parser = torchjob.parser(__doc__)
    parser.add_argument("--model", default="resnet50", help="default: %(default)s")
    parser.add_argument("--list", action="store_true", help="the models that there are")
    return parser.parse_args()


def available():
    """A transformer after every six of the others."""
    import torchvision
    known = set(torchvision.models.list_models(module=torchvision.models))
    names, left = [], list(TRANSFORMERS)
    for name in VISION:
        if name in known:
            names.append(name)
            if len(names) % 7 == 6 and left:
                names.append(left.pop(0))
    return names + left


def build(torch, name):
    """A function that serves a request."""
    torch.manual_seed(1)
    if name.startswith("llm") or name in TRANSFORMERS:
        import models
        with torch.device("cuda"):
            model = models.large_gpt() if name.startswith("llm") else models.Gpt(*TRANSFORMERS[name]).eval()
        question = torch.randint(models.WORDS, (1, TOKENS), device="cpu")
    else:
        import torchvision
        with torch.device("cuda"):
            model = torchvision.models.get_model(name, weights=None).eval()
        question = torch.randn(1, 3, 224, 224, device="cpu")

    def serve():
        with torch.inference_mode():
            return model(question.to("cuda")).flatten()[-1000:].argmax()
    return serve


def run(serve, order):
    """When each request arrived, and in how many ms it was answered. What serve() returns is there once it is read."""
    told = []
    for after_s in order["requests_s"]:
        arrives_s = order["start_s"] + after_s
        time.sleep(max(0, arrives_s - time.monotonic()))
        int(serve())
        told.append([round(arrives_s, 4), round((time.monotonic() - arrives_s) * 1e3, 3)])
    return {"requests": told}


def main():
    args = parse_arguments()
    if args.list:
        print("\n".join(available()))
        return 0
    torch, stages = torchjob.begin("torchvision")
    torch.set_num_threads(1)
    stages.reach("imported")
    torchjob.require_gpu(torch)
    serve = build(torch, args.model)
    answer = [int(serve()) for _ in range(WARMUP)][-1]
    gc.collect()
    gc.disable()
    order = stages.reach("ready", {"memory_gib": torch.cuda.memory_reserved() / torchjob.GIB, "answer": answer})
    while order.get("warm"):
        int(serve())
        order = stages.reach("warm")
    told = run(serve, order)
    stages.reach("result", told | {"answer": int(serve()), "preloaded": gpubench.is_preloaded()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
