#pragma once
#include <vector>

#include "data/tokenizer/normalizer.h"

namespace qtrain {

/// NFC, NFD, NFKC, NFKD by their names.
class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(std::string_view name);
  void apply(TrackedText& text) const override;

 private:
  bool is_inert(char32_t c) const { return c < inert_.size() ? inert_[c] : false; }
  void append_form(std::string_view stretch, std::string& out) const;
  void append_part(std::string_view part, std::string& out) const;

  int options_ = 0;
  // Characters that stay as they are and that nothing behind them or in front of them reaches across.
  std::vector<bool> inert_;
};

}  // namespace qtrain
