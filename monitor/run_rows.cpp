#include "monitor/run_rows.h"

#include <fstream>

#include "core/formats/json.h"

namespace qtrain::monitor {

bool RunRows::update() {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file_, error);
  if (error) return false;
  if (size < read_) *this = RunRows(file_.parent_path());
  std::ifstream in(file_);
  in.seekg(static_cast<std::streamoff>(read_));
  bool is_new = false;
  for (std::string line; std::getline(in, line) && !in.eof();) {  // the last line may be incomplete
    read_ += line.size() + 1;
    is_new = take(line) || is_new;
  }
  return is_new;
}

bool RunRows::take(const std::string& line) {
  const Json row = json_in(line);
  if (!row.is_object()) return false;
  finished_ = row.contains("train_runtime");
  const auto speed = row.find("tokens_per_second");
  if (finished_ || speed == row.end() || !speed->is_number()) return false;
  const auto number = [&](const char* key) {
    const auto at = row.find(key);
    return at != row.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
  };
  last_ = RunRow{.step = static_cast<std::int64_t>(number("step").value_or(0))};
  last_->values["tokens_per_second"] = speed->get<double>();
  if (const auto wait = number("data_wait")) last_->values["data_wait_percent"] = 100 * *wait;
  if (const auto loss = number("loss")) last_->values["loss"] = *loss;
  return true;
}

}  // namespace qtrain::monitor
