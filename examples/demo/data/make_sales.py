"""Write sales.csv again: three years of monthly sales by region and product, always the same.

Regions grow at different rates, some products are seasonal, and the file has the flaws that exported tables have: blank
cells and thousands separators. Run it by path: `python examples/demo/data/make_sales.py`.
"""

import csv
import io
import math
import random
from pathlib import Path

SEED = 20_250_401
YEARS = (2022, 2023, 2024)
# region -> its share of sales at the start, and its yearly growth
REGIONS = {
    "North": (1.0, 0.04),
    "South": (0.8, 0.11),
    "East": (0.55, 0.27),
    "West": (1.2, -0.03),
    "Overseas": (0.35, 0.16),
}
# product -> units a month at the start, price, how strongly its sales follow the season (negative: a winter product)
PRODUCTS = {
    "Bicycles": (52, 640.00, 0.55),
    "Helmets": (140, 58.50, 0.40),
    "Lights": (210, 34.90, -0.45),
    "Locks": (185, 46.00, 0.05),
    "Pumps": (96, 27.25, 0.15),
    "Tents": (61, 219.00, 0.80),
}
BLANK_UNITS, BLANK_REVENUE = 0.012, 0.018
"""Shares of cells that are missing."""


def sales() -> str:
    """Return the file's text."""
    chance = random.Random(SEED)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["month", "region", "product", "units", "revenue"])
    for year in YEARS:
        for month in range(1, 13):
            age = year - YEARS[0] + (month - 1) / 12
            summer = -math.cos(2 * math.pi * month / 12)
            for region, (share, growth) in REGIONS.items():
                for product, (units, price, season) in PRODUCTS.items():
                    expected = units * share * (1 + growth) ** age * (1 + season * summer * 0.5)
                    sold = max(1, round(expected * chance.uniform(0.93, 1.07)))
                    revenue = sold * price * chance.uniform(0.97, 1.0)
                    shown_units = "" if chance.random() < BLANK_UNITS else str(sold)
                    shown_revenue = "" if chance.random() < BLANK_REVENUE else f"{revenue:,.2f}"
                    table.writerow([f"{year}-{month:02d}", region, product, shown_units, shown_revenue])
    return text.getvalue()


if __name__ == "__main__":
    target = Path(__file__).with_name("sales.csv")
    target.write_text(sales(), encoding="utf-8", newline="")
    print(f"wrote {target.name}: {len(sales().splitlines()) - 1} rows")
