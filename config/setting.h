#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "config/remarks.h"
#include "core/formats/json.h"

namespace qtrain {

inline constexpr std::string_view kCommandLine = "command line";

/// A value for a canonical key, or for one that stands for others until all are known: those begin with kPending.
struct Setting {
  std::string written;  ///< the key as the user wrote it
  std::string place;    ///< "config.json:12" or "command line"
  Json value;

  bool overrides() const { return place == kCommandLine; }
  /// Another value in the same place.
  Setting with(Json other) const { return {written, place, std::move(other)}; }
};
using Settings = std::map<std::string, Setting>;
inline constexpr char kPending = '~';

/// The settings of a config while they are put together, with what is to be said about them.
struct Draft {
  Diagnostics& diagnostics;
  Settings settings = {};
  std::filesystem::path folder = {};  ///< of the config file
  std::string adapter_class = {};     ///< whose names of adapter keys are used, those of the file first

  const Setting* find(const std::string& key) const {
    const auto it = settings.find(key);
    return it == settings.end() ? nullptr : &it->second;
  }
  /// The value of a setting that is a number above 0.
  std::optional<double> positive(const std::string& key) const {
    const Setting* s = find(key);
    if (!s || !s->value.is_number() || s->value <= 0) return {};
    return s->value.get<double>();
  }
  /// Says of a setting what stands behind its name: " is 3", ": no such file".
  void note(const Setting& about, const std::string& text) const {
    diagnostics.note(about.place, '"' + about.written + '"' + text);
  }
  void problem(const Setting& about, const std::string& text, std::string remedy = {}) const {
    diagnostics.problem(about.place, '"' + about.written + '"' + text, std::move(remedy));
  }
  /// Adds a setting unless the key is set already.
  void offer(const std::string& key, Setting setting) { settings.emplace(key, std::move(setting)); }
  /// A file as a config names it: as it stands, or beside the config. None if there is no such file.
  std::optional<std::filesystem::path> named_file(const std::string& name) const {
    std::error_code ignored;
    for (const std::filesystem::path& path : {std::filesystem::path(name), folder / name})
      if (std::filesystem::is_regular_file(path, ignored)) return path;
    return {};
  }
};

}  // namespace qtrain
