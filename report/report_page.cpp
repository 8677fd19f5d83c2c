#include "report/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/formats/json_object.h"
#include "core/keyed_hash.h"
#include "core/os/paths.h"
#include "core/version.h"

namespace qtrain {

const std::map<std::string_view, std::string_view>& report_texts();

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPoints = 24000;      // over all curves of a page, 30 bytes each
constexpr std::size_t kTextBytes = 600000;  // for all samples, values and messages of a page
constexpr std::size_t kMaxTextLength = 4000;

// Size of a text in the page, with its characters escaped.
std::size_t bytes_of(std::string_view text) {
  std::size_t bytes = 0;
  for (const char c : text) {
    const bool by_number = c == '<' || static_cast<unsigned char>(c) < ' ';
    bytes += by_number ? 6 : c == '"' || c == '\\' ? 2 : 1;
  }
  return bytes;
}

/// Limits the bytes of text in one part of the page.
class Budget {
 public:
  explicit Budget(std::size_t bytes) : left_(bytes) {}
  /// Takes the texts' size from the budget. Returns false, and takes nothing, if they do not fit.
  bool take(std::initializer_list<std::string_view> texts) {
    std::size_t bytes = kOverhead;
    for (const std::string_view text : texts) bytes += bytes_of(text);
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }
  bool take(const Json& rows) {
    std::size_t bytes = kOverhead;
    for (const Json& row : rows)
      for (const Json& text : row) bytes += kOverhead / 8 + bytes_of(text.get_ref<const std::string&>());
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  static constexpr std::size_t kOverhead = 64;
  std::size_t left_;
};

// At most `most` bytes of the text, cut at a character boundary.
std::string shortened(const std::string& text, std::size_t most = kMaxTextLength) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return text.substr(0, end) + " …";
}

// Replaces invalid UTF-8, which a folder's name may contain.
std::string readable(const std::string& text) {
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

Json number(double x, int digits = 6) {
  if (!std::isfinite(x)) return {};
  if (x == std::floor(x) && std::abs(x) < 1e15) return static_cast<std::int64_t>(x);
  return std::strtod(fmt::format("{:.{}g}", x, digits).c_str(), nullptr);
}

Json numbers(const std::vector<double>& xs, double unit = 0) {
  Json list = Json::array();
  for (const double x : xs) list.push_back(number(unit > 0 ? std::round(x / unit) * unit : x));
  return list;
}

Json curve_json(const Curve& curve, std::size_t most) {
  const Curve thin = thinned(curve, most);
  constexpr double kTenth = 0.1;
  return {
      {"steps", numbers(thin.steps)},   {"values", numbers(thin.values)}, {"seconds", numbers(thin.seconds, kTenth)},
      {"tokens", numbers(thin.tokens)}, {"points", curve.size()},         {"not_finite", curve.not_finite}};
}

Json config_json(const RunRecord& run, Budget& budget) {
  Json rows = Json::array();
  const auto values = run.resolved.find("values");
  if (values == run.resolved.end() || !values->is_object()) return rows;
  for (const auto& [key, entry] : values->items()) {
    if (!entry.is_object()) continue;
    const std::string value = shortened(dump_json(entry.value("value", Json())));
    const Json origin = entry.value("origin", Json());
    const std::string from = origin.is_string() ? shortened(origin.get<std::string>()) : "";
    if (!budget.take({shortened(key), value, from})) break;
    rows.push_back({shortened(key), value, from});
  }
  return rows;
}

Json environment_json(const RunRecord& run, Budget& budget) {
  Json rows = Json::array();
  const auto section = run.resolved.find("run");
  if (section == run.resolved.end() || !section->is_object()) return rows;
  for (const auto& [key, value] : section->items()) {
    if (key == "memory_plan") continue;
    if (!value.is_object()) {
      const std::string text = shortened(value.is_string() ? value.get<std::string>() : dump_json(value));
      if (budget.take({shortened(key), text})) rows.push_back({shortened(key), text});
      continue;
    }
    for (const auto& [name, hash] : value.items()) {
      const std::string text = shortened(hash.is_string() ? hash.get<std::string>() : dump_json(hash));
      if (budget.take({shortened(name), text})) rows.push_back({shortened(name), text});
    }
  }
  return rows;
}

Json plan_json(const RunRecord& run) {
  constexpr std::size_t kMaxParts = 32;
  const Json plan = run.memory_plan();
  Json parts = Json::object();
  if (!plan.is_object()) return parts;
  for (const auto& [name, bytes] : plan.items())
    if (bytes.is_number() && parts.size() < kMaxParts) parts[shortened(name, 100)] = number(bytes.get<double>(), 12);
  return parts;
}

// The messages of the run, followed by the warnings about the config that are not among them.
Json messages_json(const RunRecord& run, Budget& budget) {
  Json rows = Json::array();
  std::set<std::string> seen;
  const auto add = [&](const std::string& level, const std::string& text, const Json& step) {
    const std::string kept = shortened(text);
    if (seen.insert(kept).second && budget.take({kept}))
      rows.push_back({{"level", level}, {"text", kept}, {"step", step}});
  };
  for (const RunRecord::Message& m : run.messages) add(m.level, m.text, m.step ? Json(*m.step) : Json());
  const auto warnings = run.resolved.find("warnings");
  if (warnings == run.resolved.end() || !warnings->is_array()) return rows;
  constexpr std::size_t kMaxWarnings = 256;  // a run has a few; each is searched for in all messages
  for (std::size_t i = 0; i < std::min(warnings->size(), kMaxWarnings); ++i) {
    const Json& warning = (*warnings)[i];
    if (!warning.is_string()) continue;
    const auto text = warning.get<std::string>();
    if (std::ranges::none_of(run.messages, [&](const auto& m) { return m.text.find(text) != std::string::npos; }))
      add("warning", text, Json());
  }
  return rows;
}

// Samples of as many evaluations as fit, including the first and the last.
Json samples_json(const RunRecord& run, Budget& budget) {
  std::map<std::int64_t, std::vector<const RunRecord::Sample*>> by_step;
  for (const RunRecord::Sample& s : run.samples) by_step[s.step].push_back(&s);
  std::vector<std::int64_t> steps;
  for (const auto& [step, samples] : by_step) steps.push_back(step);
  std::vector<std::int64_t> order;  // then the ones halfway between those already chosen
  if (!steps.empty()) order = {steps.back(), steps.front()};
  for (std::size_t stride = 1; stride < steps.size(); stride *= 2)
    for (std::size_t part = 1; part < 2 * stride; part += 2) order.push_back(steps[part * steps.size() / (2 * stride)]);
  order.insert(order.end(), steps.begin(), steps.end());
  std::map<std::int64_t, Json> kept;
  for (const std::int64_t step : order) {
    if (kept.contains(step)) continue;
    Json rows = Json::array();
    for (const RunRecord::Sample* s : by_step[step])
      rows.push_back({shortened(s->prompt), shortened(s->completion), shortened(s->finish_reason)});
    if (!budget.take(rows)) break;
    kept[step] = std::move(rows);
  }
  Json list = Json::array();
  for (auto& [step, rows] : kept) list.push_back({{"step", step}, {"rows", std::move(rows)}});
  return list;
}

Json run_json(const RunRecord& run, const std::string& name, std::size_t runs) {
  const std::size_t points =
      std::clamp<std::size_t>(kPoints / (runs * std::max<std::size_t>(run.curves.size(), 1)), 20, 3000);
  Json json{{"name", readable(name)}, {"figures", figures_of(run)}, {"end", shortened(run.end)}};
  json["begun"] = number(run.begun, 12);
  json["last_row"] = number(run.last_row, 12);
  Json& curves = json["curves"] = Json::object();
  for (const auto& [key, curve] : run.curves) curves[key] = curve_json(curve, points);
  json["memory_plan"] = plan_json(run);
  Json& phases = json["phases"] = Json::object();
  for (const auto& [phase, seconds] : run.phases) phases[phase] = number(seconds, 4);
  const std::size_t bytes = kTextBytes / runs;
  Budget config(bytes / 3), environment(bytes / 12), messages(bytes / 12), samples(bytes / 2);
  json["config"] = config_json(run, config);
  json["environment"] = environment_json(run, environment);
  json["messages"] = messages_json(run, messages);
  json["samples"] = samples_json(run, samples);
  Json& missing = json["missing"] = Json::array();
  for (const std::string& what : run.missing) missing.push_back(shortened(readable(what)));
  return json;
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '&': html += "&amp;"; break;
      case '"': html += "&quot;"; break;
      default: html += c;
    }
  }
  return html;
}

