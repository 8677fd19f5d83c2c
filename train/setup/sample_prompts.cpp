#include "train/setup/sample_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "core/os/file.h"
#include "data/prompts.h"
#include "data/source/raw_rows.h"
#include "text/template/message.h"
#include "text/template/rendered.h"
#include "text/template/unprinted.h"

namespace qtrain {
namespace {

constexpr std::int64_t kTogether = 8, kPrefillTokens = 64;

struct SamplePrompt {
  Question question;
  std::string place;

  /// How the log shows the prompt: its text, or the last message.
  std::string shown() const { return question.text ? *question.text : content_text(question.messages.back()); }
};

SamplePrompt prompt_of_text(const std::string& text) {
  return {.question = question_of({{"prompt", text}}), .place = "sample_prompts"};
}

SamplePrompt prompt_of_row(const Json& row, const std::string& place) {
  return with_place(place, [&] {
    SamplePrompt prompt{.question = question_of(row), .place = place};
    if (prompt.question.messages.empty())
      fail(ErrorKind::input, {.cause = "the conversation contains no question", .remedy = "Remove the row."});
    return prompt;
  });
}

// A text with spaces that names no existing file is a prompt, whatever it ends with.
bool is_file_name(const std::string& text) {
  if (!text.ends_with(".jsonl") && !text.ends_with(".txt")) return false;
  std::error_code unknown;
  return std::filesystem::exists(text, unknown) || text.find_first_of(" \t\r\n") == std::string::npos;
}

std::vector<SamplePrompt> prompts_of_file(const std::string& file) {
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown))
    fail(ErrorKind::input, {.cause = "sample_prompts names a file that does not exist",
                            .place = file,
                            .remedy = "check the path; put a one-word prompt that looks like a file name into a file"});
  std::vector<SamplePrompt> prompts;
  std::istringstream lines(read_text(file));
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", file, number);
    prompts.push_back(file.ends_with(".txt") ? prompt_of_text(line) : prompt_of_row(parse_json(line, place), place));
  }
  if (prompts.empty()) fail(ErrorKind::input, {.cause = "contains no prompts", .place = file});
  return prompts;
}

// Refuses prompts with tools that the template does not render: the model would answer as if there were none.
void require_told(const TextFolder& text, const RenderInput& input) {
  constexpr const char* kRemedy = "Use a chat template that renders it (chat_template_path), or remove it.";
  if (!text.chat_template && input.tools)
    fail(ErrorKind::input,
         {.cause = "the prompt has tools, but the model has no chat template that renders them", .remedy = kRemedy});
  if (!text.chat_template) return;
  for (const Unprinted& lost : unprinted_parts(*text.chat_template, input))
    if (lost.part == Unprinted::Part::tools || lost.part == Unprinted::Part::tool_calls)
      fail(ErrorKind::input, {.cause = fmt::format("the chat template drops {}", lost.name()), .remedy = kRemedy});
}

std::vector<std::int32_t> tokens_of(const SamplePrompt& prompt, const TextFolder& text) {
  return with_place(prompt.place, [&] {
    RenderInput input = prompt.question.input();
    input.now = text.template_clock;
    require_told(text, input);
    if (!text.chat_template) return text.tokenizer->encode(prompt.shown());
    return text.tokenizer->encode(text.chat_template->render(input).text, {.add_special = false});
  });
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
  std::vector<SamplePrompt> prompts;
  for (const std::string& text : t.sample_prompts) {
    if (!is_file_name(text)) {
      prompts.push_back(prompt_of_text(text));
      continue;
    }
    for (SamplePrompt& prompt : prompts_of_file(text)) prompts.push_back(std::move(prompt));
  }
  samples.text = load_text_folder(config);
  for (const SamplePrompt& prompt : prompts) {
    std::vector<std::int32_t> ids = tokens_of(prompt, samples.text);
    const auto size = static_cast<std::int64_t>(ids.size());
    if (size == 0 || size >= model.max_position_embeddings)
      fail(ErrorKind::usage,
           {.cause = fmt::format("a prompt in sample_prompts has {} tokens, but the model takes 1 to {}: \"{}\"", size,
                                 model.max_position_embeddings - 1, prompt.shown().substr(0, 60)),
            .remedy = "change or remove it"});
    samples.shown.push_back(prompt.shown());
    samples.requests.push_back({.prompt = std::move(ids), .max_new_tokens = t.sample_max_new_tokens});
  }
  samples.stop_tokens = model.eos_token_ids;
  if (const auto eos = samples.text.tokenizer->special().eos_id;
      eos && std::ranges::find(samples.stop_tokens, *eos) == samples.stop_tokens.end())
    samples.stop_tokens.push_back(*eos);
  return samples;
}

}  // namespace qtrain
