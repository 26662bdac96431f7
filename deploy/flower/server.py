"""The server: Flower's SuperLink on loopback, and nginx, which hands nodes' requests on to it.

Flower serves all its interfaces on one port, and whoever reaches that port may start runs and register nodes. So the
SuperLink listens on loopback, where the operator reaches it, and nginx listens for nodes. nginx answers 404 for every
path but those of the interface for nodes.
"""

from __future__ import annotations

import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deploy.flower.certificates import Certificates
from deploy.flower.programs import environment, program, run_together

NODES_PORT, OPERATOR_PORT = 8000, 8001

NGINX = """\
daemon off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;

  # The path as it was sent: nothing to decode, no dots, no empty parts.
  map $request_uri $for_nodes {{
    default 0;
    ~^/v1/fleet/[a-z-]+$ 1;
  }}

  server {{
    listen {host}:{port} ssl;
    ssl_certificate {made.server};
    ssl_certificate_key {made.server_key};
    ssl_protocols TLSv1.2 TLSv1.3;
    server_tokens off;
    client_max_body_size 0;

    location / {{
      if ($for_nodes = 0) {{
        return 404;
      }}
      proxy_pass https://127.0.0.1:{operator_port};
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate {made.authority};
      proxy_ssl_name localhost;
      proxy_http_version 1.1;
      proxy_request_buffering off;
      proxy_buffering off;
      proxy_read_timeout 10m;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Server:
    """A server's certificates, where nodes and the operator reach it, and its file of nodes and runs."""

    made: Certificates
    host: str = "0.0.0.0"
    port: int = NODES_PORT
    operator_port: int = OPERATOR_PORT
    database: Path = Path("superlink.db")

    def run(self) -> int:
        """Run until SIGTERM or Ctrl-C, or until a program ends; return the exit code."""
        self.made.check()
        with tempfile.TemporaryDirectory(prefix="fedeas-server-") as folder:
            settings, secret = Path(folder) / "nginx.conf", Path(folder) / "secret"
            settings.write_text(self.nginx(Path(folder)))
            secret.touch(0o600)
            secret.write_bytes(secrets.token_bytes(32))
            return run_together(self.commands(settings, secret), environment())

    def nginx(self, folder: Path) -> str:
        """The configuration of nginx; its own files are in `folder`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        made = Certificates(self.made.folder.absolute())
        return NGINX.format(folder=folder, made=made, host=host, port=self.port, operator_port=self.operator_port)

    def commands(self, settings: Path, secret: Path) -> list[list[str]]:
        """The three programs: nginx, the SuperLink, and the program that starts the server's part of each run."""
        superlink = {
            "--host": "127.0.0.1",
            "--port": self.operator_port,
            "--ssl-ca-certfile": self.made.authority,
            "--ssl-certfile": self.made.server,
            "--ssl-keyfile": self.made.server_key,
            "--database": self.database.absolute(),
            "--isolation": "process",
            "--superexec-auth-secret-file": secret,
        }
        executor = {
            "--runtime-api-address": f"127.0.0.1:{self.operator_port}",
            "--root-certificates": self.made.authority,
            "--superexec-auth-secret-file": secret,
        }
        switches = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
        return [
            [program("nginx"), "-e", "stderr", "-c", str(settings)],
            [program("flower-superlink"), *options(superlink), *switches],
            [program("flower-superexec"), *options(executor)],
        ]


def options(given: dict[str, object]) -> list[str]:
    """Options with their values, as on a command line."""
    return [str(part) for pair in given.items() for part in pair]
