"""What surrounds object stores in a cloud: a service that gives credentials, certificates, a proxy."""

import contextlib
import datetime
import http.server
import ipaddress
import json
import socket
import socketserver
import ssl
import threading
import time

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

STS = """<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>
<SecretAccessKey>hidden</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{over}</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


@contextlib.contextmanager
def metadata_service(key, delay=0.0):
    """A service that gives credentials to a machine, a container, or the holder of a token."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            asked.append((self.command, self.path, self.headers.get("Authorization")))
            time.sleep(delay)
            text = "token" if self.command == "PUT" else "role"
            over = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            if self.command == "POST":
                text = STS.format(key=key, over=over)
            elif self.path.endswith("/role") or self.path == "/container":
                text = json.dumps({"AccessKeyId": key, "SecretAccessKey": "hidden", "Token": "t", "Expiration": over, "RoleArn": "r",
                                   "Code": "Success", "LastUpdated": over, "Type": "AWS-HMAC"})
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = answer

        def log_message(self, *_):
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()


def own_certificate(folder, hosts=()):
    """A self-signed certificate for 127.0.0.1 and other hosts: its file, and a context with it."""
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), *map(x509.DNSName, hosts)]
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - datetime.timedelta(1), now + datetime.timedelta(1))
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(key, hashes.SHA256())
    path, key_path = folder / "certificate.pem", folder / "key.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key_path)
    return str(path), context


@contextlib.contextmanager
def tunnel(port):
    """An HTTPS proxy that connects to one port, whatever the requested host: its URL, and the requested hosts."""
    hosts = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            hosts.append(self.rfile.readline().split()[1].decode())
            while self.rfile.readline().strip():
                pass
            with socket.create_connection(("127.0.0.1", port)) as server, contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=self.copy, args=(server, self.connection), daemon=True)
                back.start()
                self.copy(self.connection, server)
                back.join()

        @staticmethod
        def copy(source, target):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    target.sendall(data)
                target.shutdown(socket.SHUT_WR)

    class Tunnel(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Tunnel(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", hosts
        server.shutdown()
