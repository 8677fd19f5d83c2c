#include "report/run_messages.h"

#include "core/os/file.h"
#include "core/os/paths.h"

namespace qtrain {

namespace fs = std::filesystem;

RunMessages::RunMessages(const fs::path& file, std::int64_t resumed_step) : path_(file) {
  const std::string kept = resumed_step > 0 ? rows_until(file, resumed_step) : "";
  if (!kept.empty()) write_file(file, kept);
  if (kept.empty()) fs::remove(file);
}

void RunMessages::take(Log& log, std::int64_t step) {
  const std::vector<std::string> warnings = log.warnings();
  for (; taken_ < warnings.size(); ++taken_) add("warning", warnings[taken_], step);
}

void RunMessages::add(std::string_view level, const std::string& text, std::int64_t step) {
  if (path_.empty()) return;
  if (!file_) {
    if (!path_exists(path_)) write_file(path_, "");  // makes the file's name durable
    file_.emplace(path_);
  }
  const Json row{{"time", unix_time()}, {"step", step}, {"level", level}, {"text", text}};
  file_->append(row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void RunMessages::sync() {
  if (file_) file_->sync();
}

}  // namespace qtrain
