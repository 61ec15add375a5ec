"""A model for llama.cpp with random weights: a GGUF file of a Llama-like network in Q8_0, with a small vocabulary of its own.

usage: llama_model.py FILE SEED BYTES. The same seed and size give the same file. The file has the whole layers that fit
into BYTES, at least one. Needs numpy.
"""
import struct
import sys

import numpy

WIDTH, HEADS, KEY_HEADS, INNER, WORDS = 4096, 32, 8, 14336, 512  # a layer: 221 MiB
ALIGNMENT = 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9  # GGUF's types of values
F32, Q8_0 = 0, 8  # ggml's types of tensors
BLOCK = numpy.dtype([("scale", "<f2"), ("values", "i1", 32)])  # of Q8_0
DEVIATION = 73.9  # of bytes that are evenly distributed


def string(text):
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def value(kind, content):
    packed = {UINT32: "<I", INT32: "<i", FLOAT32: "<f"}
    return string(content) if kind == STRING else struct.pack(packed[kind], content)


def field(name, kind, content):
    if isinstance(content, list):
        elements = b"".join(value(kind, element) for element in content)
        return string(name) + struct.pack("<IIQ", ARRAY, kind, len(content)) + elements
    return string(name) + struct.pack("<I", kind) + value(kind, content)


def fields(layers):
    """SentencePiece's vocabulary: unknown, begin, end, every byte, and made-up words."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *(6 for _ in range(256))]  # unknown, control, byte; 1: normal
    words += [f"\u2581w{number}" for number in range(WORDS - len(words))]
    kinds += [1 for _ in range(WORDS - len(kinds))]
    head = WIDTH // HEADS
    return [
        field("general.architecture", STRING, "llama"),
        field("general.name", STRING, "random"),
        field("llama.context_length", UINT32, 8192),
        field("llama.embedding_length", UINT32, WIDTH),
        field("llama.block_count", UINT32, layers),
        field("llama.feed_forward_length", UINT32, INNER),
        field("llama.attention.head_count", UINT32, HEADS),
        field("llama.attention.head_count_kv", UINT32, KEY_HEADS),
        field("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        field("llama.rope.dimension_count", UINT32, head),
        field("llama.vocab_size", UINT32, WORDS),
        field("tokenizer.ggml.model", STRING, "llama"),
        field("tokenizer.ggml.tokens", STRING, words),
        field("tokenizer.ggml.scores", FLOAT32, [0.0 if kind != 1 else -1.0 for kind in kinds]),
        field("tokenizer.ggml.token_type", INT32, kinds),
        field("tokenizer.ggml.unknown_token_id", UINT32, 0),
        field("tokenizer.ggml.bos_token_id", UINT32, 1),
        field("tokenizer.ggml.eos_token_id", UINT32, 2),
    ]


def layer(number):
    """name -> (inputs, outputs); a norm has no inputs."""
    keys = KEY_HEADS * WIDTH // HEADS
    shapes = {"attn_norm": (0, WIDTH), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, keys), "attn_v": (WIDTH, keys),
              "attn_output": (WIDTH, WIDTH), "ffn_norm": (0, WIDTH), "ffn_gate": (WIDTH, INNER), "ffn_up": (WIDTH, INNER),
              "ffn_down": (INNER, WIDTH)}
    return {f"blk.{number}.{name}.weight": shape for name, shape in shapes.items()}


def size(shape):
    inputs, outputs = shape
    return inputs * outputs // 32 * BLOCK.itemsize if inputs else 4 * outputs


def tensor(random, shape):
    inputs, outputs = shape
    if not inputs:
        return numpy.ones(outputs, "<f4")
    blocks = numpy.empty(inputs * outputs // 32, BLOCK)
    blocks["scale"] = inputs ** -0.5 / DEVIATION  # the outputs deviate as the inputs do
    blocks["values"] = numpy.frombuffer(random.bytes(inputs * outputs), "i1").reshape(-1, 32)
    return blocks


def write(path, seed, limit):
    ends = {"token_embd.weight": (WIDTH, WORDS), "output_norm.weight": (0, WIDTH), "output.weight": (WIDTH, WORDS)}
    layers = max(1, (limit - sum(map(size, ends.values()))) // sum(map(size, layer(0).values())))
    shapes = dict(ends)
    for number in range(layers):
        shapes.update(layer(number))
    described, offset = b"", 0
    for name, shape in shapes.items():
        inputs, outputs = shape
        dimensions = [inputs, outputs] if inputs else [outputs]
        described += string(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions,
                                                Q8_0 if inputs else F32, offset)
        offset += -(-size(shape) // ALIGNMENT) * ALIGNMENT
    told = fields(layers)
    random = numpy.random.Generator(numpy.random.SFC64(seed))
    with open(path, "wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(told)) + b"".join(told) + described)
        for shape in shapes.values():
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(memoryview(tensor(random, shape)).cast("B"))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
