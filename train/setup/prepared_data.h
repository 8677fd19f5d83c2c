#pragma once
#include <optional>
#include <string>
#include <utility>

#include "core/log.h"
#include "core/parallel.h"
#include "data/source/mixture.h"
#include "data/token_cache.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/row_notes.h"
#include "train/setup/text_folder.h"

namespace qtrain {

/// The token cache folder of a config; empty if there is none. By default qtrain/tokens in the user's cache folder
/// (XDG_CACHE_HOME, or else ~/.cache).
std::filesystem::path token_cache_folder(const Config& config);

/// Prepares the rows of a config as tokens, or takes them from the token cache. Tokenizer and template are loaded on
/// first use.
class DataPreparation {
 public:
  DataPreparation(const Config& config, ThreadPool& pool, Log& log);

  /// Returns no rows if there is nothing to evaluate on. `max_rows`: use only the first rows; 0: all. Throws as
  /// data_rows and build_dataset do.
  Dataset rows(Split split, std::int64_t max_rows = 0);
  /// The cache folder that rows are stored in; empty without a cache.
  std::filesystem::path kept_in() const { return cache_ ? token_cache_folder(config_) : std::filesystem::path(); }

  /// The date that templates see: template_date of the config, or else today; set_date overrides it.
  const std::string& date() const { return date_; }
  void set_date(std::string date) { date_ = std::move(date); }

 private:
  struct Part {
    Split split;
    std::int64_t max_rows;
    SourceFiles files;
  };

  void open_cache();
  Digest key_of(const Part& part);
  Dataset prepared(Split split, std::int64_t max_rows);
  void report(const Dataset& rows);
  void build(const Part& part, DatasetBuilder& into);
  TextFolder& text();

  const Config& config_;
  ThreadPool& pool_;
  Log& log_;
  std::optional<TokenCache> cache_;
  std::optional<TextFolder> text_;
  std::string date_;
  RowNotes notes_;
};

}  // namespace qtrain
