"""Fetches the source distributions of packages.txt and writes the exchanges of their recordings, a line of JSON each.

Usage: gather.py FOLDER. What is there already is not fetched again.
"""

import concurrent.futures
import gzip
import json
import pathlib
import subprocess
import sys
import tarfile

import cassettes

PACKAGES = pathlib.Path(__file__).with_name("packages.txt")


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    pins = [line for line in PACKAGES.read_text().splitlines() if line and not line.startswith("#")]
    written, stamp = folder / "exchanges.jsonl", folder / "exchanges.stamp"
    state = "\n".join(pins) + pathlib.Path(cassettes.__file__).read_text()
    if written.is_file() and stamp.is_file() and stamp.read_text() == state:
        return
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        archives = list(pool.map(lambda pin: fetch(pin, folder), pins))
    with open(written, "w", encoding="utf-8") as out:
        for archive in archives:
            for exchange in recorded(archive):
                out.write(json.dumps(exchange) + "\n")
    stamp.write_text(state)


def fetch(pin, folder):
    """Returns the archive of one package."""
    name, version = pin.split("==")
    archive = folder / f"{name.replace('-', '_')}-{version}.tar.gz"
    if not archive.is_file():
        print(f"fetching {pin}", flush=True)
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--no-binary", name, "-d", folder, pin], check=True, timeout=300)
    return archive


def recorded(archive):
    """Yields the exchanges of every recording of an archive."""
    with tarfile.open(archive) as files:
        for member in files:
            if member.isfile() and cassettes.is_cassette(member.name):
                raw = files.extractfile(member).read()
                raw = gzip.decompress(raw) if member.name.endswith(".gz") else raw
                yield from cassettes.exchanges(member.name, raw)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
