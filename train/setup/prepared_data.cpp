#include "train/setup/prepared_data.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "config/fields.h"
#include "core/error.h"
#include "core/os/stop.h"
#include "text/template/date.h"
#include "train/setup/dataset_setup.h"
#include "train/setup/provenance.h"
#include "train/setup/text_folder.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// The name or text of a template; empty if it is in a file.
std::string template_text(const ModelSection& model) {
  const std::string chosen = model.chat_template_path.value_or("");
  std::error_code absent;
  return fs::exists(chosen, absent) ? "" : chosen;
}

}  // namespace

fs::path token_cache_folder(const Config& config) {
  if (config.data.token_cache_dir) return *config.data.token_cache_dir;
  const fs::path caches = user_cache_folder();
  return caches.empty() ? caches : caches / "tokens";
}

DataPreparation::DataPreparation(const Config& config, ThreadPool& pool, Log& log)
    : config_(config), pool_(pool), log_(log), date_(config.model.template_date.value_or(today())) {
  open_cache();
}

// A configured folder must work; the default one is optional.
void DataPreparation::open_cache() {
  const fs::path folder = token_cache_folder(config_);
  if (folder.empty()) return;
  const auto limit = static_cast<std::uint64_t>(config_.data.token_cache_gb * 1e9);
  try {
    cache_.emplace(TokenCache::Options{.folder = folder, .limit = limit});
  } catch (const Error& e) {
    if (config_.data.token_cache_dir) throw;
    log_.info("no token cache: {}", e.what());
  }
}

/// Does not load the tokenizer, because that takes a long time.
TextFolder& DataPreparation::text() {
  if (!text_) text_ = load_template_folder(config_);
  text_->template_clock = clock_on(date_);
  return *text_;
}

// Everything that rows depend on: program, data section of the config, file contents, and the date if the template uses
// it.
Digest DataPreparation::key_of(const Part& part) {
  const DataSection& d = config_.data;
  Json made_of{{"program", cache_->digest_of_file("/proc/self/exe", pool_).hex()},
               {"split", part.split == Split::train ? "train" : "evaluation"},
               {"data", rows_json(d)},
               {"template", template_text(config_.model)},
               {"tokens", text().named_tokens},
               {"date", text().reads_clock() ? date_ : ""},
               {"held out", d.eval_dataset_name.empty() ? d.eval_split : 0.0},
               {"max_rows", part.max_rows},
               {"seed", dataset_options(config_, part.split).seed}};
  for (const std::vector<fs::path>& files : part.files) {
    Json digests = Json::array();
    for (const fs::path& file : files)
      digests.push_back({file.extension().string(), cache_->digest_of_file(file, pool_).hex()});
    made_of["rows"].push_back(std::move(digests));
  }
  for (const fs::path& file : text_files(config_))
    made_of["text"].push_back({file.filename().string(), cache_->digest_of_file(file, pool_).hex()});
  return digest_of(dump_json(made_of));
}

/// Also called for rows from the cache.
void DataPreparation::report(const Dataset& rows) {
  for (const RowNotes::Note& note : notes_.of(rows.statistics(), text(), config_))
    note.warns ? log_.warn("{}", note.text) : log_.info("{}", note.text);
}

void DataPreparation::build(const Part& part, DatasetBuilder& into) {
  DatasetOptions options = dataset_options(config_, part.split);
  if (part.max_rows > 0) options.max_rows = part.max_rows;
  const RawRows rows = data_rows(config_, part.split, part.files);
  log_.info("{} rows: {}", part.split == Split::train ? "training" : "evaluation", describe_rows(rows, config_.data));
  if (!text().tokenizer) text_ = with_tokenizer(std::move(*text_));
  ProgressBar bar(log_, {.unit = "tokenizing", .total = rows.size()});
  options.progress = [&](std::int64_t done, std::int64_t) {
    throw_if_stopped();
    bar.set(done);
  };
  build_dataset({.rows = rows, .options = options, .tools = text().tools()}, pool_, into);
}

Dataset DataPreparation::rows(Split split, std::int64_t max_rows) {
  Dataset made = prepared(split, max_rows);
  if (made.size() > 0) report(made);
  return made;
}

Dataset DataPreparation::prepared(Split split, std::int64_t max_rows) {
  const Part part{.split = split, .max_rows = max_rows, .files = data_files(config_.data, split)};
  if (part.files.empty()) return {};
  try {
    if (cache_) {
      const Digest key = key_of(part);
      const auto build_unchanged = [&](DatasetBuilder& into) {
        build(part, into);
        if (!(key_of(part) == key))
          fail(ErrorKind::input, {.cause = "data or tokenizer files changed while they were being read",
                                  .remedy = "start again once they are complete"});
      };
      return cache_->get({.key = key, .build = build_unchanged, .while_waiting = throw_if_stopped}, log_);
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disk || config_.data.token_cache_dir) throw;
    log_.info("no token cache: {}", e.what());
    cache_.reset();
  }
  DatasetBuilder builder;
  build(part, builder);
  return std::move(builder).finish();
}

}  // namespace qtrain
