#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// An object of a launcher's configuration: in the config, or in a file that it names.
struct LauncherPart {
  const ConfigDocument& document;
  Json value;
  std::string path = {};  ///< of the object in the document, with a dot behind it unless it is the whole
};

/// What launchers' configurations set, say and leave without effect.
class LauncherReader {
 public:
  explicit LauncherReader(Draft& draft) : draft_(draft) {}

  void deepspeed(const LauncherPart& part);
  void fsdp(const Setting* chosen, const Setting* options, const ConfigDocument& config);
  void fsdp_options(const LauncherPart& part);
  void accelerate(const LauncherPart& part);

  /// The object that a value is, or that the file holds which it names; `read` is given it.
  void open(const Setting& setting, const ConfigDocument& config, std::string_view what,
            const std::function<void(const LauncherPart&)>& read);

 private:
  struct Leaf;

  /// A value of a launcher for a key of ours: it has to be the value that the key was given, if it was.
  void set(const Leaf& leaf, const std::string& key, const Json& value);
  void refuse(const Leaf& leaf, std::string why, std::string remedy = "remove the key");
  void ignore(const Leaf& leaf);
  void unknown(const Leaf& leaf, std::span<const std::string_view> known);
  void tell_ignored(const LauncherPart& part, std::string_view what);

  void deepspeed_leaf(const Leaf& leaf);
  bool deepspeed_setting(const Leaf& leaf);
  void deepspeed_optimizer(const Leaf& leaf);
  bool deepspeed_refused(const Leaf& leaf);
  void deepspeed_batch(const Leaf& leaf);
  void deepspeed_schedule(const Leaf& leaf);
  void deepspeed_warmup(const std::vector<Leaf>& leaves);
  void offload(const Leaf& leaf);
  void fsdp_words(const Setting& chosen);
  void fsdp_leaf(Leaf leaf);
  void accelerate_leaf(const Leaf& leaf, const LauncherPart& part);
  void precision(const Leaf& leaf);
  void processes(const Leaf& leaf);

  /// Every value in the object that is none itself, with its path.
  static std::vector<Leaf> leaves_of(const LauncherPart& part);

  Draft& draft_;
  Json ignored_ = Json::object();
};

/// A value of a launcher's configuration.
struct LauncherReader::Leaf {
  std::string key;      ///< "zero_optimization.offload_optimizer.device"
  std::string written;  ///< the same with the path of the object before it
  std::string place;
  Json value;

  bool is(std::string_view name) const { return key == name; }
};

/// Whether a value leaves things as they are: null, false, 0, "", "none", "auto", {} and [].
bool says_nothing(const Json& value);
/// Whether a dotted key is this one or a member of it.
bool covers(std::string_view part, std::string_view key);

}  // namespace qtrain
