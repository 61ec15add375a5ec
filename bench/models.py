"""The networks that bench/workloads.py runs. torchvision's where it is installed; else the same, written down here."""
import importlib.util

import torch
from torch import nn
from torch.nn import functional


def conv(inputs, outputs, size, stride=1, groups=1, activation=None):
    layers = [nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class Residual(nn.Module):
    """A body, and what goes past it: None, if nothing does."""

    def __init__(self, body, past, activation=None):
        super().__init__()
        self.body, self.past, self.activation = body, past, activation

    def forward(self, x):
        y = self.body(x)
        if self.past is not None:
            y = y + self.past(x)
        return self.activation(y) if self.activation else y


def bottleneck(inputs, width, stride):
    body = nn.Sequential(conv(inputs, width, 1, activation=nn.ReLU), conv(width, width, 3, stride, activation=nn.ReLU),
                         conv(width, 4 * width, 1))
    past = nn.Identity() if inputs == 4 * width and stride == 1 else conv(inputs, 4 * width, 1, stride)
    return Residual(body, past, nn.ReLU(inplace=True))


def own_resnet50():
    layers, inputs = [conv(3, 64, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            layers.append(bottleneck(inputs, width, stride if index == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def inverted(inputs, outputs, stride, widen):
    middle = inputs * widen
    body = [conv(inputs, middle, 1, activation=nn.ReLU6)] if widen > 1 else []
    body += [conv(middle, middle, 3, stride, middle, nn.ReLU6), conv(middle, outputs, 1)]
    return Residual(nn.Sequential(*body), nn.Identity() if stride == 1 and inputs == outputs else None)


def own_mobilenet():
    layers, inputs = [conv(3, 32, 3, 2, activation=nn.ReLU6)], 32
    for widen, outputs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                          (6, 160, 3, 2), (6, 320, 1, 1)):
        for index in range(count):
            layers.append(inverted(inputs, outputs, stride if index == 0 else 1, widen))
            inputs = outputs
    return nn.Sequential(*layers, conv(320, 1280, 1, activation=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(1280, 1000))


def resnet50():
    return torchvision.models.resnet50() if torchvision else own_resnet50()


def mobilenet():
    return torchvision.models.mobilenet_v2() if torchvision else own_mobilenet()


def installed_torchvision():
    if importlib.util.find_spec("torchvision") is None:
        return None
    import torchvision as module
    return module


torchvision = installed_torchvision()


class Attention(nn.Module):
    """Causal. With a cache it takes one token and remembers its keys and values."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache, place):
        batch, length, width = x.shape
        query, key, value = self.into(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0, :, :, place:place + 1], cache[1, :, :, place:place + 1] = key, value
            key, value = cache[:, :, :, :place + 1]
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache, place):
        x = x + self.attention(self.first(x), cache, place)
        return x + self.feed(self.second(x))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, words=16384, width=768, heads=12, layers=12, length=512):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches=None, place=0):
        places = torch.arange(place, place + tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for index, block in enumerate(self.blocks):
            x = block(x, caches[index] if caches is not None else None, place)
        return self.head(self.last(x))


LARGE_CACHE = (32, 512, 128)  # heads, places, width of a head


def large_gpt():
    """Of random weights, 13.8 GiB of them."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return Gpt(width=4096, heads=LARGE_CACHE[0], layers=36, length=LARGE_CACHE[1]).eval()
    finally:
        torch.set_default_dtype(before)


class Recommender(nn.Module):
    """Tables of embeddings, looked up with sparse gradients, and a small network on top."""

    def __init__(self, tables=8, rows=500_000, width=64):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, sparse=True, mode="sum") for _ in range(tables))
        self.top = nn.Sequential(nn.Linear(tables * width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(),
                                 nn.Linear(512, 1))

    def forward(self, places):
        found = [table(places[index]) for index, table in enumerate(self.tables)]
        return self.top(torch.cat(found, 1)).squeeze(1)
