"""Sentences about expenses, each with its content as JSON. Names, days, amounts and the wording of held-out rows are in
no training row. Usage: data.py --output DIR [--seed N]"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Draw, turn, write

SYSTEM = "Answer with JSON: who, date, euros."
FIRST = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karla", "Leon")
LAST = ("Adler", "Becker", "Conti", "Dubois", "Evans", "Fischer", "Garcia", "Hansen", "Ivanov", "Jansen", "Keller")
HELD_OUT_FIRST, HELD_OUT_LAST = ("Maria", "Peter", "Sofia", "Tom"), ("Moreau", "Novak", "Olsen", "Weber")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")
THINGS = ("lunch", "a taxi", "train tickets", "paper", "a hotel room", "stamps", "a printer", "coffee", "a keyboard")
WORDINGS = (
    "{who} paid {euros} euros for {thing} on {date}.",
    "On {date} {who} spent {euros} euros on {thing}.",
    "{date}: {thing}, {euros} euros, {who}.",
    "Please pay {who} back {euros} euros for {thing} bought on {date}.",
    "For {thing} {who} handed in a receipt over {euros} euros, dated {date}.",
    "Expense of {who}, {date}: {euros} euros for {thing}.",
    "I, {who}, paid for {thing} on {date}. It was {euros} euros.",
    "It was {date} when {who} bought {thing} for {euros} euros.",
)
HELD_OUT_WORDINGS = (
    "We owe {who} {euros} euros since {date}, for {thing}.",
    "{thing} for {euros} euros was bought by {who} on {date}.",
    "The receipt of {date} shows {euros} euros for {thing}; it belongs to {who}.",
)


def row(draw, wordings, first, last, years):
    who = f"{draw.one_of(first)} {draw.one_of(last)}"
    year, month, day = draw.one_of(years), draw.below(12), 1 + draw.below(28)
    euros = f"{3 + draw.below(190)}.{draw.below(10)}{draw.below(10)}"
    date = draw.one_of((f"{day} {MONTHS[month]} {year}", f"{MONTHS[month]} {day}, {year}"))
    text = draw.one_of(wordings).format(who=who, date=date, euros=euros, thing=draw.one_of(THINGS))
    answer = json.dumps({"who": who, "date": f"{year}-{month + 1:02}-{day:02}", "euros": euros})
    return {"messages": [turn("system", SYSTEM), turn("user", text[0].upper() + text[1:]), turn("assistant", answer)]}


def rows(seed):
    draw = Draw(seed)
    training = [row(draw, WORDINGS, FIRST, LAST, (2021, 2022, 2023, 2024)) for _ in range(500)]
    return training, [row(draw, HELD_OUT_WORDINGS, HELD_OUT_FIRST, HELD_OUT_LAST, (2020, 2025)) for _ in range(40)]


if __name__ == "__main__":
    write(rows)
