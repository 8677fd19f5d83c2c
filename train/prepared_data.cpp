#include "train/prepared_data.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "core/error.h"
#include "train/config/check.h"
#include "train/data_sources.h"
#include "train/metrics.h"
#include "train/provenance.h"
#include "train/stop.h"
#include "train/template_date.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr double kReportSeconds = 10;

/// Says now and then how far the rows are, and stops when asked to.
class RowProgress {
 public:
  explicit RowProgress(Log& log) : log_(log) {}
  void operator()(std::int64_t done, std::int64_t rows) {
    throw_if_stopped();
    if (watch_.seconds() < kReportSeconds * static_cast<double>(reports_ + 1) || done == rows) return;
    ++reports_;
    const double seconds = watch_.seconds(), share = static_cast<double>(done) / static_cast<double>(rows);
    log_.info("data: {} of {} rows tokenised, about {} left", done, rows, format_duration(seconds / share - seconds));
  }

 private:
  Log& log_;
  Stopwatch watch_;
  int reports_ = 0;
};

/// The name of a template or its text; empty where it is in a file.
std::string template_text(const ModelSection& model) {
  const std::string chosen = model.chat_template_path.value_or("");
  std::error_code absent;
  return fs::exists(chosen, absent) ? "" : chosen;
}

}  // namespace

fs::path token_cache_folder(const Config& config) {
  if (config.data.token_cache_dir) return *config.data.token_cache_dir;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches == '/')
    return fs::path(caches) / "qtrain" / "tokens";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "qtrain" / "tokens" : fs::path();
}

DataPreparation::DataPreparation(const Config& config, ThreadPool& pool, Log& log)
    : config_(config), pool_(pool), log_(log), date_(config.model.template_date.value_or(today())) {
  open_cache();
}

// A folder that was asked for has to work; the default one is a convenience.
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

/// Without a tokenizer, which takes long to load.
TextFolder& DataPreparation::text() {
  if (!text_) text_ = load_template_folder(config_);
  text_->template_clock = clock_on(date_);
  return *text_;
}

// Everything that rows depend on: the program, the section of the config, the contents of the files, the day where a
// template writes it.
Digest DataPreparation::key_of(const Part& part) {
  const DataSection& d = config_.data;
  Json made_of{{"program", cache_->digest_of_file("/proc/self/exe", pool_).hex()},
               {"split", part.split == Split::train ? "train" : "evaluation"},
               {"data", rows_json(d)},
               {"template", template_text(config_.model)},
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

void DataPreparation::build(const Part& part, DatasetBuilder& into) {
  DatasetOptions options = dataset_options(config_, part.split);
  if (part.max_rows > 0) options.max_rows = part.max_rows;
  options.progress = RowProgress(log_);
  const RawRows rows = data_rows(config_, part.split, part.files);
  log_.info("{} rows: {}", part.split == Split::train ? "training" : "evaluation", describe_rows(rows, config_.data));
  if (!text().tokenizer) text_ = with_tokenizer(std::move(*text_));
  build_dataset({.rows = rows, .options = options, .tools = text().tools()}, pool_, into);
}

Dataset DataPreparation::rows(Split split, std::int64_t max_rows) {
  const Part part{.split = split, .max_rows = max_rows, .files = data_files(config_.data, split)};
  if (part.files.empty()) return {};
  try {
    if (cache_) {
      const Digest key = key_of(part);
      const auto build_unchanged = [&](DatasetBuilder& into) {
        build(part, into);
        if (!(key_of(part) == key))
          fail(ErrorKind::input, {.cause = "files of the rows or of the tokenizer changed while they were read",
                                  .remedy = "Start again when they are written."});
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
