"use strict";
// Text from models and people is set as text only, never as HTML.
const at = (id) => document.getElementById(id);
const NONE = "";
let columns = [];
let running = null; // AbortController while answers are generated

function add(parent, tag, name, text) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function problem(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

function headers() {
  const out = { "Content-Type": "application/json" };
  if (at("token").value) out.Authorization = "Bearer " + at("token").value;
  return out;
}

async function call(path, options) {
  const reply = await fetch(path, { ...options, headers: headers() });
  if (reply.ok) return reply;
  if (reply.status === 401) {
    at("token_label").hidden = false;
    document.querySelector("details").open = true;
  }
  let message = reply.statusText;
  try {
    message = (await reply.json()).error.message;
  } catch {
    // not an error in JSON, so show the status
  }
  throw new Error(message);
}

async function list() {
  const models = (await (await call("v1/models")).json()).data.map((m) => m.id);
  for (const select of [at("model"), at("other")]) select.replaceChildren();
  add(at("other"), "option", "", "none").value = NONE;
  for (const name of models) {
    add(at("model"), "option", "", name).value = name;
    add(at("other"), "option", "", name).value = name;
  }
  if (models.length > 1) {
    at("model").value = models[1];
    at("other").value = models[0];
  }
  problem("");
  reset();
}

function reset() {
  if (running) running.abort();
  const names = [at("model").value, at("other").value].filter((n) => n !== NONE);
  at("columns").replaceChildren();
  columns = [...new Set(names)].map((model) => {
    const node = add(at("columns"), "section", "column");
    add(node, "h2", "", model);
    return { model, node, messages: [], hint: add(node, "p", "hint", "Ask something to begin.") };
  });
}

function bodyOf(column) {
  const system = at("system").value.trim();
  const body = {
    model: column.model,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...column.messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  for (const key of ["temperature", "top_p", "max_tokens", "seed"])
    if (at(key).value !== "") body[key] = Number(at(key).value);
  return JSON.stringify(body);
}

// Yields the JSON documents in a stream of server-sent events.
async function* documents(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const events = held.split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const json = JSON.parse(data);
      if (json.error) throw new Error(json.error.message);
      yield json;
    }
  }
}

const REASONS = { length: "stopped at the token limit", tool_calls: "tool call" };

async function answer(column, signal) {
  const node = add(column.node, "div", "turn pending", "");
  const begin = performance.now();
  let text = "", reason = "", tokens = 0, stopped = "";
  try {
    const reply = await call("v1/chat/completions", { method: "POST", body: bodyOf(column), signal });
    for await (const json of documents(reply)) {
      if (json.usage) tokens = json.usage.completion_tokens;
      const choice = json.choices[0];
      if (!choice) continue;
      text += choice.delta.content ?? "";
      for (const t of choice.delta.tool_calls ?? []) text += `${t.function.name}(${t.function.arguments})\n`;
      reason = choice.finish_reason ?? reason;
      const follow = column.node.scrollTop + column.node.clientHeight > column.node.scrollHeight - 40;
      node.textContent = text;
      if (follow) column.node.scrollTop = column.node.scrollHeight;
    }
  } catch (error) {
    stopped = "stopped";
    if (error.name !== "AbortError") problem(error.message);
  }
  node.classList.remove("pending");
  if (!text && stopped) return node.remove();
  column.messages.push({ role: "assistant", content: text });
  const seconds = (performance.now() - begin) / 1000;
  const speed = tokens ? `${tokens} tokens, ${(tokens / seconds).toFixed(1)}/s` : "";
  add(column.node, "p", "note", [speed, REASONS[reason], stopped].filter(Boolean).join(" · "));
  column.node.scrollTop = column.node.scrollHeight;
}

async function ask(event) {
  event.preventDefault();
  if (running) return running.abort();
  const text = at("text").value.trim();
  if (!text || !columns.length) return;
  problem("");
  at("text").value = "";
  running = new AbortController();
  at("send").textContent = "Stop";
  for (const column of columns) {
    column.hint.remove();
    if (column.messages.at(-1)?.role === "user") column.messages.pop(); // it got no answer
    column.messages.push({ role: "user", content: text });
    add(column.node, "div", "turn user", text);
  }
  await Promise.all(columns.map((column) => answer(column, running.signal)));
  running = null;
  at("send").textContent = "Send";
  at("text").focus();
}

at("ask").addEventListener("submit", ask);
at("reset").addEventListener("click", reset);
for (const id of ["model", "other"]) at(id).addEventListener("change", reset);
at("token").addEventListener("change", () => list().catch((error) => problem(error.message)));
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
list().catch((error) => problem(error.message));
