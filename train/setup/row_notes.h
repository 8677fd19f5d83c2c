#pragma once
#include <string>
#include <vector>

#include "data/token_rows.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// What a user has to know of how rows were made; what is true of training and evaluation rows alike is said once.
class RowNotes {
 public:
  struct Note {
    bool warns;
    std::string text;
  };

  std::vector<Note> of(const DatasetStatistics& rows, const TextFolder& text, const Config& config);

 private:
  bool said_of_all_ = false, said_of_pairs_ = false, said_of_ends_ = false;
};

/// Whether the {% generation %} blocks of a chat template end before what closes an assistant's turn.
bool leaves_ends_out(const ChatTemplate& chat_template, std::optional<std::time_t> clock);

}  // namespace qtrain
