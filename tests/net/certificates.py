"""Certificates that tests make for themselves, with the openssl command, once a session."""

from __future__ import annotations

import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PASSWORD = "open-sesame"

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def openssl(*arguments: str, text: str = "") -> str:
    """Run the command; what it says."""
    done = subprocess.run(
        ["openssl", *arguments], input=text, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and what it has issued."""

    place: Path
    name: str

    @property
    def cert(self) -> Path:
        return self.place / f"{self.name}.pem"

    def issue(self, name: str, *, password: str = "") -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and localhost, and its key, each in a file of its own."""
        cert, key, asked = (self.place / f"{name}.{end}" for end in ("pem", "key", "csr"))
        locked = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl(
            "req", "-new", *_KEY, *locked, "-keyout", str(key), "-out", str(asked),
            "-subj", f"/CN={name}",
        )  # fmt: skip
        extra = self.place / f"{name}.ext"
        extra.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl(
            "x509", "-req", "-in", str(asked), "-out", str(cert), "-days", "3650",
            "-CA", str(self.cert), "-CAkey", str(self.place / f"{self.name}.key"),
            "-CAcreateserial", "-extfile", str(extra),
        )  # fmt: skip
        return cert, key

    def client(self, cert: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
        """A client's context that trusts this authority, and shows a certificate."""
        made = ssl.create_default_context(cafile=self.cert)
        if cert is not None:
            made.load_cert_chain(cert, key)
        return made


def authority(place: Path, name: str) -> Authority:
    """A new authority."""
    openssl(
        "req", "-x509", *_KEY, "-nodes", "-days", "3650", "-subj", f"/CN={name}",
        "-keyout", str(place / f"{name}.key"), "-out", str(place / f"{name}.pem"),
    )  # fmt: skip
    return Authority(place, name)


@dataclass(frozen=True)
class Certificates:
    """What most tests need."""

    ours: Authority
    others: Authority
    server: tuple[Path, Path]
    encrypted: tuple[Path, Path]
    client: tuple[Path, Path]
    stranger: tuple[Path, Path]


@cache
def certificates() -> Certificates:
    """The same for all tests of a process; the directory ends with it."""
    place = Path(_place.name)
    ours, others = authority(place, "ours"), authority(place, "others")
    return Certificates(
        ours,
        others,
        ours.issue("server"),
        ours.issue("encrypted", password=PASSWORD),
        ours.issue("client"),
        others.issue("stranger"),
    )


_place = tempfile.TemporaryDirectory(prefix="cometmq-certificates-")
