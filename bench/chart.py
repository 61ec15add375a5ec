"""Draws the thesis' chart as a PNG, with nothing but the standard library: benchmarks run where little is installed."""
import collections
import math
import struct
import zlib

Panel = collections.namedtuple("Panel", "name lines floor")  # lines: name -> ({quantum: y}, {mode: y})

COLORS = {"thesis": (130, 130, 130), "swap": (20, 90, 200), "managed": (225, 110, 20)}
INK, GRID, PAPER = (40, 40, 40), (222, 222, 222), (255, 255, 255)
PANEL_WIDTH, PANEL_HEIGHT, TITLE_HEIGHT = 620, 400, 60
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 36, 52  # of the plot in its panel
QUANTA = (1, 2, 5, 10, 20, 60, 200, 1000)  # ticks
MODES = ("off", "auto", "pair")
Y_MAX, Y_STEP = 2.0, 0.25

# 5 x 7 dots a letter, and 2 rows below the line: a row is five bits, the leftmost the highest.
FONT = {
    " ": "00000000000000", "-": "0000001F000000", ".": "00000000000C0C", ":": "000C0C000C0C00",
    "_": "0000000000001F", "(": "02040808080402", ")": "08040202020408", "/": "01010204081010",
    ">": "08040201020408", ",": "00000000060408", "0": "0E11131519110E", "1": "040C040404040E",
    "2": "0E11010204081F", "3": "1F02040201110E", "4": "02060A121F0202", "5": "1F101E0101110E",
    "6": "0608101E11110E", "7": "1F010204080808", "8": "0E11110E11110E", "9": "0E11110F01020C",
    "T": "1F040404040404", "Q": "0E11111115120D", "a": "00000E010F110F", "b": "1010161911111E",
    "c": "00000E1010110E", "d": "01010D1311110F", "e": "00000E111F100E", "f": "0609081C080808",
    "g": "00000F1111110F010E", "h": "10101619111111", "i": "04000C0404040E", "k": "10101214181412",
    "l": "0C04040404040E", "m": "00001A15151111", "n": "00001619111111", "o": "00000E1111110E",
    "p": "00001E1111111E1010", "q": "00000F1111110F0101", "r": "00001619101010", "s": "00000E100E011E",
    "t": "08081C08080906", "u": "0000111111130D", "v": "00001111110A04", "w": "0000111115150A",
    "x": "0000110A040A11", "y": "0000111111110F010E", "j": "02000602020202120C", "z": "00001F0204081F",
}


