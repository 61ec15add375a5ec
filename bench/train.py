"""ResNet-50 training on synthetic data, as a stock script would do it. Deterministic, two runs of the same seed and number
of iterations give the same weights, so that a run under libunified can be compared bit for bit."""
import hashlib
import os

import torchjob


def set_environment():
    """Of one whose results are to be the same each time, before torch is imported."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


def set_deterministic(torch):
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


class Training:
    """One model with its optimizer and its batch."""

    def __init__(self, torch, batch, seed=1):
        import torchvision
        torch.manual_seed(seed)
        self.torch = torch
        self.module = self.model = torchvision.models.resnet50().cuda()
        self.loss_of = torch.nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(batch, 3, 224, 224).cuda()
        self.labels = torch.randint(1000, (batch,)).cuda()
        self.loss = self.graph = None

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = self.loss_of(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def captured(self):
        """A step that is the launch of one graph; it keeps all that this uses."""
        self.graph = torchjob.capture(self.torch, self.step, lambda: self.optimizer.zero_grad(set_to_none=True))
        return lambda: self.graph.replay()

    def weights_hash(self):
        digest = hashlib.sha256()
        for name, value in sorted(self.module.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]
