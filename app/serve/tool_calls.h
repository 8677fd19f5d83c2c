#pragma once
#include <optional>
#include <string>
#include <vector>

#include "core/formats/json.h"

namespace qtrain::serve {

/// A function that an answer calls; the arguments are JSON.
struct ToolCall {
  std::string name, arguments;
};

/// Finds calls in an answer as it grows: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen
/// write them. Text that only looks like a call stays text.
class ToolCallReader {
 public:
  struct Found {
    std::string text;
    std::vector<ToolCall> calls = {};
  };
  /// Returns what is certain about the answer so far; `finish`: the answer is complete.
  Found push(const std::string& text);
  Found finish();
  bool has_calls() const { return has_calls_; }

 private:
  Found read(bool all);
  void show(Found& found, std::string text);

  std::string held_;
  bool has_calls_ = false;
};

}  // namespace qtrain::serve
