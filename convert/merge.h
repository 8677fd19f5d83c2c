#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "core/context.h"
#include "core/log.h"
#include "train/checkpoint/pending_model.h"

namespace qtrain {

/// A LoRA adapter to merge, and its factor.
struct MergedAdapter {
  std::filesystem::path folder;  ///< written by PEFT or qtrain
  double weight = 1;
};

struct MergeOptions {
  std::filesystem::path model;  ///< folder with 32- or 16-bit weights
  std::filesystem::path output;
  std::vector<MergedAdapter> adapters;
  std::optional<DType> dtype = {};  ///< type of all weights; by default each keeps its own
  Log* log = nullptr;               ///< shows the progress, may be null
  CommitAs as = CommitAs::result;
};

/// Effect of rounding on a merge. For all weights W that change by D: the Frobenius norms of D and of
/// round(W + D) - (W + D).
struct MergeReport {
  double update = 0, rounding = 0;
  double unit = 0;  ///< largest unit roundoff of the weights' types

  /// The share of the adapters' update that rounding lost: 0 if nothing, 1 or more if as much as the update itself.
  double lost() const { return update > 0 ? rounding / update : 0; }
};

/// Writes `model` with every weight W that adapters change replaced by W + sum of weight * scale * B A, computed in f32
/// and rounded once, to `dtype` or W's own type. DoRA, which requires a single adapter of weight 1, also sets the L2
/// norms of the rows to its magnitudes. Copies other tensors and config.json; tokenizer and chat template come from the
/// first adapter that has them, else from the model. Holds one weight in memory at a time. Throws ErrorKind::input for
/// a quantized model and for an adapter that does not match the model.
MergeReport merge_adapters(Ctx& ctx, const MergeOptions& options);

/// Losses on the same rows: of the model with the adapter, of the merged model, and of the base model if known.
struct MergeLosses {
  double adapter = 0, merged = 0;
  std::optional<double> base = {};
};

/// Whether rounding explains the difference between the losses of adapter and merged model: relative errors of `unit`
/// in every weight change the loss by a few `unit`, and losing a share of the update by at most that share of its
/// effect.
bool explained_by_rounding(const MergeLosses& losses, const MergeReport& report);

}  // namespace qtrain