// JSON that cannot end the script element around it.
std::string script_data(const Json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', false, Json::error_handler_t::replace))
    text += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return text;
}

// Fills in the {{names}} of the template; inserted text is not scanned again.
std::string fill(std::string_view page, const std::map<std::string_view, std::string>& values) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{"), close = page.find("}}", open);
    if (close == std::string_view::npos) return out.append(page);
    out.append(page.substr(0, open)).append(values.at(page.substr(open + 2, close - open - 2)));
    page.remove_prefix(close + 2);
  }
}

/// The values of a config by key, in the order of the file and to look them up, since a hostile one has very many.
struct ConfigValues {
  explicit ConfigValues(const RunRecord& run) {
    const auto values = run.resolved.find("values");
    if (values == run.resolved.end() || !values->is_object()) return;
    for (const auto& [key, entry] : values->get_ref<const Json::object_t&>()) {
      keys.push_back(key);
      const auto value = entry.is_object() ? entry.find("value") : entry.end();
      by_key.emplace(key, entry.is_object() && value != entry.end() ? &*value : nullptr);
    }
  }
  Json of(std::string_view key) const {
    const auto at = by_key.find(key);
    return at == by_key.end() || at->second == nullptr ? Json() : *at->second;
  }
  std::vector<std::string_view> keys;
  std::unordered_map<std::string_view, const Json*, KeyedHash> by_key;
};

