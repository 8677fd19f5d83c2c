#include "train/setup/answer_end.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "data/encode.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

constexpr const char* kNameIt = "name the token that ends answers, as \"<|im_end|>\", or leave eos_token out";

[[noreturn]] void refuse_end(std::string cause, std::string remedy) {
  fail(ErrorKind::usage, {.cause = "eos_token is auto, but " + std::move(cause), .remedy = std::move(remedy)});
}

/// A short conversation as tokens, for templates that want a system message and for others.
EncodedRow short_chat(const TextFolder& text, const Config& config) {
  const RowEncoder encoder(dataset_options(config, Split::train), text.tools());
  const Json question = {{"role", "user"}, {"content", "question"}}, answer = {{"role", "assistant"}, {"content", "a"}},
             system = {{"role", "system"}, {"content", "system"}};
  try {
    return encoder.encode({{"messages", {question, answer}}});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return encoder.encode({{"messages", {system, question, answer}}});
  }
}

}  // namespace

std::string end_of_answers(const TextFolder& text, const Config& config) {
  if (!text.chat_template)
    refuse_end("the model has no chat template that could say what ends answers",
               "name a template (chat_template_path), or the token itself");
  EncodedRow row;
  try {
    row = short_chat(text, config);
  } catch (const Error& e) {  // adds why the template was asked
    refuse_end(fmt::format("it cannot be told how the chat template ends answers: {}", e.text().cause), kNameIt);
  }
  const std::optional<std::int32_t> end = row.answer_end;
  if (row.lacks != EncodedRow::Lack::nothing)
    refuse_end(fmt::format("it cannot be told how the chat template ends answers: {}", row.reason), kNameIt);
  if (!end) refuse_end("no token of an answer is learned, so that none ends it", kNameIt);
  if (!text.tokenizer->is_special(*end))
    refuse_end(
        fmt::format("the chat template does not end answers with a special token of this tokenizer: the last token "
                    "is \"{}\"",
                    text.tokenizer->decode(std::span(&*end, 1))),
        "name a chat template whose turns end with one (chat_template_path), or the token that ends them");
  return text.tokenizer->token(*end);
}

}  // namespace qtrain
