"""A strict reader of Prometheus' text format (0.0.4) and of OpenMetrics (1.0.0), as far as the daemon uses them: what
the specifications forbid, and what `promtool check metrics` finds bad style, is an error."""
import re

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)\Z")
LABEL = re.compile(r'([a-z_][a-z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')
VALUE = re.compile(r"-?[0-9]+(\.[0-9]+)?\Z")
UNITS = ("bytes_per_second", "seconds", "bytes", "ratio", "celsius", "watts", "joules")
NO_BASE_UNITS = ("milliseconds", "nanoseconds", "minutes", "kilobytes", "megabytes", "percent", "bits")
RESERVED_LABELS = ("job", "instance")  # Prometheus' own, of where it has the samples from


class Wrong(Exception):
    pass


def check(right, line, why):
    if not right:
        raise Wrong(f"{why}: {line}")


class Family:
    def __init__(self, name, text):
        self.name, self.help, self.type, self.unit = name, text, None, None
        self.samples = {}  # (name, frozenset of labels) -> value

    def label_names(self):
        """Without those of the format itself."""
        return {name for _, labels in self.samples for name, _ in labels} - {"le"}


def read_labels(text, line):
    labels, rest = {}, text[1:-1] if text else ""
    while rest:
        found = LABEL.match(rest)
        check(found, line, "not labels")
        check(found[1] not in labels, line, "a label twice")
        check(found[1] not in RESERVED_LABELS, line, "a label of Prometheus' own")
        labels[found[1]] = re.sub(r"\\(.)", lambda c: "\n" if c[1] == "n" else c[1], found[2])
        rest = rest[found.end():]
        check(rest or not found[3], line, "a comma too many")
    return labels


class Reader:
    def __init__(self, openmetrics):
        self.openmetrics, self.families, self.family = openmetrics, {}, None

    def begin(self, name, text, line):
        check(NAME.match(name), line, "not a name")
        check(name not in self.families, line, "a family twice")
        check(text and text[0].isupper() and text.endswith("."), line, "the help is not a sentence")
        check(not re.search(r"[\\\"]", text), line, "the help needs escapes")
        self.family = self.families[name] = Family(name, text)

    def describe(self, line):
        match = re.match(r"# (HELP|TYPE|UNIT) (\S+) (.+)\Z", line)
        check(match, line, "not a comment that means something")
        what, name, text = match.groups()
        if what == "HELP":
            return self.begin(name, text, line)
        check(self.family and name == self.family.name and not self.family.samples, line, "out of place")
        field = what.lower()
        check(getattr(self.family, field) is None, line, "twice")
        setattr(self.family, field, text)
        if what == "TYPE":
            self.check_type(line)
        else:
            check(self.openmetrics and text in UNITS and name.endswith("_" + text), line, "not its unit")
        return None

    def check_type(self, line):
        family, known = self.family, {"gauge", "counter", "histogram"} | ({"info"} if self.openmetrics else set())
        check(family.type in known, line, "not a type")
        if self.openmetrics:
            check(not re.search(r"_(total|info|bucket|sum|count)\Z", family.name), line, "a suffix of samples")
        else:
            check(family.name.endswith("_total") == (family.type == "counter"), line, "_total is for counters")
        check(not any(unit in family.name for unit in NO_BASE_UNITS), line, "not in base units")

    def base(self):
        return re.sub(r"_(total|info)\Z", "", self.family.name)

    def sample_names(self):
        if self.family.type == "histogram":
            return {self.family.name + suffix for suffix in ("_bucket", "_sum", "_count")}
        if not self.openmetrics:
            return {self.family.name}
        return {self.family.name + {"counter": "_total", "info": "_info"}.get(self.family.type, "")}

    def sample(self, line):
        match = SAMPLE.match(line)
        check(match, line, "not a sample")
        check(self.family and self.family.type and match[1] in self.sample_names(), line, "out of its family")
        check(VALUE.match(match[3]), line, "not a value")
        key = (match[1], frozenset(read_labels(match[2], line).items()))
        check(key not in self.family.samples, line, "a sample twice")
        value = float(match[3])
        check(value >= 0, line, "negative")
        check(not match[1].endswith("_info") or value == 1, line, "an info that is not 1")
        self.family.samples[key] = value

    def end_family(self, family):
        check(family.type, family.name, "no TYPE")
        unit = next((unit for unit in UNITS if self.base().endswith("_" + unit)), None)
        if self.openmetrics:
            check(unit == family.unit, family.name, "no UNIT")
        names = {frozenset(name for name, _ in labels) for _, labels in family.samples}
        check(len(names) <= (2 if family.type == "histogram" else 1), family.name, "samples with different labels")
        if family.type == "histogram":
            self.check_histogram(family)

    def check_histogram(self, family):
        series = {}
        for (name, labels), value in family.samples.items():
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, {})[dict(labels).get("le", name[len(family.name):])] = value
        for values in series.values():
            total, amount = values.pop("_count"), values.pop("_sum")
            bounds = sorted(values, key=float)
            check(bounds[-1] == "+Inf" and values["+Inf"] == total, family.name, "the last bucket is not all")
            check([values[b] for b in bounds] == sorted(values.values()), family.name, "buckets that shrink")
            check(total or not amount, family.name, "a sum of nothing")

    def read(self, text):
        check(text.endswith("\n"), text[-80:], "no end of line")
        lines = text[:-1].split("\n")
        if self.openmetrics:
            check(lines.pop() == "# EOF", text[-80:], "no # EOF")
        for line in lines:
            if line.startswith("#"):
                if line.startswith("# HELP") and self.family:
                    self.end_family(self.family)
                self.describe(line)
            else:
                self.sample(line)
        self.end_family(self.family)
        return self.families


def read(text, openmetrics=False):
    """Families by name, or Wrong."""
    return Reader(openmetrics).read(text)


def value(families, sample, **labels):
    """The sum of those samples that have these labels."""
    found = [number for family in families.values() for (name, pairs), number in family.samples.items()
             if name == sample and labels.items() <= dict(pairs).items()]
    if not found:
        raise Wrong(f"no sample {sample} {labels}")
    return sum(found)
