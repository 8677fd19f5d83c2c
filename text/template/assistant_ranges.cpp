#include "text/template/assistant_ranges.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "text/template/message.h"

namespace qtrain {
namespace {

/// Marks the end (or beginning) of a message's text with private-use characters that no conversation contains.
constexpr std::string_view kMark = "\xee\x80\x80qtrain-turn\xee\x80\x81",
                           kOwnMark = "\xee\x80\x80qtrain-own-turn\xee\x80\x81";

// Each turn takes renderings of all before it.
constexpr std::size_t kWorkPerMessage = 400, kMaxWork = 4'000'000'000;

class TurnFinder {
 public:
  TurnFinder(const ChatTemplate& chat_template, const RenderInput& input, AssistantSearch search)
      : template_(chat_template), input_(input), search_(search) {}

  Rendered run() {
    whole_ = template_.render(input_);
    whole_.generated.clear();
    const Json& messages = *input_.messages;
    for (std::size_t i = search_.first; i < messages.size(); ++i)
      if (is_assistant(messages[i]) && !add_turn(i)) break;
    if (!whole_.unplaced.empty()) whole_.generated.clear();
    return std::move(whole_);
  }

 private:
  enum class Prompt : std::uint8_t { none, added, as_given };
  using Place = std::optional<std::size_t>;

  bool add_turn(std::size_t i) {
    if (work_ > search_.max_work) return cannot(i, "the conversation has too many turns before it").has_value();
    const Place begin = find_begin(i), end = begin ? find_end(i) : Place();
    if (!begin || !end) return false;
    const std::size_t last = whole_.generated.empty() ? 0 : whole_.generated.back().second;
    if (*begin < last || *end < *begin) return cannot(i, "its position in the text overlaps another turn").has_value();
    whole_.generated.emplace_back(*begin, *end);
    return true;
  }

  Place cannot(std::size_t i, const char* why) {
    whole_.unplaced = fmt::format("cannot locate the assistant's text in message {}: {}", i, why);
    return {};
  }

  /// None if the template rejects the messages.
  std::optional<std::string> render(const Json& messages, Prompt prompt) {
    work_ += messages.size() * kWorkPerMessage + whole_.text.size() / 2;
    RenderInput input = input_;
    input.messages = &messages;
    if (prompt != Prompt::as_given) input.add_generation_prompt = prompt == Prompt::added;
    try {
      return template_.render(input).text;
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::input) throw;
      return {};
    }
  }

  Json first(std::size_t count) const {
    return Json(Json::array_t(input_.messages->begin(), input_.messages->begin() + static_cast<std::ptrdiff_t>(count)));
  }

  /// The content of a message if a mark can be inserted into it.
  Json* markable(Json& message) const {
    const auto content = message.find("content");
    return content != message.end() && content->is_string() && !content->get_ref<const std::string&>().empty()
               ? &*content
               : nullptr;
  }

  /// The end of the generation prompt if the whole text starts with this turn's prompt; otherwise the start of the
  /// content.
  Place find_begin(std::size_t i) {
    if (i > 0) {
      const std::optional<std::string> prompt = render(first(i), Prompt::added);
      begins_with_content_ = !prompt || !whole_.text.starts_with(*prompt);
      if (!begins_with_content_) return prompt->size();
    }
    Json messages = *input_.messages;
    Json* content = markable(messages[i]);
    if (!content) return cannot(i, "the text before it depends on what follows");
    *content = std::string(kMark) + content->get<std::string>();
    const std::string marked = render(messages, Prompt::as_given).value_or("");
    const std::size_t at = marked.find(kMark);
    if (at == std::string::npos || marked.substr(0, at) + marked.substr(at + kMark.size()) != whole_.text)
      return cannot(i, "the template changes its beginning");
    return at;
  }

  /// The end of the conversation up to this turn if the whole text starts with it. Templates that render earlier turns
  /// differently (without reasoning) need the end of the content and the text that closes the turn.
  Place find_end(std::size_t i) {
    const std::string& text = whole_.text;
    if (i + 1 == input_.messages->size() && !input_.add_generation_prompt) {
      if (begins_with_content_ && stands_before_others(i)) return cannot(i, "earlier messages come after it");
      return text.size();
    }
    const Json turn = first(i + 1);
    const std::optional<std::string> upto = render(turn, Prompt::none);
    if (upto && text.starts_with(*upto)) return upto->size();

    Json all = *input_.messages, alone = turn;
    Json *content = markable(all[i]), *content_alone = markable(alone[i]);
    if (!content) return cannot(i, "it is rendered differently when it is the last message");
    for (Json* c : {content, content_alone}) *c = trimmed(c->get<std::string>()) + std::string(kMark);
    const std::optional<std::string> rest = behind_mark(render(all, Prompt::as_given)),
                                     closing = behind_mark(render(alone, Prompt::none));
    if (!rest || !closing) return cannot(i, "the template does not render its content exactly once");
    if (!text.ends_with(*rest)) return cannot(i, "what follows it depends on its content");
    const std::size_t content_end = text.size() - rest->size();
    if (text.compare(content_end, closing->size(), *closing) != 0) return cannot(i, "its end depends on what follows");
    return content_end + closing->size();
  }

  /// Whether the content of an earlier message is rendered after its own.
  bool stands_before_others(std::size_t i) {
    Json messages = *input_.messages;
    for (std::size_t m = 0; m < i; ++m)
      if (Json* content = markable(messages[m])) *content = content->get<std::string>() + std::string(kMark);
    *markable(messages[i]) = kOwnMark;
    const std::string marked = render(messages, Prompt::as_given).value_or("");
    const std::size_t earlier = marked.rfind(kMark);
    return earlier != std::string::npos && earlier > marked.find(kOwnMark);
  }

  static std::string trimmed(std::string text) {
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    return text.substr(0, end == std::string::npos ? 0 : end + 1);
  }

  /// The text after the mark if the mark occurs exactly once.
  static std::optional<std::string> behind_mark(const std::optional<std::string>& marked) {
    const std::size_t at = marked ? marked->find(kMark) : std::string::npos;
    if (at == std::string::npos || marked->find(kMark, at + 1) != std::string::npos) return {};
    return marked->substr(at + kMark.size());
  }

  const ChatTemplate& template_;
  const RenderInput& input_;
  AssistantSearch search_;
  Rendered whole_;
  std::size_t work_ = 0;              ///< of renderings so far, about as many as bytes
  bool begins_with_content_ = false;  ///< of the current turn, if its prompt does not locate it
};

}  // namespace

Rendered render_with_assistant_ranges(const ChatTemplate& chat_template, const RenderInput& input,
                                      AssistantSearch search) {
  if (!chat_template.has_generation_tags(input.tools)) return TurnFinder(chat_template, input, search).run();
  Rendered rendered = chat_template.render(input);
  if (!rendered.ranges_known)
    fail(ErrorKind::input,
         {.cause = "the chat template has a {% generation %} block inside a macro, set or filter block",
          .remedy = "Move the block out, so that its position in the text is known."});
  return rendered;
}

}  // namespace qtrain