/// The components of an absolute path.
using Parts = std::vector<std::string>;

Parts parts_of(const fs::path& folder) {
  const fs::path whole = absolute_path(folder);
  Parts parts;
  for (const fs::path& part : whole.has_filename() ? whole : whole.parent_path()) parts.push_back(part.string());
  return parts;
}

// Removes leading and trailing components that all paths share; each path keeps at least one.
void drop_common_ends(std::vector<Parts>& paths) {
  const auto all_have = [&](auto part) {
    return std::ranges::all_of(paths, [&](const Parts& p) { return p.size() > 1 && part(p) == part(paths.front()); });
  };
  while (all_have([](const Parts& p) { return p.back(); }))
    for (Parts& p : paths) p.pop_back();
  while (all_have([](const Parts& p) { return p.front(); }))
    for (Parts& p : paths) p.erase(p.begin());
}

bool distinct(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

}  // namespace

Json figures_of(const RunRecord& run) {
  const auto last = [&](const char* key) {
    const Curve* c = run.curve(key);
    return c && c->size() > 0 ? number(c->values.back()) : Json();
  };
  const auto most = [&](const char* key) {
    const Curve* c = run.curve(key);
    return c && c->size() > 0 ? *std::ranges::max_element(c->values) : 0.0;
  };
  Json f{{"folder", readable(run.folder.string())},
         {"state", name_of(run.status)},
         {"step", run.step},
         {"max_steps", run.max_steps ? Json(*run.max_steps) : Json()},
         {"loss", last("loss")},
         {"eval_loss", last("eval_loss")},
         {"best_eval_loss", Json()},
         {"best_eval_step", Json()}};
  if (const Curve* c = run.curve("eval_loss"); c && c->size() > 0) {
    const auto best = std::ranges::min_element(c->values);
    f["best_eval_loss"] = number(*best);
    f["best_eval_step"] = number(c->steps[static_cast<std::size_t>(best - c->values.begin())]);
  }
  f["tokens"] = run.tokens > 0 ? number(run.tokens) : Json();
  f["tokens_per_second"] = run.seconds > 0 ? number(run.tokens / run.seconds) : Json();
  f["seconds"] = run.seconds > 0 ? number(run.seconds) : Json();
  const double device = most("device_mb"), resident = most("rss_mb");
  f["peak_memory_mb"] = device > 0 ? number(device) : Json();
  f["peak_rss_mb"] = resident > 0 ? number(resident) : Json();
  const Json plan = run.memory_plan();
  const auto total = plan.find("total");
  f["planned_memory_mb"] =
      total != plan.end() && total->is_number() ? number(total->get<double>() / (1 << 20)) : Json();
  return f;
}

Json differences(const std::vector<RunRecord>& runs) {
  std::vector<ConfigValues> all;
  for (const RunRecord& run : runs) all.emplace_back(run);
  JsonObject differing;
  std::unordered_set<std::string_view, KeyedHash> seen{"output_dir"};
  for (const ConfigValues& values : all)
    for (const std::string_view key : values.keys) {
      if (!seen.insert(key).second) continue;
      Json row = Json::array();
      for (const ConfigValues& other : all) row.push_back(other.of(key));
      const auto same_as_first = [&](const Json& value) { return value == row[0]; };
      if (!std::all_of(row.begin(), row.end(), same_as_first)) differing.add(std::string(key), std::move(row));
    }
  return differing.take();
}

std::vector<std::string> names_of(const std::vector<RunRecord>& runs) {
  std::vector<Parts> paths;
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    paths.push_back(parts_of(run.folder));
    names.push_back(paths.back().back());
  }
  if (distinct(names)) return names;
  drop_common_ends(paths);
  names.clear();
  for (const Parts& parts : paths) names.push_back(fmt::format("{}", fmt::join(parts, "/")));
  if (distinct(names)) return names;
  names.clear();
  for (const RunRecord& run : runs) names.push_back(run.folder.string());
  return names;
}

std::string report_page(const std::vector<RunRecord>& runs) {
  const std::vector<std::string> names = names_of(runs);
  Json data{{"version", std::string(kVersion)}, {"runs", Json::array()}};
  std::string title;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    data["runs"].push_back(run_json(runs[i], names[i], runs.size()));
    title += (i == 0 ? "" : ", ") + readable(names[i]);
  }
  const auto& texts = report_texts();
  return fill(texts.at("page"), {{"title", escaped(shortened(title, 200))},
                                 {"style", std::string(texts.at("style"))},
                                 {"script", std::string(texts.at("script"))},
                                 {"data", script_data(data)}});
}

}  // namespace qtrain
