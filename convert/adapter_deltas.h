#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/context.h"
#include "core/formats/safetensors.h"
#include "model/lora.h"
#include "model/model_config.h"

namespace qtrain {

/// The factors of one weight: A [r, in] and B [out, r] for a linear layer [out, in], or A [r, rows] and B [width, r]
/// for an embedding [rows, width]; with DoRA also a magnitude [out].
struct AdapterFactors {
  ConstTensor a, b, magnitude;
  bool embedding = false;
  /// Place of one expert's matrix: A holds only this expert's part; B [parts * out, r * experts] holds all experts,
  /// with those of one rank next to each other.
  struct Expert {
    std::int64_t index = 0, experts = 0, part = 0, parts = 1;
  };
  std::optional<Expert> expert = {};
  double scale = 1;  ///< factor of B A

  std::int64_t rank() const { return a.shape[0]; }
  std::int64_t out() const { return expert ? b.shape[0] / expert->parts : b.shape[0]; }
};

/// The changes that an adapter makes to the weights of its base model, by the weights' names in the model's files
/// ("model.layers.0.self_attn.q_proj.weight").
class AdapterDeltas {
 public:
  /// Reads the tensors that adapter_config.json names: pairs A [r, in] and B [out, r], with DoRA a magnitude [out]
  /// each, pairs of routers and experts in PEFT's layout for target_parameters, and whole weights. Other tensors are
  /// `ignored`, as in PEFT and in the commands that apply an adapter without merging. Throws ErrorKind::input if
  /// tensors do not match the config.
  explicit AdapterDeltas(const std::filesystem::path& folder, const ExpertNames& experts = {});

  const std::filesystem::path& folder() const { return folder_; }
  const LoraConfig& config() const { return config_; }
  /// Tensors in the file that have no effect.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Ignores the change to a weight that the model does not have.
  void leave_out(const std::string& weight);
  bool changes(const std::string& weight) const { return shapes_.contains(weight); }
  /// The shapes of all weights that it changes.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  /// The factors by weight. Throws ErrorKind::input if some are for routers or experts, which do not have one pair per
  /// weight in a file.
  const std::map<std::string, AdapterFactors>& factors() const;
  /// The weights that the adapter replaces.
  const std::map<std::string, ConstTensor>& whole() const { return whole_; }
  /// Whether adapter_config.json names this weight.
  bool targets(const std::string& weight) const;
  /// Whether the adapter replaces the weight instead of adding to it.
  bool replaces(const std::string& weight) const { return whole_.contains(weight); }
  /// Adds `factor` times the adapter's weight, or `factor` * scale * B A, to w (f32, on the processor). With DoRA, then
  /// scales the rows of the sum so that their L2 norms are the magnitudes.
  void add_to(Ctx& ctx, const std::string& weight, Tensor w, double factor) const;

 private:
  void read_tensor(const std::string& name, ConstTensor tensor);
  std::optional<std::string> read_factor(const std::string& inner, ConstTensor tensor);
  void ignore(const std::string& weight);
  void ignore_untargeted();
  /// Like `targets`, with PEFT's names for weights.
  bool names_weight(const std::string& weight) const;
  void check_pair(const std::string& weight, AdapterFactors& pair);
  void split_experts();
  void split(const std::string& parameter, const AdapterFactors& all);
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;
  void require_float(const std::string& name, ConstTensor tensor) const;

  std::filesystem::path folder_;
  ExpertNames experts_;
  LoraConfig config_;
  SafetensorsReader reader_;
  std::map<std::string, AdapterFactors> pairs_;
  std::map<std::string, ConstTensor> whole_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::vector<std::string>> tensors_;  ///< names in the file, by the weight they change
  std::vector<std::string> ignored_;
};

/// Throws ErrorKind::input if the adapter changes no weight of the model.
void require_effect(const AdapterDeltas& deltas);

}  // namespace qtrain
