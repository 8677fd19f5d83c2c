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

/// A [r, in] and B [out, r] of a linear layer's weight [out, in], or A [r, rows] and B [width, r] of an embedding's
/// [rows, width]; with DoRA a magnitude [out].
struct AdapterFactors {
  ConstTensor a, b, magnitude;
  bool embedding = false;
  /// Of one expert's matrix: A is its part alone, B [parts * out, r * experts] has all of them, those of a rank side by
  /// side.
  struct Expert {
    std::int64_t index = 0, experts = 0, part = 0, parts = 1;
  };
  std::optional<Expert> expert = {};
  double scale = 1;  ///< of B A

  std::int64_t rank() const { return a.shape[0]; }
  std::int64_t out() const { return expert ? b.shape[0] / expert->parts : b.shape[0]; }
};

/// What the adapter of a folder makes of the weights of its base model, by their names in its files
/// ("model.layers.0.self_attn.q_proj.weight").
class AdapterDeltas {
 public:
  /// What adapter_config.json names: pairs of A [r, in] and B [out, r], with DoRA a magnitude [out] to each, those of
  /// routers and experts as PEFT has them for target_parameters, and whole weights. ErrorKind::input where they do not
  /// fit it. Other tensors are `ignored`, as PEFT and the commands that apply an adapter while they compute ignore
  /// them.
  explicit AdapterDeltas(const std::filesystem::path& folder, const ExpertNames& experts = {});

  const std::filesystem::path& folder() const { return folder_; }
  const LoraConfig& config() const { return config_; }
  /// Tensors of the file that have no effect.
  const std::vector<std::string>& ignored() const { return ignored_; }
  /// Ignores what it would make of a weight, which the model does not have.
  void leave_out(const std::string& weight);
  bool changes(const std::string& weight) const { return shapes_.contains(weight); }
  /// The shape of every weight that it changes.
  const std::map<std::string, Shape>& shapes() const { return shapes_; }
  /// Its factors by the weights that they change, and the weights that it holds themselves. ErrorKind::input where some
  /// are those of routers or experts, which have no pair for each weight of a file.
  const std::map<std::string, AdapterFactors>& factors() const;
  const std::map<std::string, ConstTensor>& whole() const { return whole_; }
  /// Whether adapter_config.json says that it changes the weight of this shape.
  bool targets(const std::string& weight) const;
  /// Whether it holds the weight itself instead of what is added to it.
  bool replaces(const std::string& weight) const { return whole_.contains(weight); }
  /// Adds `factor` times what it holds to w, f32 on the processor: the weight itself, or scale * B A. With DoRA the
  /// rows of the sum are then given their DoRA magnitudes as L2 norms.
  void add_to(Ctx& ctx, const std::string& weight, Tensor w, double factor) const;

 private:
  void read_tensor(const std::string& name, ConstTensor tensor);
  std::optional<std::string> read_factor(const std::string& inner, ConstTensor tensor);
  void ignore(const std::string& weight);
  void ignore_untargeted();
  /// `targets` by the names that PEFT has for weights.
  bool names_weight(const std::string& weight) const;
  void check_pair(const std::string& weight, AdapterFactors& pair);
  void split_experts();
  void split(const std::string& parameter, const AdapterFactors& all);
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

  std::filesystem::path folder_;
  ExpertNames experts_;
  LoraConfig config_;
  SafetensorsReader reader_;
  std::map<std::string, AdapterFactors> pairs_;
  std::map<std::string, ConstTensor> whole_;
  std::map<std::string, Shape> shapes_;
  std::map<std::string, std::vector<std::string>> tensors_;  ///< names in the file, of what changes a weight
  std::vector<std::string> ignored_;
};

/// ErrorKind::input for an adapter that changes nothing of the model.
void require_effect(const AdapterDeltas& deltas);

}  // namespace qtrain
