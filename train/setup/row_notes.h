#pragma once
#include <string>
#include <vector>

#include "data/token_rows.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// Notes for the user on how rows were prepared. A note that applies to training and evaluation rows alike is given
/// once.
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

/// Whether the {% generation %} blocks of a chat template end before the token that ends an assistant turn.
bool leaves_ends_out(const ChatTemplate& chat_template, std::optional<std::time_t> clock);

}  // namespace qtrain
