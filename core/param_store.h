#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/arena.h"
#include "core/context.h"
#include "core/file_order.h"
#include "core/tensor.h"

namespace qtrain {

/// How a parameter begins when no file gives it a value.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  ///< standard deviation, or the bound of a uniform distribution
};

enum class Update : std::uint8_t { frozen, trained };
enum class Decay : std::uint8_t { yes, no };
/// What a parameter is in a model, for optimizers that treat some apart.
enum class Role : std::uint8_t {
  weight,
  embedding,
  head,
  vector,  ///< norms and biases, those of experts [experts, features] too
};

struct ParamSpec {
  std::string name;  ///< the name in files: Hugging Face's for models, PEFT's for adapters
  Shape shape;
  DType dtype = DType::f32;
  Init init;
  Update update = Update::frozen;
  Decay decay = Decay::yes;
  Role role = Role::weight;
  std::optional<DType> grad_dtype = {};      ///< if it is not that of the value
  std::string drawn_as = {};                 ///< the name that random values depend on, if it is not `name`
  std::optional<FileOrder> file_order = {};  ///< if files hold its values in another order
  /// Names of the equal slices along the first dimension that files hold as tensors of their own, in order; empty: the
  /// whole tensor is one, under `name`.
  std::vector<std::string> slices_in_files = {};
  double learning_rate = 1;  ///< times that of the run
};

struct Param {
  ParamSpec spec;
  Tensor value;
  Tensor grad;  ///< only if trained

  bool trained() const { return spec.update == Update::trained; }
  /// Where its gradient is added: nowhere if it is frozen.
  Sink grad_sink() const { return trained() ? accumulate(grad) : discard(); }
};

/// Named slices of contiguous slabs. Optimizer, gradient reduction and checkpoints iterate it and know no model; an
/// optimizer declares its own state in a second store. References stay valid for the life of the store.
class ParamStore {
 public:
  explicit ParamStore(const std::string& name, Device device = {}, Placement placement = Placement::device)
      : values_(name, device, placement), grads_(name + " gradients", device) {}

  /// Before `allocate`. A name is declared once.
  Param& declare(ParamSpec spec);
  /// Gives every parameter its memory; values and gradients are uninitialized.
  void allocate();
  /// Random values by `spec.init`: element i of a parameter depends on seed, its name and i only.
  void initialize(Ctx& ctx, std::uint64_t seed);
  void zero_grads(Ctx& ctx);

  Param* find(std::string_view name) { return named(name); }
  const Param* find(std::string_view name) const { return named(name); }
  std::deque<Param>& all() { return params_; }
  const std::deque<Param>& all() const { return params_; }
  std::int64_t trained_elements() const;
  std::int64_t elements() const;

  const Arena& values() const { return values_; }
  const Arena& grads() const { return grads_; }

 private:
  Param* named(std::string_view name) const;
  void lay_out();

  std::deque<Param> params_;
  std::unordered_map<std::string, Param*> by_name_;
  Arena values_, grads_;
};

}  // namespace qtrain
