#include "text/template/unprinted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/keyed_hash.h"
#include "text/template/message.h"

namespace qtrain {
namespace {

using Part = Unprinted::Part;

constexpr std::array<const char*, 3> kReasonings = {"reasoning_content", "thinking", "reasoning"};
constexpr std::array<const char*, 5> kParts = {"tool_calls", "function_call", "reasoning_content", "thinking",
                                               "reasoning"};

constexpr std::string_view kMark = "qtrainmark", kMarkEnd = "x";
constexpr std::int64_t kFirstNumber = 7'301'402'503;  // in the place of the first message's
constexpr std::size_t kMaxChecked = 256;              // messages of which each takes a rendering

using Numbers = std::unordered_set<std::int64_t, KeyedHash>;

/// Reads the number at `at` in a text and moves `at` past it. Returns nothing if there is none.
std::optional<std::int64_t> number_at(std::string_view text, std::size_t& at) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), number);
  at = static_cast<std::size_t>(end - text.data());
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

Numbers marks_in(std::string_view text) {
  Numbers marks;
  for (std::size_t at = 0; (at = text.find(kMark, at)) != text.npos;) {
    at += kMark.size();
    if (const auto number = number_at(text, at); number && text.substr(at).starts_with(kMarkEnd)) marks.insert(*number);
  }
  return marks;
}

Numbers numbers_in(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  Numbers numbers;
  for (std::size_t at = 0; (at = text.find_first_of(kDigits, at)) != text.npos;)
    if (const auto number = number_at(text, at)) numbers.insert(*number);
  return numbers;
}

bool is_given(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && !at->is_null() && *at != "" && *at != Json::array() && *at != Json::object();
}

/// The name of a tool or call, which may be inside `function`; null if there is none.
Json* name_in(Json& tool) {
  if (!tool.is_object()) return nullptr;
  Json& holder = tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
  return holder.contains("name") && holder["name"].is_string() ? &holder["name"] : nullptr;
}

/// Whether there is anything that a template might drop; most conversations are plain text.
bool has_parts(const RenderInput& input) {
  if (input.tools && !input.tools->empty()) return true;
  const auto is_more = [](const Json& message) {
    if (!message.is_object()) return false;
    const auto content = message.find("content");
    if (content != message.end() && !content->is_string() && !content->is_null()) return true;
    return std::any_of(kParts.begin(), kParts.end(), [&](const char* key) { return is_given(message, key); });
  };
  return std::any_of(input.messages->begin(), input.messages->end(), is_more);
}

/// Puts marks into a copy of a conversation and checks which of them are rendered.
class PrintCheck {
 public:
  PrintCheck(const ChatTemplate& chat_template, const RenderInput& input)
      : template_(chat_template), input_(input), messages_(*input.messages) {}

  std::vector<Unprinted> run() {
    if (input_.tools && input_.tools->is_array() && !input_.tools->empty()) {
      tools_ = *input_.tools;
      for (Json& tool : tools_) mark_name(tool, {.part = Part::tools});
    }
    for (std::size_t i = 0; i < messages_.size(); ++i) mark_message(i);
    if (marked_.empty() && others_.empty()) return {};
    look_for_marks();
    look_for_others();
    for (const Unprinted& lost : found_) lost_.emplace(lost.part, lost.message);
    for (Unprinted& lost : found_)
      lost.empties_turn &= lost.part != Part::tools && lost.part != Part::reasoning && says_nothing(lost.message);
    return std::move(found_);
  }

 private:
  /// The marks of one part: it is rendered if all of them are; content, if any one is.
  struct Marked {
    Unprinted part;
    std::vector<std::int64_t> marks;
  };

  Marked& marked(const Unprinted& part) {
    if (marked_.empty() || marked_.back().part.part != part.part || marked_.back().part.message != part.message)
      marked_.push_back({part, {}});
    return marked_.back();
  }

  void mark(Json& text, const Unprinted& part) {
    text = text.get<std::string>() + fmt::format("{}{}{}", kMark, ++count_, kMarkEnd);
    marked(part).marks.push_back(count_);
  }
  void mark_name(Json& tool, const Unprinted& part) {
    if (Json* name = name_in(tool))
      mark(*name, part);
    else if (tool.is_string())
      mark(tool, part);
  }

  void mark_message(std::size_t i) {
    Json& message = messages_[i];
    if (!message.is_object()) return;
    mark_content(message, i);
    if (is_given(message, "tool_calls") && message["tool_calls"].is_array())
      for (Json& call : message["tool_calls"]) mark_name(call, {.part = Part::tool_calls, .message = i});
    if (is_given(message, "function_call"))
      mark_name(message["function_call"], {.part = Part::function_call, .message = i});
    if (i + 1 < messages_.size() || !is_assistant(message)) return;
    for (const char* key : kReasonings)
      if (is_given(message, key) && message[key].is_string())
        return mark(message[key], {.part = Part::reasoning, .message = i});
  }

