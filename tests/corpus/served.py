"""A server on loopback that gives recorded answers to the vendors' libraries: `URL/NUMBER/…` is the answer NUMBER."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def serve(exchanges):
    """Starts it, and returns its URL. It ends with the process."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            exchange = exchanges[int(self.path.split("/")[1])]
            self.send_response_only(exchange["status"])
            for name, value in exchange["headers"].items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(exchange["bytes"])))
            self.end_headers()
            self.wfile.write(exchange["bytes"])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
