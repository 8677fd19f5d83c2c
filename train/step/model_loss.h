#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/log.h"
#include "train/step/evaluate.h"

namespace qtrain {

struct LossRequest {
  const Config& config;  ///< model, evaluation rows and batching
  std::optional<std::string> adapter = {};
  std::int64_t max_rows = 0;  ///< only the first rows; 0: all
};
struct ModelLoss {
  Evaluation evaluation;
  std::int64_t source_rows = 0;  ///< rows before packing
};

/// Loads a model (with its adapter) and evaluates it on the evaluation rows of a config. Throws ErrorKind::stopped if a
/// stop was requested, ErrorKind::input for rows with token ids outside the vocabulary.
ModelLoss model_loss(Ctx& ctx, const LossRequest& request, Log& log);

}  // namespace qtrain