  void mark_content(Json& message, std::size_t i) {
    const auto content = message.find("content");
    if (content == message.end() || content->is_null() || content->is_string()) return;
    if (!content->is_array()) return others_.push_back(i);
    for (Json& part : *content) {
      Json* text = part.is_string() ? &part : part.is_object() && part.contains("text") ? &part["text"] : nullptr;
      if (text && text->is_string() && *text != "") mark(*text, {.part = Part::content, .message = i});
    }
  }

  std::optional<std::string> rendered(const Json& messages, const Json* tools) const {
    RenderInput input = input_;
    input.messages = &messages;
    input.tools = tools;
    try {
      return template_.render(input).text;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      return {};
    }
  }

  void look_for_marks() {
    if (marked_.empty()) return;
    const std::optional<std::string> text = rendered(messages_, tools_.is_null() ? input_.tools : &tools_);
    if (!text) return;
    const Numbers there = marks_in(*text);
    for (Marked& part : marked_) {
      const auto printed = std::ranges::count_if(part.marks, [&](std::int64_t mark) { return there.contains(mark); });
      if (printed == std::ssize(part.marks) || (part.part.part == Part::content && printed > 0)) continue;
      part.part.empties_turn = printed == 0;  // of several calls, a template may write only the first
      found_.push_back(part.part);
    }
  }

  /// Other content than a text or a list cannot contain a mark: it is rendered if different content changes the text.
  void look_for_others() {
    if (others_.empty()) return;
    const auto as_given = rendered(*input_.messages, input_.tools);
    if (!as_given) return;
    if (others_.size() > kMaxChecked)
      std::erase_if(others_, [printed = printed_numbers(*as_given)](std::size_t i) {
        return printed.contains(kFirstNumber + static_cast<std::int64_t>(i));
      });
    const auto changes_nothing = [&](const std::vector<std::size_t>& emptied) {
      Json without = *input_.messages;
      for (const std::size_t i : emptied) without[i]["content"] = "";
      return rendered(without, input_.tools) == as_given;
    };
    const bool none = changes_nothing(others_);
    if (!none && others_.size() > kMaxChecked)
      fail(ErrorKind::input,
           {.cause = fmt::format("{} messages have a content that is neither text nor a list, which the chat template "
                                 "does not print as it is",
                                 others_.size()),
            .remedy = "Convert the contents to strings."});
    for (const std::size_t i : others_)
      if (none || changes_nothing({i})) found_.push_back({.part = Part::content, .message = i, .empties_turn = true});
  }

  /// Which numbers are rendered, found with other ones in their places that are told apart. A template that prints
  /// some numbers only is not seen through, but checking each by itself takes a rendering of the whole conversation.
  Numbers printed_numbers(const std::string& as_given) const {
    Json numbered = *input_.messages;
    for (const std::size_t i : others_)
      if (numbered[i]["content"].is_number()) numbered[i]["content"] = kFirstNumber + static_cast<std::int64_t>(i);
    Numbers printed;
    if (const auto text = rendered(numbered, input_.tools)) printed = numbers_in(*text);
    for (const std::int64_t number : numbers_in(as_given)) printed.erase(number);
    return printed;
  }

  bool is_lost(Part part, std::size_t message) const { return lost_.contains({part, message}); }

  bool says_nothing(std::size_t i) const {
    const Json& message = (*input_.messages)[i];
    const bool has_text = content_text(message).find_first_not_of(" \t\r\n") != std::string::npos;
    return (!has_text || is_lost(Part::content, i)) &&
           (!is_given(message, "tool_calls") || is_lost(Part::tool_calls, i)) &&
           (!is_given(message, "function_call") || is_lost(Part::function_call, i));
  }

  const ChatTemplate& template_;
  const RenderInput& input_;
  Json messages_, tools_;
  std::vector<Marked> marked_;
  std::vector<std::size_t> others_;  ///< messages whose content is neither text nor a list
  std::vector<Unprinted> found_;
  std::set<std::pair<Part, std::size_t>> lost_;  ///< those found, by part and message
  std::int64_t count_ = 0;
};

}  // namespace

std::string Unprinted::name() const {
  constexpr std::array<const char*, 5> kNames = {"tools", "tool_calls", "function_call", "content", "reasoning"};
  const char* what = kNames[static_cast<std::size_t>(part)];
  return part == Part::tools ? "the tools" : fmt::format("the {} of message {}", what, message);
}

std::vector<Unprinted> unprinted_parts(const ChatTemplate& chat_template, const RenderInput& input) {
  if (!has_parts(input)) return {};
  return PrintCheck(chat_template, input).run();
}

}  // namespace qtrain
