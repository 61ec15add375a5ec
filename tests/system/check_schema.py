#!/usr/bin/env python3
"""Checks what gpusharectl writes by its schemas: that every key is there and of its type, and that none is missing in
the schema.

usage: check_schema.py SOURCES FILE...      NAME.json: by docs/schema/NAME.schema.json; NAME.jsonl: line by line

Without python3-jsonschema it exits with 77. It also compares the words of the schemas with those in the sources.
"""
import json
import pathlib
import re
import sys

try:
    import jsonschema
except ImportError:
    sys.exit(77)


def mixins(schema):
    """What is part of others, and must not forbid their keys."""
    return {part["$ref"] for entry in schema.get("$defs", {}).values() for part in entry.get("allOf", [])}


def make_strict(schema):
    """No keys but those that the schema has."""
    if isinstance(schema, list):
        for entry in schema:
            make_strict(entry)
    elif isinstance(schema, dict):
        for entry in schema.values():
            make_strict(entry)
        if isinstance(schema.get("properties"), dict):
            schema["unevaluatedProperties"] = False


def load(folder, name):
    schema = json.loads((folder / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    parts = mixins(schema)
    make_strict(schema)
    for reference in parts:
        del schema["$defs"][reference.removeprefix("#/$defs/")]["unevaluatedProperties"]
    return schema


def of_kind(schema, value):
    """By the one that it claims to be, so that what is wrong can be told."""
    kind = value.get("event") if "oneOf" in schema else None
    return {"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]} if kind in schema.get("$defs", {}) else schema


def check(folder, path):
    schema, text = load(folder, path.name.split(".")[0]), path.read_text()
    values = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
    for value in values:
        error = next(jsonschema.Draft202012Validator(of_kind(schema, value)).iter_errors(value), None)
        if error:
            sys.exit(f"{path.name}: {error.json_path}: {error.message}"[:2000])


def words(path, pattern):
    return set(re.findall(pattern, path.read_text()))


def rows(path, macro):
    """The words of one of the header's lists."""
    found = re.search(rf"#define {macro}\(X\)((?:.*\\\n)*.*)", path.read_text())
    return set(re.findall(r'X\(\w+, \d+, "(\w+)"\)', found[1])) if found else set()


def check_words(sources, folder):
    status = json.loads((folder / "status.schema.json").read_text())["$defs"]["job"]["properties"]
    figures = sources / "daemon/ctl/figures.c"
    for key, pattern in (("state", r'\[GS_JOB_\w+\] = "(\w+)"'), ("reason", r'\[GS_REASON_\w+\] = "(\w+)"'),
                         ("limited", r'\[GS_LIMITED_\w+\] = "(\w+)"')):
        known, told = words(figures, pattern), set(status[key]["enum"])
        if known != told:
            sys.exit(f"{key}: {known ^ told} is not in both, figures.c and the schema")
    event, change = (json.loads((folder / f"{name}.schema.json").read_text())["$defs"] for name in ("event", "change"))
    for key, pattern in (("term", r'\[GS_TERM_\w+\] = \{"(\w+)"'), ("setting", r'\{GS_SET_\w+, "(\w+)"')):
        known = words(sources / "src/common/words.c", pattern)
        for told in (set(schema[key]["properties"][key]["enum"]) for schema in (event, change)):
            if known != told:
                sys.exit(f"{key}: {known ^ told} is not in words.c and both schemas")
    told = {entry["$ref"].removeprefix("#/$defs/")
            for entry in json.loads((folder / "event.schema.json").read_text())["oneOf"]}
    for key, macro, told in (("events", "GS_EVENT_KINDS", told - {"missed"}),
                             ("why", "GS_REFUSALS", set(event["refused"]["properties"]["why"]["enum"])),
                             ("rule", "GS_RULES", set(status["rule"]["enum"]))):
        known = rows(sources / "include/gpushare/protocol.h", macro)
        if not known or known != told:
            sys.exit(f"{key}: {known ^ told} is not in both, {macro} of protocol.h and the schema")


def main():
    sources = pathlib.Path(sys.argv[1])
    folder = sources / "docs/schema"
    check_words(sources, folder)
    for path in sys.argv[2:]:
        check(folder, pathlib.Path(path))
    print("ok")


if __name__ == "__main__":
    main()
