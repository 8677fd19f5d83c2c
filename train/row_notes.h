#pragma once
#include <string>
#include <vector>

#include "data/token_rows.h"
#include "train/setup.h"

namespace qtrain {

/// What a user has to know of how rows were made; what is true of training and evaluation rows alike is said once.
class RowNotes {
 public:
  struct Note {
    bool warns;
    std::string text;
  };

  std::vector<Note> of(const DatasetStatistics& rows, const TextFolder& text);

 private:
  bool said_of_all_ = false, said_of_pairs_ = false;
};

}  // namespace qtrain
