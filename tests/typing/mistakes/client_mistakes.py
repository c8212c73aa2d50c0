"""Mistakes in a program that uses the client; each is found where the comment stands."""

from runwire import Client, Nothing, RunwireError  # mypy: attr-defined


async def ask(client: Client) -> None:
    """Wrong options."""
    await client.start("x", agnet="a")  # mypy: call-arg
    await client.start("x", limits={"max_step": 3})  # mypy: typeddict-unknown-key
    await client.start("x", vision="sometimes")  # mypy: arg-type
    await client.chat("x", tools="add")  # mypy: arg-type
    await client.chat("x", limits={"max_steps": "3"})  # mypy: typeddict-item
    client.follow("x", artifacts="links")  # mypy: arg-type
    await client.chat("x", on_busy="wait")  # mypy: arg-type
    await client.chat("x", messages=[{"role": "system", "content": "x"}])  # mypy: typeddict-item
    await client.approve("x")  # mypy: arg-type


async def read(client: Client, error: RunwireError) -> None:
    """Wrong uses of what comes back."""
    status = await client.status("x")
    print(status.payload.raw_answer)  # mypy: union-attr
    print(status.answer)  # mypy: attr-defined
    async for event in client.follow("x"):
        print(event.text)  # mypy: union-attr
    print(error.retry_after + 1)  # mypy: operator
    print(error.reason)  # mypy: attr-defined
    print(Nothing)
