#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// An object of a launcher's configuration: in the config, or in a file that it names.
struct LauncherPart {
  const ConfigDocument& document;
  Json value;
  std::string path = {};  ///< of the object in the document, with a dot behind it unless it is the whole
};

/// A value of a launcher's configuration.
struct Leaf {
  std::string key;      ///< "zero_optimization.offload_optimizer.device"
  std::string written;  ///< the same with the path of the object before it
  std::string place;
  Json value;

  bool is(std::string_view name) const { return key == name; }
};

/// What launchers' configurations set, say and leave without effect, by the tables of deepspeed, fsdp and accelerate.
class LauncherReader {
 public:
  explicit LauncherReader(Draft& draft) : draft_(draft) {}

  void deepspeed(const LauncherPart& part);
  void fsdp(const Setting* chosen, const Setting* options, const ConfigDocument& config);
  void accelerate(const LauncherPart& part);

  /// The object that a value is, or that the file holds which it names; `read` is given it.
  void open(const Setting& setting, const ConfigDocument& config, std::string_view what,
            const std::function<void(const LauncherPart&)>& read);

 private:
  /// One value as its row in a table says.
  void apply(const DialectTable& table, const Leaf& leaf);
  void convert(const KeyRow& row, const Leaf& leaf);

  /// A value of a launcher for a key of ours: it has to be the value that the key was given, if it was.
  void set(const Leaf& leaf, const std::string& key, const Json& value);
  void refuse(const Leaf& leaf, std::string why, std::string remedy = "remove the key");
  void ignore(const Leaf& leaf);
  void unknown(const Leaf& leaf, const std::vector<std::string_view>& known);
  void tell_ignored(const LauncherPart& part, std::string_view what);

  // Conversions that rows name.
  void optimizer(const KeyRow& row, const Leaf& leaf);
  void betas(const KeyRow& row, const Leaf& leaf);
  void adam_variant(const KeyRow& row, const Leaf& leaf);
  void schedule(const KeyRow& row, const Leaf& leaf);
  void warmup_steps(const KeyRow& row, const Leaf& leaf);
  void total_steps(const KeyRow& row, const Leaf& leaf);
  void warmup_start(const KeyRow& row, const Leaf& leaf);
  void schedule_floor(const KeyRow& row, const Leaf& leaf);
  void offload(const KeyRow& row, const Leaf& leaf);
  void nothing(const KeyRow&, const Leaf&) {}
  void part(const KeyRow& row, const Leaf& leaf);
  void recomputation(const KeyRow& row, const Leaf& leaf);
  void turn_on(const KeyRow& row, const Leaf& leaf);
  void xla(const KeyRow& row, const Leaf& leaf);
  void precision(const KeyRow& row, const Leaf& leaf);
  void processes(const KeyRow& row, const Leaf& leaf);
  void processor(const KeyRow& row, const Leaf& leaf);

  void deepspeed_leaf(const Leaf& leaf);
  void deepspeed_batch(const Leaf& leaf);
  void deepspeed_warmup(const std::vector<Leaf>& leaves);
  void fsdp_words(const Setting& chosen);
  void fsdp_options(const LauncherPart& part);
  void fsdp_leaf(Leaf leaf);
  void accelerate_leaf(const Leaf& leaf, const LauncherPart& part);

  /// Every value in the object that is none itself, with its path.
  static std::vector<Leaf> leaves_of(const LauncherPart& part);

  Draft& draft_;
  Json ignored_ = Json::object();
};

/// Whether a value leaves things as they are: null, false, 0, "", "none", "auto", {} and [].
bool says_nothing(const Json& value);

}  // namespace qtrain
