"""The command that asks a running role whether it is ready, for scripts and containers.

Asks /ready or /live over HTTP, as a load balancer does. Owns the words and exit codes. Java: none.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import click

from cometmq.cli.printed_columns import print_json
from cometmq.cli.shared_options import json_option
from cometmq.errors import ConnectFailed, SettingsError

_BODY_BYTES_MAX = 64 * 1024


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:5557", show_default=True, envvar="COMETMQ_HEALTH_URL",
    metavar="URL", help="Where the role shows its health; it prints this when it starts.",
)  # fmt: skip
@click.option(
    "--live", is_flag=True, help="Only whether it answers at all, not whether it is ready."
)
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 60), default=3.0, show_default=True,
    help="Longest wait for the connection and for the answer, seconds.",
)  # fmt: skip
@click.option(
    "--trust", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="PEM file: who issues its certificate, where URL is https.  [default: the system's]",
)  # fmt: skip
@json_option
@click.pass_context
def health(
    ctx: click.Context, url: str, live: bool, timeout_s: float, trust: str | None, as_json: bool
) -> None:
    """Ask a broker or name server of healthEnable or metricsExporterType=PROM whether it is ready.

    The exit code is 0 when it is, and 1 when it is not, or does not answer.
    """
    asked = "live" if live else "ready"
    try:
        status, answer = _ask(url, asked, timeout_s, trust)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, ConnectionRefusedError):
            reason += "; a role answers with healthEnable=true or metricsExporterType=PROM"
        raise ConnectFailed(f"{url} does not say whether it is {asked}: {reason}") from error
    is_well = status == http.HTTPStatus.OK and answer.get(asked) is True
    problems = [str(one) for one in answer.get("problems", ())]
    if as_json:
        print_json({asked: is_well, "problems": problems})
    else:
        click.echo(asked if is_well else f"not {asked}")
        for problem in problems:
            click.echo(f"  {problem}")
    ctx.exit(0 if is_well else 1)


def _ask(url: str, what: str, timeout_s: float, trust: str | None) -> tuple[int, dict[str, Any]]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"--url {url}: write http://HOST:PORT")
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=trust)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        connection = http.client.HTTPSConnection(
            parts.hostname, parts.port or 5557, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(
            parts.hostname, parts.port or 5557, timeout=timeout_s
        )
    try:
        connection.request("GET", f"/{what}")
        response = connection.getresponse()
        body = response.read(_BODY_BYTES_MAX)
    finally:
        connection.close()
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object of JSON")
    return response.status, answer
