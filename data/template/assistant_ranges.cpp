#include <algorithm>

#include "data/shapes.h"
#include "data/template/chat_template.h"

namespace qtrain {
namespace {

/// Marks the end (or begin) of what a message says; private-use characters that no conversation has.
constexpr std::string_view kMark = "\xee\x80\x80qtrain-turn\xee\x80\x81";

class TurnFinder {
 public:
  TurnFinder(const ChatTemplate& chat_template, const RenderInput& input) : template_(chat_template), input_(input) {}

  Rendered run() {
    Rendered whole = template_.render(input_);
    text_ = whole.text;
    whole.generated.clear();
    const Json& messages = *input_.messages;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!is_assistant(messages[i])) continue;
      const std::size_t begin = find_begin(i), end = find_end(i);
      const std::size_t last = whole.generated.empty() ? 0 : whole.generated.back().second;
      if (begin < last || end < begin) cannot(i, "its place in the text overlaps another turn");
      whole.generated.emplace_back(begin, end);
    }
    return whole;
  }

 private:
  enum class Prompt : std::uint8_t { none, added, as_given };

  [[noreturn]] void cannot(std::size_t i, const std::string& why) const {
    fail(ErrorKind::input,
         {.cause = "cannot tell which text the assistant says in message " + std::to_string(i) + ": " + why,
          .remedy = "Put {% generation %} ... {% endgeneration %} around it in the chat template, or train on all "
                    "tokens (assistant_only_loss: false)."});
  }

  std::string render(const Json& messages, Prompt prompt) const {
    RenderInput input = input_;
    input.messages = &messages;
    if (prompt != Prompt::as_given) input.add_generation_prompt = prompt == Prompt::added;
    return template_.render(input).text;
  }

  Json first(std::size_t count) const {
    return Json(Json::array_t(input_.messages->begin(), input_.messages->begin() + static_cast<std::ptrdiff_t>(count)));
  }

  /// A message whose content a mark can be put into.
  Json* markable(Json& message) const {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() && !content->get_ref<const std::string&>().empty()
               ? &*content
               : nullptr;
  }

  /// Behind the generation prompt, if the whole text begins like the prompt of this turn; else where its content does.
  std::size_t find_begin(std::size_t i) const {
    if (i > 0) {
      const std::string prompt = render(first(i), Prompt::added);
      if (text_.starts_with(prompt)) return prompt.size();
    }
    Json messages = *input_.messages;
    Json* content = markable(messages[i]);
    if (!content) cannot(i, "the text in front of it depends on what follows");
    *content = std::string(kMark) + content->get<std::string>();
    const std::string marked = render(messages, Prompt::as_given);
    const std::size_t at = marked.find(kMark);
    if (at == std::string::npos || marked.substr(0, at) + marked.substr(at + kMark.size()) != text_)
      cannot(i, "the template changes its beginning");
    return at;
  }

  /// The end of the conversation up to and with this turn, if the whole text begins like it. Templates that render
  /// earlier turns in another way (without their reasoning) need the end of the content, and what closes the turn.
  std::size_t find_end(std::size_t i) const {
    if (i + 1 == input_.messages->size() && !input_.add_generation_prompt) return text_.size();
    const Json turn = first(i + 1);
    const std::string upto = render(turn, Prompt::none);
    if (text_.starts_with(upto)) return upto.size();

    Json all = *input_.messages, alone = turn;
    Json *content = markable(all[i]), *content_alone = markable(alone[i]);
    if (!content) cannot(i, "it is rendered in another way when it is the last one");
    for (Json* c : {content, content_alone}) *c = trimmed(c->get<std::string>()) + std::string(kMark);
    const std::string rest = behind_mark(render(all, Prompt::as_given), i);
    if (!text_.ends_with(rest)) cannot(i, "what follows it depends on its content");
    const std::size_t content_end = text_.size() - rest.size();
    const std::string closing = behind_mark(render(alone, Prompt::none), i);
    if (text_.compare(content_end, closing.size(), closing) != 0) cannot(i, "its end depends on what follows");
    return content_end + closing.size();
  }

  static std::string trimmed(std::string text) {
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    return text.substr(0, end == std::string::npos ? 0 : end + 1);
  }

  /// What follows the mark.
  std::string behind_mark(const std::string& marked, std::size_t i) const {
    const std::size_t at = marked.find(kMark);
    if (at == std::string::npos || marked.find(kMark, at + 1) != std::string::npos)
      cannot(i, "the template does not render its content once");
    return marked.substr(at + kMark.size());
  }

  const ChatTemplate& template_;
  const RenderInput& input_;
  std::string text_;
};

}  // namespace

Rendered render_with_assistant_ranges(const ChatTemplate& chat_template, const RenderInput& input) {
  if (!chat_template.has_generation_tags(input.tools)) return TurnFinder(chat_template, input).run();
  Rendered rendered = chat_template.render(input);
  if (!rendered.ranges_known)
    fail(ErrorKind::input,
         {.cause = "the chat template has a {% generation %} block inside a macro, set or filter block",
          .remedy = "Move the block out, so that its place in the text is known."});
  return rendered;
}

}  // namespace qtrain
