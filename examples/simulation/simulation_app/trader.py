"""A trading model, as a program of its own: `python -I trader.py`

It reads config.json in its directory, and writes outcome.json. What it prints becomes the log of the model-day. It uses
nothing but its directory and its environment, and decides the same whenever it is given the same.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

Prices = Mapping[str, list[Decimal]]
Positions = dict[str, int]


def strongest(prices: Prices, window: int) -> list[str]:
    """The symbol that rose most."""
    return [max(prices, key=lambda symbol: prices[symbol][-1] / prices[symbol][-1 - window])]


def weakest(prices: Prices, window: int) -> list[str]:
    """The symbol that fell most."""
    return [min(prices, key=lambda symbol: prices[symbol][-1] / prices[symbol][-1 - window])]


def spread(prices: Prices, window: int) -> list[str]:
    """All symbols, each with the same amount."""
    return list(prices)


STRATEGIES: Mapping[str, Callable[[Prices, int], list[str]]] = {
    "strongest": strongest,
    "weakest": weakest,
    "spread": spread,
}


def worth(prices: Prices, cash: Decimal, positions: Positions) -> Decimal:
    return cash + sum(quantity * prices[symbol][-1] for symbol, quantity in positions.items())


def trade(prices: Prices, cash: Decimal, held: Positions, symbols: list[str]) -> tuple[Decimal, Positions, list[str]]:
    """Sells and buys until each of these symbols has the same share. Sells first, so that the cash suffices."""
    share = worth(prices, cash, held) / len(symbols)
    wanted = {symbol: int(share // prices[symbol][-1]) for symbol in symbols}
    changes = {symbol: wanted.get(symbol, 0) - held.get(symbol, 0) for symbol in sorted({*wanted, *held})}
    order = sorted((symbol for symbol in changes if changes[symbol]), key=lambda symbol: changes[symbol] > 0)
    cash -= sum(changes[symbol] * prices[symbol][-1] for symbol in order)
    return cash, {symbol: quantity for symbol, quantity in wanted.items() if quantity}, order


def end_with_the_pod() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with_the_pod, daemon=True).start()
    config = json.loads(Path("config.json").read_text())
    prices = {symbol: [Decimal(price) for price in closes] for symbol, closes in config["prices"].items()}
    cash, held = Decimal(config["cash"]), config["positions"]
    print(f"holds {held or 'nothing'} and {cash} in cash")
    # As long as a model takes that is asked over a network.
    time.sleep(float(os.environ["THINK_SECONDS"]))
    symbols = STRATEGIES[config["strategy"]](prices, config["window"])
    print(f"{config['strategy']} over {config['window']} days: {', '.join(symbols)}")
    cash, positions, order = trade(prices, cash, held, symbols)
    trades = []
    for symbol in order:
        quantity = positions.get(symbol, 0) - held.get(symbol, 0)
        print(f"{'buys' if quantity > 0 else 'sells'} {abs(quantity)} {symbol} at {prices[symbol][-1]}")
        trades.append({"symbol": symbol, "quantity": quantity, "price": str(prices[symbol][-1])})
    outcome = {
        "cash": str(cash),
        "value": str(worth(prices, cash, positions)),
        "positions": [
            {"symbol": symbol, "quantity": quantity, "price": str(prices[symbol][-1])}
            for symbol, quantity in positions.items()
        ],
        "trades": trades,
    }
    Path("outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
