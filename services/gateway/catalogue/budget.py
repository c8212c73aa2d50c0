"""The budget of the caller's API key."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from contracts.runs.requests import KeyBudget, KeySpent
from services.gateway.auth.key_budgets import KeyBudgets
from services.gateway.edge.routing import RequestCaller, new_router


class BudgetToday(BaseModel):
    """What the runs that the key starts today may spend together, and have spent. Without a budget all is null."""

    limits: KeyBudget | None = None
    spent: KeySpent | None = None
    ends_at: int | None = Field(default=None, description="Unix time in ms: the end of the day, by UTC")


class BudgetRoutes:
    """The route of the budget."""

    def __init__(self, budgets: KeyBudgets) -> None:
        self._budgets = budgets

    def router(self) -> APIRouter:
        """Return the route."""
        router = new_router("budget")
        router.get("/v1/budget")(self.get_budget)
        return router

    async def get_budget(self, caller: RequestCaller) -> BudgetToday:
        """Return the budget of the key that the request shows, and what its runs have spent today."""
        today = await self._budgets.today(caller)
        if today is None:
            return BudgetToday()
        return BudgetToday(limits=today.budget, spent=today.spent.entry(), ends_at=today.ends_at)
