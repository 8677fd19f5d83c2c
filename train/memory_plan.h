#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/tensor.h"
#include "data/loader.h"
#include "model/transformer.h"
#include "optim/optimizer.h"

namespace qtrain {

/// What a run puts into the memory of its device, in bytes.
struct MemoryPlan {
  struct Part {
    std::string name;
    std::size_t bytes;
  };
  std::vector<Part> parts;

  std::size_t total() const;
  /// "weights 12 MiB, gradients 12 MiB, ...", largest first, without empty parts.
  std::string table() const;
};
/// Of a model that is planned and an optimizer that is declared; both may still be without memory.
MemoryPlan memory_plan(Transformer& model, Optimizer& optimizer);

/// Bytes that can still be had on a device; 0 where unknown.
std::size_t free_memory(Device device);

/// What a window of updates is made of: micro-batches of so many rows.
struct Window {
  std::int64_t batch_size = 1, accumulation = 1;
};
/// Training batches and the memory they have to fit into.
struct Demand {
  BatchSize largest;      ///< micro-batch of the data
  Window window;          ///< that the config asks for
  std::size_t there = 0;  ///< bytes free before anything was allocated; 0 where unknown
};
/// A window of as many rows whose activations need at most `bytes`: the largest batch size that does, halving from the
/// one asked for. Accumulation 0 if there is none.
Window fitting_window(const Transformer& model, const Demand& demand, std::size_t bytes);
/// What to say where the plan is larger than the memory: the table, and a window that fits.
ErrorText does_not_fit(const MemoryPlan& plan, const Transformer& model, const Demand& demand);

}  // namespace qtrain
