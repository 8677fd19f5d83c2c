#include "train/setup/sample_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/file.h"
#include "core/json_view.h"
#include "text/template/rendered.h"

namespace qtrain {
namespace {

constexpr std::int64_t kTogether = 8, kPrefillTokens = 64;

struct Prompt {
  std::string shown;
  Json messages;  // null: `shown` is the user's only message
};

Prompt prompt_of_row(const Json& row, const std::string& place) {
  const JsonView view(row, place);
  if (const auto messages = view.find("messages")) {
    if (messages->size() == 0) messages->refuse("a conversation without messages");
    const JsonView last = messages->entry(messages->size() - 1);
    return {.shown = last.text("content", ""), .messages = messages->json()};
  }
  return {.shown = view.at("prompt").text(), .messages = {}};
}

// A text with spaces that is no file is a prompt, whatever it ends with.
bool is_file_name(const std::string& text) {
  if (!text.ends_with(".jsonl") && !text.ends_with(".txt")) return false;
  std::error_code unknown;
  return std::filesystem::exists(text, unknown) || text.find_first_of(" \t\r\n") == std::string::npos;
}

std::vector<Prompt> prompts_of_file(const std::string& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown))
    fail(ErrorKind::input, {.cause = "sample_prompts names a file that is not there",
                            .place = file,
                            .remedy = "check the path; a prompt of one word that ends like a file goes into a file"});
  std::vector<Prompt> prompts;
  std::istringstream lines(read_text(file));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", file, number);
    prompts.push_back(file.ends_with(".txt") ? Prompt{.shown = line, .messages = {}}
                                             : prompt_of_row(parse_json(line, place), place));
  }
  if (prompts.empty()) fail(ErrorKind::input, {.cause = "holds no prompt", .place = file});
  return prompts;
}

std::vector<std::int32_t> tokens_of(const Prompt& prompt, const TextFolder& text) {
  if (!text.chat_template) return text.tokenizer->encode(prompt.shown);
  const Json messages =
      prompt.messages.is_null() ? Json{{{"role", "user"}, {"content", prompt.shown}}} : prompt.messages;
  const Rendered rendered =
      text.chat_template->render({.messages = &messages, .add_generation_prompt = true, .now = text.template_clock});
  return text.tokenizer->encode(rendered.text, {.add_special = false});
}

}  // namespace

GeneratorOptions SamplePrompts::generation() const {
  return {.batch = std::min(kTogether, static_cast<std::int64_t>(requests.size())),
          .prefill_tokens = kPrefillTokens,
          .stop_tokens = stop_tokens,
          .sampling = {.greedy = true, .vocabulary = text.tokenizer ? text.tokenizer->size() : 0}};
}

SamplePrompts load_sample_prompts(const Config& config, const ModelConfig& model) {
  const TrainingSection& t = config.training;
  SamplePrompts samples;
  if (t.sample_prompts.empty()) return samples;
  std::vector<Prompt> prompts;
  for (const std::string& text : t.sample_prompts) {
    if (!is_file_name(text)) {
      prompts.push_back({.shown = text, .messages = {}});
      continue;
    }
    for (Prompt& prompt : prompts_of_file(text)) prompts.push_back(std::move(prompt));
  }
  samples.text = load_text_folder(config);
  for (const Prompt& prompt : prompts) {
    std::vector<std::int32_t> ids = tokens_of(prompt, samples.text);
    const auto size = static_cast<std::int64_t>(ids.size());
    if (size == 0 || size >= model.max_position_embeddings)
      fail(ErrorKind::usage,
           {.cause = fmt::format("a prompt of sample_prompts has {} tokens, the model takes 1 to {}: \"{}\"", size,
                                 model.max_position_embeddings - 1, prompt.shown.substr(0, 60)),
            .remedy = "change or remove it"});
    samples.shown.push_back(prompt.shown);
    samples.requests.push_back({.prompt = std::move(ids), .max_new_tokens = t.sample_max_new_tokens});
  }
  samples.stop_tokens = model.eos_token_ids;
  if (const auto eos = samples.text.tokenizer->special().eos_id;
      eos && std::ranges::find(samples.stop_tokens, *eos) == samples.stop_tokens.end())
    samples.stop_tokens.push_back(*eos);
  return samples;
}

}  // namespace qtrain
