"""What both checks against huggingface_hub (interoperability.py, push_interoperability.py) need of a local hub."""

import hashlib
import json
from http.server import BaseHTTPRequestHandler


def git_sha1(contents):
    return hashlib.sha1(b"blob %d\0" % len(contents) + contents).hexdigest()


class AnsweringHub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        """`body`: bytes, or a document that is sent as JSON."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
