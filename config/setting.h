#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/remarks.h"
#include "core/formats/json.h"

namespace qtrain {

inline constexpr std::string_view kCommandLine = "command line";

/// The value of a canonical key, or of a pending one (first character kPending), which is resolved once all keys are
/// known.
struct Setting {
  std::string written;  ///< the key as the user wrote it
  std::string place;    ///< "config.json:12" or "command line"
  Json value;

  bool overrides() const { return place == kCommandLine; }
  /// The same setting with another value.
  Setting with(Json other) const { return {written, place, std::move(other)}; }
};
using Settings = std::map<std::string, Setting>;
inline constexpr char kPending = '~';

/// The settings of a config while it is being read, and the diagnostics for them.
struct Draft {
  Diagnostics& diagnostics;
  Settings settings = {};
  std::filesystem::path folder = {};  ///< folder of the config file
  std::string adapter_class = {};     ///< the class whose names the adapter keys have; the file decides first
  std::vector<std::filesystem::path> named_files = {};  ///< what named_file found

  const Setting* find(const std::string& key) const {
    const auto it = settings.find(key);
    return it == settings.end() ? nullptr : &it->second;
  }
  /// The value of a setting if it is a number above 0.
  std::optional<double> positive(const std::string& key) const {
    const Setting* s = find(key);
    if (!s || !s->value.is_number() || s->value <= 0) return {};
    return s->value.get<double>();
  }
  /// Notes `text` after the quoted name of a setting: " is 3", ": no such file".
  void note(const Setting& about, const std::string& text) const {
    diagnostics.note(about.place, '"' + about.written + '"' + text);
  }
  void problem(const Setting& about, const std::string& text, std::string remedy = {}) const {
    diagnostics.problem(about.place, '"' + about.written + '"' + text, std::move(remedy));
  }
  /// Adds a setting unless the key is set already.
  void offer(const std::string& key, Setting setting) { settings.emplace(key, std::move(setting)); }
  /// Finds a file that a config names: relative to the current folder, or next to the config. None if there is no such
  /// file.
  std::optional<std::filesystem::path> named_file(const std::string& name) {
    std::error_code ignored;
    for (const std::filesystem::path& path : {std::filesystem::path(name), folder / name}) {
      if (!std::filesystem::is_regular_file(path, ignored)) continue;
      named_files.push_back(path);
      return path;
    }
    return {};
  }
};

}  // namespace qtrain
