"""OpenTelemetry for clients: spans of sends and handlers, and metrics. Needs the extra `otel`.

`Tracing` is a middleware, `observe_metrics` shows the registry of a client or a broker to a meter.
"""

from cometmq.otel.observed_metrics import observe_metrics
from cometmq.otel.tracing import Tracing

__all__ = ["Tracing", "observe_metrics"]
