#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "core/context.h"
#include "core/log.h"
#include "train/checkpoint/pending_model.h"

namespace qtrain {

/// A LoRA adapter that goes into a merged model, and how much of it.
struct MergedAdapter {
  std::filesystem::path folder;  ///< as PEFT or qtrain wrote it
  double weight = 1;
};

struct MergeOptions {
  std::filesystem::path model;  ///< folder with 32- or 16-bit weights
  std::filesystem::path output;
  std::vector<MergedAdapter> adapters;
  std::optional<DType> dtype = {};  ///< of all weights; without one each keeps its own
  Log* log = nullptr;               ///< where to show how far it is
  CommitAs as = CommitAs::result;
};

/// What rounding did to a merge: Frobenius norms over all weights W that change by D, of D and of round(W + D) - (W +
/// D).
struct MergeReport {
  double update = 0, rounding = 0;
  double unit = 0;  ///< the largest relative error that rounding makes in a value, of the types of the weights

  /// 0: everything that the adapters say is in the weights; 1 and more: as much was lost as they said.
  double lost() const { return update > 0 ? rounding / update : 0; }
};

/// Writes `model` with W + sum of weight * scale * B A in place of every weight W that an adapter changes: computed in
/// f32 and rounded once, to the type of the option or that W has in the file. With DoRA, which is for one adapter of
/// weight 1, the rows have its DoRA magnitudes as L2 norms. Other tensors and config.json are copied; tokenizer and
/// chat template are those of the first adapter that has them, else the model's. Holds one weight at a time. Errors
/// (ErrorKind::input): a quantized model, an adapter that changes what the model does not have or has another shape
/// for.
MergeReport merge_adapters(Ctx& ctx, const MergeOptions& options);

/// Losses on the same rows: of an adapter on its model, of the merged model, and of the model alone where it is known.
struct MergeLosses {
  double adapter = 0, merged = 0;
  std::optional<double> base = {};
};

/// Whether rounding explains that the losses of adapter and merged model differ: errors of `unit` in every weight move
/// a loss by a few of these, and what is lost of the update, by no more than its share in what the update does.
bool explained_by_rounding(const MergeLosses& losses, const MergeReport& report);

}  // namespace qtrain
