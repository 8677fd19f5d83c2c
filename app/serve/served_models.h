#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/answers.h"
#include "model/generation/continuous_batch.h"

namespace qtrain::serve {

struct ServedModel {
  std::string name;  ///< name in requests
  AnswerModel answers;
  std::unique_ptr<Runner> runner = {};  ///< once it is loaded
  std::size_t token_bytes = 0;          ///< maximum number of bytes of text in a token
  bool parses_tool_calls = false;  ///< its template writes calls as Hermes and Qwen do: `<tool_call>{...}</tool_call>`
};

/// The base model and adapters for it, which share its weights in memory.
class ServedModels {
 public:
  struct Request {
    AnswerModelRequest base;            ///< without an adapter
    std::vector<std::string> adapters;  ///< "DIR" or "NAME=DIR"
  };
  /// Declares the models. Throws ErrorKind::usage if two have the same name or an adapter cannot be read.
  ServedModels(Ctx& ctx, const Request& request);

  /// Allocates their memory and loads their weights.
  void load(Ctx& ctx, const BatchLimits& limits, Log& log);

  /// Bytes of device memory that the models need, including weights.
  std::size_t bytes(const BatchLimits& limits) const;

  const std::vector<ServedModel>& all() const { return models_; }
  const ServedModel& operator[](std::size_t i) const { return models_[i]; }
  std::optional<std::size_t> find(std::string_view name) const;
  std::vector<std::string> names() const;
  /// Once they are loaded.
  std::vector<Runner*> runners() const;

 private:
  std::vector<ServedModel> models_;  ///< the base first
};

}  // namespace qtrain::serve
