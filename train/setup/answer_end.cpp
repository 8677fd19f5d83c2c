#include "train/setup/answer_end.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "data/encode.h"
#include "train/setup/dataset_setup.h"

namespace qtrain {
namespace {

constexpr const char* kNameIt = "set eos_token to the token that ends answers, like \"<|im_end|>\", or remove the key";

[[noreturn]] void refuse_end(std::string cause, std::string remedy) {
  fail(ErrorKind::usage, {.cause = "eos_token is auto, but " + std::move(cause), .remedy = std::move(remedy)});
}

/// Encodes a short conversation, with a system message if the template needs one.
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
    refuse_end("the model has no chat template that defines how answers end",
               "set a template (chat_template_path), or set eos_token to the token");
  EncodedRow row;
  try {
    row = short_chat(text, config);
  } catch (const Error& e) {  // adds why the template was used
    refuse_end(fmt::format("cannot determine how the chat template ends answers: {}", e.text().cause), kNameIt);
  }
  const std::optional<std::int32_t> end = row.answer_end;
  if (row.lacks != EncodedRow::Lack::nothing)
    refuse_end(fmt::format("cannot determine how the chat template ends answers: {}", row.reason), kNameIt);
  if (!end) refuse_end("no token of an answer is learned, so none can end it", kNameIt);
  if (!text.tokenizer->is_special(*end))
    refuse_end(
        fmt::format("the chat template does not end answers with a special token of this tokenizer: the last token "
                    "is \"{}\"",
                    text.tokenizer->decode(std::span(&*end, 1))),
        "use a chat template whose turns end with one (chat_template_path), or set eos_token to the token that ends "
        "them");
  return text.tokenizer->token(*end);
}

}  // namespace qtrain
