#!/usr/bin/env python3
"""Asks a running server through OpenAI's own client, and compares the answers with each other. Usage: openai_client.py
URL PROMPT (models "model" and "tuned", token "secret")"""
import sys

import openai

URL, PROMPT = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=URL + "/v1", api_key="secret", max_retries=0)
MESSAGES = [{"role": "user", "content": PROMPT}]


def refused(kind, ask):
    try:
        ask()
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was expected")


def chat(**more):
    more = {"model": "model", "messages": MESSAGES, "max_tokens": 8, "temperature": 0} | more
    return client.chat.completions.create(**more)


assert [m.id for m in client.models.list()] == ["model", "tuned"]

whole = chat(logprobs=True, top_logprobs=2)
choice = whole.choices[0]
assert choice.finish_reason in ("length", "stop") and choice.message.role == "assistant"
assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
assert "".join(t.token for t in choice.logprobs.content) == choice.message.content
assert all(len(t.top_logprobs) == 2 and t.top_logprobs[0].logprob == t.logprob for t in choice.logprobs.content)

text, usage = "", None
for chunk in chat(stream=True, stream_options={"include_usage": True}):
    text += "".join(c.delta.content or "" for c in chunk.choices)
    usage = chunk.usage or usage
assert text == choice.message.content and usage.total_tokens == whole.usage.total_tokens

assert chat(model="tuned").choices[0].message.content != choice.message.content
assert chat(messages=[{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]).choices[0].message == choice.message
drawn = [chat(temperature=1.5, seed=3, n=2).choices for _ in range(2)]
assert [c.message.content for c in drawn[0]] == [c.message.content for c in drawn[1]]
assert chat(stop=choice.message.content[2]).choices[0].message.content == choice.message.content[:2]

raw = client.completions.create(model="model", prompt=[PROMPT, PROMPT + PROMPT], max_tokens=4, temperature=0, logprobs=1)
assert len(raw.choices) == 2 and "".join(raw.choices[0].logprobs.tokens) == raw.choices[0].text
assert raw.choices[0].text == choice.message.content[: len(raw.choices[0].text)]
streamed = client.completions.create(model="model", prompt=PROMPT, max_tokens=4, temperature=0, stream=True)
assert "".join(c.choices[0].text for c in streamed) == raw.choices[0].text

assert refused(openai.NotFoundError, lambda: chat(model="other")).code == "model_not_found"
assert refused(openai.BadRequestError, lambda: chat(temperature=-1)).param == "temperature"
refused(openai.AuthenticationError, lambda: openai.OpenAI(base_url=URL + "/v1", api_key="other").models.list())
print("all as expected")
