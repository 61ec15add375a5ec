"""Sends tensors to another process by torch.multiprocessing, which changes them; both have memory of their own beside them.
Says when nothing is shared yet, and when nobody has any of it any more, and waits for a line then. At last says "ok".
77: PyTorch is not installed."""
import sys

try:
    import torch
    import torch.multiprocessing as multiprocessing
except ImportError as error:
    print(error)
    sys.exit(77)

ROUNDS, COUNT, OWN = 3, 1 << 20, 160 << 20


def serve(orders, answers):
    own = torch.ones(OWN, device="cuda")
    for tensor in iter(orders.get, None):
        tensor += 1
        own += 1
        torch.cuda.synchronize()
        answers.put((tensor.sum().item(), own[0].item()))
        del tensor


def pause(line):
    print(line, flush=True)
    sys.stdin.readline()


def main():
    context = multiprocessing.get_context("spawn")
    orders, answers = context.Queue(), context.Queue()
    process = context.Process(target=serve, args=(orders, answers))
    process.start()
    own = torch.zeros(OWN, device="cuda")
    torch.cuda.synchronize()
    pause("nothing is shared")
    for i in range(ROUNDS):
        tensor = torch.full((COUNT,), float(i), device="cuda")
        orders.put(tensor)
        assert answers.get(timeout=60) == (COUNT * (i + 1), i + 2)
        own += 1
        assert tensor.min().item() == tensor.max().item() == i + 1
    assert own.min().item() == own.max().item() == ROUNDS
    pause("all has come back")
    orders.put(None)
    process.join(60)
    assert process.exitcode == 0, process.exitcode
    print("ok")


if __name__ == "__main__":
    main()
