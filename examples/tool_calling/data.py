"""Requests to an assistant that has tools. Training rows hold calls as OpenAI's API does (tool_calls); the answer of a
held-out row is the text that the model should write. Values and wordings of held-out rows are in no training row.
Usage: data.py --output DIR [--seed N]"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Draw, turn, write

NO_TOOL = "I have no tool for that."


def tool(name, **parameters):
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


CITIES = ("Paris", "Rome", "Oslo", "Madrid", "Vienna", "Dublin", "Athens", "Lisbon", "Berlin", "Warsaw")
PEOPLE = ("Anna", "Ben", "Carla", "Dennis", "Eva", "Frank", "Gina", "Henry")
NEWS = ("I am late", "dinner is ready", "the meeting is off", "call me back", "the train is full")
HELD_OUT = {"city": ("Prague", "Helsinki", "Geneva"), "person": ("Maria", "Oscar", "Tina"),
            "news": ("the keys are here", "I found the book")}
# For each tool: requests in training rows, requests in held-out rows, what the tool returns, and the sentence made from
# that.
TOOLS = [
    (tool("get_weather", city="string"), {"city": "city"},
     ("What is the weather in {city}?", "How is the weather in {city} today?", "Weather in {city}, please.",
      "Does it rain in {city}?"),
     ("Tell me the weather for {city}.", "Is it sunny in {city} right now?"),
     '{{"celsius": {number}}}', "It has {number} degrees in {city}."),
    (tool("set_timer", minutes="integer"), {"minutes": "number"},
     ("Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "I need a timer of {minutes} minutes.",
      "Remind me in {minutes} minutes."),
     ("Start a timer with {minutes} minutes.", "Let me know when {minutes} minutes are over."),
     '{{"ok": true}}', "The timer is set to {minutes} minutes."),
    (tool("send_message", to="string", text="string"), {"to": "person", "text": "news"},
     ("Tell {to} that {text}.", "Send {to} a message: {text}.", "Write to {to} that {text}.", "Text {to}: {text}."),
     ("Let {to} know that {text}.", "Message {to} that {text}."),
     '{{"ok": true}}', "{to} has your message."),
    (tool("euros_to_dollars", euros="integer"), {"euros": "number"},
     ("How many dollars are {euros} euros?", "Convert {euros} euros to dollars.", "What are {euros} euros in dollars?",
      "I have {euros} euros, how much is that in dollars?"),
     ("Change {euros} euros into dollars.", "Give me {euros} euros in dollars."),
     '{{"dollars": {number}}}', "That is {number} dollars."),
]


def values(draw, slots, held_out):
    kinds = {"city": CITIES, "person": PEOPLE, "news": NEWS, **(HELD_OUT if held_out else {})}
    return {key: 2 + draw.below(88) if kind == "number" else draw.one_of(kinds[kind]) for key, kind in slots.items()}


def row(draw, kind, held_out):
    """kind 0 to 2: a call; 3: the tool has answered; 4: the required tool is not offered."""
    offered = draw.shuffled(TOOLS)
    schema, slots, trained, others, returned, said = offered[0]
    arguments = values(draw, slots, held_out)
    question = draw.one_of(others if held_out else trained).format(**arguments)
    tools = [schema, offered[1][0]] if kind != 4 else [offered[1][0], offered[2][0]]
    messages = [turn("user", question)]
    call = {"name": schema["function"]["name"], "arguments": arguments}
    if kind == 4:
        messages.append(turn("assistant", NO_TOOL))
    elif held_out and kind != 3:
        messages.append(turn("assistant", f"<tool_call>\n{json.dumps(call)}\n</tool_call>"))
    else:
        messages.append({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]})
    if kind == 3:
        number = draw.below(40)
        messages.append(turn("tool", returned.format(number=number)))
        messages.append(turn("assistant", said.format(number=number, **arguments)))
    return {"tools": draw.shuffled(tools), "messages": messages}


def rows(seed):
    draw = Draw(seed)
    return [row(draw, i % 5, False) for i in range(400)], [row(draw, i % 5, True) for i in range(40)]


if __name__ == "__main__":
    write(rows)