class Canvas:
    """Pixels, blended."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.rows = [bytearray(bytes(PAPER) * width) for _ in range(height)]

    def blend(self, x, y, color, share):
        if 0 <= x < self.width and 0 <= y < self.height and share > 0:
            row = self.rows[y]
            for part in range(3):
                at = 3 * x + part
                row[at] = round(row[at] + (color[part] - row[at]) * min(share, 1))

    def line(self, start, end, color, thickness=2.0, dash=None):
        """Each pixel by its distance from the line."""
        (x0, y0), (x1, y1) = start, end
        length = math.hypot(x1 - x0, y1 - y0) or 1e-9
        reach = thickness / 2 + 1
        for y in range(math.floor(min(y0, y1) - reach), math.ceil(max(y0, y1) + reach) + 1):
            for x in range(math.floor(min(x0, x1) - reach), math.ceil(max(x0, x1) + reach) + 1):
                along = ((x - x0) * (x1 - x0) + (y - y0) * (y1 - y0)) / length
                if dash and along % (2 * dash) > dash:
                    continue
                along = min(max(along, 0), length)
                distance = math.hypot(x - x0 - along * (x1 - x0) / length, y - y0 - along * (y1 - y0) / length)
                self.blend(x, y, color, thickness / 2 + 0.5 - distance)

    def dot(self, center, color, radius=4.0):
        for y in range(math.floor(center[1] - radius - 1), math.ceil(center[1] + radius + 1) + 1):
            for x in range(math.floor(center[0] - radius - 1), math.ceil(center[0] + radius + 1) + 1):
                self.blend(x, y, color, radius + 0.5 - math.hypot(x - center[0], y - center[1]))

    def block(self, left, top, color, size):
        for dot in range(size * size):
            self.blend(left + dot % size, top + dot // size, color, 1)

    def text(self, x, y, words, color=INK, scale=2, align=0.0):
        """Top left corner; align 0.5 centres at x, 1 ends there."""
        x = round(x - align * (6 * scale * len(words) - scale))
        for letter in words:
            for row, bits in enumerate(bytes.fromhex(FONT.get(letter, FONT["-"]))):
                for column in (column for column in range(5) if bits >> (4 - column) & 1):
                    self.block(x + column * scale, round(y) + row * scale, color, scale)
            x += 6 * scale

    def save(self, path):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        pixels = zlib.compress(b"".join(b"\0" + bytes(row) for row in self.rows), 9)
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


class Plot:
    """One panel: quanta on a logarithmic axis, then the modes without one."""

    def __init__(self, canvas, left, top, panel):
        self.canvas, self.panel = canvas, panel
        self.x0, self.x1 = left + LEFT, left + PANEL_WIDTH - RIGHT
        self.y0, self.y1 = top + PANEL_HEIGHT - BOTTOM, top + TOP
        self.split = self.x0 + (self.x1 - self.x0) * 0.7

    def x_of(self, quantum):
        return self.x0 + 16 + (self.split - self.x0 - 44) * math.log10(quantum) / 3

    def x_of_mode(self, mode):
        return self.split + (self.x1 - self.split) * (MODES.index(mode) + 0.5) / len(MODES)

    def y_of(self, ratio):
        return self.y0 + (self.y1 - self.y0) * min(ratio, Y_MAX) / Y_MAX

    def axes(self):
        draw = self.canvas
        draw.text((self.x0 + self.x1) / 2, self.y1 - 26, self.panel.name, align=0.5)
        for step in range(int(Y_MAX / Y_STEP) + 1):
            y = self.y_of(step * Y_STEP)
            draw.line((self.x0, y), (self.x1, y), INK if step * Y_STEP in (0, 1) else GRID, 1)
            draw.text(self.x0 - 8, y - 7, f"{step * Y_STEP:.2f}", align=1)
        for quantum in QUANTA:
            draw.line((self.x_of(quantum), self.y0), (self.x_of(quantum), self.y0 + 5), INK, 1)
            draw.text(self.x_of(quantum), self.y0 + 10, str(quantum), align=0.5)
        for mode in MODES:
            draw.text(self.x_of_mode(mode), self.y0 + 10, mode, align=0.5)
        draw.line((self.split, self.y0), (self.split, self.y1), GRID, 1)
        draw.text((self.x0 + self.split) / 2, self.y0 + 30, "TQ (s)", align=0.5)

    def point(self, x, ratio, color):
        self.canvas.dot((x, self.y_of(ratio)), color)
        if ratio > Y_MAX:  # beyond the top: told in figures
            self.canvas.text(x, self.y_of(ratio) + 8, f"{ratio:.1f}", color, align=0.5)

    def draw(self):
        self.axes()
        floor = self.y_of(self.panel.floor)
        self.canvas.line((self.x0, floor), (self.x1, floor), INK, 1.5, dash=6)
        for name, (by_quantum, others) in self.panel.lines.items():
            points = [(self.x_of(quantum), ratio) for quantum, ratio in sorted(by_quantum.items()) if quantum >= 1]
            for (x0, r0), (x1, r1) in zip(points, points[1:]):
                self.canvas.line((x0, self.y_of(r0)), (x1, self.y_of(r1)), COLORS[name])
            for x, ratio in points + [(self.x_of_mode(mode), ratio) for mode, ratio in others.items()]:
                self.point(x, ratio, COLORS[name])


def legend(canvas, x, y, names):
    for name in names:
        canvas.line((x, y + 7), (x + 24, y + 7), COLORS[name])
        canvas.dot((x + 12, y + 7), COLORS[name])
        canvas.text(x + 32, y, name, COLORS[name])
        x += 32 + 12 * len(name) + 24
    canvas.line((x, y + 7), (x + 24, y + 7), INK, 1.5, dash=6)
    canvas.text(x + 32, y, "least possible for ours")


def draw(path, title, panels):
    """Two panels a row."""
    rows = (len(panels) + 1) // 2
    canvas = Canvas(2 * PANEL_WIDTH, TITLE_HEIGHT + rows * PANEL_HEIGHT)
    canvas.text(LEFT, 10, title)
    legend(canvas, LEFT, 34, ("thesis", "swap", "managed"))
    for index, panel in enumerate(panels):
        Plot(canvas, index % 2 * PANEL_WIDTH, TITLE_HEIGHT + index // 2 * PANEL_HEIGHT, panel).draw()
    canvas.save(path)
