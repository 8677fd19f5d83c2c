#include "app/serve/tool_calls.h"

#include <algorithm>
#include <string_view>

namespace qtrain::serve {
namespace {

constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>", kSpaces = " \t\r\n";

std::optional<ToolCall> parse_call(std::string_view text) {
  Json call;
  try {
    call = parse_json(text, "a tool call", {.duplicate_keys = true, .max_values = std::uint64_t{1} << 22});
  } catch (const Error&) {
    return {};
  }
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return {};
  const Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
  return ToolCall{.name = call["name"],
                  .arguments = arguments.is_string() ? arguments.get<std::string>() : dump_json(arguments)};
}

// Where a call, or text that may become one, begins, including the white space before it.
std::size_t possible_begin(const std::string& text) {
  std::size_t at = text.find(kBegin);
  if (at == std::string::npos) {
    std::size_t n = std::min(text.size(), kBegin.size() - 1);
    while (n > 0 && !kBegin.starts_with(std::string_view(text).substr(text.size() - n))) --n;
    at = text.size() - n;
  }
  while (at > 0 && kSpaces.find(text[at - 1]) != std::string_view::npos) --at;
  return at;
}

}  // namespace

ToolCallReader::Found ToolCallReader::push(const std::string& text) {
  held_ += text;
  return read(false);
}

ToolCallReader::Found ToolCallReader::finish() {
  Found found = read(true);
  show(found, std::move(held_));
  held_.clear();
  return found;
}

// White space between and after calls is not part of the answer.
void ToolCallReader::show(Found& found, std::string text) {
  if (has_calls_ && text.find_first_not_of(kSpaces) == std::string::npos) return;
  found.text += text;
}

ToolCallReader::Found ToolCallReader::read(bool all) {
  Found found;
  for (;;) {
    const std::size_t begin = held_.find(kBegin);
    const std::size_t end = begin == std::string::npos ? begin : held_.find(kEnd, begin);
    const bool cut = all && begin != std::string::npos && end == std::string::npos;  // without its end tag
    if (end == std::string::npos && !cut) {
      const std::size_t shown = possible_begin(held_);
      show(found, held_.substr(0, shown));
      held_.erase(0, shown);
      return found;
    }
    const std::size_t inner = begin + kBegin.size();
    const auto call = parse_call(std::string_view(held_).substr(inner, cut ? end : end - inner));
    const std::size_t after = cut ? held_.size() : end + kEnd.size();
    const std::size_t shown = call ? possible_begin(held_) : after;
    show(found, held_.substr(0, shown));
    if (call) found.calls.push_back(*call);
    has_calls_ |= call.has_value();
    held_.erase(0, after);
    if (cut) return found;
  }
}

}  // namespace qtrain::serve
