"""Table 12.2 of Alexopoulos' thesis, and ours in the same order, as text.

All figures are times of two copies at once over the time of one after the other (serial). The thesis' were taken on a
P100 of 16 GB, ours in a capacity of as much.
"""
# seconds; None: not possible there
SERIAL = {"small_50": 2636, "small_90": 1384, "big_50": 2766, "big_90": 1438}
COLUMNS = ("small_50", "small_90", "big_50", "big_90")
THESIS = {
    "pair": (1724, 1078, None, None),  # two at once without turns, in a system that splits the memory
    "off": (1772, 1128, 11757, 11434),
    "1000": (2053, 1361, 2043, 1380), "500": (2053, 1363, 2070, 1400), "400": (2030, 1352, 2081, 1405),
    "300": (2010, 1354, 2085, 1418), "200": (2007, 1360, 2092, 1423), "100": (2010, 1351, 2100, 1435),
    "60": (2020, 1348, 2122, 1468), "50": (1995, 1351, 2145, 1473), "40": (1993, 1343, 2156, 1485),
    "30": (2017, 1366, 2170, 1521), "20": (2007, 1360, 2204, 1583), "15": (1983, 1341, 2305, 1668),
    "10": (2009, 1360, 2465, 1821), "5": (1982, 1334, 3496, 2788),
}
NAMES = {"pair": "no turns, stock", "off": "no turns", "auto": "turns if needed"}
OURS = ("swap", "managed")


def thesis_ratio(program, mode):
    row = THESIS.get(mode)
    value = row[COLUMNS.index(program)] if row else None
    return None if value is None else value / SERIAL[program]


def quantum_of(mode):
    try:
        return float(mode)
    except ValueError:
        return None


def modes_of(ratios):
    """All rows: without turns first, then by quantum, the longest first."""
    modes = set(THESIS) | {mode for _, _, mode in ratios} | {"auto"}
    return [mode for mode in ("pair", "off", "auto") if mode in modes] + sorted(
        (mode for mode in modes if quantum_of(mode) is not None), key=quantum_of, reverse=True)


def our_ratio(ratios, memory, program, mode):
    """The stock pair is the same for both kinds of memory."""
    return ratios.get(("stock" if mode == "pair" else memory, program, mode))


def cell(value):
    return "     -" if value is None else f"{value:6.2f}"


def row(name, values):
    return f"{name:<17}" + "  ".join("|" + "".join(cell(value) + "  " for value in group) for group in values) + "\n"


def text(ratios, floors):
    """ratios: (memory, program, mode) -> of serial; floors: program -> the least that bursts like ours allow."""
    programs = [name for name in reversed(COLUMNS) if any(key[1] == name for key in ratios)] or list(
        reversed(COLUMNS))
    lines = "Time of two copies over one after the other (thesis: table 12.2, P100)\n"
    lines += f"{'':<17}" + "  ".join(f"|{name:^24}" for name in programs) + "\n"
    lines += f"{'':<17}" + "  ".join(f"|{'thesis':>6}  {'swap':>6}  {'managed':>6} " for _ in programs) + "\n"
    lines += row("least possible", [(None, floors[name], floors[name]) for name in programs])
    for mode in modes_of(ratios):
        name = NAMES.get(mode) or f"TQ {mode} s"
        lines += row(name, [(thesis_ratio(program, mode),
                             *(our_ratio(ratios, memory, program, mode) for memory in OURS)) for program in programs])
    return lines
