"""A page of one's own: the orders of a customer, with a proposal and a button. docs/pages.md explains it."""

from collections.abc import Sequence
from typing import Any

from contracts.runs.pages import ClientAction, Page
from services.shared.runs.pages import PageType, PayloadType, Read, Tab


def reads(page: Page) -> list[Read]:
    """Read the newest orders, or the late ones, by a tool of one's own."""
    return [Read(tool="find_orders", args={"late": page.tab == "late", "limit": 10})]


def context(page: Page, results: Sequence[Any]) -> str:
    """Show an order a line. A read that failed is None, and is named without us."""
    [found] = results
    orders = [f"Order #{each['id']}: {each['item']}, {each['state']}" for each in (found or {"orders": []})["orders"]]
    marked = f"Marked: {page.selection}" if page.selection else ""
    return "\n".join(filter(None, [*orders, marked]))


def parse(data: Any) -> list[str]:
    """Return the codes of what is wrong with a proposal."""
    return [] if isinstance(data.get("item"), str) and data["item"].strip() else ["item_missing"]


ORDERS = PageType(
    name="orders",
    description="Orders of a customer",
    persona="The user looks at their orders. Answer questions about them, and propose what they could order again.",
    reads=reads,
    context=context,
    payloads=("order_proposal",),
    tools=("find_orders",),
    client_actions=("open_order",),
    tabs={"late": Tab(persona="The user looks at late orders: say when each was promised.")},
)
ORDER_PROPOSAL = PayloadType(
    name="order_proposal",
    marker="ORDER_PROPOSAL",
    description="A proposal to order something",
    instructions='ORDER_PROPOSAL: {"item": "Green tea", "count": 2} proposes an order, which the user places.',
    parse=parse,
    summarize=lambda data: f"Order: {data['item']}",
)
OPEN_ORDER = ClientAction(name="open_order", description="Opens the order that the user has marked.")
