#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// A value of a launcher's configuration.
struct Leaf {
  std::string key;      ///< "zero_optimization.offload_optimizer.device"
  std::string written;  ///< the same with the path of the object before it
  std::string place;
  Json value;

  /// The value without regard to the case of letters, and with true and false as such.
  Json plain() const;
  /// The leaf as a member of a part of the object.
  Leaf under(std::string name) const { return {std::move(name), written, place, value}; }
};
using Leaves = std::vector<Leaf>;

/// Reads the configuration of a launcher by its table: what it sets has to be what the config gives, if it does.
class LauncherRows {
 public:
  /// What rows name in `convert`, for values that are not "auto".
  using Conversions = std::map<std::string_view, std::function<void(const Leaf&)>>;
  LauncherRows(Draft& draft, Conversions conversions) : draft_(draft), conversions_(std::move(conversions)) {}

  /// Hands over the values of the object that a setting is, or of the file that it names; keys that were ignored are
  /// then told once, by the name of the launcher.
  void open(const Setting& setting, const ConfigDocument& config, std::string_view launcher,
            const std::function<void(const Leaves&, const ConfigDocument&)>& read);
  /// One value as its row in a table says.
  void apply(std::string_view table, const Leaf& leaf);

  void set(const Leaf& leaf, const std::string& key, const Json& value);
  void differ(const Leaf& leaf, const Json& value, const Setting& given, std::string remedy);
  void refuse(const Leaf& leaf, std::string_view why, std::string_view remedy = {});

 private:
  void translate_leaf(const KeyRow& row, const Leaf& leaf);
  void ignore(const Leaf& leaf);
  void unknown(const Leaf& leaf, const std::vector<std::string_view>& known);
  void tell_ignored(const std::string& name, std::string_view launcher);

  Draft& draft_;
  Conversions conversions_;
  std::vector<Remark> ignored_;
};

}  // namespace qtrain
