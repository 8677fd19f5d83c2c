#include "train/row_notes.h"

#include <fmt/format.h>

#include <utility>

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
        {true,
         fmt::format(
             "{} of {} rows are left out, as it cannot be told what the assistant says in them; the first is {}: {}",
             unplaced.count, s.source_rows, unplaced.place, unplaced.reason)});
  if (unanswered.count > 0)
    notes.push_back({false, fmt::format("data: {} of {} rows are left out: skip_empty_answers; the first is {}: {}",
                                        unanswered.count, s.source_rows, unanswered.place, unanswered.reason)});
  if (s.joined_pairs > 0 && text.chat_template && !std::exchange(said_of_pairs_, true))
    notes.push_back(
        {true,
         fmt::format(
             "prompt and completion of {} rows are texts: they are joined as they are, without the chat template and "
             "without a separator, as TRL does. For a model that answers chats give lists of messages, "
             "{{\"prompt\": [{{\"role\": \"user\", \"content\": ...}}], \"completion\": [...]}}, or instruction and "
             "output",
             s.joined_pairs)});
  return notes;
}

}  // namespace qtrain
