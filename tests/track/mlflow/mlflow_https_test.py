#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether runs with an MLflow tracker are on a server at https:// as in result.json, and whether servers that
nobody trusted vouches for, or that cannot encrypt, get nothing.

Usage: mlflow_https_test.py MLFLOW_RUN [SYNC]

MLFLOW_RUN is mlflow_run.cpp's program, SYNC examples/sync.cpp's. The server is mlflow_stand_in.py's.
"""

import base64
import datetime
import ipaddress
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import mlflow_stand_in as stand_in
from mlflow_place import TOKEN, Place, reports_in
from mlflow_stand_in import Server, times

DAY = datetime.timedelta(days=1)
RUN = ("begin", 0, "report", 20, "close", "finished")


class Authority:
    """Makes certificates."""

    def __init__(self, root, name):
        self.root, self.name, self.made = root, x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), 0
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.file = root / f"{name}.pem"
        certificate = self.sign(self.name, self.key, [], 10 * DAY, authority=True)
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, subject, key, names, valid_for, authority=False):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (x509.CertificateBuilder().subject_name(subject).issuer_name(self.name)
                   .public_key(key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(now - 5 * DAY).not_valid_after(now + valid_for)
                   .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True))
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def server_context(self, *names, valid_for=10 * DAY):
        """Of a server with a certificate for `names`."""
        self.made += 1
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.DNSName(name) if name[0].isalpha() else x509.IPAddress(ipaddress.ip_address(name))
                        for name in names]
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "the server")])
        certificate = self.sign(subject, key, alternatives, valid_for)
        file = self.root / f"{self.file.stem}-{self.made}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


class Listener:
    """Accepts connections and leaves them to `talk`."""

    def __init__(self, talk):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.uri = f"https://127.0.0.1:{self.socket.getsockname()[1]}"
        self.open = []

        def serve():
            while True:
                connection, _ = self.socket.accept()
                self.open.append(connection)
                talk(connection)

        threading.Thread(target=serve, daemon=True).start()


def check_is_shown_and_goes_on(authority, other, root):
    asked_for = []
    context = authority.server_context("localhost", "127.0.0.1")
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    server = Server(context)
    place = Place(root, "ok", server.uri.replace("127.0.0.1", "localhost"), SSL_CERT_FILE=str(authority.file))
    place.do("begin", 0, "report", 5, "sent", 5, "kill")
    first = place.check(server, "RUNNING")
    place.do("begin", 5, "many", 3000, "close", "paused")
    assert set(asked_for) == {"localhost"}, set(asked_for)
    asked_for.clear()
    place.uri = server.uri  # by number; IP addresses are no names
    place.do("begin", 6, "report", 1, "close", "finished")
    assert set(asked_for) == {None} and first.status == "FINISHED", (asked_for, first.status)
    assert server.authorizations == {f"Bearer {TOKEN}"}


def check_who_may_vouch(authority, other, root):
    """MLflow's variable, with a file or a directory, counts before the system's store."""
    server = Server(authority.server_context("127.0.0.1"))
    directory = root / "authorities"
    directory.mkdir()
    hashed = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", authority.file], capture_output=True,
                            text=True, check=False) if is_there("openssl") else None
    places = [authority.file]
    if hashed:
        (directory / f"{hashed.stdout.strip()}.0").write_bytes(authority.file.read_bytes())
        places.append(directory)
    for number, authorities in enumerate(places):
        place = Place(root, f"vouch-{number}", server.uri, MLFLOW_TRACKING_SERVER_CERT_PATH=str(authorities),
                      SSL_CERT_FILE=str(other.file))
        place.do(*RUN)
        assert server.runs.popitem()[1].history("loss") == reports_in(place.path)
    place = Place(root, "vouch-other", server.uri, MLFLOW_TRACKING_SERVER_CERT_PATH=str(other.file),
                  SSL_CERT_FILE=str(authority.file))
    assert "[RT-V68]" in place.do(*RUN) and not server.runs


def is_there(command):
    try:
        subprocess.run([command, "version"], capture_output=True, check=True)
        return True
    except OSError:
        return False


def check_certificates_that_are_refused(authority, other, root):
    refused = {
        "unknown": (other.server_context("127.0.0.1"), "unable to get local issuer certificate"),
        "host": (authority.server_context("localhost"), "IP address mismatch"),
        "nameless": (authority.server_context(), "IP address mismatch"),
        "expired": (authority.server_context("127.0.0.1", valid_for=-DAY), "certificate has expired"),
    }
    for name, (context, reason) in refused.items():
        server = Server(context)
        place = Place(root, name, server.uri, SSL_CERT_FILE=str(authority.file))
        started = time.monotonic()
        said = place.do(*RUN)
        assert time.monotonic() - started < 10 and said.count(reason) == 1 and "[RT-V68]" in said, (name, said)
        assert "lacks the last 20 of this run's 20 reports" in said and not server.requests, (name, said)
        good = Server(authority.server_context("127.0.0.1"))
        note = place.path / "mlflow.json"
        note.write_text(note.read_text().replace(server.uri, good.uri))
        place.uri = ""  # the note has it
        assert "synced mlflow.json" in place.do("sync"), name
        place.check(good, runs=1)
    server = Server(authority.server_context("127.0.0.1"))
    place = Place(root, "by name", server.uri.replace("127.0.0.1", "localhost"), SSL_CERT_FILE=str(authority.file))
    assert "hostname mismatch" in place.do(*RUN).lower() and not server.requests


def check_servers_without_tls(authority, other, root):
    context = authority.server_context("127.0.0.1")
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    kinds = {
        "http": Server().uri.replace("http:", "https:"),
        "hangs up": Listener(lambda connection: connection.close()).uri,
        "garbage": Listener(lambda connection: connection.sendall(b"220 mail.example.org ESMTP\r\n")).uri,
        "TLS 1.1": Server(context).uri,
    }
    for name, uri in kinds.items():
        place = Place(root, name, uri, SSL_CERT_FILE=str(authority.file))
        started = time.monotonic()
        said = place.do(*RUN)
        assert time.monotonic() - started < 10 and said.count("the TLS handshake failed") == 1, (name, said)
        assert "[RT-V61]" in said and "lacks the last 20" in said, (name, said)
    server = Server(authority.server_context("127.0.0.1"))
    place = Place(root, "no https", server.uri.replace("https:", "http:"))
    assert "[RT-V61]" in place.do(*RUN) and not server.requests


def check_server_that_stalls(authority, other, root):
    """In the handshake, or after it."""
    slow = Server(authority.server_context("127.0.0.1"))
    slow.fault = stand_in.slow(10)
    for name, uri in {"handshake": Listener(lambda _: None).uri, "answer": slow.uri}.items():
        place = Place(root, name, uri, SSL_CERT_FILE=str(authority.file))
        started = time.monotonic()
        said = place.do(*RUN)
        assert time.monotonic() - started < 10, (name, said)
        assert "MLflow takes too long and lacks the last 20 of this run's 20 reports" in said, (name, said)
        server = Server(authority.server_context("127.0.0.1"))
        note = place.path / "mlflow.json"
        note.write_text(note.read_text().replace(uri, server.uri).replace('"is_asked_for":true', '"is_asked_for":false'))
        place.uri = ""
        place.do("sync")
        place.check(server, runs=1)


def check_faults(authority, other, root):
    faults = {"500": stand_in.status(500), "html": stand_in.html(200), "huge": stand_in.huge,
              "endless body": stand_in.endless_body, "endless head": stand_in.endless_head,
              "hangs up": stand_in.hangs_up, "hangs up afterwards": stand_in.hangs_up_afterwards,
              "half": stand_in.half, "no HTTP": stand_in.no_http}
    for name, fault in faults.items():
        server = Server(authority.server_context("127.0.0.1"))
        server.fault = times(2, fault)
        place = Place(root, f"fault {name}", server.uri, SSL_CERT_FILE=str(authority.file))
        said = place.do("begin", 0, "report", 3, "sent", 3, "report", 3, "close", "finished")
        assert said.count("MLflow may be missing data") == 1 and "\x1b" not in said, (name, said)
        place.check(server, runs=1)


def check_any_certificate_on_wish(authority, other, root):
    server = Server(other.server_context("elsewhere", valid_for=-DAY))
    place = Place(root, "insecure", server.uri, MLFLOW_TRACKING_INSECURE_TLS="TRUE")
    assert place.do(*RUN).count("is not verified") == 1
    place.check(server)


def check_settings_that_cannot_be(authority, other, root):
    (root / "empty.pem").write_text("no certificate")
    settings = [{"MLFLOW_TRACKING_INSECURE_TLS": "perhaps"},
                {"MLFLOW_TRACKING_INSECURE_TLS": "1", "MLFLOW_TRACKING_SERVER_CERT_PATH": str(authority.file)},
                {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(root / "absent.pem")},
                {"MLFLOW_TRACKING_SERVER_CERT_PATH": str(root / "empty.pem")}]
    for number, variables in enumerate(settings):
        said = Place(root, f"settings-{number}", "https://127.0.0.1:9", **variables).do(*RUN)
        assert said.startswith("refused: ") and "[RT-V67]" in said, (variables, said)


def check_credentials(authority, other, root):
    """They reach a server that is trusted, and nothing else; Place.do() looks for them."""
    secret = {"MLFLOW_TRACKING_USERNAME": "CANARY-user", "MLFLOW_TRACKING_PASSWORD": "CANARY:p\u00e4ss word"}
    server = Server(authority.server_context("127.0.0.1"))
    Place(root, "basic", server.uri, SSL_CERT_FILE=str(authority.file), **secret).do(*RUN)
    word = base64.b64encode(":".join(secret.values()).encode()).decode()
    assert server.authorizations == {f"Basic {word}"}, server.authorizations
    heard = []

    def listen(connection):
        connection.settimeout(0.2)
        try:
            heard.append(connection.recv(65536))
        except OSError:
            pass
        connection.close()

    untrusted = Server(other.server_context("127.0.0.1"))
    for number, uri in enumerate((untrusted.uri, Listener(listen).uri)):
        Place(root, f"basic-{number}", uri, SSL_CERT_FILE=str(authority.file), **secret).do(*RUN)
    assert not untrusted.requests and heard and not [text for text in heard if b"CANARY" in text or b"HTTP" in text]
    refusing = Server(authority.server_context("127.0.0.1"))
    refusing.fault = stand_in.status(401)
    said = Place(root, "basic-401", refusing.uri, SSL_CERT_FILE=str(authority.file), **secret).do(*RUN)
    assert "status 401" in said, said


def main():
    checks = [check for name, check in globals().items() if name.startswith("check_")]
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        authority, other = Authority(root, "authority"), Authority(root, "other")
        for check in checks:
            place = root / check.__name__
            place.mkdir()
            started = time.monotonic()
            check(authority, other, place)
            print(f"{check.__name__}: {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
