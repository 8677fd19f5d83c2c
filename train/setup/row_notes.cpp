#include "train/setup/row_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/os/paths.h"
#include "core/plural.h"
#include "model/model_source.h"
#include "text/template/chat_template.h"
#include "text/template/load.h"
#include "text/template/rendered.h"

namespace qtrain {

namespace {

/// Renders a short conversation; empty if the template rejects it.
Rendered rendered_probe(const ChatTemplate& chat_template, const Json& messages, std::optional<std::time_t> clock) {
  try {
    return chat_template.render({.messages = &messages, .now = clock});
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return {};
  }
}

Json probe_message(const char* role, std::string_view content) {
  return {{"role", role}, {"content", content}};
}

bool leaves_system_out(const ChatTemplate& chat_template, std::optional<std::time_t> clock) {
  constexpr std::string_view kSystem = "qtrain-system";
  const Json messages = {probe_message("system", kSystem), probe_message("user", "question"),
                         probe_message("assistant", "answer")};
  const Rendered rendered = rendered_probe(chat_template, messages, clock);
  return !rendered.text.empty() && rendered.text.find(kSystem) == std::string::npos;
}

}  // namespace

// Some formats end only the last answer.
bool leaves_ends_out(const ChatTemplate& chat_template, std::optional<std::time_t> clock) {
  constexpr std::string_view kAnswer = "qtrain-answer";
  if (!chat_template.has_generation_tags()) return false;
  const Json question = probe_message("user", "question"), said = probe_message("assistant", kAnswer);
  const Rendered rendered = rendered_probe(chat_template, {question, said, question, said}, clock);
  if (!rendered.ranges_known) return false;
  int open = 0;
  for (const auto& [begin, end] : rendered.generated) {
    const std::size_t answer = rendered.text.find(kAnswer, begin);
    if (answer >= end) continue;
    if (rendered.text.find_first_not_of(" \t\r\n", answer + kAnswer.size()) < end) return false;
    ++open;
  }
  return open > 0;
}

namespace {

/// Where the answers of a model end: token ids, and the text of the tokenizer's end token.
struct StopTokens {
  std::vector<std::int32_t> ids;
  std::string text;

