"""Reads recordings of vcrpy in the forms that packages keep them in."""

import base64
import gzip
import json
import re
import zlib
from urllib.parse import urlsplit

import brotli
import yaml
import zstandard

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# What no longer holds of a body that was decoded, or that loopback does not need.
DROPPED = {"connection", "content-encoding", "content-length", "transfer-encoding"}
# How a dialect's requests are known: by the end of their path.
DIALECTS = [
    ("anthropic", re.compile(r"/v1/messages$"), "api.anthropic.com localhost"),
    ("bedrock", re.compile(r"/model/([^/]+)/converse(-stream)?$"), ""),
    ("chat", re.compile(r"/chat/completions$"), ""),
    ("gemini", re.compile(r"/models/([^/]+):(streamG|g)enerateContent$"), ""),
    ("ollama", re.compile(r"/api/chat$"), "127.0.0.1:11434 localhost:11434"),
    ("responses", re.compile(r"/responses$"), ""),
]


def is_cassette(path):
    return path.endswith((".yaml", ".yml", ".yaml.gz")) and ("cassettes/" in path or "recordings/" in path)


def exchanges(path, raw):
    """Yields the exchanges with models of one recording."""
    recording = yaml.load(raw, Loader=LOADER)
    for number, (request, response) in enumerate(pairs(recording)):
        exchange = read(request, response)
        if exchange:
            yield {"source": f"{path}#{number}", **exchange}


def pairs(recording):
    """Returns requests and responses; none of what has another form, such as an RPC that is no HTTP."""
    if not isinstance(recording, dict):
        return []
    found = [one for one in recording.get("interactions") or [] if isinstance(one, dict)]
    found = [(one.get("request"), one.get("response")) for one in found]
    found += zip(recording.get("requests") or [], recording.get("responses") or [])
    return [pair for pair in found if all(isinstance(side, dict) for side in pair)]


def read(request, response):
    url = request.get("uri") or request.get("url") or ""
    asked = content(request) or b""
    dialect, model = dialect_of(url, asked)
    if dialect is None or request.get("method", "POST").upper() != "POST":
        return None
    status = response.get("status") or response.get("status_code") or {}
    headers = {
        text(name).lower(): text(value[0] if isinstance(value, list) else value)
        for name, value in (response.get("headers") or {}).items()
        if value
    }
    body = decoded(content(response) or b"", headers.get("content-encoding", ""))
    headers = {name: value for name, value in headers.items() if name not in DROPPED and "\n" not in value}
    # Some recorders hide what they need not hide.
    headers = {name: value for name, value in headers.items() if "REDACTED" not in value}
    return {
        "dialect": dialect,
        "url": url,
        "host": urlsplit(url).hostname or "",
        "model": model,
        "is_streamed": is_streamed(url, asked, body),
        "status": status["code"] if isinstance(status, dict) else status,
        "headers": headers,
        "body": base64.b64encode(body).decode(),
    }


def dialect_of(url, asked):
    place, _, query = url.partition("?")
    host = urlsplit(url).netloc
    for dialect, ending, hosts in DIALECTS:
        found = ending.search(place)
        if not found or (hosts and not any(host.startswith(one) for one in hosts.split())):
            continue
        model = found.group(1) if found.groups() else named(asked)
        return dialect, model.replace("%3A", ":") or "m"
    return None, None


def is_streamed(url, asked, body):
    is_asked = "stream" in url.rsplit("/", 1)[-1].lower() or b'"stream":true' in asked.replace(b" ", b"")
    return is_asked or body.lstrip().startswith((b"data:", b"event:"))


def named(asked):
    try:
        return str(json.loads(asked).get("model") or "")
    except (ValueError, AttributeError):
        return ""


def content(side):
    """Returns the bytes of a body, in whatever form it was kept."""
    if side.get("parsed_body") is not None:
        return json.dumps(side["parsed_body"], ensure_ascii=False).encode()
    body = side.get("body", side.get("content"))
    if isinstance(body, dict):
        body = body.get("string", body.get("base64_string"))
    if isinstance(body, str):
        return body.encode("utf-8", "surrogateescape")
    return body


def decoded(body, encoding):
    """Returns a body without its compression. Most recorders took it off already."""
    try:
        if body[:2] == b"\x1f\x8b":
            return gzip.decompress(body)
        if encoding == "br":
            return brotli.decompress(body)
        if encoding == "zstd" or body[:4] == b"\x28\xb5\x2f\xfd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
        if encoding == "deflate":
            return zlib.decompress(body)
    except (brotli.error, zstandard.ZstdError, zlib.error):
        pass
    return body


def text(value):
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
