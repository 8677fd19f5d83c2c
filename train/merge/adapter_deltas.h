#pragma once
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "core/context.h"
#include "core/safetensors.h"
#include "model/lora.h"

namespace qtrain {

/// What the LoRA adapter of a folder adds to the weights of its base model.
class AdapterDeltas {
 public:
  /// ErrorKind::input for a folder that holds anything but pairs of A [r, in] and B [out, r].
  explicit AdapterDeltas(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// "model.layers.0.self_attn.q_proj", ...
  std::set<std::string> modules() const;
  bool changes(const std::string& module) const { return pairs_.contains(module); }
  /// ErrorKind::input if the adapter changes this module and its weight has another shape.
  void require_fit(const std::string& module, const Shape& weight) const;
  /// Adds `factor` * scale * B A to w, f32 [out, in] on the processor, if the adapter changes this module.
  void add_to(Ctx& ctx, const std::string& module, Tensor w, double factor) const;

 private:
  struct Pair {
    ConstTensor a, b;
  };

  std::filesystem::path folder_;
  LoraConfig config_;
  SafetensorsReader reader_;
  std::map<std::string, Pair> pairs_;
};

}  // namespace qtrain
