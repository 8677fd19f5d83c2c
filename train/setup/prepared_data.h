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

/// Where the token cache of a config is; empty: there is none. By default qtrain/tokens in the user's folder for
/// caches (XDG_CACHE_HOME, else ~/.cache).
std::filesystem::path token_cache_folder(const Config& config);

/// The rows of a config as tokens: from the token cache where they are in it, else prepared and put there. Tokenizer
/// and template are loaded when they are needed first.
class DataPreparation {
 public:
  DataPreparation(const Config& config, ThreadPool& pool, Log& log);

  /// No rows where there is nothing to evaluate on. Errors: those of data_rows and build_dataset.
  /// `max_rows`: only the first rows; 0: all.
  Dataset rows(Split split, std::int64_t max_rows = 0);
  /// Where the rows are kept; empty: nowhere.
  std::filesystem::path kept_in() const { return cache_ ? token_cache_folder(config_) : std::filesystem::path(); }

  /// The day that templates write: template_date of the config, else today, unless it is set.
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
