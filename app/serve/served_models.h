#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/answers.h"
#include "model/generation/continuous_batch.h"

namespace qtrain::serve {

struct ServedModel {
  std::string name;  ///< what requests call it
  AnswerModel answers;
  std::size_t token_bytes = 0;     ///< of text that a token stands for, at most
  bool parses_tool_calls = false;  ///< its template writes calls as Hermes and Qwen do: `<tool_call>{...}</tool_call>`
};

/// The base model, and adapters on its weights, which are in memory once.
class ServedModels {
 public:
  struct Request {
    AnswerModelRequest base;            ///< without an adapter
    std::vector<std::string> adapters;  ///< "DIR" or "NAME=DIR"
  };
  /// Declares them. Usage errors: two of one name, adapters that cannot be read.
  ServedModels(Ctx& ctx, const Request& request);

  /// Allocates their memory and loads their weights.
  void load(Ctx& ctx, const BatchLimits& limits, Log& log);

  /// Bytes of device memory that the models need, including weights.
  std::size_t bytes(const BatchLimits& limits) const;

  const std::vector<ServedModel>& all() const { return models_; }
  const ServedModel& operator[](std::size_t i) const { return models_[i]; }
  std::optional<std::size_t> find(std::string_view name) const;
  std::vector<std::string> names() const;
  std::vector<Transformer*> transformers() const;

 private:
  std::vector<ServedModel> models_;  ///< the base first
};

}  // namespace qtrain::serve
