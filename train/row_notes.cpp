#include "train/row_notes.h"

#include <fmt/format.h>

#include <utility>

#include "core/plural.h"

namespace qtrain {
namespace {

/// Of all rows that are made with this text.
std::vector<RowNotes::Note> notes_on_template(const TextFolder& text) {
  std::vector<RowNotes::Note> notes;
  if (const auto& form = text.training_template)
    notes.push_back({false, fmt::format("data: rows are tokenized with {}, as TRL does; the template that is saved "
                                        "stays as it is",
                                        form->name())});
  return notes;
}

}  // namespace

std::vector<RowNotes::Note> RowNotes::of(const DatasetStatistics& s, const TextFolder& text) {
  std::vector<Note> notes;
  if (!std::exchange(said_of_all_, true)) notes = notes_on_template(text);
  const LeftOutRows &unplaced = s.unplaced, &unanswered = s.unanswered;
  if (unplaced.count > 0)
    notes.push_back(
        {true, fmt::format("{} of {} left out, as it cannot be told what the assistant says there; the first is {}: {}",
                           unplaced.count, counted(s.source_rows, "row"), unplaced.place, unplaced.reason)});
  if (unanswered.count > 0)
    notes.push_back(
        {false, fmt::format("data: {} of {} left out: skip_empty_answers; the first is {}: {}", unanswered.count,
                            counted(s.source_rows, "row"), unanswered.place, unanswered.reason)});
  if (s.joined_pairs > 0 && text.chat_template && !std::exchange(said_of_pairs_, true))
    notes.push_back(
        {true,
         fmt::format(
             "prompt and completion of {} are texts: they are joined as they are, without the chat template and "
             "without a separator, as TRL does. For a model that answers chats give lists of messages, "
             "{{\"prompt\": [{{\"role\": \"user\", \"content\": ...}}], \"completion\": [...]}}, or instruction and "
             "output",
             counted(s.joined_pairs, "row"))});
  return notes;
}

}  // namespace qtrain
