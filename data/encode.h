#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "data/rows.h"
#include "data/shapes.h"

namespace qtrain {

/// A row as tokens, before truncation and packing.
struct EncodedRow {
  std::vector<std::int32_t> input_ids;
  std::vector<std::int32_t> labels;           ///< same length, kNoTarget where masked
  std::vector<std::int32_t> document_starts;  ///< only where a row of tokens came with position_ids
  bool prompt_mismatch = false;               ///< the prompt's tokens are no prefix of prompt + completion
};

/// Turns rows into tokens and masks as TRL's SFTTrainer does. Safe to use from several threads.
class RowEncoder {
 public:
  RowEncoder(const DatasetOptions& options, const TextTools& tools);

  /// Errors (without a place): ErrorKind::input for rows that are wrong, ErrorKind::usage where an option does not go
  /// with the row's shape.
  EncodedRow encode(const Json& row) const;

 private:
  EncodedRow encode_tokens(Sample sample) const;
  EncodedRow encode_text(const Sample& sample) const;
  EncodedRow encode_text_pair(const Sample& sample) const;
  EncodedRow encode_chat(const Sample& sample) const;

  std::vector<std::int32_t> tokens_of(const std::string& text) const;
  std::vector<std::int32_t> tokens_with_eos(const std::string& prompt, const std::string& answer) const;
  void apply_prompt_mask(EncodedRow& row, const std::vector<std::int32_t>& prompt) const;

  TextTools tools_;
  ShapeRules rules_;
  bool assistant_only_, append_eos_;
  std::optional<bool> completion_only_;
  std::string eos_;  // "" if the tokenizer has none
};

}  // namespace qtrain
