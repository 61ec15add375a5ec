"""The networks of bench/workloads.py and bench/serve.py that torchvision lacks."""
import torch
from torch import nn
from torch.nn import functional

WORDS = 16384  # of a language model


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

    def __init__(self, width=768, heads=12, layers=12, length=512):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

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


class PointNet(nn.Module):
    """A classifier of clouds of points; the cloud is turned by a small network first."""

    def __init__(self, classes=1000):
        super().__init__()
        self.turn = nn.Sequential(self.features(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 9))
        self.classify = nn.Sequential(self.features(), nn.Linear(1024, 512), nn.BatchNorm1d(512), nn.ReLU(),
                                      nn.Linear(512, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, classes))

    @staticmethod
    def features():
        layers = [layer for width, wider in ((3, 64), (64, 128), (128, 1024))
                  for layer in (nn.Conv1d(width, wider, 1), nn.BatchNorm1d(wider), nn.ReLU())]
        return nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1), nn.Flatten())

    def forward(self, points):
        return self.classify(self.turn(points).view(-1, 3, 3) @ points)


def generator(width=64):
    """DCGAN's: images of 64 by 64 from 100 numbers."""
    layers = [nn.ConvTranspose2d(100, 8 * width, 4, 1, 0), nn.BatchNorm2d(8 * width), nn.ReLU()]
    for times in (8, 4, 2):
        layers += [nn.ConvTranspose2d(times * width, times // 2 * width, 4, 2, 1), nn.BatchNorm2d(times // 2 * width),
                   nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())


def discriminator(width=64):
    layers = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for times in (1, 2, 4):
        layers += [nn.Conv2d(times * width, 2 * times * width, 4, 2, 1), nn.BatchNorm2d(2 * times * width), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(8 * width, 1, 4, 1, 0))
