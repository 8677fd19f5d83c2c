#include "dist/same_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/formats/json.h"
#include "core/os/stop.h"
#include "dist/plain_words.h"

namespace qtrain {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kCheckInterval{200};
constexpr const char* kComparison = "settings";  // the result of rank 0 for all: empty, or a kind and a cause
constexpr char kDifferent = 'd', kAbsent = 'a';

std::string key_of(int rank) {
  return fmt::format("settings/{}", rank);
}

std::string text_of(const RankSettings& settings) {
  Json json = Json::object();
  for (const auto& [name, value] : settings) json[name] = value;
  return dump_json(json);
}

RankSettings settings_of(const std::string& text) {
  return parse_json(text, "the settings of a rank").get<RankSettings>();
}

// "zero_stage (1, rank 0 has 0)" for each setting that differs.
std::vector<std::string> differences(const RankSettings& first, const RankSettings& other) {
  constexpr std::size_t kMaxShown = 60;  // bytes of a value
  std::set<std::string> names;
  for (const auto& [name, value] : first) names.insert(name);
  for (const auto& [name, value] : other) names.insert(name);
  const auto value_in = [](const RankSettings& settings, const std::string& name) {
    const auto it = settings.find(name);
    return it == settings.end() ? "nothing" : plain_words(it->second, kMaxShown);
  };
  std::vector<std::string> all;
  for (const std::string& name : names)
    if (!first.contains(name) || !other.contains(name) || first.at(name) != other.at(name))
      all.push_back(fmt::format("{} ({}, rank 0 has {})", plain_words(name, kMaxShown), value_in(other, name),
                                value_in(first, name)));
  return all;
}

class Comparison {
 public:
  Comparison(Store& store, const SettingsOf& mine) : store_(store), mine_(mine) {}

  void lead(const RankSettings& settings) {
    std::set<int> awaited;
    for (int r = 1; r < mine_.ranks; ++r) awaited.insert(r);
    while (!awaited.empty()) {
      const bool somebody = std::erase_if(awaited, [&](int r) { return compare(r, settings); }) > 0;
      if (awaited.empty() || somebody || store_.get(key_of(*awaited.begin()), kCheckInterval)) continue;
      if (Clock::now() >= end_) fail_for_all(kAbsent + absence_of(*awaited.begin()));
      end_if_run_ends();
    }
    store_.set(kComparison, "");
  }

  void follow() {
    while (true) {
      if (const auto verdict = store_.get(kComparison, kCheckInterval)) {
        if (!verdict->empty()) fail_by(*verdict);
        return;
      }
      if (Clock::now() >= end_) fail_by(kAbsent + absence_of(first_absent()));
      end_if_run_ends();
    }
  }

 private:
  // Returns false if the rank's settings have not arrived yet.
  bool compare(int rank, const RankSettings& settings) {
    constexpr std::size_t kNamed = 8;
    const auto text = store_.get(key_of(rank), {});
    if (!text) return false;
    std::vector<std::string> all = differences(settings, settings_of(*text));
    if (all.empty()) return true;
    if (all.size() > kNamed) all[kNamed] = fmt::format("{} more", all.size() - kNamed);
    all.resize(std::min(all.size(), kNamed + 1));
    fail_for_all(kDifferent + fmt::format("rank {} differs from rank 0 in {}", rank, fmt::join(all, ", ")));
  }

  int first_absent() {
    for (int r = 0; r < mine_.ranks; ++r)
      if (!store_.get(key_of(r), {})) return r;
    return 0;  // rank 0 has all of them but does not answer
  }

  std::string absence_of(int rank) const {
    return fmt::format("rank {} did not connect within {} s", rank,
                       std::chrono::duration_cast<std::chrono::seconds>(mine_.timeout).count());
  }

  // A result of rank 0 takes precedence over its end.
  void end_if_run_ends() {
    throw_if_stopped();
    if (mine_.meanwhile) mine_.meanwhile();
    if (!store_.get(kMissing, {})) return;
    if (const auto verdict = store_.get(kComparison, {}); verdict && !verdict->empty()) fail_by(*verdict);
    throw std::runtime_error("a rank has ended");
  }

  [[noreturn]] void fail_for_all(const std::string& verdict) {
    store_.set(kComparison, verdict);
    fail_by(verdict);
  }

  [[noreturn]] static void fail_by(const std::string& verdict) {
    const std::string cause = plain_words(std::string_view(verdict).substr(1));
    if (verdict[0] == kDifferent)
      fail(ErrorKind::usage, {.cause = cause, .remedy = "start all ranks with the same config, data and model"});
    fail(ErrorKind::peer, {.cause = cause, .remedy = "start all ranks within ddp_timeout of each other"});
  }

  Store& store_;
  const SettingsOf& mine_;
  const Clock::time_point end_ = Clock::now() + mine_.timeout;
};

}  // namespace

void require_same_settings(Store& store, const SettingsOf& mine, const RankSettings& settings) {
  store.set(key_of(mine.rank), text_of(settings));
  Comparison comparison(store, mine);
  mine.rank == 0 ? comparison.lead(settings) : comparison.follow();
}

}  // namespace qtrain
