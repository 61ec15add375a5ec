"""Makes one executable file of a Python program and the files it needs, so that a test travels as one file.

usage: archive.py OUTPUT MAIN.py FILE...        MAIN.py becomes __main__.py; the others keep their names
"""
import os
import pathlib
import sys
import zipfile


def main(output, program, *files):
    partial = pathlib.Path(output + ".partial")
    with open(partial, "wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(program, "__main__.py")
            for file in files:
                archive.write(file, pathlib.Path(file).name)
    partial.chmod(0o755)
    os.replace(partial, output)


main(*sys.argv[1:])
