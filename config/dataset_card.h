#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/source/data_source.h"

namespace qtrain {

/// What the card of a data set (the front matter of README.md) says about one of its configs.
struct DatasetCard {
  CardSplits splits;        ///< empty: the files are found by their names
  std::string folder = {};  ///< in which the config's files are ("data_dir"); empty: that of the card
  bool only_config = true;  ///< the card lists no other one
};

/// The config of that name, else the one that is used without a name: the only one, "default", or one marked so. None
/// if the card lists no configs. Paths that leave the folder are left out. Throws ErrorKind::usage (without a place) if
/// the card lists configs, but not this one, or none that is used without a name.
std::optional<DatasetCard> read_dataset_card(std::string_view card, const std::optional<std::string>& config);

/// Adds to a source what the cards in its folders say. A config named "default" or "main" need not be listed anywhere;
/// any other may be a folder instead. Throws as read_dataset_card does, with the folder.
void apply_cards(DataSource& source);

}  // namespace qtrain