  bool has(const AnswerEnd& end) const { return std::ranges::count(ids, end.token) > 0 || end.text == text; }
};

StopTokens stop_tokens_of(const TextFolder& text, const ModelSection& model) {
  const std::filesystem::path path = model_path(model.model_name_or_path);
  StopTokens stops{.ids = model_end_tokens(is_folder(path) ? path : path.parent_path()),
                   .text = special_tokens(text.folder)["eos_token"]};
  if (const auto named = text.named_tokens.find("eos_token"); named != text.named_tokens.end())
    stops.text = named->second;
  return stops;
}

/// A warning if answers end with a token other than the model's end tokens.
std::optional<std::string> warn_of_ends(const std::vector<AnswerEnd>& ends, const TextFolder& text,
                                        const ModelSection& model) {
  if (ends.empty() || model.model_name_or_path.empty()) return {};
  const StopTokens stops = stop_tokens_of(text, model);
  if (stops.ids.empty() && stops.text.empty()) return {};
  std::int64_t rows = 0, all = 0;
  const AnswerEnd* most = nullptr;
  for (const AnswerEnd& end : ends) {
    all += end.rows;
    if (stops.has(end)) continue;
    rows += end.rows;
    if (!most || end.rows > most->rows) most = &end;
  }
  if (!most) return {};
  const std::string where = rows == all ? "" : fmt::format(" in {} of {} rows", rows, all),
                    known = stops.text.empty() ? fmt::format("{}", fmt::join(stops.ids, ", ")) : stops.text;
  if (most->special)
    return fmt::format(
        "the chat template ends answers with {0}{1}, which is not an end token of the model (that is {2}): the trained "
        "model will not stop there. Set {3}eos_token: \"{0}\"; the saved model and tokenizer will then use it",
        most->text, where, known, ends.size() == 1 ? "eos_token: auto, or " : "");
  return fmt::format(
      "the chat template ends answers{} with \"{}\" instead of a special token, and the end token of the model is {}: "
      "the trained model will not stop there. Use a chat template whose turns end with a token of this tokenizer "
      "(chat_template_path), or set eos_token to the token that ends them",
      where, most->text, known);
}

/// Notes that apply to all rows rendered with this template.
std::vector<RowNotes::Note> notes_on_template(const TextFolder& text, const Config& config) {
  const DataSection& data = config.data;
  std::vector<RowNotes::Note> notes;
  if (config.model.eos_token == kAutomaticEnd)
    notes.push_back({false, fmt::format("eos_token: auto is {}, which ends the chat template's answers",
                                        text.named_tokens.at("eos_token"))});
  if (const auto& form = text.training_template)
    notes.push_back({false, fmt::format("data: rows are tokenized with {}, as in TRL; the saved template is unchanged",
                                        form->name())});
  if (text.chat_template && leaves_system_out(*text.chat_template, text.template_clock))
    notes.push_back({true,
                     "the chat template drops system messages if a row ends with an answer, so those of the rows are "
                     "lost. Use a different template (chat_template_path) if they matter"});
  if (data.assistant_only_loss && text.chat_template && !text.training_template &&
      leaves_ends_out(*text.chat_template, text.template_clock))
    notes.push_back(
        {true,
         "the {% generation %} blocks of the chat template end before the assistant's turn does, so its end is not "
         "learned and the model may not stop where it should. Put the token that ends a turn into the blocks"});
  return notes;
}

}  // namespace

std::vector<RowNotes::Note> RowNotes::of(const DatasetStatistics& s, const TextFolder& text, const Config& config) {
  std::vector<Note> notes;
  if (!std::exchange(said_of_all_, true)) notes = notes_on_template(text, config);
  const bool told =
      std::ranges::any_of(notes, [](const Note& note) {  // already warned that ends of answers are not learned
        return note.warns && note.text.find("{% generation %}") != std::string::npos;
      });
  if (auto warning = told ? std::nullopt : warn_of_ends(s.answer_ends, text, config.model);
      warning && !std::exchange(said_of_ends_, true))
    notes.push_back({true, std::move(*warning)});
  const LeftOutRows &unplaced = s.unplaced, &unanswered = s.unanswered;
  if (unplaced.count > 0)
    notes.push_back(
        {true, fmt::format("{} of {} left out because the assistant's turns could not be located; the first is {}: {}",
                           unplaced.count, counted(s.source_rows, "row"), unplaced.place, unplaced.reason)});
  if (unanswered.count > 0)
    notes.push_back(
        {false, fmt::format("data: {} of {} left out (skip_empty_answers); the first is {}: {}", unanswered.count,
                            counted(s.source_rows, "row"), unanswered.place, unanswered.reason)});
  if (s.broken.count > 0)
    notes.push_back(
        {true, fmt::format("data: {} of {} left out (skip_broken_turns); the first is {}: {}", s.broken.count,
                           counted(s.source_rows, "row"), s.broken.place, s.broken.reason)});
  if (s.too_long.count > 0)
    notes.push_back(
        {true,
         fmt::format("data: {} of {} left out, longer than max_length (truncation_mode drop); the first is {}: {}",
                     s.too_long.count, counted(s.source_rows, "row"), s.too_long.place, s.too_long.reason)});
  if (s.unprinted.count > 0)
    notes.push_back(
        {true, fmt::format("the chat template drops parts of {} of {}; the first is {}: {}. Use a chat template that "
                           "renders them (chat_template_path), or remove them from the rows",
                           s.unprinted.count, counted(s.source_rows, "row"), s.unprinted.place, s.unprinted.reason)});
  if (s.first_prompts > 0)
    notes.push_back(
        {true,
         fmt::format("only the first message of {} of {} is learned, as plain text (first_prompt_only): answers, later "
                     "turns and system messages are left out, as by stage pt of LLaMA-Factory. Use stage sft to learn "
                     "whole conversations",
                     s.first_prompts, counted(s.source_rows, "row"))});
  if (s.joined_pairs > 0 && text.chat_template && !std::exchange(said_of_pairs_, true))
    notes.push_back(
        {true,
         fmt::format("prompt and completion are strings in {}: they are concatenated without the chat template and "
                     "without a separator, as in TRL. For a chat model use lists of messages, {{\"prompt\": "
                     "[{{\"role\": \"user\", \"content\": ...}}], \"completion\": [...]}}, or instruction and output",
                     counted(s.joined_pairs, "row"))});
  return notes;
}

}  // namespace qtrain
