#include <fmt/format.h>

#include "convert/inspect.h"
#include "core/plural.h"

namespace qtrain {
namespace {

std::string grouped(std::int64_t n) {
  auto digits = std::to_string(n);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string size_text(double bytes) {
  return bytes >= 1e9   ? fmt::format("{:.2f} GB", bytes / 1e9)
         : bytes >= 1e6 ? fmt::format("{:.1f} MB", bytes / 1e6)
                        : fmt::format("{:.1f} kB", bytes / 1e3);
}

std::string weights_text(const Json& w) {
  std::string text =
      fmt::format("{} parameters in {}, {}", grouped(w["parameters"].get<std::int64_t>()),
                  counted(w["tensors"].get<std::int64_t>(), "tensor"), size_text(w["bytes"].get<double>()));
  for (const auto& [dtype, of] : w["dtypes"].items())
    text += fmt::format("; {} {}", of["tensors"].get<std::int64_t>(), dtype);
  return text;
}

/// A value as text; an object as the list of its members.
std::string value_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.7g}", value.get<double>());
  if (!value.is_object()) return dump_json(value);
  std::string text;
  for (const auto& [key, member] : value.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value_words(member));
  return text;
}

class Lines {
 public:
  void add(std::string_view label, std::string_view text) { out_ += fmt::format("  {:<32} {}\n", label, text); }
  void add_value(std::string_view label, const Json& value) { add(label, value_words(value)); }
  void members(const Json& report, const char* section) {
    if (!report.contains(section)) return;
    for (const auto& [key, value] : report[section].items()) add_value(key, value);
  }
  std::string take(const std::string& title) { return title + out_; }

 private:
  std::string out_;
};

}  // namespace

std::string inspect_text(const Json& report) {
  Lines lines;
  lines.members(report, "model");
  lines.members(report, "adapter");
  if (report.contains("weights")) {
    lines.add("weights", weights_text(report["weights"]));
    if (report["weights"].contains("unsupported"))
      for (const auto& [name, why] : report["weights"]["unsupported"].items()) lines.add_value(name, why);
  }
  if (report["kind"] == "model folder" && !report.contains("weights")) lines.add("weights", "none");
  if (report.contains("tokenizer")) lines.add_value("tokenizer", report["tokenizer"]);
  lines.members(report, "checkpoint");
  lines.members(report, "metadata");
  if (report.contains("state_files"))
    for (const auto& [name, of] : report["state_files"].items()) lines.add(name, weights_text(of));
  if (report.contains("checkpoints"))
    for (const auto& name : report["checkpoints"]) lines.add_value("checkpoint", name);
  if (report.contains("tensors"))
    for (const auto& t : report["tensors"])
      lines.add_value(t["dtype"].get<std::string>() + " " + dump_json(t["shape"]), t["name"]);
  return lines.take(report["path"].get<std::string>() + ": " + report["kind"].get<std::string>() + "\n");
}

}  // namespace qtrain
