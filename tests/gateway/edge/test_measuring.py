"""The gateway counts requests by route and status, and never by what a client chose."""

from prometheus_client.parser import text_string_to_metric_families

from tests.support.gateways import serving
from tests.support.nats_server import NatsServer


async def test_requests_are_counted_by_route(shared_nats: NatsServer) -> None:
    """A path that no route matches has no label of its own."""
    async with serving(shared_nats.url) as served:
        for path in ("/v1/runs/nobodys", "/v1/budget", "/no/such/route"):
            await served.http.get(path)
        text = (await served.http.get("/metrics")).text
        families = text_string_to_metric_families(text)
    counted = [one.labels for family in families for one in family.samples if one.name == "runwire_http_requests_total"]
    assert {"method": "GET", "route": "/v1/budget", "status": "200"} in counted
    assert {"method": "other", "route": "other", "status": "404"} in counted
    assert {one["route"] for one in counted} >= {"/v1/runs/{run_id}"}
    assert "nobodys" not in text
    assert "runwire_open_streams 0.0" in text
