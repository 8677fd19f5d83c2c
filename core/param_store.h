#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/arena.h"
#include "core/context.h"
#include "core/file_order.h"
#include "core/shards.h"
#include "core/tensor.h"

namespace qtrain {

/// How a parameter is initialized if no file has its value.
struct Init {
  enum class Kind : std::uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  ///< standard deviation, or the bound of a uniform distribution
};

enum class Update : std::uint8_t { frozen, trained };
enum class Decay : std::uint8_t { yes, no };
/// The role of a parameter in a model, for optimizers that treat some roles differently.
enum class Role : std::uint8_t {
  weight,
  embedding,
  head,
  vector,  ///< norms and biases, including those of experts [experts, features]
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
  std::optional<FileOrder> file_order = {};  ///< if files store its values in another order
  /// Names of the equal slices along the first dimension that files store as separate tensors, in order. Empty if files
  /// store the whole tensor, under `name`.
  std::vector<std::string> slices_in_files = {};
  double learning_rate = 1;  ///< multiplies that of the run
  /// Whether it directly follows the previously declared parameter in memory, which must have the same dtypes. Sharded
  /// parameters ignore this.
  bool continues = false;
  Cut cut = Cut::anywhere;  ///< whether ranks may divide it
};

struct ElementRange {
  std::int64_t begin = 0, count = 0;
};

/// Consecutive elements of a parameter: flat, or with its shape if they are all of them.
struct ParamPart {
  std::int64_t begin = 0;
  Tensor value;
  Tensor grad;  ///< only if trained

  std::int64_t count() const { return value.numel(); }
  std::int64_t end() const { return begin + count(); }
  /// `n` values of the part from its element `first` on: flat, or with its shape if they are all of them.
  Tensor values(std::int64_t first, std::int64_t n) const {
    return n == count() ? value : value.reshaped({count()}).slice(first, n);
  }
};

/// `value` and `grad` are what a forward or backward pass reads and adds to. If a store is sharded, they may be in
/// gathered memory (see ShardGroup).
struct Param {
  ParamSpec spec;
  Tensor value;
  Tensor grad;           ///< only if trained
  ParamPart kept;        ///< the values that this rank keeps at all times: all, unless weights are sharded
  ParamPart own;         ///< what this rank updates and writes to files: all, unless anything is sharded
  int unit = 0;          ///< parameters of a unit are gathered together: see begin_unit
  bool is_part = false;  ///< the store has only the own part: see ParamStore::declare_part

  bool trained() const { return spec.update == Update::trained; }
  /// Accumulates its gradient, or discards it if the parameter is frozen.
  Sink grad_sink() const { return trained() ? accumulate(grad) : discard(); }
};

/// Named slices of contiguous memory. Optimizers, gradient reduction and checkpoints iterate over it without knowing
/// the model; an optimizer declares its own state in a second store. References stay valid for the life of the store.
class ParamStore {
 public:
  explicit ParamStore(const std::string& name, Device device = {}, Placement placement = Placement::device,
                      const Sharding& sharding = {})
      : sharding_(sharding),
        values_(name, device, placement),
        grads_(name + " gradients", device),
        gathered_("gathered " + name, device),
        on_host_(name + " on the host", device, Placement::pinned) {}

  /// Must be called before `allocate`, once for each name.
  Param& declare(ParamSpec spec);
  /// Starts a unit of parameters that are gathered together: a block of a model, or 0 for what is in no block.
  void begin_unit(int unit) { unit_ = unit; }
  /// Declares a tensor of which this store has only these elements: `kept` and `own` are the part, `value` is empty.
  Param& declare_part(ParamSpec spec, ElementRange part);
  /// Called after the last declaration: shards the parameters over the ranks as the sharding says. Their memory is not
  /// planned before.
  void divide();
  /// Allocates memory for every parameter; values and gradients are uninitialized.
  void allocate();
  /// Called instead of `allocate`: every parameter uses the memory of the one with the same name in `of`, which must
  /// outlive this store. No parameter may be trained.
  void share(const ParamStore& of);
  /// Sets values as `spec.init` says: element i of a parameter depends on seed, its name and i only.
  void initialize(Ctx& ctx, std::uint64_t seed);
  void zero_grads(Ctx& ctx);

  Param* find(std::string_view name) { return named(name); }
  const Param* find(std::string_view name) const { return named(name); }
  std::deque<Param>& all() { return params_; }
  const std::deque<Param>& all() const { return params_; }
  std::int64_t elements() const;

  const Arena& values() const { return values_; }
  const Arena& grads() const { return grads_; }
  /// Memory in which the values and gradients of units are gathered, one after the other.
  const Arena& gathered() const { return gathered_; }
  /// Pinned host memory, for values that are offloaded.
  const Arena& on_host() const { return on_host_; }

  const Sharding& sharding() const { return sharding_; }
  /// The sharded parameters: all groups, and those of a unit.
  const std::vector<ShardGroup>& groups() const { return groups_; }
  std::span<const ShardGroup> groups_of(int unit) const;

 private:
  Param* named(std::string_view name) const;
  bool is_divided(const Param& p) const;
  Param& add(ParamSpec spec);
  void take(Param& p);
  void take_groups();
  void take_gathered();
  void clear_padding() const;
  void find_parts(const ShardGroup& group);

  Sharding sharding_;
  std::deque<Param> params_;
  std::unordered_map<std::string, Param*> by_name_;
  std::vector<ShardGroup> groups_;  ///< by unit
  int unit_ = 0;
  bool divided_ = false;
  Arena values_, grads_, gathered_, on_host_;
};

/// Writes what this rank keeps of the elements in `range`, as write_chunks does: `make(first, chunk)` writes the
/// elements from index `first` of the parameter on.
void write_values(Ctx& ctx, const Param& p, ElementRange range,
                  const std::function<void(std::int64_t first, Tensor chunk)>& make);
/// Writes all elements that this rank keeps.
void write_values(Ctx& ctx, const Param& p, const std::function<void(std::int64_t first, Tensor chunk)>& make);

}  // namespace qtrain
