#include "text/template/unprinted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "text/template/message.h"

namespace qtrain {
namespace {

using Part = Unprinted::Part;

constexpr std::array<const char*, 3> kReasonings = {"reasoning_content", "thinking", "reasoning"};
constexpr std::array<const char*, 5> kParts = {"tool_calls", "function_call", "reasoning_content", "thinking",
                                               "reasoning"};

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
    if (marked_.empty() && numbers_.empty()) return {};
    look_for_marks();
    look_for_numbers();
    for (Unprinted& lost : found_)
      lost.empties_turn &= lost.part != Part::tools && lost.part != Part::reasoning && says_nothing(lost.message);
    return std::move(found_);
  }

 private:
  /// The marks of one part: it is rendered if all of them are; content, if any one is.
  struct Marked {
    Unprinted part;
    std::vector<std::string> marks;
  };

  Marked& marked(const Unprinted& part) {
    if (marked_.empty() || marked_.back().part.part != part.part || marked_.back().part.message != part.message)
      marked_.push_back({part, {}});
    return marked_.back();
  }

  void mark(Json& text, const Unprinted& part) {
    std::string mark = fmt::format("qtrainmark{}x", ++count_);
    text = text.get<std::string>() + mark;
    marked(part).marks.push_back(std::move(mark));
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
    if (!content->is_array()) return numbers_.push_back(i);
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
    for (Marked& part : marked_) {
      std::size_t printed = 0;
      for (const std::string& mark : part.marks) printed += text->find(mark) != text->npos;
      if (printed == part.marks.size() || (part.part.part == Part::content && printed > 0)) continue;
      part.part.empties_turn = printed == 0;  // of several calls, a template may write only the first
      found_.push_back(part.part);
    }
  }

  /// A number cannot contain a mark: it is rendered if different content changes the text.
  void look_for_numbers() {
    for (const std::size_t i : numbers_) {
      Json without = *input_.messages;
      without[i]["content"] = "";
      const auto as_given = rendered(*input_.messages, input_.tools), empty = rendered(without, input_.tools);
      if (as_given && as_given == empty) found_.push_back({.part = Part::content, .message = i, .empties_turn = true});
    }
  }

  bool is_lost(Part part, std::size_t message) const {
    return std::any_of(found_.begin(), found_.end(),
                       [&](const Unprinted& u) { return u.part == part && u.message == message; });
  }

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
  std::vector<std::size_t> numbers_;  ///< messages whose content is neither text nor a list
  std::vector<Unprinted> found_;
  int count_ = 0;
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
